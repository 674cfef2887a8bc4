"""Server-Sent Events as bytes: a framer fed by hand and a one-line writer. No I/O.

Rules (WHATWG HTML, 9.2.5 and 9.2.6):
- Only LF, CRLF and CR end a line: U+2028, U+0085 and friends are text.
- A blank line ends an event. It is handed over the moment its last byte is there, so a CR that may
  be half
  of a CRLF is not waited for; the LF, if it comes, opens the next event's raw bytes.
- The raw bytes of all events plus `rest` are the stream, byte for byte: a pass-through may send
  them on.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NamedTuple

from memory.conversation.steps import end_step

BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
BLANKS = re.compile(rb"[\r\n]{64,}+")
COLON = b":"[0]
COMMENTS = re.compile(rb"(?::[^\r\n]{0,64}\n\n){16,}")
# Of an event, so no longer than a blank one.
MIN_EVENT_END_BYTES = len(b"\r\n\r\n")
LINE = re.compile(rb"\r\n|\n|\r")
BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"
# Of an event that may be the mark of the end, with blanks around it.
SHORT_BYTES = 32
COMMENT = b": keep-alive\n\n"
EVENT_BYTES = 32 << 20
# Of an event; a longer one is taken apart and put together off the loop.
LONG_BYTES = 1 << 20
EVENT_LINES = 50_000


class EventTooLarge(ValueError):
    """An event of more bytes or lines than are kept until its end."""


class SseEvent(NamedTuple):
    """One dispatched block: `data` is None for a block of comments or blank lines alone.

    ended: its blank line came.
    """

    event_bytes: bytes
    data: bytes | None
    name: bytes = b""
    ended: bool = True


class SseFramer:
    """Cuts a byte stream into events, whatever the pieces it arrives in."""

    __slots__ = ("_start", "_unread_bytes", "count", "ids", "waiting_bytes")

    def __init__(self) -> None:
        # An `id` field was seen.
        self.ids = False
        # Events so far.
        self.count = 0
        # Grows in place: an event of 20 MB comes in hundreds of pieces.
        self._unread_bytes = bytearray()
        # Bytes of an event that is not complete yet.
        self.waiting_bytes = 0
        self._start = True

    @property
    def rest(self) -> bytes:
        """Bytes of an event that is not complete yet."""
        return bytes(self._unread_bytes)

    @property
    def between(self) -> bool:
        """Whether what comes next begins an event."""
        return not self._unread_bytes

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes, of any length; return the events they complete, in order.

        Raises EventTooLarge.
        """
        unread_bytes = self._unread_bytes
        if not (unread_bytes or self._start) and (event := _simple(data)) is not None:
            self.count += 1
            return [event]
        if unread_bytes:
            unread_bytes += data
            if self.waiting_bytes > LONG_BYTES and not has_line_end(data):
                # A search would look at each byte.
                return self._wait()
        buffer = unread_bytes or data
        events: list[SseEvent] = []
        begin = 0
        look = max(0, self.waiting_bytes - 3)
        while blank_line := BLANK.search(buffer, look):
            end = blank_line.end()
            if buffer[begin] == COLON and (run := COMMENTS.match(buffer, begin)):
                # A flood of comments: one block, not thousands.
                end = run.end()
            elif end - begin <= MIN_EVENT_END_BYTES and (run := BLANKS.match(buffer, begin)):
                # Nothing but blank lines: one block, not thousands.
                end = run.end()
            with memoryview(buffer) as view:
                event_bytes = bytes(view[begin:end])
            if len(event_bytes) > LONG_BYTES:
                end_step()
            events.append(self._event(event_bytes))
            begin = look = end
        if unread_bytes:
            del unread_bytes[:begin]
        elif begin < len(data):
            unread_bytes += data[begin:]
        self.count += len(events)
        self._wait()
        return events

    def _wait(self) -> list[SseEvent]:
        """Wait for the rest of an event. Raises EventTooLarge."""
        self.waiting_bytes = len(self._unread_bytes)
        if self.waiting_bytes > EVENT_BYTES:
            raise EventTooLarge(f"an event of more than {EVENT_BYTES} bytes")
        return []

    def close(self) -> SseEvent | None:
        """At the end of the stream: what came after the last blank line, if anything did."""
        event_bytes = bytes(self._unread_bytes)
        self._unread_bytes = bytearray()
        self.waiting_bytes = 0
        if event_bytes:
            return self._event(event_bytes)._replace(ended=False)
        return None

    def _event(self, event_bytes: bytes) -> SseEvent:
        text = event_bytes
        if self._start:
            self._start = False
            text = event_bytes.removeprefix(BOM)
        if (simple_event := _simple(text)) is not None:
            if text is event_bytes:
                return simple_event
            return simple_event._replace(event_bytes=event_bytes)
        if text.startswith(b":") and COMMENTS.fullmatch(text):
            return SseEvent(event_bytes, None)
        data: list[bytes] = []
        name = b""
        # Which is far quicker.
        lines = LINE.split(text, EVENT_LINES) if b"\r" in text else text.split(b"\n", EVENT_LINES)
        if len(lines) > EVENT_LINES:
            raise EventTooLarge(f"an event of more than {EVENT_LINES} lines")
        for line in lines:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"id":
                self.ids = True
        return SseEvent(event_bytes, _without_blanks(b"\n".join(data)) if data else None, name)


