"""A request of the Responses API as a chat completion's. Pure.

Decisions, where the two differ:
- Input items: see `responses_items`. Tools: see `chat_tools`. Those that an item adds (Codex sends
  all of its tools so) are offered from the beginning.
- `allowed_tools`: the others are not offered.
- `max_output_tokens` is `max_tokens`, or what the server calls it; `reasoning.effort` is
  `reasoning_effort`; `text.format` is `response_format`.
- `store` and `previous_response_id` are the gateway's: what is stored is stored here, and a
  chained request comes with its whole input.
- Every other member is lost: refused, or dropped as the provider's settings say.
"""

from __future__ import annotations

from typing import Any

from gateway.apis.translation.chat_tools import NO_PARAMETERS, ChatTools, ToolOrigin
from gateway.apis.translation.member_seal import MemberSeal
from gateway.apis.translation.responses_items_to_chat import additional_tools, chat_messages
from gateway.errors import BadRequest
from gateway.wire.chat import Json
from gateway.wire.losses import TOOL_HINTS, Losses

CARRIED = ("model", "stream", "temperature", "top_p", "user", "metadata")
READ = (
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "text",
    "reasoning",
)
# A client cannot tell whether the server has seen them.
NO_LOSS = ("store", "stream_options")
WITHOUT_EFFECT: tuple[Any, ...] = (None, False, [], {}, "disabled")
MODES = ("none", "auto", "required")


def chat_request(
    body: Json, losses: Losses, limit: str = "max_tokens", seal: MemberSeal | None = None
) -> tuple[Json, ChatTools]:
    """Return the request, and the tools by which its answer is read.

    limit: the server's name for the maximum of output tokens. seal: opens what earlier answers
    carried. Raises BadRequest.
    """
    body = _without_dropped(body, losses)
    tools = _tools(body, losses)
    request = {name: body[name] for name in CARRIED if body.get(name) is not None}
    request["messages"] = chat_messages(body, tools, losses, seal)
    if body.get("max_output_tokens") is not None:
        request[limit] = body["max_output_tokens"]
    request |= _reasoning(body.get("reasoning"), losses)
    request |= _text(body.get("text"), losses)
    choice = _tool_choice(body.get("tool_choice"), tools)
    if tools.listed:
        request["tools"] = tools.listed
        request |= {"tool_choice": choice} if choice is not None else {}
        if body.get("parallel_tool_calls") is not None:
            request["parallel_tool_calls"] = body["parallel_tool_calls"]
    return request, tools


def _without_dropped(body: Json, losses: Losses) -> Json:
    """Return the request without what is dropped. Raises BadRequest for what cannot be sent."""
    if body.get("previous_response_id") is not None:
        raise BadRequest(
            f"Previous response with id {str(body['previous_response_id'])[:80]!r} not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    remaining_members = {}
    for name, value in body.items():
        if name in CARRIED or name in READ:
            if value is not None and not losses.drops(name):
                remaining_members[name] = value
        elif name not in NO_LOSS and value not in WITHOUT_EFFECT:
            losses.lose(name, name)
    return remaining_members


def _tools(body: Json, losses: Losses) -> ChatTools:
    """Return the tools of a request, those of its items included."""
    chat_tools = ChatTools()
    for where, native_tools in (("", body.get("tools")), *additional_tools(body.get("input"))):
        for index, tool in enumerate(native_tools if isinstance(native_tools, list) else ()):
            _add_tool(
                tool if isinstance(tool, dict) else {}, f"{where}tools[{index}]", chat_tools, losses
            )
    return chat_tools


def _add_tool(tool: Json, where: str, chat_tools: ChatTools, losses: Losses) -> None:
    kind = tool.get("type")
    name = tool.get("name")
    is_named = isinstance(name, str) and bool(name)
    _lose_hints(tool, where, losses)
    if kind == "function" and is_named:
        chat_tools.add(ToolOrigin(str(name)), _function(tool))
    elif kind == "custom" and is_named:
        chat_tools.add_custom(tool, str(name))
    elif kind == "namespace" and is_named and isinstance(tool.get("tools"), list):
        for index, member_tool in enumerate(tool["tools"]):
            if (
                isinstance(member_tool, dict)
                and member_tool.get("type") == "function"
                and member_tool.get("name")
            ):
                _lose_hints(member_tool, f"{where}.tools[{index}]", losses)
                chat_tools.add(
                    ToolOrigin(str(member_tool["name"]), str(name)), _function(member_tool)
                )
            else:
                losses.lose("tools.namespace", f"{where}.tools[{index}]")
    else:
        losses.lose(f"tools.{kind}", where)


def _lose_hints(tool: Json, where: str, losses: Losses) -> None:
    for member in TOOL_HINTS:
        if tool.get(member) not in WITHOUT_EFFECT:
            losses.lose(member, f"{where}.{member}")


def _function(tool: Json) -> Json:
    parameters = tool.get("parameters")
    return {
        "description": tool.get("description"),
        "parameters": parameters if isinstance(parameters, dict) else NO_PARAMETERS,
        "strict": tool.get("strict"),
    }


def _tool_choice(native_choice: Any, tools: ChatTools) -> Any:
    """Return the choice of a chat completion; None if there is none. Raises BadRequest."""
    if native_choice is None or native_choice in MODES:
        return native_choice
    if isinstance(native_choice, dict):
        if native_choice.get("type") in ("function", "custom") and isinstance(
            native_choice.get("name"), str
        ):
            return {"type": "function", "function": {"name": _name(native_choice, tools)}}
        allowed_tools = native_choice.get("tools")
        if native_choice.get("type") == "allowed_tools" and isinstance(allowed_tools, list):
            tools.keep({_name(t, tools) for t in allowed_tools if isinstance(t, dict)})
            if native_choice.get("mode") in MODES:
                return native_choice["mode"]
            return "auto"
    raise BadRequest(
        "`tool_choice` cannot be carried to this model's server, which knows functions alone. "
        "Send auto, none, required, or a function that `tools` has.",
        code="unsupported_parameter",
        param="tool_choice",
    )


def _name(choice: Json, tools: ChatTools) -> str:
    return tools.name_of(str(choice.get("name")), str(choice.get("namespace") or ""))


def _reasoning(reasoning: Any, losses: Losses) -> Json:
    reasoning_members: Json = {}
    for name, value in reasoning.items() if isinstance(reasoning, dict) else ():
        if value is None:
            continue
        if name != "effort":
            losses.lose(f"reasoning.{name}", f"reasoning.{name}")
        elif not losses.drops("reasoning.effort"):
            reasoning_members["reasoning_effort"] = value
    return reasoning_members


def _text(text_member: Any, losses: Losses) -> Json:
    text_members: Json = {}
    for name, value in text_member.items() if isinstance(text_member, dict) else ():
        if value is None:
            continue
        if name == "format" and isinstance(value, dict):
            text_members |= _response_format(value, losses)
        else:
            losses.lose(f"text.{name}", f"text.{name}")
    return text_members


def _response_format(text_format: Json, losses: Losses) -> Json:
    kind = text_format.get("type")
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    if kind == "json_schema":
        schema = {k: v for k, v in text_format.items() if k != "type" and v is not None}
        return {"response_format": {"type": kind, "json_schema": schema}}
    if kind != "text":
        losses.lose("text.format", "text.format")
    return {}
