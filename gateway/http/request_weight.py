"""Limits on what the gateway parses of a chat request.

A request is parsed completely for memory only up to limits that a thread can handle in short steps.
Beyond them memory is bypassed (`TooHeavy`) and the body is forwarded as it came. Then, and if
memory is off, only the few members that the gateway itself needs are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.errors import BadRequest
from gateway.wire.chat import Json, decode
from gateway.wire.chat_request import check_model, parse
from gateway.wire.json_members import VALUE_BYTES, UnreadableMembers, find_members, value_end
from gateway.wire.json_weight import MOST_MEMBERS, is_readable
from gateway.wire.model_field import SKIMMED_BYTES
from memory import text_of

# JSON values in the new part of a body.
VALUES = 500_000
MESSAGES = 5_000
TEXT_BYTES = 8 << 20
TEXTS = ("text", "input_text", "output_text", "refusal")


class TooHeavy(Exception):
    """A request too large for memory; the message says why."""


class _RoutingMembers(msgspec.Struct):
    """The members that the gateway reads of every request, undecoded."""

    model: msgspec.Raw = msgspec.Raw()
    user: msgspec.Raw = msgspec.Raw()
    safety_identifier: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()
    stream_options: msgspec.Raw = msgspec.Raw()
    n: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()
    max_completion_tokens: msgspec.Raw = msgspec.Raw()
    max_output_tokens: msgspec.Raw = msgspec.Raw()
    previous_response_id: msgspec.Raw = msgspec.Raw()
    conversation: msgspec.Raw = msgspec.Raw()
    store: msgspec.Raw = msgspec.Raw()


MEMBER_NAMES = tuple(name.encode() for name in _RoutingMembers.__struct_fields__)
_skimmed = msgspec.json.Decoder(_RoutingMembers).decode


def read_routing_members(body: bytes) -> Json:
    """Parse only what routing and accounting need of a chat request. Raises BadRequest."""
    if len(body) > SKIMMED_BYTES:
        members = _find_in_steps(body)
    else:
        members = parse(body, _decode_members)
    check_model(members)
    return members


def _decode_members(body: bytes) -> Json:
    try:
        members = decode(body, _skimmed)
    except msgspec.ValidationError as e:
        raise BadRequest("The body must be a JSON object.", code="invalid_json") from e
    return {
        name: _member(name, member_text)
        for name in _RoutingMembers.__struct_fields__
        if (member_text := getattr(members, name))
    }


def _member(name: str, member_text: msgspec.Raw) -> Any:
    if len(member_text) > VALUE_BYTES:
        raise BadRequest(
            f"`{name}` has {len(member_text)} bytes; at most {VALUE_BYTES} are read. "
            "Send a shorter one.",
            param=name,
        )
    return msgspec.json.decode(member_text)


def _find_in_steps(body: bytes) -> Json:
    """Read the members of a long body, which is not checked to be JSON. Raises BadRequest."""
    try:
        places = find_members(body, MEMBER_NAMES)
    except UnreadableMembers as e:
        raise BadRequest(f"The body cannot be read: {e}.", code="invalid_json") from e
    members = {}
    for name, start in places.items():
        try:
            members[name.decode()] = decode(body[start : value_end(body, start)])
        except (UnreadableMembers, msgspec.DecodeError, UnicodeDecodeError) as e:
            raise BadRequest(
                f"`{name.decode()}` is no JSON value of at most {VALUE_BYTES} bytes. Send a "
                "shorter one.",
                param=name.decode(),
            ) from e
    return members


def check_values(text: bytes) -> None:
    """Raise TooHeavy if the text has more JSON values than are decoded in one step."""
    if not is_readable(text, VALUES):
        raise TooHeavy(f"more than {VALUES} JSON values, or {MOST_MEMBERS} members of one object")


def check_weight(size: int, messages: Sequence[Json]) -> None:
    """Raise TooHeavy for more messages or text than memory handles.

    size: bytes of the request. Images, audio and files do not count.
    """
    if len(messages) > MESSAGES:
        raise TooHeavy(f"{len(messages)} messages; memory handles {MESSAGES}")
    if size > TEXT_BYTES and (text := size - sum(map(_media, messages))) > TEXT_BYTES:
        text_bytes = sum(_bytes(text_of(m)) for m in messages) + sum(
            _bytes(c) for c in _arguments(messages)
        )
        if min(text_bytes, text) > TEXT_BYTES:
            raise TooHeavy(f"{min(text_bytes, text)} bytes of text; memory handles {TEXT_BYTES}")


def _media(message: Json) -> int:
    """Count the characters of the parts of a message that are not text."""
    content = message.get("content")
    if not isinstance(content, list):
        return 0
    return sum(_size(p) for p in content if isinstance(p, dict) and p.get("type") not in TEXTS)


def _size(value: Any) -> int:
    """Count the characters of all strings in a value."""
    if isinstance(value, str):
        return len(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_size, items))


def _bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def _arguments(messages: Sequence[Json]) -> list[str]:
    """List the arguments of the tool calls in these messages."""
    functions = [c.get("function") for m in messages for c in m.get("tool_calls") or ()]
    return [
        text
        for f in functions
        if isinstance(f, dict) and isinstance(text := f.get("arguments"), str)
    ]