def has_line_end(data: bytes) -> bool:
    """Tell whether a line ends in these bytes; a pattern would take thirty times as long."""
    return b"\n" in data or b"\r" in data


def _simple(event_bytes: bytes) -> SseEvent | None:
    """Return the event where it is one line of data and a blank line, as nearly all are, or has
    its name before that; else None.
    """
    if (
        event_bytes.startswith(b"data: ")
        and event_bytes.find(b"\n") == len(event_bytes) - 2
        and event_bytes.endswith(b"\n\n")
        and b"\r" not in event_bytes
    ):
        return SseEvent(
            event_bytes,
            event_bytes[6:-2]
            if len(event_bytes) > SHORT_BYTES
            else _without_blanks(event_bytes[6:-2]),
        )
    if event_bytes.startswith(b"event: "):
        return _read_named(event_bytes)
    return None


def _without_blanks(data: bytes) -> bytes:
    """Return the mark of the end without the blanks that some servers write around it."""
    if len(data) <= SHORT_BYTES and data.strip(b" \t") == DONE:
        return DONE
    return data


def _read_named(event_bytes: bytes) -> SseEvent | None:
    """Return the event where it is a line with its name and one of data; else None."""
    at = event_bytes.find(b"\n")
    if (
        event_bytes.startswith(b"data: ", at + 1)
        and event_bytes.find(b"\n", at + 1) == len(event_bytes) - 2
        and event_bytes.endswith(b"\n\n")
        and b"\r" not in event_bytes
    ):
        return SseEvent(event_bytes, event_bytes[at + 7 : -2], event_bytes[7:at])
    return None


class StreamTranslator(ABC):
    """Fed the bytes of an event stream, in any pieces; gives those of another stream."""

    def __init__(self) -> None:
        self._framer = SseFramer()

    @property
    def waiting(self) -> int:
        """How many bytes wait for the rest of their event."""
        return self._framer.waiting_bytes

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return what they give. Raises MalformedReply, EventTooLarge."""
        return b"".join(self._translate(event) for event in self._framer.feed(data))

    def end(self) -> bytes:
        """Return the rest when no more bytes come. Raises MalformedReply."""
        last_event = self._framer.close()
        if last_event is not None:
            return self._translate(last_event)
        return b""

    @abstractmethod
    def _translate(self, event: SseEvent) -> bytes:
        """Return what an event gives. Raises MalformedReply."""


def frame(data: bytes) -> bytes:
    """Return one event of one JSON text or the `[DONE]` mark.

    A line end in JSON is white space, and would end the line here.
    """
    line = data.replace(b"\n", b" ").replace(b"\r", b" ")
    # With one copy, not two.
    if len(line) > LONG_BYTES:
        return b"".join((b"data: ", line, b"\n\n"))
    return b"data: " + line + b"\n\n"
