"""Translates the bytes of a chat completion's answer into another format. Pure.

One path for both modes: a whole answer is a stream of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gateway.apis.translation.chat_reply_parts import ReplyWriter
from gateway.wire.chat import Json, MalformedReply, decode, encode, lift, read_object
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.sse import DONE, SseEvent, StreamTranslator


class BridgedStream(StreamTranslator):
    """A stream of chunks as one of the format's events."""

    def __init__(self, writer: ReplyWriter) -> None:
        super().__init__()
        self._writer = writer

    def end(self) -> bytes:
        return super().end() + _encode_events(self._writer.stop())

    def _translate(self, event: SseEvent) -> bytes:
        if not event.data:
            return b""
        if event.data == DONE:
            return _encode_events(self._writer.stop())
        if not event.ended and not event.data.endswith(b"}"):
            # Cut before its last brace.
            return b""
        return _encode_events(self._writer.feed(_chunk(event.data)))


def whole_reply(data: bytes, writer: ReplyWriter) -> bytes:
    """Return a whole answer in the format; anything that is no completion stays as it came."""
    if not is_readable(data):
        return data
    try:
        completion_chunk = _chunk(data)
        if "choices" not in completion_chunk:
            return data
        for _ in writer.feed(lift(completion_chunk)):
            pass
        for _ in writer.stop():
            pass
    except MalformedReply:
        return data
    return encode(writer.whole())


def refusal(data: bytes, writer: ReplyWriter, status: int) -> bytes:
    """Return a refusal in the format, with the text of an error that is not JSON."""
    try:
        error_body = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error_body = None
    error = None
    if isinstance(error_body, dict):
        error = error_body.get("error")
    if error is None and isinstance(error_body, dict) and error_body.get("message"):
        # As vLLM's older versions have it.
        error = error_body
    text = data[:2000].decode("utf-8", "replace").strip() or "no text"
    return encode(writer.refusal(error or {"message": text}, status))


def _chunk(data: bytes) -> Json:
    """Read a chunk. Raises MalformedReply."""
    if not is_readable(data):
        raise MalformedReply(f"an event of {UNREADABLE}")
    return read_object(data)


def _encode_events(events: Iterable[Json]) -> bytes:
    return b"".join(_frame(event) for event in events)


def _frame(event: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), encode(event))
