"""The model a request or an answer names, read and replaced without touching another byte of its value. Pure."""
from __future__ import annotations

import re

import msgspec

from gateway.wire.chat import encode

NESTED = ("response", "message")  # where the events of other APIs carry the object that names its model
FORM_MODEL = re.compile(
    rb'\r\ncontent-disposition:[^\r\n]*;\s*name="?model"?(?:\s*;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,1000})\r\n--', re.IGNORECASE)


class _Model(msgspec.Struct):
    model: str | None = None


def model_of(body: bytes, content_type: bytes) -> str | None:
    """The model a request's body names, JSON or form; None where it names none."""
    if b"multipart/form-data" in content_type.lower():
        found = FORM_MODEL.search(body)
        return found[1].decode("utf-8", "replace") if found else None
    try:
        return msgspec.json.decode(body, type=_Model).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def renamed(body: bytes, model: str, content_type: bytes = b"application/json") -> bytes:
    """The body with another model; what names none stays as it is. For JSON every other member keeps its bytes."""
    if b"multipart/form-data" in content_type.lower():
        found = FORM_MODEL.search(body)
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
