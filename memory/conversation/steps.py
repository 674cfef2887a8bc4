"""What a thread does between two short steps of long work. Pure: its owner says what.

A step holds the interpreter lock, and the event loop gets it after each. A request needs it some
twenty times, so it would wait for twenty steps if the thread went on at once every time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of a text in one step, of a millisecond at most.
SEARCHED_CHARACTERS = 1 << 18
# By a pattern in one step, of 8 ms at most.
MATCHED_CHARACTERS = 1 << 15


class _ThreadPause(threading.local):
    pause: Callable[[], None] | None = None


# Of this thread, None where its work need not be done in steps.
current = _ThreadPause()


def end_step() -> None:
    """Let others run if the owner of this thread wants it; on the event loop do nothing."""
    pause = current.pause
    if pause is not None:
        pause()


@contextmanager
def pausing_with(pause: Callable[[], None]) -> Iterator[None]:
    """Call `pause` after each step of this thread while the context lasts."""
    before = current.pause
    current.pause = pause
    try:
        yield
    finally:
        current.pause = before


def holds_text(text: str, fragment: str) -> bool:
    """Tell whether a fragment is in a text; a long one is searched in steps.

    Two characters in a text that is full of the first take 20 ms for 8 MiB.
    """
    if len(text) <= SEARCHED_CHARACTERS:
        return fragment in text
    for start in range(0, len(text), SEARCHED_CHARACTERS):
        if text.find(fragment, start, start + SEARCHED_CHARACTERS + len(fragment) - 1) >= 0:
            return True
        end_step()
    return False


def find_in_steps(pattern: re.Pattern[str], text: str, match_size: int) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern that matches no empty text, as `search_in_steps` does."""
    start = 0
    while match := search_in_steps(pattern, text, start, match_size):
        yield match
        start = match.end()


def search_in_steps(
    pattern: re.Pattern[str], text: str, start: int, match_size: int
) -> re.Match[str] | None:
    """Return the first match from `start` on; a long text is searched in steps.

    match_size: characters that a match has, and what is looked at behind it, at most.
    """
    end = start + MATCHED_CHARACTERS
    while end < len(text):
        match = pattern.search(text, start, end + match_size)
        # One that begins behind may go on where this step does not look.
        if match is not None and match.start() < end:
            return match
        start = end
        end = end + MATCHED_CHARACTERS
        end_step()
    return pattern.search(text, start)
