"""What a call of an MCP server's tool returned, as a tool result. Pure."""

from __future__ import annotations

import binascii
from typing import Any

import msgspec

from gateway.tools.kind import ToolImage, ToolOutput

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_BYTES = 4 << 20
CAUSE_CHARACTERS = 300
SAID_NOTHING = "the tool failed, and its server says nothing more"


def read_result(result: Any, origin: str) -> ToolOutput:
    """Return a result. result: a `CallToolResult` of the package."""
    texts: list[str] = []
    images: list[ToolImage] = []
    has_text = False
    for item in result.content:
        kind = item.type
        if kind == "text":
            has_text = True
            texts.append(item.text)
        elif kind == "image":
            _add_image(item, images, texts)
        elif kind == "resource_link":
            texts.append(f"{item.name} <{item.uri}>")
        elif kind == "resource" and getattr(item.resource, "text", None) is not None:
            has_text = True
            texts.append(item.resource.text)
        elif kind == "resource":
            blob = getattr(item.resource, "blob", "")
            texts.append(_left_out(item.resource.mime_type, blob, "left out"))
        else:
            data, media = getattr(item, "data", ""), getattr(item, "mime_type", None)
            texts.append(_left_out(media, data, "left out"))
    structured = result.structured_content
    if structured is not None and not has_text:
        texts.insert(0, msgspec.json.encode(structured).decode())
    text = "\n".join(texts)
    if result.is_error:
        cause = text[:CAUSE_CHARACTERS] if text.strip() else SAID_NOTHING
        return ToolOutput(f"Error: {cause}", "error", origin=origin)
    return ToolOutput(text, images=tuple(images), origin=origin)


def _add_image(item: Any, images: list[ToolImage], texts: list[str]) -> None:
    size = _byte_count(item.data)
    if item.mime_type in IMAGES and size <= IMAGE_BYTES and _is_base64(item.data):
        images.append(ToolImage(item.mime_type, item.data, size))
    else:
        texts.append(_left_out(item.mime_type, item.data, "not shown"))


def _left_out(media: str | None, data: str, why: str) -> str:
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
