r"""Halves of surrogate pairs in JSON text, which JavaScript makes of a cut emoji. Pure.

`"\ud83d"` is legal JSON, and is no character: no decoder of ours takes it, no store keeps it. So
where a text has one it is read with a stand-in, two characters that nobody uses, one of which tells
the half. Inside the gateway it is a text like any other: different halves stay different texts.
What is sent on has the escape again. Halves that meet, as those of two streamed pieces do, are the
whole character then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from memory.conversation.json_strings import holds, mask_escapes
from memory.conversation.long_json import encode_in_parts, long_size
from memory.conversation.steps import current, end_step

# A noncharacter of Unicode, which no text that is exchanged contains (Unicode, 23.7), and then one
# of the 2,048 characters from here on, one for each half.
OPENING = "\U0010fffe"
FIRST = 0x100000
FIRST_HALF = 0xD800
MARK = OPENING.encode()
STAND_IN_BYTES = 2 * len(MARK)
STAND_IN = re.compile(rb"\xf4\x8f\xbf\xbe\xf4\x80([\x80-\x9f])([\x80-\xbf])")
IN_TEXT = re.compile("\U0010fffe[\U00100000-\U001007ff]")
# Where a text leaves for what takes characters alone.
REPLACEMENT = "\ufffd"
# Half of a surrogate pair, in its group, or a whole one.
_SURROGATE = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)", re.DOTALL)
# Leaves stand-ins as they are.
encode_plain = msgspec.json.Encoder().encode
_HALF_BYTES = len(rb"\ud83d")
_PAIR_BYTES = len(rb"\ud83d\ude00")
# Bytes that are looked at in one step.
_SCAN_WINDOW_BYTES = 1 << 18


def encode_json(value: Any) -> bytes:
    """Return JSON text to send on, with halves of surrogate pairs as they came.

    A thread that works in steps encodes very long strings in slices.
    """
    if current.pause is not None and long_size(value):
        return b"".join(encode_json_in_parts(value))
    data = encode_plain(value)
    if MARK in data:
        return with_escapes(data)
    return data


def with_stand_ins(data: bytes) -> bytes:
    """Return the JSON text with a stand-in for each half of a surrogate pair."""
    out = bytearray()
    at = 0
    for half_place in _halves(data):
        end = half_place + _HALF_BYTES
        out += data[at:half_place]
        out += _stand_in(data[half_place:end])
        at = end
    if at:
        return bytes(out + data[at:])
    return data


def with_escapes(data: bytes) -> bytes:
    """Return JSON text with the halves for which there are stand-ins in it.

    A long one is made in steps, so that other threads run between two of them.
    """
    if MARK not in data:
        return data
    if len(data) <= _SCAN_WINDOW_BYTES:
        return STAND_IN.sub(_escape, data)
    return b"".join(_escaped_steps(data))


def _escaped_steps(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + _SCAN_WINDOW_BYTES
        # No stand-in is cut: one that begins before the end and goes on behind it is of the next.
        step_end = data.find(MARK, end - STAND_IN_BYTES + 1, end + len(MARK) - 1)
        if step_end < 0:
            step_end = end
        yield STAND_IN.sub(_escape, data[at:step_end])
        at = step_end


def encode_json_in_parts(value: Any) -> list[bytes]:
    """Return JSON text to send on, in parts where a string in it is very long."""
    return with_escapes_in(encode_in_parts(value))


def with_escapes_in(parts: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a JSON text with the halves for which there are stand-ins in it.

    A part may end within a stand-in.
    """
    out = []
    open_mark = b""
    for part in parts:
        part_text = open_mark + part
        open_mark = MARK if part_text.endswith(MARK) else b""
        out.append(with_escapes(part_text.removesuffix(MARK) if open_mark else part_text))
    if open_mark:
        return [*out, open_mark]
    return out


def without_halves(text: str) -> str:
    """Return a text for what takes characters alone: U+FFFD for each half."""
    if OPENING in text:
        return IN_TEXT.sub(REPLACEMENT, text)
    return text


def join_halves(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with halves that meet in their texts as whole characters."""
    joined_messages: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        # To look in a text of other characters than the opening takes no time.
        is_whole = content is None or (isinstance(content, str) and OPENING not in content)
        if isinstance(content, list) and "tool_calls" not in message:
            is_whole = not _may_hold_half(content)
        joined_messages.append(message if is_whole else _join(message))
    return joined_messages


def _may_hold_half(content: list[Any]) -> bool:
    """Tell whether there may be a half in the members of a message's parts."""
    for part in content:
        for value in part.values() if isinstance(part, dict) else (part,):
            if OPENING in value if isinstance(value, str) else value:
                return True
        end_step()
    return False


def _join(message: dict[str, Any]) -> dict[str, Any]:
    data = encode_plain(message)
    if MARK not in data:
        return message
    joined_message: dict[str, Any] = msgspec.json.decode(with_stand_ins(with_escapes(data)))
    return joined_message


def has_no_lone_surrogates(data: bytes) -> bool:
    """Tell whether a JSON text is free of halves of surrogate pairs."""
    # A search for what begins with a backslash would be slow in a text of nothing else.
    for escape_start in (b"\\ud", b"\\uD"):
        if holds(data, escape_start[1:]) and holds(data, escape_start):
            return next(_halves(data), None) is None
    return True


# Each half in several spellings.
@lru_cache(8192)
def _stand_in(escape: bytes) -> bytes:
    try:
        code = int(escape[2:], 16)
    except ValueError:
        # It is no escape: the text is no JSON.
        return escape
    return (OPENING + chr(FIRST + code - FIRST_HALF)).encode()


@lru_cache(2048)
def _escape_of(high_half: bytes, low_half: bytes) -> bytes:
    return b"\\u%04x" % (FIRST_HALF + ((high_half[0] & 0x1F) << 6 | low_half[0] & 0x3F))


def _escape(stand_in: re.Match[bytes]) -> bytes:
    return _escape_of(stand_in[1], stand_in[2])


def _halves(data: bytes) -> Iterator[int]:
    """Find the escapes that are half of a surrogate pair, from the left.

    Looks at a window at a time, so that other threads run between two of them.
    """
    at = 0
    while at < len(data):
        # With a whole pair more, so that none which begins in the window is cut.
        window = mask_escapes(data[at : at + _SCAN_WINDOW_BYTES + _PAIR_BYTES])
        end = _SCAN_WINDOW_BYTES
        for surrogate in _SURROGATE.finditer(window):
            if surrogate.start() >= _SCAN_WINDOW_BYTES:
                break
            end = max(end, surrogate.end())
            if surrogate[1]:
                yield at + surrogate.start()
        escape = window.find(b"\\", end)
        at += escape if escape >= 0 else len(window)
