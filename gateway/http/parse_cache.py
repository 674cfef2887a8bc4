"""Parse only the new part of a chat request whose beginning was seen before.

A body is recognised by its bytes up to the end of a message that an earlier body of the same key
and user had at that place: by their length, their last bytes and the interpreter's 64-bit hash
(SipHash with a secret of the process). The rest is parsed as JSON with one string, random for this
process, in place of the known messages. If that string is not the first message (members given
twice, for example), the whole body is parsed; so is a body with a lone surrogate, which is read
with a stand-in. No text of a message is stored here.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from gateway.http.json_thread import run_heavy
from gateway.http.request_weight import TooHeavy, check_values, check_weight
from gateway.wire.chat import Json, decode, read_weighed
from gateway.wire.chat_request import check_messages, check_model, parse
from gateway.wire.json_slices import discard
from gateway.wire.json_weight import SURE_BYTES, brackets, is_light
from gateway.wire.long_strings import cut_long_strings, place_in_text, takes_long
from memory import (
    Cache,
    Messages,
    PrefixInfo,
    SourceText,
    TextRange,
    array_elements,
    end_step,
)

STANDIN = f"mnemogate-{secrets.token_hex(16)}"
_STANDIN = msgspec.json.encode(STANDIN)
# Less is parsed faster than it is looked up.
MIN_PREFIX_BYTES = 256
# Where the lookup window of a text may end: four offsets an octave, so that the last of them is
# near the end of the text, where texts with the same beginning differ.
PLACES = [
    MIN_PREFIX_BYTES << octave | MIN_PREFIX_BYTES * quarter << octave >> 2
    for octave in range(32)
    for quarter in range(4)
]
# Hashed to look up a body.
LOOKUP_WINDOW_BYTES = 1024
# Bytes compared before a candidate is hashed.
TAIL = 48
# Most parts of a hash; only the new part of a body is hashed.
PARTS = 8
# Candidates with the same window.
MAX_SAME_PLACE = 64
# Size of the cache: some 2,100 conversations, each with its offsets.
BYTES = 7 << 19
EACH = 1750
# in the new part of a body; with more, the body is parsed as a whole, since to locate its messages
# would take long
BRACKETS = 100_000
NOWHERE: list[tuple[int, int]] = []
# Longer prefixes are not cached: to recognise one, all of it is hashed.
MAX_PREFIX_BYTES = 16 << 20
SPACE = b" \t\r\n"
# Of white space skipped at once.
SPACE_STEP_BYTES = 1 << 16
# Of a text whose messages are split in one step.
SPLIT_BYTES = 1 << 20
_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_between = re.compile(rb"[, \t\r\n]*")


class _SplitBody(msgspec.Struct):
    """A body whose messages are split, and not read."""

    messages: list[msgspec.Raw]


_split_messages = msgspec.json.Decoder(_SplitBody).decode


class _CachedPrefix(msgspec.Struct, eq=False):
    """A known prefix of a body.

    start: offset of the messages in the body. end: end of the last known message. tail: the TAIL
    bytes before `end`. cuts: ends of the parts that `hash` was made of, the last of them `end`.
    """

    start: int
    end: int
    tail: bytes
    cuts: tuple[int, ...]
    hash: int
    prefix: PrefixInfo


class RequestParseCache:
    """The known prefixes of bodies; the newest one of each conversation."""

    def __init__(self) -> None:
        # By a hash of the owner, the offset of the lookup window and its content.
        self.prefixes: Cache[int, tuple[_CachedPrefix, ...]] = Cache(
            BYTES, 0, lambda _, prefix_group: EACH * len(prefix_group)
        )

    def parse(self, owner: object, body: bytes) -> Json:
        """Return a validated chat request, its `messages` as `Messages`.

        owner: owner of the bodies to look among. Raises BadRequest.
        """
        name, prefix = self._find(owner, body)
        parsed = _parse_new_part(body, _short_body(body, prefix), prefix) or _parse_whole(body)
        return self._remember(owner, body, name, parsed)

    async def parse_async(self, owner: object, body: bytes) -> Json:
        """Parse as `parse` does, but in a thread if the new part is long.

        Raises BadRequest, and TooHeavy for a request too large for memory.
        """
        name, prefix = self._find(owner, body)
        parsed = None
        short_body = _short_body(body, prefix)
        if len(short_body) <= SURE_BYTES or is_light(short_body):
            parsed = _parse_new_part(body, short_body, prefix)
            # Parse it as unknown.
            prefix, short_body = None, body
        if parsed is None:
            parsed = await run_heavy(_parse_in_thread, body, short_body, prefix)
        messages: Messages = parsed[0]["messages"]
        if messages.looks_back and messages.is_long:
            # A request that is sent again: all of it is looked at, although nothing in it is new.
            messages.heavy = True
            await run_heavy(messages.decode_known)
        return self._remember(owner, body, name, parsed)

    def _remember(self, owner: object, body: bytes, name: int, parsed: _Read) -> Json:
        """Cache what was parsed of a body, for the body that continues it."""
        data, span, prefix = parsed
        messages: Messages = data["messages"]
        if messages.new and span is not None and span[1] <= MAX_PREFIX_BYTES:
            if prefix is not None:
                # Replaced by its continuation.
                self._forget(name, prefix)
            at = span[1]
            if prefix is not None and len(prefix.cuts) < PARTS:
                cuts, base = (prefix.cuts, prefix.hash)
            else:
                cuts, base = ((), 0)
            self._keep(
                owner,
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

    def _find(self, owner: object, body: bytes) -> tuple[int, _CachedPrefix | None]:
        """Return the cache key of a body, and the known prefix that it continues."""
        size = len(body)
        for place_index in range(bisect_right(PLACES, size) - 1, -1, -1):
            at = PLACES[place_index]
            name = hash((owner, at, body[max(0, at - LOOKUP_WINDOW_BYTES) : at]))
            for prefix in reversed(self.prefixes.get(name) or ()):
                if (
                    prefix.end < size
                    and body.startswith(prefix.tail, prefix.end - TAIL)
                    and hash_parts(body, prefix.cuts) == prefix.hash
                ):
                    return name, prefix
        return 0, None

    def _forget(self, name: int, prefix: _CachedPrefix) -> None:
        neighbours = self.prefixes.pop(name) or ()
        if len(neighbours) == 1 and neighbours[0] is prefix:
            return
        if remaining_prefixes := tuple(k for k in neighbours if k is not prefix):
            self.prefixes.put(name, remaining_prefixes)

    def _keep(self, owner: object, body: bytes, prefix: _CachedPrefix) -> None:
        if prefix.end < MIN_PREFIX_BYTES:
            return
        at = PLACES[bisect_right(PLACES, prefix.end) - 1]
        name = hash((owner, at, body[max(0, at - LOOKUP_WINDOW_BYTES) : at]))
        self.prefixes.put(name, (*(self.prefixes.get(name) or ()), prefix)[-MAX_SAME_PLACE:])


# The request, the span of its messages, the prefix that it continues.
_Read = tuple[Json, tuple[int, int] | None, _CachedPrefix | None]


def _short_body(body: bytes, prefix: _CachedPrefix | None) -> bytes:
    """Return the body with a stand-in for its known messages."""
    if prefix is None:
        return body
    return b"".join((body[: prefix.start], _STANDIN, body[prefix.end :]))


def _parse_whole(body: bytes, *, heavy: bool = False) -> _Read:
    """Parse a body without a known prefix. Raises BadRequest, TooHeavy."""
    parsed = _parse_new_part(body, body, None, heavy=heavy)
    assert parsed is not None  # noqa: S101 - None only with a known prefix
    return parsed


def _parse_new_part(
    body: bytes, short_body: bytes, cached_prefix: _CachedPrefix | None, *, heavy: bool = False
) -> _Read | None:
    """Parse a body of which `short_body` is new; None if it does not continue `cached_prefix`.

    heavy: check that it is not too large for memory. Raises BadRequest, TooHeavy.
    """
    prefix, shift, halves = PrefixInfo(), 0, list[bool]()
    decoder = partial(decode, decoder=read_weighed, on_halves=partial(halves.append, True))
    if cached_prefix is None:
        data = parse(body, decoder)
    else:
        prefix = cached_prefix.prefix
        shift = cached_prefix.end - cached_prefix.start - len(_STANDIN)
        if (resumed := _parse_short(short_body, decoder)) is None:
            return None
        data = resumed
    if heavy:
        end_step()
    check_model(data)
    check_messages(data, prefix.count)
    if heavy:
        _check_weight(len(short_body), data)
    if halves or (heavy and brackets(short_body) > BRACKETS):
        span, new_spans = None, NOWHERE
    elif cached_prefix is None:
        span, new_spans = _messages_span(body) if len(body) > MIN_PREFIX_BYTES else None, NOWHERE
    else:
        new_spans = _new_spans(short_body, cached_prefix.start + len(_STANDIN), shift)
        span = cached_prefix.start, new_spans[-1][1] if new_spans else cached_prefix.end
    if heavy:
        end_step()
    start, end = (cached_prefix.start, cached_prefix.end) if cached_prefix is not None else (0, 0)
    source = None
    if span:
        source = SourceText(body, span[0], new_spans, span[1])
    data["messages"] = Messages(
        prefix, data["messages"], partial(TextRange, body, start, end), source
    )
    return data, span, cached_prefix


def _check_weight(size: int, data: Json) -> None:
    """Raise TooHeavy for a request that is, whose values are freed in steps before."""
    try:
        check_weight(size, data["messages"])
    except TooHeavy:
        discard(data)
        raise


def _new_spans(short_body: bytes, at: int, shift: int) -> list[tuple[int, int]]:
    """Return the spans of the messages behind the stand-in, which ends at `at`, in their body.

    They are split by a decoder, which takes half of the time of a scan. A very long text is
    scanned, so that other threads run meanwhile.
    """
    if len(short_body) > SPLIT_BYTES:
        return [(begin + shift, end + shift) for begin, end in array_elements(short_body, at)]
    spans: list[tuple[int, int]] = []
    for element in _split_messages(short_body).messages[1:]:
        begin = _between.match(short_body, at).end()  # type: ignore[union-attr]
        at = begin + len(element)
        spans.append((begin + shift, at + shift))
    return spans


def _parse_in_thread(body: bytes, short_body: bytes, prefix: _CachedPrefix | None) -> _Read:
    """Parse a long body in a thread. Raises BadRequest, TooHeavy."""
    check_values(short_body)
    end_step()
    if (parsed := _parse_new_part(body, short_body, prefix, heavy=True)) is None:
        check_values(body)
        parsed = _parse_whole(body, heavy=True)
    messages: Messages = parsed[0]["messages"]
    messages.heavy = True
    end_step()
    if (source := messages.source) is not None and not source.new_spans:
        source.new_spans = array_elements(body, source.start, source.end)
    return parsed


def hash_parts(body: bytes, cuts: Sequence[int], at: int = 0, base: int = 0) -> int:
    """Return the hash of the parts of a body that end at `cuts`.

    at: start of the first part. base: hash of what stands before. Copies nothing.
    """
    view = memoryview(body)
    for part_end in cuts:
        base = hash((base, hash(view[at:part_end])))
        at = part_end
    return base


def _parse_short(short_body: bytes, decoder: Callable[[bytes], Any]) -> Json | None:
    """Parse `short_body`, and return the request without its known messages.

    None if the body must be parsed as a whole. decoder: decodes it.
    """
    try:
        data = decoder(short_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    messages = None
    if isinstance(data, dict):
        messages = data.get("messages")
    if not isinstance(messages, list) or not messages or messages[0] != STANDIN:
        return None
    del messages[0]
    return data  # type: ignore[no-any-return]


def _messages_span(text: bytes) -> tuple[int, int] | None:
    """Return where the messages of a request begin and end, without their brackets.

    None if that is ambiguous.
    """
    if not takes_long(text):
        return _span_in_one_step(text)
    cut_text, spans = cut_long_strings(text)
    span = _span_in_one_step(cut_text)
    if span is None:
        return None
    return (place_in_text(span[0], spans), place_in_text(span[1], spans))


def _span_in_one_step(text: bytes) -> tuple[int, int] | None:
    try:
        message_list = memoryview(_split(text)["messages"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    opening = bytes(message_list[:TAIL])
    at = -1
    while (at := text.find(opening, at + 1)) >= 0:
        if text.startswith(message_list, at):
            end = at + len(message_list) - 1
            while (tail := text[max(at + 1, end - SPACE_STEP_BYTES) : end]) and not tail.rstrip(
                SPACE
            ):
                end -= len(tail)
            return at + 1, end - len(tail) + len(tail.rstrip(SPACE))
    return None
