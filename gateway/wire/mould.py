"""A piece of streamed text told by its bytes alone: nearly all events of a stream differ from the one before in their text, their
thought or a piece of a call's arguments. Pure.

A mould is the bytes around the text of one event. Whatever stands between them in another event, if it is one JSON string, is what
that event says, and all else in it is as it was: so it need not be read. It is proved when it is made, by the event with another
text, which must be read as having that one: the string between those bytes is then the text, and all else is outside it. OpenAI
ends events with random letters, `obfuscation`: a second such place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.wire.chat import Chunk, Head, Json, Malformed, encode, read

CONTENT, THOUGHTS = "content", ("reasoning_content", "reasoning")
MEMBER = re.compile(
    rb'"(?:content|reasoning_content|reasoning|arguments)"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
)
PADDING = re.compile(rb'"obfuscation"\s*:\s*"([A-Za-z0-9]+)"\s*\}\Z')
LONGEST = (
    1 << 16
)  # bytes of an event from which a mould is made; longer ones are too few to be worth it
TEXT, PAD = "mnemogate.text", "mnemogatepad"  # stand for any
Delta = Callable[[str], Json]
_text = msgspec.json.Decoder(str).decode


class Mould:
    """lane: whose text it is. delta: what a chunk says, by its text. ends: what an event begins and ends with, up to the quotes of its text. padded: where it has padding, what is between its text
    and that, quotes included. shown: before the text, after it, and after the padding, of the event to show, where that is another.

    texts: what was poured since it was made, for who keeps the mould to take."""

    __slots__ = ("_after", "_before", "_from", "_padded", "_shown", "_to", "delta", "lane", "texts")

    def __init__(
        self,
        lane: int,
        delta: Delta,
        ends: tuple[bytes, bytes],
        padded: bytes,
        shown: tuple[bytes, bytes, bytes] | None,
    ) -> None:
        self.lane, self.delta = lane, delta
        self.texts: list[str] = []
        self._before, self._after = ends
        self._padded, self._shown = padded, shown
        self._from, self._to = len(self._before) - 1, 1 - len(self._after)

    def pour(self, raw: bytes) -> bytes:
        """The event to show for one that came; b"" for one that has to be read."""
        if not (raw.startswith(self._before) and raw.endswith(self._after)):
            return b""
        pad, to = b"", self._to
        if self._padded:
            to = raw.rfind(self._padded) + 1
            pad = raw[to - 1 + len(self._padded) : -len(self._after)]
            if not (to and pad.isalnum()):
                return b""
        try:
            text = _text(raw[self._from : to])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""
        if not text:
            return b""
        self.texts.append(text)
        if self._shown is None:
            return raw
        before, after, end = self._shown
        return before + encode(text) + after + pad + end


def mould(chunk: Chunk, head: Head, roles: set[int], bare: bool) -> Mould | None:
    """The mould of a chunk that is text of a lane, and nothing else that could add up to more the next time; else None. head, roles, bare: see `Chunk.render`."""
    payload, said = chunk.payload, _said(chunk)
    if len(payload) > LONGEST:
        return None
    found = list(MEMBER.finditer(payload))
    pad = PADDING.search(payload)
    taken = (
        TEXT.encode() in payload or PAD.encode() in payload or b"\n" in payload or b"\r" in payload
    )
    if (
        not found
        or taken
        or said is None
        or said[0] == TEXT
        or chunk.body.get("obfuscation") == PAD
    ):
        return None
    before, after, end = payload[: found[-1].start(1)], payload[found[-1].end(1) :], b""
    if pad is not None and pad.start(1) > found[-1].end(1):
        after, end = payload[found[-1].end(1) : pad.start(1)], payload[pad.end(1) :]
    try:
        other = read(b"".join((before, TEXT.encode(), after, PAD.encode() if end else b"", end)))
    except Malformed:
        return None
    if (
        (proof := _said(other)) is None
        or proof[0] != TEXT
        or proof[1](TEXT) != said[1](TEXT)
        or (end and other.body.get("obfuscation") != PAD)
    ):
        return None
    shown = None
    out = other.render(other.segments, head, roles, bare)
    if out is not other.payload:
        if out is None or out.count(TEXT.encode()) != 1 or out.count(PAD.encode()) != bool(end):
            return None
        start, _, last = out.partition(encode(TEXT))
        middle, _, last = last.partition(PAD.encode()) if end else (last, b"", b"")
        shown = (
            b"data: " + start,
            middle if end else middle + b"\n\n",
            last + b"\n\n" if end else b"",
        )
    ends = (b"data: " + before, (end or after) + b"\n\n")
    return Mould(chunk.segments[0].lane, said[1], ends, after if end else b"", shown)


def _said(chunk: Chunk) -> tuple[str, Delta] | None:
    """The text of a piece of one text for one choice, in which all else says the same however often it is said; and the delta of any other."""
    if len(chunk.segments) != 1 or len(chunk.body["choices"]) != 1 or chunk.usage is not None:
        return None
    choice = chunk.body["choices"][0]
    if any(v is not None for k, v in choice.items() if k not in ("index", "delta")):
        return None
    grown = [
        (k, v)
        for k, v in (choice.get("delta") or {}).items()
        if k != "role" and v not in (None, "", [])
    ]
    if len(grown) != 1:
        return None
    member, value = grown[0]
    if member in (CONTENT, *THOUGHTS) and isinstance(value, str):
        return value, lambda text: {member: text}
    return _argued(value) if member == "tool_calls" else None


def _argued(calls: Any) -> tuple[str, Delta] | None:
    """The same for a piece of a call's arguments."""
    call = calls[0]
    function = call.get("function")
    if (
        len(calls) != 1
        or not call.keys() <= {"index", "type", "function"}
        or not isinstance(function, dict)
        or function.keys() != {"arguments"}
    ):
        return None
    text = function["arguments"]
    return (
        (text, lambda text: {"tool_calls": [{**call, "function": {"arguments": text}}]})
        if isinstance(text, str) and text
        else None
    )
