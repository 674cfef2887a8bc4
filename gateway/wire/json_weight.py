"""How heavy a JSON text is to read, told before it is read. Pure."""

from __future__ import annotations

from memory.conversation.history import string_end

LIGHT_BYTES = 1 << 18  # that are read on the event loop


LIGHT_VALUES = 10_000


SURE_BYTES = 1 << 15  # so few are light, whatever they hold


MOST_VALUES = 1_000_000  # read in one step of some 50 ms


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
        at = string_end(text, begin + 1)
        values += 1  # so that a text of nothing but short strings ends this too
    return values + marks(text[at:]) <= most
