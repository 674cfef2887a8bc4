"""The search tool of a vendor in a request: what it asks for, and a function in its place. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.wire.chat import Json

RESPONSES = "responses"
MESSAGES = "messages"
CHAT = "chat"
# Of a chat completion, which has no tool for it.
SEARCH_OPTIONS = "web_search_options"
NO_PLACE = -1
# The types of a search tool, by the format of the request.
KINDS = {
    RESPONSES: re.compile(r"web_search(_2\d{3}_\d\d_\d\d|_preview\w{0,40})?"),
    MESSAGES: re.compile(r"web_search_2\d{7}"),
}
# In `include`: the client wants to see them.
SOURCES = "web_search_call.action.sources"
# Of each list of a request.
MAX_DOMAINS = 100
DOMAIN_CHARACTERS = 256


class SearchLimits(msgspec.Struct):
    """What a client bounds its searches by.

    allowed, blocked: domains, in lower case; none allowed means all. max_uses: in this request,
    None for any number. uses: so many were run.
    """

    allowed: Sequence[str] = ()
    blocked: Sequence[str] = ()
    max_uses: int | None = None
    uses: int = 0


class VendorSearch(msgspec.Struct):
    """A vendor's search in a request.

    form: of the request. place: among its tools, NO_PLACE for an option. is_forced: `tool_choice`
    names it. shows_sources: the client asked for them.
    """

    form: str
    place: int
    limits: SearchLimits
    is_forced: bool = False
    shows_sources: bool = False


def find_vendor_search(form: str, body: Json) -> VendorSearch | None:
    """Return the vendor's search of a request, None for none."""
    if form == CHAT:
        options = body.get(SEARCH_OPTIONS)
        if not isinstance(options, dict):
            return None
        return VendorSearch(form, NO_PLACE, _read_limits(form, options))
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not (isinstance(tool, dict) and is_vendor_search(form, tool.get("type"))):
            continue
        include = body.get("include")
        return VendorSearch(
            form,
            place,
            _read_limits(form, tool),
            _is_named(form, tool, body.get("tool_choice")),
            isinstance(include, list) and SOURCES in include,
        )
    return None


def is_vendor_search(form: str, kind: Any) -> bool:
    """Tell whether a tool of this type is a vendor's search."""
    if not isinstance(kind, str):
        return False
    pattern = KINDS.get(form)
    return pattern is not None and pattern.fullmatch(kind) is not None


def without_vendor_search(body: Json, search: VendorSearch) -> Json:
    """Return a request without the tool, and without a choice that names it."""
    tools = [tool for place, tool in enumerate(body["tools"]) if place != search.place]
    remaining = {**body, "tools": tools}
    if search.is_forced:
        del remaining["tool_choice"]
    return remaining


def replace_vendor_search(
    body: Json, search: VendorSearch, function: Mapping[str, Any] | None, *, is_first: bool
) -> Json:
    """Return a request as it goes upstream: a function stands where the tool stood.

    function: as chat completions have it; None where no tool of ours is offered. is_first: no round
    went before. A choice that names the tool holds for the first round alone.
    """
    tools = list(body["tools"])
    if function is None:
        del tools[search.place]
    else:
        name = function["name"]
        tools[search.place] = _native_function(search.form, function)
        tools = [
            tool
            for place, tool in enumerate(tools)
            if place == search.place or not _is_function(tool, name)
        ]
    sent_body = {**body, "tools": tools}
    if search.is_forced:
        del sent_body["tool_choice"]
        if function is not None and is_first:
            kind = "tool" if search.form == MESSAGES else "function"
            sent_body["tool_choice"] = {"type": kind, "name": function["name"]}
    if not tools:
        del sent_body["tools"]
    return sent_body


def _native_function(form: str, function: Mapping[str, Any]) -> Json:
    identity = {"name": function["name"], "description": function["description"]}
    if form == MESSAGES:
        return {**identity, "input_schema": function["parameters"]}
    return {"type": "function", **identity, "parameters": function["parameters"], "strict": False}


def _is_function(tool: Any, name: str) -> bool:
    if not isinstance(tool, dict) or tool.get("name") != name:
        return False
    return tool.get("type") in (None, "function", "custom")


def _is_named(form: str, tool: Json, choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    if form == MESSAGES:
        return choice.get("type") == "tool" and choice.get("name") == tool.get("name")
    return is_vendor_search(form, choice.get("type"))


def _read_limits(form: str, tool: Json) -> SearchLimits:
    filters = tool.get("filters")
    if not isinstance(filters, dict):
        filters = {}
    # The option has no such members by its vendor; servers behind it know them in either place.
    lists = {MESSAGES: tool, RESPONSES: filters, CHAT: {**tool, **filters}}[form]
    max_uses = tool.get("max_uses")
    is_count = type(max_uses) is int and max_uses > 0
    return SearchLimits(
        _read_domains(lists.get("allowed_domains")),
        _read_domains(lists.get("blocked_domains")),
        max_uses if is_count else None,
    )


def _read_domains(value: Any) -> tuple[str, ...]:
    domains = value if isinstance(value, list) else []
    texts = [text.strip().lower() for text in domains[:MAX_DOMAINS] if isinstance(text, str)]
    return tuple(text[:DOMAIN_CHARACTERS] for text in texts if text)
