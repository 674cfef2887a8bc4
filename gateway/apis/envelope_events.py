"""The events of formats whose replies are a sequence of numbered parts: read, and written. Pure."""

from __future__ import annotations

import msgspec

from gateway.errors import GatewayError, StreamIncomplete, UnreadableStream
from gateway.wire.answer_parts import MAX_PARTS
from gateway.wire.chat import Json, MalformedReply, broken_stream, encode, read_object
from gateway.wire.json_weight import UNREADABLE, is_readable

OPEN = "open"
BEGIN = "begin"
DELTA = "delta"
END = "end"
CLOSE = "close"
ERROR = "error"
OTHER = "other"
PART_EVENTS = frozenset({BEGIN, DELTA, END})
# Of an event that is read at once.
SHORT_BYTES = 1 << 14


def data_of(event_bytes: bytes, lines: bytes) -> bytes | None:
    """Return the data of one short event that begins with these lines; None for anything else."""
    end = len(event_bytes) - 2
    if (
        len(event_bytes) > SHORT_BYTES
        or not event_bytes.startswith(lines)
        or not event_bytes.endswith(b"\n\n")
    ):
        return None
    if event_bytes.find(b"\n", len(lines)) != end or b"\r" in event_bytes:
        return None
    return event_bytes[len(lines) : end]


def read_event(data: bytes) -> Json:
    """Read an event's data. Raises StreamIncomplete if it is not an object."""
    try:
        return read_object(data)
    except MalformedReply as e:
        raise broken_stream(e) from e


def read_heavy_event(data: bytes) -> Json:
    """Return the same of data that take long to read. Raises StreamIncomplete."""
    if not is_readable(data):
        raise broken_answer(f"an event of {UNREADABLE}")
    return read_event(data)


def broken_answer(fault: str) -> StreamIncomplete:
    """Return the error for an answer that cannot be read on. fault: what the upstream sent."""
    return UnreadableStream(f"The stream broke off: the upstream sent {fault}. Try again.")


def check_count(parts: int) -> None:
    """Raise StreamIncomplete for more parts than a round may have."""
    if parts > MAX_PARTS:
        raise broken_answer(f"more than {MAX_PARTS} parts")


def event_of(event: Json) -> bytes:
    """Return an event of ours; its `event:` line names its type, as in both APIs."""
    return b"event: %b\ndata: %b\n\n" % (str(event.get("type")).encode(), encode(event))


def error_parts(error: GatewayError) -> tuple[str | None, str]:
    """Return the code and the message of an error, which may be an upstream's own."""
    try:
        error_object = msgspec.json.decode(error.event())["error"]
        return error_object.get("code") or error_object.get("type"), str(
            error_object.get("message") or error.message
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        return error.code, error.message
