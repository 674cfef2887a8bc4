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
NO_LOSS = ("stream_options",)  # its usage is told where it is asked for
# What changes nothing: the usual values of members that are sent unasked.
USUAL: Json = {"n": 1, "modalities": ["text"], "frequency_penalty": 0, "presence_penalty": 0}
WITHOUT_EFFECT: tuple[Any, ...] = (None, False, [], {})
MODES = ("none", "auto", "required")
ENCRYPTED = "reasoning.encrypted_content"
KINDS = ("function", "custom")


def response_request(body: Json, losses: Losses) -> Json:
    """Return the request. Raises BadRequest."""
    body = _without_lost(body, losses)
    native = NativeItems(messages_of(body), losses)
    out = {name: body[name] for name in CARRIED if name in body}
    if native.instructions:
        out["instructions"] = native.instructions
    out |= {"input": native.items, "store": False}
    if (limit := next((body[name] for name in LIMITS if name in body), None)) is not None:
        out["max_output_tokens"] = limit
    out |= _reasoning(body.get("reasoning_effort"))
    if text := _text(body, losses):
        out["text"] = text
    return out | _tool_members(body, losses)


def _without_lost(body: Json, losses: Losses) -> Json:
    """Return what is to be carried. Raises BadRequest for what cannot be."""
    out = {}
    for name, value in body.items():
        if name in CARRIED or name in READ:
            if value is not None and not losses.drops(name):
                out[name] = value
        elif name not in NO_LOSS and value not in WITHOUT_EFFECT and value != USUAL.get(name):
            losses.lose(name, name)
    return out


def _reasoning(effort: Any) -> Json:
    if effort is None:
        return {}
    asked = {"reasoning": {"effort": effort}}
    return asked if effort == "none" else {**asked, "include": [ENCRYPTED]}


def _text(body: Json, losses: Losses) -> Json:
    """Return how the text of the answer is to be."""
    out = {"verbosity": body["verbosity"]} if "verbosity" in body else {}
    wanted = body.get("response_format")
    if not isinstance(wanted, dict):
        return out
    kind, schema = wanted.get("type"), wanted.get("json_schema")
    if kind == "json_object":
        return {**out, "format": {"type": kind}}
    if kind == "json_schema" and isinstance(schema, dict):
        told = {k: v for k, v in schema.items() if v is not None}
        return {**out, "format": {"type": kind, **told}}
    if kind != "text":
        losses.lose("response_format", "response_format")
    return out


def _tool_members(body: Json, losses: Losses) -> Json:
    """Return the tools, and which of them may be called."""
    told = body.get("tools")
    listed = [_tool(t, f"tools[{i}]", losses) for i, t in enumerate(_list(told))]
    tools = [t for t in listed if t is not None]
    if not tools:
        return {}
    out: Json = {"tools": tools}
    if "parallel_tool_calls" in body:
        out["parallel_tool_calls"] = body["parallel_tool_calls"]
    if "tool_choice" in body:
        out["tool_choice"] = _tool_choice(body["tool_choice"])
    return out


def _tool(tool: Any, where: str, losses: Losses) -> Json | None:
    """Return a tool, flat; None for one that is dropped."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    told = tool.get(kind) if kind in KINDS else None
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        losses.lose(f"tools.{kind}", where)
        return None
    if tool.get("cache_control") or told.get("cache_control"):
        losses.lose("cache_control", f"{where}.cache_control")
    told = {k: v for k, v in told.items() if v is not None and k != "cache_control"}
    if kind == "function":
        return {"type": kind, "parameters": None, "strict": False, **told}
    form = told.get("format")
    if isinstance(form, dict) and isinstance(form.get("grammar"), dict):
        told = {**told, "format": {"type": form.get("type"), **form["grammar"]}}
    return {"type": kind, **told}


def _tool_choice(told: Any) -> Any:
    """Return the choice. Raises BadRequest."""
    if told in MODES:
        return told
    kind = told.get("type") if isinstance(told, dict) else None
    chosen = told.get(kind) if kind in (*KINDS, "allowed_tools") else None
    if isinstance(chosen, dict) and kind == "allowed_tools":
        tools = [_choose(t) for t in _list(chosen.get("tools"))]
        return {"type": kind, "mode": chosen.get("mode"), "tools": tools}
    if isinstance(chosen, dict):
        return _choose(told)
    raise BadRequest(
        "`tool_choice` is none of auto, none, required, a named tool and allowed tools. Send one "
        "of them.",
        param="tool_choice",
    )


def _choose(choice: Any) -> Any:
    """Return the choice of one tool, flat."""
    kind = choice.get("type") if isinstance(choice, dict) else None
    told = choice.get(kind) if kind in KINDS else None
    return {"type": kind, "name": told.get("name")} if isinstance(told, dict) else choice


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
