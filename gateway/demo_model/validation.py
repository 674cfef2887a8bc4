"""The checks of a strict chat-completions server, to reveal malformed requests of ours. Pure.

Beside the plain shape: results follow their calls directly, one for each; `tools` is never empty;
no `tool_choice` without tools. An error is a BadRequest that names the member.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway.errors import BadRequest

Json = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def parse_body(data: bytes) -> Json:
    """Return the body as an object. Raises BadRequest if it is not one, or names no model."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise BadRequest(f"The body is not valid JSON: {e}. Send a JSON object.") from e
    if not isinstance(body, dict):
        raise BadRequest(f"The body is a JSON {type(body).__name__}: send an object.")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise BadRequest("`model` is missing: name one, such as 'mnemogate-demo'.", param="model")
    return body


def check_chat(body: Json) -> None:
    """Raise BadRequest for a malformed chat-completions body."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("`messages` must be a list with at least one message.", param="messages")
    for i, message in enumerate(messages):
        _check_message(message, i)
    _check_order(messages)
    _check_tools(body)
    _check_options(body)


def _check_message(message: Any, message_index: int) -> None:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise BadRequest(
            f"messages[{message_index}] must be an object with a role among {', '.join(ROLES)}.",
            param=f"messages[{message_index}].role",
        )
    content = message.get("content")
    if content is None and (
        message["role"] != "assistant"
        or not (message.get("tool_calls") or message.get("function_call"))
    ):
        raise BadRequest(
            f"messages[{message_index}].content is missing.",
            param=f"messages[{message_index}].content",
        )
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list | None) or not all(
        isinstance(p, dict) and isinstance(p.get("type"), str) for p in parts
    ):
        raise BadRequest(
            f"messages[{message_index}].content must be a string or a list of parts.",
            param=f"messages[{message_index}].content",
        )
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(map(_is_call, calls)):
        raise BadRequest(
            f"messages[{message_index}].tool_calls must be a list of function calls.",
            param=f"messages[{message_index}].tool_calls",
        )


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    function = call.get("function")
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str)
    )


def _check_order(messages: Sequence[Json]) -> None:
    """Check that every call is answered right after its message, and nothing else."""
    open_call_ids: list[str] = []
    for message_index, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_call_ids:
                raise BadRequest(
                    f"messages[{message_index}] answers no call: a tool message follows "
                    "the `tool_calls` that it belongs to.",
                    param=f"messages[{message_index}]",
                )
            open_call_ids.remove(message["tool_call_id"])
            continue
        if open_call_ids:
            break
        open_call_ids = [call["id"] for call in message.get("tool_calls") or []]
    if open_call_ids:
        raise BadRequest(
            "An assistant message with `tool_calls` must be followed by tool messages for each "
            "of them. Without an answer: " + ", ".join(open_call_ids),
            param="messages",
        )


def _check_tools(body: Json) -> None:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if body.get(name) is not None:
                raise BadRequest(f"`{name}` is only allowed when `tools` are given.", param=name)
        return
    if not isinstance(tools, list) or not tools:
        raise BadRequest(
            "`tools` must be a list with at least one tool, or left out.", param="tools"
        )
    for tool_index, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise BadRequest(
                f"tools[{tool_index}] must be an object with a type.", param=f"tools[{tool_index}]"
            )
        if tool["type"] == "function" and not _name(tool):
            raise BadRequest(
                f"tools[{tool_index}].function.name is missing.",
                param=f"tools[{tool_index}].function.name",
            )
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and _name(choice) not in [_name(t) for t in tools]:
        raise BadRequest(
            f"`tool_choice` names {_name(choice)!r}, which is not among `tools`.",
            param="tool_choice",
        )


def _name(tool: Json) -> str:
    function = tool.get("function")
    name = None
    if isinstance(function, dict):
        name = function.get("name")
    if isinstance(name, str):
        return name
    return ""


def _check_options(body: Json) -> None:
    choice_count = body.get("n")
    if choice_count is not None and (
        isinstance(choice_count, bool)
        or not isinstance(choice_count, int)
        or not 1 <= choice_count <= 128
    ):
        raise BadRequest(f"`n` is {choice_count!r}: give a whole number from 1 to 128.", param="n")
    response_format = body.get("response_format") or {}
    for name, value in (
        ("stream_options", body.get("stream_options") or {}),
        ("response_format", response_format),
    ):
        if not isinstance(value, dict):
            raise BadRequest(f"`{name}` must be an object.", param=name)
    if not isinstance(response_format.get("json_schema") or {}, dict):
        raise BadRequest(
            "`response_format.json_schema` must be an object.", param="response_format"
        )
