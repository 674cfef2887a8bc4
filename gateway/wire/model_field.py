"""The model a request or an answer names, read and replaced without touching another byte of its
value; the usage it tells. Pure.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.errors import BadRequest
from gateway.wire.chat import encode
from gateway.wire.json_members import UnreadableMembers, find_members, read_string
from gateway.wire.json_weight import UNREADABLE as TOO_HEAVY
from gateway.wire.json_weight import is_readable
from gateway.wire.multipart import FormField, MalformedForm, field, fields, is_form

# Where the events of other APIs carry the object that names its model.
NESTED = (
    "response",
    "message",
)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
URLENCODED = b"application/x-www-form-urlencoded"
# Members in which some servers take more models, to ask where the first fails.
OTHERS = (
    "models",
    "fallbacks",
)
# That a decoder passes over in 20 ms, whatever they hold.
SKIMMED_BYTES = 8 << 20
BLANK = re.compile(r"[\x00-\x20]")
LIMITED = (
    "This key is limited in its models or its budget, so the model of a request must be plain to "
    "read, and "
)


class _Model(msgspec.Struct):
    model: str | None = None


class _Usage(msgspec.Struct):
    usage: Any = None
    response: Any = None
    message: Any = None


def model_of(body: bytes, content_type: bytes) -> str | None:
    """Return the model a request's body names, JSON or form; None where it names none."""
    if is_form(content_type):
        model_part = _field(body, content_type)
        if model_part:
            return body[model_part.start : model_part.end].decode("utf-8", "replace")
        return None
    try:
        if len(body) > SKIMMED_BYTES:
            place = find_members(body, (b"model",)).get(b"model")
            if place is None:
                return None
            return read_string(body, place)
        return msgspec.json.decode(body, type=_Model).model
    except (*UNREADABLE, UnreadableMembers):
        return None


def model_for_certain(body: bytes, content_type: bytes) -> str | None:
    """Return the model of a body that no server can read as another.

    Returns None where the body names none. Raises BadRequest.
    """
    if is_form(content_type):
        return _model_of_form(body, content_type)
    if content_type.partition(b";")[0].strip().lower() == URLENCODED:
        raise BadRequest(
            f"{LIMITED}a form in this encoding is not. Send JSON, or a multipart form.",
            param="model",
        )
    if not is_readable(body):
        raise BadRequest(f"{LIMITED}this body has {TOO_HEAVY}. Send fewer.", code="too_many_values")
    # Half of a surrogate pair is legal JSON: here it may stand for any character.
    text = body.replace(b"\\ud", b"\\uf").replace(b"\\uD", b"\\uF")
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        model = msgspec.json.decode(text, type=_Model).model
        once = (text.count(b'"model"') < 2 and b"\\u006" not in text) or _once_each(text)
    except UNREADABLE as e:
        reason = "it is nested too deeply"
        if not isinstance(e, RecursionError):
            reason = str(e)[:200]
        raise BadRequest(
            f"{LIMITED}this body is no plain JSON object ({reason}). Send JSON in UTF-8, or a "
            "multipart form.",
            code="invalid_json",
        ) from e
    ambiguity = "" if once else "a member stands twice, or its name has escapes in it"
    for name in members:
        if name != "model" and BLANK.sub("", name).lower() in ("model", *OTHERS):
            ambiguity = f"{name[:60]!r} may be taken for it"
            break
    if ambiguity:
        raise BadRequest(
            f"{LIMITED}{ambiguity}. Give each member once, and `model` in this spelling.",
            param="model",
        )
    return model


def _model_of_form(body: bytes, content_type: bytes) -> str | None:
    """Read the model of a multipart form. Raises BadRequest."""
    try:
        model_part = field(body, content_type, b"model")
        if model_part:
            return body[model_part.start : model_part.end].decode()
        return None
    except (MalformedForm, UnicodeDecodeError) as e:
        raise BadRequest(
            f"{LIMITED}this form is not: {e}. Send it as the SDKs do.", param="model"
        ) from e


def _once_each(text: bytes) -> bool:
    """Tell whether no member of an object stands twice: written again, such a one stands once."""
    compact_text = msgspec.json.format(text, indent=-1)
    return encode(msgspec.json.decode(compact_text, type=dict[str, msgspec.Raw])) == compact_text


def usage_of(data: bytes) -> Any:
    """Return the usage object of an answer or an event, in the body or in the object that an event
    of another API carries; None where there is none.
    """
    try:
        usage_holder = msgspec.json.decode(data, type=_Usage)
    except UNREADABLE:
        return None
    return usage_holder.usage or next(
        (
            part["usage"]
            for part in (usage_holder.response, usage_holder.message)
            if isinstance(part, dict) and part.get("usage")
        ),
        None,
    )


def replace_model(body: bytes, model: str, content_type: bytes = b"application/json") -> bytes:
    """Return the body with another model; what names none stays as it is.

    For JSON every other member keeps its bytes.
    """
    if is_form(content_type):
        model_part = _field(body, content_type)
        if model_part:
            return body[: model_part.start] + model.encode() + body[model_part.end :]
        return body
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return body
    nested_members = {
        k: msgspec.Raw(replace_model(bytes(members[k]), model)) for k in NESTED if k in members
    }
    if "model" not in members and all(members[k] == v for k, v in nested_members.items()):
        return body
    members |= nested_members
    if "model" in members:
        members["model"] = msgspec.Raw(encode(model))
    return encode(members)


def _field(form: bytes, content_type: bytes) -> FormField | None:
    """Return the first field of a form that is its `model`, as far as the form can be read."""
    try:
        return next(
            (f for f in fields(form, content_type) if f.name == b"model" and not f.file), None
        )
    except MalformedForm:
        return None
