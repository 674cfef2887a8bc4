"""Finds where the strings of a JSON text end, at the speed of a search. Pure.

A pattern that steps over the escapes of a string needs either a possessive group, which Python
before 3.11.5 matches wrongly (cpython gh-106052), or memory for each escape. So the escapes are
blanked out first, by two searches and replacements: then each quote that is left begins or ends a
string.
"""

from __future__ import annotations

from memory.conversation.steps import end_step

# Scanned in one step, of 3 ms at most.
SCAN_WINDOW_BYTES = 1 << 17
# Counted or searched in one step.
SEARCH_STEP_BYTES = 1 << 22


def count_in_steps(text: bytes, byte: bytes) -> int:
    """Count a byte in a text, in steps: other threads run between two of them."""
    if len(text) <= SEARCH_STEP_BYTES:
        return text.count(byte)
    count = 0
    for offset in range(0, len(text), SEARCH_STEP_BYTES):
        count += text.count(byte, offset, offset + SEARCH_STEP_BYTES)
        end_step()
    return count


def holds(text: bytes, fragment: bytes) -> bool:
    """Tell whether a short mark is in a text, searched in steps as `count_in_steps` counts."""
    if len(text) <= SEARCH_STEP_BYTES:
        return fragment in text
    return find_from(text, fragment, 0) >= 0


def find_from(text: bytes, fragment: bytes, start: int) -> int:
    """Return where a short mark stands first from `start` on, -1 if nowhere; searched in steps."""
    for offset in range(start, len(text), SEARCH_STEP_BYTES):
        place = text.find(fragment, offset, offset + SEARCH_STEP_BYTES + len(fragment) - 1)
        if place >= 0:
            return place
        end_step()
    return -1


def mask_escapes(text: bytes) -> bytes:
    r"""Blank out the escaped backslashes and quotes of a JSON text, whose length stays.

    A text that was cut within an escape ends with a backslash, and no other does.
    """
    if b"\\" not in text:
        return text
    # A run of backslashes begins an escape, so pairs are taken from its left.
    return text.replace(rb"\\", b"__").replace(rb"\"", b"__")


def find_string_end(text: bytes, start: int) -> int:
    """Return where the JSON string whose first character is at `start` ends, after its quote.

    Scans in windows, so that other threads can run in between. A string without an end ends with
    the text.
    """
    size = len(text)
    while start < size:
        window = mask_escapes(text[start : start + SCAN_WINDOW_BYTES])
        quote = window.find(b'"')
        if quote >= 0:
            return start + quote + 1
        # The window may have cut an escape: its second character is passed with it.
        start += len(window) + window.endswith(b"\\")
        end_step()
    return size
