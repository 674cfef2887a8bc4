"""The model a request or an answer names, read and replaced without touching another byte of its value; the usage it tells. Pure."""
from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.wire.chat import encode

NESTED = ("response", "message")  # where the events of other APIs carry the object that names its model
BOUNDARY = re.compile(rb'boundary=(?:"([^"]{1,200})"|([^\s;,]{1,200}))', re.IGNORECASE)
FIELD = rb'\r\n(?:[^\r\n]+\r\n)*?content-disposition:[^\r\n]*;[ \t]*name="?model"?[ \t]*(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,1000})\r\n'


class _Model(msgspec.Struct):
    model: str | None = None


class _Usage(msgspec.Struct):
    usage: Any = None
    response: Any = None
    message: Any = None


def model_of(body: bytes, content_type: bytes) -> str | None:
    """The model a request's body names, JSON or form; None where it names none."""
    if b"multipart/form-data" in content_type.lower():
        found = _field(body, content_type)
        return found[1].decode("utf-8", "replace") if found else None
    try:
        return msgspec.json.decode(body, type=_Model).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def usage_of(data: bytes) -> Any:
    """The usage object of an answer or an event, in the body or in the object that an event of another API carries; None where there is none."""
    try:
        found = msgspec.json.decode(data, type=_Usage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.usage or next((part["usage"] for part in (found.response, found.message) if isinstance(part, dict) and part.get("usage")), None)


def renamed(body: bytes, model: str, content_type: bytes = b"application/json") -> bytes:
    """The body with another model; what names none stays as it is. For JSON every other member keeps its bytes."""
    if b"multipart/form-data" in content_type.lower():
        found = _field(body, content_type)
        return body[: found.start(1)] + model.encode() + body[found.end(1) :] if found else body
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    inner = {k: renamed(bytes(members[k]), model) for k in NESTED if k in members}
    if "model" not in members and all(members[k] == v for k, v in inner.items()):
        return body
    members |= {k: msgspec.Raw(v) for k, v in inner.items()}
    if "model" in members:
        members["model"] = msgspec.Raw(encode(model))
    return encode(members)


def _field(form: bytes, content_type: bytes) -> re.Match[bytes] | None:
    """The part of a form that is its `model`; what a file in it quotes is none."""
    if (named := BOUNDARY.search(content_type)) is None:
        return None
    mark = b"--" + re.escape(named[1] or named[2])
    return re.search(mark + FIELD + mark, form, re.IGNORECASE)
