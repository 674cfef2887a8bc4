"""A chat completion request as one of the Responses API. Pure.

Decisions, where the two differ:
- Messages: see `NativeItems`.
- `store` is always false: nothing could ever be read back by a client of chat completions.
- A function that does not say `strict` is not strict; the API's own default is that it is.
- `max_tokens` and `max_completion_tokens` are `max_output_tokens`, `response_format` is
  `text.format`, `verbosity` is `text.verbosity`, `reasoning_effort` is `reasoning.effort`. With an
  effort the reasoning is asked for, encrypted, so that it can go back while tools run.
- Every other member is lost: refused, or dropped as the provider's settings say.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gateway.apis.translation.responses_items_from_chat import NativeItems
from gateway.errors import BadRequest
from gateway.wire.chat import Json
from gateway.wire.chat_request import messages_of
from gateway.wire.losses import Losses

CARRIED = (
    "model",
    "stream",
    "temperature",
    "top_p",
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
)
LIMITS = ("max_completion_tokens", "max_tokens")
READ = (
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "response_format",
    "verbosity",
    *LIMITS,
)
# Its usage is told where it is asked for.
NO_LOSS = ("stream_options",)
# What changes nothing: the usual values of members that are sent unasked.
USUAL: Json = {"n": 1, "modalities": ["text"], "frequency_penalty": 0, "presence_penalty": 0}
WITHOUT_EFFECT: tuple[Any, ...] = (None, False, [], {})
MODES = ("none", "auto", "required")
ENCRYPTED = "reasoning.encrypted_content"
KINDS = ("function", "custom")


def response_request(body: Json, losses: Losses) -> Json:
    """Return the request. Raises BadRequest."""
    body = _without_lost(body, losses)
    native_items = NativeItems(messages_of(body), losses)
    request = {name: body[name] for name in CARRIED if name in body}
    if native_items.instructions:
        request["instructions"] = native_items.instructions
    request |= {"input": native_items.items, "store": False}
    if (limit := next((body[name] for name in LIMITS if name in body), None)) is not None:
        request["max_output_tokens"] = limit
    request |= _reasoning(body.get("reasoning_effort"))
    if text := _text(body, losses):
        request["text"] = text
    return request | _tool_members(body, losses)


def _without_lost(body: Json, losses: Losses) -> Json:
    """Return what is to be carried. Raises BadRequest for what cannot be."""
    carried_members = {}
    for name, value in body.items():
        if name in CARRIED or name in READ:
            if value is not None and not losses.drops(name):
                carried_members[name] = value
        elif name not in NO_LOSS and value not in WITHOUT_EFFECT and value != USUAL.get(name):
            losses.lose(name, name)
    return carried_members


def _reasoning(effort: Any) -> Json:
    if effort is None:
        return {}
    effort_members = {"reasoning": {"effort": effort}}
    if effort == "none":
        return effort_members
    return {**effort_members, "include": [ENCRYPTED]}


def _text(body: Json, losses: Losses) -> Json:
    """Return how the text of the answer is to be."""
    text_members = {"verbosity": body["verbosity"]} if "verbosity" in body else {}
    response_format = body.get("response_format")
    if not isinstance(response_format, dict):
        return text_members
    kind = response_format.get("type")
    schema = response_format.get("json_schema")
    if kind == "json_object":
        return {**text_members, "format": {"type": kind}}
    if kind == "json_schema" and isinstance(schema, dict):
        schema_members = {k: v for k, v in schema.items() if v is not None}
        return {**text_members, "format": {"type": kind, **schema_members}}
    if kind != "text":
        losses.lose("response_format", "response_format")
    return text_members


def _tool_members(body: Json, losses: Losses) -> Json:
    """Return the tools, and which of them may be called."""
    chat_tools = body.get("tools")
    flat_tools = [_tool(t, f"tools[{i}]", losses) for i, t in enumerate(_list(chat_tools))]
    tools = [t for t in flat_tools if t is not None]
    if not tools:
        return {}
    tool_members: Json = {"tools": tools}
    if "parallel_tool_calls" in body:
        tool_members["parallel_tool_calls"] = body["parallel_tool_calls"]
    if "tool_choice" in body:
        tool_members["tool_choice"] = _tool_choice(body["tool_choice"])
    return tool_members


def _tool(tool: Any, where: str, losses: Losses) -> Json | None:
    """Return a tool, flat; None for one that is dropped."""
    kind, definition = _typed_member(tool, KINDS)
    if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
        losses.lose(f"tools.{kind}", where)
        return None
    if tool.get("cache_control") or definition.get("cache_control"):
        losses.lose("cache_control", f"{where}.cache_control")
    definition = {k: v for k, v in definition.items() if v is not None and k != "cache_control"}
    if kind == "function":
        return {"type": kind, "parameters": None, "strict": False, **definition}
    form = definition.get("format")
    if isinstance(form, dict) and isinstance(form.get("grammar"), dict):
        definition = {**definition, "format": {"type": form.get("type"), **form["grammar"]}}
    return {"type": kind, **definition}


def _typed_member(value: Any, kinds: Collection[str]) -> tuple[Any, Any]:
    """Return the type of a tool or choice, and its member of that name; None without one."""
    if not isinstance(value, dict):
        return None, None
    kind = value.get("type")
    if kind in kinds:
        return kind, value.get(kind)
    return kind, None


def _tool_choice(tool_choice: Any) -> Any:
    """Return the choice. Raises BadRequest."""
    if tool_choice in MODES:
        return tool_choice
    kind, chosen_tool = _typed_member(tool_choice, (*KINDS, "allowed_tools"))
    if isinstance(chosen_tool, dict) and kind == "allowed_tools":
        tools = [_choose(t) for t in _list(chosen_tool.get("tools"))]
        return {"type": kind, "mode": chosen_tool.get("mode"), "tools": tools}
    if isinstance(chosen_tool, dict):
        return _choose(tool_choice)
    raise BadRequest(
        "`tool_choice` is none of auto, none, required, a named tool and allowed tools. Send one "
        "of them.",
        param="tool_choice",
    )


def _choose(choice: Any) -> Any:
    """Return the choice of one tool, flat."""
    kind, definition = _typed_member(choice, KINDS)
    if isinstance(definition, dict):
        return {"type": kind, "name": definition.get("name")}
    return choice


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []
