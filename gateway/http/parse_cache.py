"""Chat requests whose beginning came before: only what is new of them is decoded.

A body is known again by its bytes up to the end of a message that an earlier body of the same key
and user held there: their length, their last bytes and the interpreter's own 64-bit hash (SipHash
under a secret of the process). What follows is then read as JSON with one string, drawn at random
for this process, in place of the messages that were known; where that string is not the first
message (members given twice, for example), the whole body is read; so is one with half of a
surrogate pair, which is mended. Nothing of what was said is kept here.
"""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from gateway.http.pacing import rest
from gateway.http.request_weight import check_values, check_weight
from gateway.wire.chat import Json, decode, has_no_lone_surrogates
from gateway.wire.chat_request import check_messages, check_model, parse
from gateway.wire.json_weight import is_light
from memory import Cache, Messages, PrefixInfo, SourceText, TextRange, array_elements

STANDIN = f"mnemogate-{secrets.token_hex(16)}"
_STANDIN = msgspec.json.encode(STANDIN)
MIN_PREFIX_BYTES = 256  # bytes; less is read faster than it is looked up
# Where the window of a text may end: four places an octave, so that the last of them is near its
# end, where texts that began alike differ.
PLACES = [
    MIN_PREFIX_BYTES << octave | MIN_PREFIX_BYTES * quarter << octave >> 2
    for octave in range(32)
    for quarter in range(4)
]
LOOKUP_WINDOW_BYTES = 1024  # bytes by which bodies are looked up
TAIL = 48  # bytes by which candidates are told apart before they are hashed
PARTS = 8  # of which a hash is made at most: what is new of a body is hashed, not all of it
MAX_SAME_PLACE = 64  # candidates behind one window
BYTES, EACH = (
    4 << 20,
    1750,
)  # of what is kept: some 2,400 conversations, each with the mark of a cut
# in what is new of a body; one that has more is read as a whole, for to find its messages would
# take long
BRACKETS = 100_000
NOWHERE: list[tuple[int, int]] = []
MAX_PREFIX_BYTES = (
    16 << 20
)  # bytes up to which a beginning is kept: to know it again, all of it is hashed
SPACE = b" \t\r\n"
SPACE_STEP_BYTES = 1 << 16  # bytes of it that are passed at once
_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(slots=True, eq=False)
class _CachedPrefix:
    """start: where the messages begin in the body.

    end: where the last of them ends. tail: the TAIL bytes before `end`. cuts: the ends of the parts
    that `hash` was made of, the last of them `end`.
    """

    start: int
    end: int
    tail: bytes
    cuts: tuple[int, ...]
    hash: int
    prefix: PrefixInfo


class RequestParseCache:
    """What is known of the beginnings of bodies, of each conversation its newest."""

    def __init__(self) -> None:
        # By the hash of whose they are, and of where a window of theirs ends and what it holds.
        self.known: Cache[int, tuple[_CachedPrefix, ...]] = Cache(
            BYTES, 0, lambda _, found: EACH * len(found)
        )

    def parse(self, who: object, body: bytes) -> Json:
        """Return a chat request, checked, its `messages` as `Messages`.

        who: whose bodies it is looked up among. Raises BadRequest.
        """
        name, known = self._find(who, body)
        found = _parse_new_part(body, _short_body(body, known), known) or _parse_whole(body)
        return self._remember(who, body, name, found)

    async def parse_async(self, who: object, body: bytes) -> Json:
        """Read a request as `read` does, in a thread where what is new of it is long.

        Raises BadRequest, and TooHeavy for what memory cannot look at in time.
        """
        name, known = self._find(who, body)
        found = None
        if is_light(short := _short_body(body, known)):
            found = _parse_new_part(body, short, known)
            known, short = None, body  # where it could not be read, nothing is believed of it
        if found is None:
            found = await asyncio.to_thread(_parse_in_thread, body, short, known)
        return self._remember(who, body, name, found)

    def _remember(self, who: object, body: bytes, name: int, found: _Read) -> Json:
        """Keep what was found of a body, for the one that goes on from it."""
        data, span, known = found
        messages: Messages = data["messages"]
        if messages.new and span is not None and span[1] <= MAX_PREFIX_BYTES:
            if known is not None:
                self._forget(name, known)  # what goes on from it stands for it
            at = span[1]
            cuts, base = (
                (known.cuts, known.hash)
                if known is not None and len(known.cuts) < PARTS
                else ((), 0)
            )
            self._keep(
                who,
                body,
                _CachedPrefix(
                    *span,
                    body[at - TAIL : at],
                    (*cuts, at),
                    hash_parts(body, (at,), cuts[-1] if cuts else 0, base),
                    messages.after,
                ),
            )
        return data

    def _find(self, who: object, body: bytes) -> tuple[int, _CachedPrefix | None]:
        """Return what a body goes on from, and the name it is kept under."""
        size = len(body)
        for i in range(bisect_right(PLACES, size) - 1, -1, -1):
            at = PLACES[i]
            name = hash((who, at, body[max(0, at - LOOKUP_WINDOW_BYTES) : at]))
            for known in reversed(self.known.get(name) or ()):
                if (
                    known.end < size
                    and body.startswith(known.tail, known.end - TAIL)
                    and hash_parts(body, known.cuts) == known.hash
                ):
                    return name, known
        return 0, None

    def _forget(self, name: int, known: _CachedPrefix) -> None:
        there = self.known.pop(name) or ()
        if left := tuple(k for k in there if k is not known):
            self.known.put(name, left)

    def _keep(self, who: object, body: bytes, known: _CachedPrefix) -> None:
        if known.end < MIN_PREFIX_BYTES:
            return
        at = PLACES[bisect_right(PLACES, known.end) - 1]
        name = hash((who, at, body[max(0, at - LOOKUP_WINDOW_BYTES) : at]))
        self.known.put(name, (*(self.known.get(name) or ()), known)[-MAX_SAME_PLACE:])


