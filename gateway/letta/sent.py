"""What a Letta client sends to an agent, as the messages of a chat completion. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.letta.errors import Unprocessable
from gateway.wire.chat import Json

ROLES = ("user", "system", "assistant")
MESSAGE_USED = frozenset({"role", "content", "name", "type"})
Drop = Callable[[Iterable[str]], None]


def sent_messages(body: Json, drop: Drop) -> list[Json]:
    """Return the messages of a request. drop: told of members without an effect.

    Raises Unprocessable.
    """
    messages = body.get("messages")
    text = body.get("input")
    if messages is not None and text is not None:
        raise Unprocessable("Send `messages` or `input`, not both.", param="input")
    if text is not None:
        if not isinstance(text, str | list) or not text:
            raise Unprocessable("`input` must be a text or a list of parts.", param="input")
        return [{"role": "user", "content": content_of(text, "input")}]
    return read_messages(messages, "messages", drop)


def read_messages(messages: Any, where: str, drop: Drop) -> list[Json]:
    """Return a list of messages. Raises Unprocessable naming the one that cannot be taken."""
    if not isinstance(messages, list) or not messages:
        raise Unprocessable(
            f"`{where}` must be a list of messages, and not empty. Or send `input`.", param=where
        )
    return [_message(message, f"{where}.{i}", drop) for i, message in enumerate(messages)]


def _message(message: Any, where: str, drop: Drop) -> Json:
    if not isinstance(message, dict):
        raise Unprocessable(f"`{where}` must be an object.", param=where)
    kind = message.get("type") or "message"
    if kind != "message":
        raise Unprocessable(
            f"`{where}.type` is {str(kind)[:40]!r}, which is not supported here.",
            param=where,
            code="not_supported",
        )
    role = message.get("role")
    if role not in ROLES:
        raise Unprocessable(
            f"`{where}.role` is {str(role)[:40]!r}: use one of {', '.join(ROLES)}.", param=where
        )
    drop(n for n in message if n not in MESSAGE_USED and message[n] is not None)
    out: Json = {"role": role, "content": content_of(message.get("content"), f"{where}.content")}
    if isinstance(name := message.get("name"), str) and name:
        out["name"] = name
    return out


def content_of(content: Any, where: str) -> str | list[Json]:
    """Return a message's content: a text, or text and image parts. Raises Unprocessable."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise Unprocessable(f"`{where}` must be a text or a list of parts.", param=where)
    parts = [_part(part, f"{where}.{i}") for i, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(part: Any, where: str) -> Json:
    kind = None
    if isinstance(part, dict):
        kind = part.get("type", "text")
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    source = None
    if kind == "image":
        source = part.get("source")
    if isinstance(source, dict):
        if isinstance(url := source.get("url"), str):
            return {"type": "image_url", "image_url": {"url": url}}
        kind = source.get("media_type") or "image/png"
        data = source.get("data")
        if isinstance(data, str) and isinstance(kind, str):
            url = f"data:{kind};base64,{data}"
            return {"type": "image_url", "image_url": {"url": url}}
    raise Unprocessable(
        f"`{where}` must be a text or an image with a `source` of a URL or of base64 data.",
        param=where,
    )


def as_context(messages: list[Json]) -> list[Json]:
    """Return messages that go on a history which is kept here.

    A message that the assistant is to have said would count as a history of the client's own, so
    the model is told of it instead.
    """
    return [
        {"role": "system", "content": f"You, the assistant, said before: {_words(m['content'])}"}
        if m["role"] == "assistant"
        else m
        for m in messages
    ]


def _words(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")
