"""How heavy a JSON text is to read, told before it is read. Pure."""

from __future__ import annotations

import msgspec

from memory.conversation.json_strings import (
    SEARCH_STEP_BYTES,
    count_in_steps,
    find_string_end,
    holds,
    mask_escapes,
)
from memory.conversation.steps import end_step

# That are read on the event loop.
LIGHT_BYTES = 1 << 18
LIGHT_VALUES = 10_000
# So few are light, whatever they hold.
SURE_BYTES = 1 << 15
# Read in one step of some 40 ms.
MOST_VALUES = 500_000
# Of one object; a dictionary of so many takes some 30 ms.
MOST_MEMBERS = 100_000
# Of an object; no more is counted against the others.
USUAL_MEMBERS = 16
SCAN_STEP_BYTES = 1 << 16
# That are searched for a mark in one step.
SEARCHED_BYTES = SEARCH_STEP_BYTES
count = count_in_steps
is_in = holds
UNREADABLE = f"more than {MOST_VALUES} JSON values, or {MOST_MEMBERS} members of one object"


class TooManyMembers(msgspec.DecodeError):
    """A text that is not decoded in one short step."""


def check_readable(text: bytes) -> None:
    """Raise TooManyMembers for a text that is not `is_readable`."""
    if not is_readable(text):
        raise TooManyMembers(f"it has {UNREADABLE}")


def is_light(text: bytes) -> bool:
    """Tell whether a JSON text is read in a few milliseconds at most."""
    size = len(text)
    return size <= SURE_BYTES or (size <= LIGHT_BYTES and marks(text) <= LIGHT_VALUES)


def marks(text: bytes) -> int:
    """Count the commas and opening brackets: at least as many as there are values, but for one."""
    return count(text, b",") + brackets(text)


def brackets(text: bytes) -> int:
    """Count the opening brackets."""
    return count(text, b"{") + count(text, b"[")


def is_readable(text: bytes, max_values: int = MOST_VALUES) -> bool:
    """Tell whether a JSON text is decoded in one short step, whatever its strings hold.

    It has at most `max_values` values, and no object of very many members: those cost five times as
    much each. Strings are looked into only where their commas and colons could matter. Each is
    passed in steps, so that in a thread others have their turn between two.
    """
    if len(text) <= min(SURE_BYTES, max_values):
        return True
    if marks(text) <= max_values and _has_few_members(count(text, b":"), count(text, b"{")):
        return True
    values = members = objects = at = 0
    while at < len(text):
        step = mask_escapes(text[at : at + SCAN_STEP_BYTES])
        parts = step.split(b'"')
        between = b"".join(parts[::2])
        at += len(step)
        # The step cuts a string.
        if len(parts) % 2 == 0:
            at = find_string_end(text, at - len(parts[-1]))
        # Strings count too, so that a text of nothing but short ones ends this.
        values += marks(between) + len(parts) // 2
        members += between.count(b":")
        objects += between.count(b"{")
        if values > max_values:
            return False
        end_step()
    return _has_few_members(members, objects)


def _has_few_members(members: int, objects: int) -> bool:
    return members <= MOST_MEMBERS + USUAL_MEMBERS * objects