_Read = tuple[
    Json, tuple[int, int] | None, _CachedPrefix | None
]  # a request, where its messages stand, and what it goes on from


def _short_body(body: bytes, known: _CachedPrefix | None) -> bytes:
    """Return what is new of a body, with a stand-in for the messages known."""
    return body if known is None else b"".join((body[: known.start], _STANDIN, body[known.end :]))


def _parse_whole(body: bytes, *, heavy: bool = False) -> _Read:
    """Read a body of which nothing is known. Raises BadRequest, TooHeavy."""
    found = _parse_new_part(body, body, None, heavy=heavy)
    assert found is not None  # noqa: S101 - only what is known can be wrong
    return found


def _parse_new_part(
    body: bytes, short: bytes, known: _CachedPrefix | None, *, heavy: bool = False
) -> _Read | None:
    """Read a body of which `short` is new. None where it does not go on from what is known.

    heavy: it may be more than memory looks at. Raises BadRequest, and TooHeavy if it is.
    """
    prefix, shift = PrefixInfo(), 0
    if known is None:
        data = parse(body)
    else:
        prefix, shift = known.prefix, known.end - known.start - len(_STANDIN)
        if (resumed := _parse_short(short)) is None:
            return None
        data = resumed
    pause = partial(rest, len(short) if heavy else 0)
    pause()
    check_model(data)
    check_messages(data, prefix.count)
    if heavy:
        check_weight(len(short), data["messages"])
    if not has_no_lone_surrogates(short) or short.count(b"[") + short.count(b"{") > BRACKETS:
        span, new = None, NOWHERE
    elif known is None:
        span, new = _messages_span(body) if len(body) > MIN_PREFIX_BYTES else None, NOWHERE
    else:
        new = [
            (a + shift, b + shift) for a, b in array_elements(short, known.start + len(_STANDIN))
        ]
        span = known.start, new[-1][1] if new else known.end
    pause()
    start, end = (known.start, known.end) if known is not None else (0, 0)
    source = SourceText(body, span[0], new) if span else None
    data["messages"] = Messages(
        prefix, data["messages"], lambda: TextRange(body, start, end), source
    )
    return data, span, known


def _parse_in_thread(body: bytes, short: bytes, known: _CachedPrefix | None) -> _Read:
    """Read a body that is long, in a thread. Raises BadRequest, TooHeavy."""
    check_values(short)
    rest(len(short))
    if (found := _parse_new_part(body, short, known, heavy=True)) is None:
        check_values(body)
        found = _parse_whole(body, heavy=True)
    messages: Messages = found[0]["messages"]
    messages.heavy = True
    rest(len(short))
    if (source := messages.source) is not None and not source.new:
        source.new = array_elements(body, source.start)
    return found


def hash_parts(body: bytes, cuts: Sequence[int], at: int = 0, base: int = 0) -> int:
    """Return the hash of the parts of a body that end at `cuts`, the first of them from `at`, after
    what `base` is the hash of. Copies nothing.
    """
    view = memoryview(body)
    for cut in cuts:
        base, at = hash((base, hash(view[at:cut]))), cut
    return base


def _parse_short(short: bytes) -> Json | None:
    """Return the request that `short` stands for, without the messages known; None where it must be
    read as a whole.
    """
    try:
        data = decode(short)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list) or not messages or messages[0] != STANDIN:
        return None
    del messages[0]
    return data  # type: ignore[no-any-return]


def _messages_span(text: bytes) -> tuple[int, int] | None:
    """Return where the messages of a request begin and end, without the brackets around them; None
    where that is not plain.
    """
    try:
        raw = memoryview(_split(text)["messages"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    opening, at = bytes(raw[:TAIL]), -1
    while (at := text.find(opening, at + 1)) >= 0:
        if text.startswith(raw, at):
            end = at + len(raw) - 1
            while (tail := text[max(at + 1, end - SPACE_STEP_BYTES) : end]) and not tail.rstrip(
                SPACE
            ):
                end -= len(tail)
            return at + 1, end - len(tail) + len(tail.rstrip(SPACE))
    return None
