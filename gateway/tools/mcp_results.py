"""What a call of an MCP server's tool returned, as a tool result. Pure."""

from __future__ import annotations

import binascii

import msgspec

from gateway.tools.hidden_values import HiddenValues
from gateway.tools.kind import ToolImage, ToolOutput
from gateway.wire.chat import Json

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_BYTES = 4 << 20
CAUSE_CHARACTERS = 300
NOT_MCP = "Error: what the server answered is not MCP (content is no list of items)"
SAID_NOTHING = "the tool failed, and its server says nothing more"


def read_result(result: Json, origin: str, hidden: HiddenValues) -> ToolOutput:
    """Return a result. result: of `tools/call`, as the server gave it. hidden: not repeated."""
    texts: list[str] = []
    images: list[ToolImage] = []
    content = result.get("content", [])
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        return ToolOutput(NOT_MCP, "error", origin=origin)
    has_text = False
    for item in content:
        has_text |= _read_item(item, texts, images)
    structured = result.get("structuredContent")
    if structured is not None and not has_text:
        texts = [msgspec.json.encode(structured).decode(), *filter(str.strip, texts)]
    text = hidden.hide("\n".join(texts))
    if result.get("isError") is True:
        cause = text[:CAUSE_CHARACTERS] if text.strip() else SAID_NOTHING
        return ToolOutput(f"Error: {cause}", "error", origin=origin)
    return ToolOutput(text, images=tuple(images), origin=origin)


def _read_item(item: Json, texts: list[str], images: list[ToolImage]) -> bool:
    """Add an item of a result; tell whether it is text."""
    kind, media = item.get("type"), _word(item, "mimeType")
    resource = item.get("resource")
    embedded = resource if isinstance(resource, dict) else {}
    if kind == "text":
        texts.append(_word(item, "text"))
        return bool(texts[-1].strip())
    if kind == "resource" and isinstance(embedded.get("text"), str):
        texts.append(embedded["text"])
        return True
    if kind == "image":
        _add_image(media, _word(item, "data"), images, texts)
    elif kind == "resource_link":
        texts.append(f"{_word(item, 'name')} <{_word(item, 'uri')}>")
    elif kind == "resource":
        blob = _word(embedded, "blob")
        texts.append(_left_out(_word(embedded, "mimeType"), blob, "left out"))
    else:
        texts.append(_left_out(media, _word(item, "data"), "left out"))
    return False


def _word(item: Json, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _add_image(media: str, data: str, images: list[ToolImage], texts: list[str]) -> None:
    size = _byte_count(data)
    if media in IMAGES and size <= IMAGE_BYTES and _is_base64(data):
        images.append(ToolImage(media, data, size))
    else:
        texts.append(_left_out(media, data, "not shown"))


def _left_out(media: str, data: str, why: str) -> str:
    size = _byte_count(data)
    size_text = f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{max(1, size >> 10)} KiB"
    return f"[{media or 'application/octet-stream'}, {size_text}, {why}]"


def _is_base64(data: str) -> bool:
    """Tell whether a model's server can read a picture's data."""
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return False


def _byte_count(data: str) -> int:
    """Return the bytes behind a text in base64."""
    return len(data) * 3 // 4
