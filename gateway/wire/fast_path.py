"""Fast path for streamed text. Pure.

Nearly all events of a stream differ from the one before in one JSON string only: their text, their
reasoning or a piece of a call's arguments. A template holds the bytes before and after that string.
An event that matches it needs no parsing: the string between those bytes is its text.

A template is checked when it is made. The event with another text in that place is parsed, and must
have that text and nothing else that differs. OpenAI ends events with random letters, `obfuscation`:
a second such place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from gateway.wire.chat import Chunk, ChunkIdentity, Json, parse_chunk
from gateway.wire.lone_surrogates import encode_plain

CONTENT = "content"
THOUGHTS = ("reasoning_content", "reasoning")
MEMBER = re.compile(
    rb'"(?:content|reasoning_content|reasoning|arguments)"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*)"'
)
PADDING = re.compile(rb'"obfuscation"\s*:\s*"([A-Za-z0-9]+)"\s*\}\Z')
# Bytes of an event of which a template is made; longer ones are too few to be worth it.
MAX_TEMPLATE_BYTES = 1 << 16
# Stand for any.
TEXT, PAD = "mnemogate.text", "mnemogatepad"
Delta = Callable[[str], Json]
_text = msgspec.json.Decoder(str).decode


class Around(NamedTuple):
    """The bytes before a text, after it, and after its padding if it has any."""

    before: bytes
    after: bytes
    end: bytes


class ChunkTemplate:
    """The fixed bytes of an event, around the text that changes from one event to the next.

    lane: the choice the text belongs to. delta: makes the delta that says a text. ends: what an
    event begins and ends with, up to the quotes of its text. padded: the bytes between its text and
    its padding, quotes included, where it has padding. shown: the bytes around the text in the
    event to show, where that is another. texts: those matched since it was made; its owner takes
    them.
    """

    __slots__ = (
        "_after",
        "_before",
        "_from",
        "_padded",
        "_rewritten",
        "_to",
        "delta",
        "guards_objects",
        "lane",
        "texts",
    )

    def __init__(
        self,
        lane: int,
        delta: Delta,
        ends: tuple[bytes, bytes],
        padded: bytes,
        rewritten: Around | None,
    ) -> None:
        self.lane = lane
        self.delta = delta
        self.texts: list[str] = []
        self._before, self._after = ends
        self._padded = padded
        self._rewritten = rewritten
        self.guards_objects = False
        self._from = len(self._before) - 1
        self._to = 1 - len(self._after)

    def match(self, event_bytes: bytes) -> bytes:
        """Return the event to show for one that came; b"" for one that has to be read."""
        if not (event_bytes.startswith(self._before) and event_bytes.endswith(self._after)):
            return b""
        pad = b""
        to = self._to
        if self._padded:
            to = event_bytes.rfind(self._padded) + 1
            pad = event_bytes[to - 1 + len(self._padded) : -len(self._after)]
            if not (to and pad.isalnum()):
                return b""
        try:
            text = _text(event_bytes[self._from : to])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""
        if not text or (self.guards_objects and text[0] == "{"):
            return b""
        self.texts.append(text)
        if self._rewritten is None:
            return event_bytes
        before, after, end = self._rewritten
        return before + encode_plain(text) + after + pad + end


def make_template(
    chunk: Chunk, head: ChunkIdentity, roles: set[int], bare: bool
) -> ChunkTemplate | None:
    """Make a template of a chunk that holds a piece of one text and nothing else.

    Returns None for a chunk that says more, or whose like could say more the next time. head,
    roles, bare: see `Chunk.render`.
    """
    text_template = _text_template(chunk)
    if text_template is None or text_template[0] == TEXT or (around := _cut_around(chunk)) is None:
        return None
    sample_chunk = _fill(around)
    proof = _text_template(sample_chunk)
    if proof is None or proof[0] != TEXT or proof[1](TEXT) != text_template[1](TEXT):
        return None
    if around.end and sample_chunk.body.get("obfuscation") != PAD:
        return None
    rewritten = None
    out = sample_chunk.render(sample_chunk.segments, head, roles, bare)
    if out is not sample_chunk.payload and (rewritten := _cut_shown(out, bool(around.end))) is None:
        return None
    before, after, end = around
    ends = (b"data: " + before, (end or after) + b"\n\n")
    return ChunkTemplate(
        chunk.segments[0].lane, text_template[1], ends, after if end else b"", rewritten
    )


def _cut_around(chunk: Chunk) -> Around | None:
    """Cut a payload around its text and its padding; None where that is not plain."""
    payload = chunk.payload
    if len(payload) > MAX_TEMPLATE_BYTES or not (member_matches := list(MEMBER.finditer(payload))):
        return None
    if any(stand_in in payload for stand_in in (TEXT.encode(), PAD.encode(), b"\n", b"\r")):
        return None
    if chunk.body.get("obfuscation") == PAD:
        return None
    start, stop = member_matches[-1].span(1)
    pad = PADDING.search(payload)
    if pad is not None and pad.start(1) > stop:
        return Around(payload[:start], payload[stop : pad.start(1)], payload[pad.end(1) :])
    return Around(payload[:start], payload[stop:], b"")


def _fill(around: Around) -> Chunk:
    """Parse the chunk with another text: one JSON string in place of another is still JSON."""
    before, after, end = around
    return parse_chunk(b"".join((before, TEXT.encode(), after, PAD.encode() if end else b"", end)))


def _cut_shown(out: bytes | None, padded: bool) -> Around | None:
    """Cut an event to show around its text and its padding.

    Returns None where the text is not found exactly once.
    """
    if out is None or out.count(TEXT.encode()) != 1 or out.count(PAD.encode()) != padded:
        return None
    start, _, after_text = out.partition(encode_plain(TEXT))
    if not padded:
        return Around(b"data: " + start, after_text + b"\n\n", b"")
    middle, _, after_padding = after_text.partition(PAD.encode())
    return Around(b"data: " + start, middle, after_padding + b"\n\n")


def _text_template(chunk: Chunk) -> tuple[str, Delta] | None:
    """Return a chunk's one text, and what makes its delta of any other text.

    Returns None where the chunk says anything that may differ in the next one.
    """
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
    if member == "tool_calls":
        return _arguments_template(value)
    return None


def _arguments_template(calls: Any) -> tuple[str, Delta] | None:
    """Do what `_text_template` does, for a piece of a call's arguments."""
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
    if isinstance(text, str) and text:
        return (text, lambda text: {"tool_calls": [{**call, "function": {"arguments": text}}]})
    return None
