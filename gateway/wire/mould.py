"""A piece of streamed text told by its bytes alone: nearly all events of a stream differ from the one before in their text. Pure.

A mould is the bytes around the text of one event. Whatever stands between them in another event, if it is one JSON string, is what
that event says, and all else in it is as it was: so it need not be read. It is proved when it is made, by the event with another
text, which has to be read as the same but for that text.
"""
from __future__ import annotations

import re

import msgspec

from gateway.wire.chat import Chunk, Head, Json, Malformed, encode, read

CONTENT = re.compile(rb'"content"\s*:\s*"((?:[^"\\]|\\.)*)"')
TEXT = "memgate.text"  # stands for any
SIGN = TEXT.encode()
_text = msgspec.json.Decoder(str).decode


class Mould:
    """before, after: what an event begins and ends with, up to the quotes of its text. shown: the same of the event to show, where
    that is another. texts: what was poured since it was made, for who keeps the mould to take."""

    __slots__ = ("_after", "_before", "_from", "_shown", "_to", "lane", "texts")

    def __init__(self, lane: int, before: bytes, after: bytes, shown: tuple[bytes, bytes] | None) -> None:
        self.lane = lane
        self.texts: list[str] = []
        self._before, self._after, self._shown = before, after, shown
        self._from, self._to = len(before) - 1, 1 - len(after)

    def pour(self, raw: bytes) -> bytes:
        """The event to show for one that came; b"" for one that has to be read."""
        if not (raw.startswith(self._before) and raw.endswith(self._after)):
            return b""
        try:
            text = _text(raw[self._from : self._to])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""
        if not text:
            return b""
        self.texts.append(text)
        if self._shown is None:
            return raw
        before, after = self._shown
        return before + encode(text) + after


def mould(chunk: Chunk, head: Head, roles: set[int], bare: bool) -> Mould | None:
    """The mould of a chunk that is text of a lane whose text is being shown, and nothing else that could add up to more the next time;
    else None. head, roles, bare: see `Chunk.render`."""
    payload = chunk.payload
    found = list(CONTENT.finditer(payload))
    if not found or SIGN in payload or b"\n" in payload or b"\r" in payload or not _steady(chunk) or chunk.segments[0].value == TEXT:
        return None
    before, after = payload[: found[-1].start(1)], payload[found[-1].end(1) :]
    try:
        other = read(before + SIGN + after)
    except Malformed:
        return None
    if not _steady(other) or other.segments[0].value != TEXT or _without_text(other.body) != _without_text(chunk.body):
        return None
    out = other.render(other.segments, head, roles, bare)
    if out is None or out.count(SIGN) != 1:
        return None
    shown = None
    if out is not other.payload:
        start, _, end = out.partition(encode(TEXT))
        shown = b"data: " + start, end + b"\n\n"
    return Mould(chunk.segments[0].lane, b"data: " + before, after + b"\n\n", shown)


def _steady(chunk: Chunk) -> bool:
    """Whether it is a piece of text for one choice, and all else in it says the same however often it is said."""
    if len(chunk.segments) != 1 or chunk.segments[0].kind != "text" or len(chunk.body["choices"]) != 1 or chunk.usage is not None:
        return False
    choice = chunk.body["choices"][0]
    return all(v is None for k, v in choice.items() if k not in ("index", "delta")) and all(v in (None, "", []) for k, v in choice["delta"].items() if k not in ("content", "role"))


def _without_text(body: Json) -> Json:
    choice = body["choices"][0]
    return {**body, "choices": [{**choice, "delta": {**choice["delta"], "content": ""}}]}
