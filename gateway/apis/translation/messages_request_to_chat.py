"""A request of Anthropic's Messages API as a chat completion's. Pure.

Decisions, where the two differ:

- Thinking blocks, cache marks and anything else without a counterpart are lost: refused, or dropped
  as the provider's settings say.
- A document of plain text becomes text, any other a file. An error in a result becomes part of its
  text.
- `output_config` gives `reasoning_effort` and `response_format`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.apis.translation.accepted_messages import ChatMessages, call_of
from gateway.apis.translation.chat_tools import NO_PARAMETERS, ChatTools, ToolOrigin
from gateway.apis.translation.member_seal import MemberSeal
from gateway.errors import BadRequest
from gateway.wire.chat import Json, encode
from gateway.wire.losses import Losses

CARRIED = ("model", "stream", "temperature", "top_p")
READ = (
    "max_tokens",
    "messages",
    "output_config",
    "stop_sequences",
    "system",
    "tools",
    "tool_choice",
)
WITHOUT_EFFECT: tuple[Any, ...] = (None, False, [], {})
TOOL_KINDS = (None, "custom", "function")
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THOUGHTS = ("thinking", "redacted_thinking")
TOOL_MEMBERS = {"name", "description", "input_schema", "type", "cache_control", "strict"}


def chat_request(
    body: Json, losses: Losses, limit: str = "max_tokens", seal: MemberSeal | None = None
) -> tuple[Json, ChatTools]:
    """Return the request, and the tools by which its answer is read.

    limit: the server's name for the maximum of output tokens. seal: opens what earlier answers
    carried. Raises BadRequest.
    """
    body = _without_dropped(body, losses)
    tools = _tools(body.get("tools"), losses)
    chat_body = {name: body[name] for name in CARRIED if name in body}
    chat_body["messages"] = _messages(body, losses, seal)
    if "max_tokens" in body:
        chat_body[limit] = body["max_tokens"]
    if "stop_sequences" in body:
        chat_body["stop"] = body["stop_sequences"]
    chat_body |= _output(body.get("output_config"), losses)
    if tools.listed:
        chat_body["tools"] = tools.listed
        chat_body |= _tool_choice(body.get("tool_choice"))
    return chat_body, tools


def _without_dropped(body: Json, losses: Losses) -> Json:
    """Return the request without what is dropped. Raises BadRequest for what cannot be sent."""
    remaining_members = {}
    for name, value in body.items():
        if name in CARRIED or name in READ:
            if value is not None and not losses.drops(name):
                remaining_members[name] = value
        elif value not in WITHOUT_EFFECT:
            losses.lose(name, name)
    return remaining_members


def _messages(body: Json, losses: Losses, seal: MemberSeal | None) -> list[Json]:
    chat_messages = ChatMessages(seal)
    for part in _parts(body.get("system"), "system", losses):
        chat_messages.add_system(_only_text(part, "system", losses))
    messages = body.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise BadRequest(f"`{where}` must be an object.", param=where)
        _add_message(message, f"{where}.content", chat_messages, losses)
    return chat_messages.whole()


def _add_message(message: Json, where: str, chat_messages: ChatMessages, losses: Losses) -> None:
    content = message.get("content")
    role = message.get("role")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    if role == "assistant":
        _add_said(blocks, where, chat_messages, losses)
        return
    for index, block in enumerate(blocks):
        if _kind(block) == "tool_result":
            chat_messages.add_result(
                block.get("tool_use_id"), list(_result(block, f"{where}[{index}]", losses))
            )
    other_blocks = [b for b in blocks if _kind(b) != "tool_result"]
    parts = list(_parts(other_blocks, where, losses))
    if role == "system":
        for part in parts:
            chat_messages.add_system(_only_text(part, where, losses))
    elif parts:
        chat_messages.add_user(parts)


def _add_said(blocks: list[Any], where: str, chat_messages: ChatMessages, losses: Losses) -> None:
    """Add what the model said, block by block: what it carried belongs to a place between them."""
    chat_messages.add_said([], [])
    for index, block in enumerate(blocks):
        if _kind(block) == "tool_use":
            chat_messages.add_said([], [_call(block)])
        elif _kind(block) != "thinking" or not chat_messages.add_sealed(block.get("signature")):
            chat_messages.add_said(list(_block_parts(block, f"{where}[{index}]", losses)), [])


def _only_text(part: Json, where: str, losses: Losses) -> str:
    if part["type"] != "text":
        losses.lose("messages.system_media", where)
    return str(part.get("text") or "")


def _result(block: Json, where: str, losses: Losses) -> Iterator[Json]:
    if block.get("is_error"):
        yield {"type": "text", "text": "Error:"}
    yield from _parts(block.get("content"), f"{where}.content", losses)


def _parts(content: Any, where: str, losses: Losses) -> Iterator[Json]:
    """Yield blocks as parts of a chat completion. Raises BadRequest."""
    if not isinstance(content, list):
        content = [{"type": "text", "text": content}] if isinstance(content, str) else []
    for index, block in enumerate(content):
        yield from _block_parts(block, f"{where}[{index}]", losses)


def _block_parts(block: Any, where: str, losses: Losses) -> Iterator[Json]:
    """Yield the part that a block is, if it has a counterpart. Raises BadRequest."""
    if not isinstance(block, dict):
        block = {}
    if "cache_control" in block:
        losses.lose("cache_control", f"{where}.cache_control")
    if (part := _part(block)) is not None:
        yield part
    elif block.get("type") in THOUGHTS:
        losses.lose("messages.thinking", where)
    else:
        losses.lose(f"messages.{block.get('type')}", where)


def _part(block: Json) -> Json | None:
    """Return one block as a part; None if chat completions have no counterpart."""
    kind = block.get("type")
    source = block.get("source")
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if not isinstance(source, dict):
        return None
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data") or "")}
    if kind == "image" and source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    if source.get("type") != "base64":
        return None
    data = f"data:{source.get('media_type')};base64,{source.get('data')}"
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": data}}
    if kind == "document":
        name = str(block.get("title") or "document.pdf")
        return {"type": "file", "file": {"filename": name, "file_data": data}}
    return None


def _call(block: Json) -> Json:
    call_input = block.get("input")
    arguments = encode(call_input if isinstance(call_input, dict) else {}).decode()
    return call_of(block.get("id"), str(block.get("name")), arguments)


def _kind(block: Any) -> Any:
    if isinstance(block, dict):
        return block.get("type")
    return None


def _tools(native_tools: Any, losses: Losses) -> ChatTools:
    chat_tools = ChatTools()
    for index, tool in enumerate(native_tools if isinstance(native_tools, list) else ()):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            tool = {}
        kind = tool.get("type")
        name = tool.get("name")
        if kind not in TOOL_KINDS or not isinstance(name, str) or not name:
            losses.lose(f"tools.{kind}", where)
            continue
        for member in sorted(tool.keys() - TOOL_MEMBERS | tool.keys() & {"cache_control"}):
            if tool[member] not in WITHOUT_EFFECT:
                losses.lose(member, f"{where}.{member}")
        schema = tool.get("input_schema")
        function = {
            "description": tool.get("description"),
            "parameters": schema if isinstance(schema, dict) else NO_PARAMETERS,
            "strict": tool.get("strict"),
        }
        chat_tools.add(ToolOrigin(name), function)
    return chat_tools


def _tool_choice(native_choice: Any) -> Json:
    """Return the members that say which tools may be called. Raises BadRequest."""
    if native_choice is None:
        return {}
    if not isinstance(native_choice, dict):
        native_choice = {}
    kind = native_choice.get("type")
    choice_members: Json = (
        {"parallel_tool_calls": False} if native_choice.get("disable_parallel_tool_use") else {}
    )
    if isinstance(kind, str) and kind in CHOICES:
        return {"tool_choice": CHOICES[kind], **choice_members}
    if kind == "tool":
        function = {"name": native_choice.get("name")}
        return {"tool_choice": {"type": "function", "function": function}, **choice_members}
    raise BadRequest(
        f"`tool_choice.type` is {str(kind)[:40]!r}. Send auto, any, tool or none.",
        param="tool_choice",
    )


def _output(output_config: Any, losses: Losses) -> Json:
    output_members: Json = {}
    for name, value in output_config.items() if isinstance(output_config, dict) else ():
        if value is None:
            continue
        if name == "effort":
            output_members |= (
                {} if losses.drops("output_config.effort") else {"reasoning_effort": value}
            )
        elif name == "format" and isinstance(value, dict) and value.get("type") == "json_schema":
            schema = {"name": "answer", "schema": value.get("schema"), "strict": True}
            output_members["response_format"] = {"type": "json_schema", "json_schema": schema}
        else:
            losses.lose(f"output_config.{name}", f"output_config.{name}")
    return output_members
