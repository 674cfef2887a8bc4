"""Items of the Responses API as messages of a chat completion. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.apis.translation.accepted_messages import ChatMessages, call_of
from gateway.apis.translation.chat_tools import ChatTools, custom_arguments
from gateway.apis.translation.member_seal import MemberSeal
from gateway.errors import BadRequest
from gateway.wire.chat import Json
from gateway.wire.losses import Losses

SYSTEM = ("system", "developer")
# An item that offers tools from where it stands on.
ADDITIONAL_TOOLS = "additional_tools"
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def chat_messages(
    body: Json, tools: ChatTools, losses: Losses, seal: MemberSeal | None = None
) -> list[Json]:
    """Return a request's instructions and items as messages. Raises BadRequest.

    seal: opens what earlier answers carried.
    """
    messages = ChatMessages(seal)
    if isinstance(instructions := body.get("instructions"), str):
        messages.add_system(instructions)
    for index, item in enumerate(_items(body.get("input"))):
        where = f"input[{index}]"
        if not isinstance(item, dict):
            raise BadRequest(f"`{where}` must be an object.", param=where)
        _add_item(item, where, messages, _Context(tools, losses))
    return messages.whole()


class _Context:
    """State of the translation of items."""

    def __init__(self, tools: ChatTools, losses: Losses) -> None:
        self.tools = tools
        self.losses = losses


def _items(request_input: Any) -> Sequence[Any]:
    if isinstance(request_input, str):
        return [{"role": "user", "content": request_input}]
    if not isinstance(request_input, list):
        raise BadRequest("`input` must be a string or a list of items.", param="input")
    return request_input


def additional_tools(request_input: Any) -> Iterator[tuple[str, Any]]:
    """Yield where the items that add tools stand, and their tools."""
    for index, item in enumerate(request_input if isinstance(request_input, list) else ()):
        if isinstance(item, dict) and item.get("type") == ADDITIONAL_TOOLS:
            yield f"input[{index}].", item.get("tools")


def _add_item(item: Json, where: str, messages: ChatMessages, context: _Context) -> None:
    match item.get("type", "message"):
        case "message":
            _add_message(item, where, messages, context.losses)
        case "function_call":
            name = context.tools.name_of(str(item.get("name")), str(item.get("namespace") or ""))
            arguments = str(item.get("arguments") or "{}")
            messages.add_said([], [call_of(item.get("call_id"), name, arguments)])
        case "custom_tool_call":
            name = context.tools.name_of(str(item.get("name")))
            arguments = custom_arguments(item.get("input"))
            messages.add_said([], [call_of(item.get("call_id"), name, arguments)])
        case "function_call_output" | "custom_tool_call_output":
            parts = list(_parts(item.get("output"), f"{where}.output", context.losses))
            messages.add_result(item.get("call_id"), parts)
        case kind if kind == ADDITIONAL_TOOLS:
            # Offered with the others.
            pass
        case "reasoning" if messages.add_sealed(item.get("encrypted_content")):
            pass
        case kind:
            context.losses.lose(f"input.{kind}", where)


def _add_message(item: Json, where: str, messages: ChatMessages, losses: Losses) -> None:
    parts = list(_parts(item.get("content"), f"{where}.content", losses))
    role = item.get("role")
    if role in SYSTEM:
        for part in parts:
            if part["type"] != "text":
                losses.lose("input.system_media", f"{where}.content")
            else:
                messages.add_system(part["text"])
    elif role == "assistant":
        messages.add_said(parts, [])
    else:
        messages.add_user(parts)


def _parts(content: Any, where: str, losses: Losses) -> Iterator[Json]:
    """Yield content as parts of a chat completion. Raises BadRequest."""
    if not isinstance(content, list):
        content = [] if content is None else [{"type": "text", "text": content}]
    for part_index, part in enumerate(content):
        if (chat_part := _part(part if isinstance(part, dict) else {})) is not None:
            yield chat_part
        else:
            kind = None
            if isinstance(part, dict):
                kind = part.get("type")
            losses.lose(f"input.{kind}", f"{where}[{part_index}]")


def _part(part: Json) -> Json | None:
    """Return one part; None if chat completions have no counterpart."""
    kind = part.get("type")
    if kind in TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "refusal":
        return {"type": "text", "text": str(part.get("refusal") or "")}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        if part.get("detail") in ("low", "high"):
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and not part.get("file_url"):
        file = {k: part[k] for k in ("file_data", "filename", "file_id") if part.get(k)}
        return {"type": "file", "file": file}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    return None
