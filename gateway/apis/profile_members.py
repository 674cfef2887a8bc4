"""What an agent's profile adds to a request, in the members of the request's own format. Pure.

A request that says something itself has its way, but for what the profile locks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gateway.wire.chat import Json
from gateway.wire.token_limits import MAX_COMPLETION_TOKENS, MAX_TOKENS, usual_member


class MemberPlace(NamedTuple):
    """Where a format has a parameter.

    path: the member, or a member of a member. aliases: other members that say the same. convert:
    gives the format's own value, None where it has none for it.
    """

    path: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value

    @property
    def name(self) -> str:
        return ".".join(self.path)


def _flat_format(wanted: Json) -> Any:
    """Return a chat completion's format as Responses has it."""
    if wanted.get("type") != "json_schema":
        return wanted
    return {"type": "json_schema", **wanted["json_schema"]}


def _bare_schema(wanted: Json) -> Any:
    """Return a chat completion's format as Messages has it, which knows schemas alone."""
    if wanted.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "schema": wanted["json_schema"].get("schema") or {}}


def _as_list(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


def _negate(value: Any) -> Any:
    return None if value is None else not value


SAMPLING = {"temperature": MemberPlace(("temperature",)), "top_p": MemberPlace(("top_p",))}
PLACES: Mapping[str, Mapping[str, MemberPlace]] = {
    "chat": {
        **SAMPLING,
        "max_output_tokens": MemberPlace((MAX_TOKENS,), (MAX_COMPLETION_TOKENS,)),
        "reasoning_effort": MemberPlace(("reasoning_effort",)),
        "seed": MemberPlace(("seed",)),
        "stop": MemberPlace(("stop",)),
        "parallel_tool_calls": MemberPlace(("parallel_tool_calls",)),
        "response_format": MemberPlace(("response_format",)),
    },
    "responses": {
        **SAMPLING,
        "max_output_tokens": MemberPlace(("max_output_tokens",)),
        "reasoning_effort": MemberPlace(("reasoning", "effort")),
        "parallel_tool_calls": MemberPlace(("parallel_tool_calls",)),
        "response_format": MemberPlace(("text", "format"), (), _flat_format),
    },
    "messages": {
        **SAMPLING,
        "max_output_tokens": MemberPlace((MAX_TOKENS,)),
        "reasoning_effort": MemberPlace(("output_config", "effort")),
        "stop": MemberPlace(("stop_sequences",), (), _as_list),
        "parallel_tool_calls": MemberPlace(
            ("tool_choice", "disable_parallel_tool_use"), (), _negate
        ),
        "response_format": MemberPlace(("output_config", "format"), (), _bare_schema),
    },
}
REQUIRED = ("max_tokens",)  # of the Messages API: it stays where the profile has none


class ProfileMembers(NamedTuple):
    """What a profile says of the members of a request.

    values: by parameter, in the profile's own form. locked: what a request cannot change. tools:
    the request goes upstream with tools, its own or the memory's.
    """

    values: Mapping[str, Any]
    locked: tuple[str, ...] = ()
    tools: bool = True


def with_profile(
    wire: str, body: Json, members: ProfileMembers, model: str = ""
) -> tuple[Json, list[str]]:
    """Return a request with a profile's parameters, and the members of its own that gave way.

    model: the one that answers.
    """
    out = dict(body)
    dropped: list[str] = []
    for parameter, place in PLACES[wire].items():
        if parameter == "parallel_tool_calls" and not _takes_parallel(wire, body, members):
            continue
        if wire == "chat" and parameter == "max_output_tokens":
            place = _limit_place(model)
        value = members.values.get(parameter)
        wanted = None if value is None else place.convert(value)
        said = _find_said(out, place)
        if parameter not in members.locked:
            if wanted is not None and not said:
                _put(out, place.path, wanted)
            continue
        if list(said.values()) == [wanted] or (
            wire == "messages" and wanted is None and place.name in REQUIRED
        ):
            continue
        for name in said:
            _remove(out, tuple(name.split(".")))
        dropped += said
        if wanted is not None:
            _put(out, place.path, wanted)
    return out, dropped


def _takes_parallel(wire: str, body: Json, members: ProfileMembers) -> bool:
    """Tell whether the member is allowed: servers refuse it where there are no tools."""
    return bool(body.get("tools")) or (wire != "messages" and members.tools)


def _limit_place(model: str) -> MemberPlace:
    """Return the place of the limit of output, under the name that the model's server takes."""
    name = usual_member(model)
    return MemberPlace((name,), tuple({MAX_TOKENS, MAX_COMPLETION_TOKENS} - {name}))


def _find_said(body: Json, place: MemberPlace) -> dict[str, Any]:
    """Return what a request says of a parameter itself, by member; null says nothing."""
    paths = [place.path, *((alias,) for alias in place.aliases)]
    values = {".".join(path): _get(body, path) for path in paths}
    return {name: value for name, value in values.items() if value is not None}


def _get(body: Json, path: tuple[str, ...]) -> Any:
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _put(body: Json, path: tuple[str, ...], value: Any) -> None:
    first, *more = path
    if not more:
        body[first] = value
        return
    inner = body.get(first)
    if first == "tool_choice" and not isinstance(inner, dict):
        inner = {"type": "auto"}
    body[first] = {**(inner if isinstance(inner, dict) else {}), more[0]: value}


def _remove(body: Json, path: tuple[str, ...]) -> None:
    first, *more = path
    if not more:
        del body[first]
        return
    left = {name: value for name, value in body[first].items() if name != more[0]}
    if left:
        body[first] = left
    else:
        del body[first]
