"""How heavy a JSON text is to read, told before it is read.

To decode JSON takes as long as it has values: a million empty objects take as long as 500 MB of
one string. What is light is read where it stands; what is not is read in a thread, where no step
may last, since the interpreter gives nobody else a turn until the step ends; and what is too
heavy even for that is not read at all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")
LIGHT_BYTES = 1 << 18  # that are read on the event loop
LIGHT_VALUES = 10_000
SURE_BYTES = 1 << 15  # so few are light, whatever they hold
MOST_VALUES = 1_000_000  # read in one step of some 50 ms
WINDOW = 1 << 20  # bytes that are looked at in one step

_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)  # up to its closing quote


async def weighed(text: bytes, work: Callable[..., Found], *args: Any) -> Found:
    """Call `work` with what is read of a text: at once where the text is light, else in a thread."""
    return work(*args) if is_light(text) else await asyncio.to_thread(work, *args)


def is_light(text: bytes) -> bool:
    """Tell whether a JSON text is read in a few milliseconds at most."""
    size = len(text)
    return size <= SURE_BYTES or (size <= LIGHT_BYTES and marks(text) <= LIGHT_VALUES)


def marks(text: bytes) -> int:
    """Count the commas and opening brackets: at least as many as there are values, but for one."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def is_readable(text: bytes, most: int = MOST_VALUES) -> bool:
    """Tell whether a JSON text has at most so many values, whatever its strings hold.

    Strings are looked into only where their commas could matter. Each is passed in steps of
    `WINDOW` bytes, so that in a thread others have their turn between two.
    """
    if marks(text) <= most:
        return True
    values = at = 0
    while (begin := text.find(b'"', at)) >= 0:
        values += marks(text[at:begin])
        if values > most:
            return False
        at = _end(text, begin + 1)
        values += 1  # so that a text of nothing but short strings ends this too
    return values + marks(text[at:]) <= most


def _end(text: bytes, at: int) -> int:
    """Return where the string whose first character is at `at` ends, its quote included."""
    size = len(text)
    while at < size:
        found = _STRING.match(text, at, min(at + WINDOW, size))
        at = found.end() if found else size
        if text[at : at + 1] == b'"':
            return at + 1
        if at < size and text[at : at + 1] == b"\\":  # an escape that the window cut in two
            at += 2
    return size
