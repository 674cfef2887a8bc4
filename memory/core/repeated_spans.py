"""Takes our own spans out of what models said: some repeat what they were shown. Pure.

What a client resends is recognised by its tag (see `blocks.strip_spans`). A model may leave the tag
out, escape the marks, or be cut off within a span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memory.core.blocks import SPANS

MAX_MARK_CHARACTERS = 100  # of a mark, after its name
_MARK = re.compile(
    rf"(?:<|&lt;)(?P<end>/?)(?P<name>{'|'.join(SPANS)})"
    rf"(?P<more>(?:\s[^<>]{{0,{MAX_MARK_CHARACTERS}}}?)?)(?:>|&gt;)"
)


def without_repeated_spans(text: str, tag: str | None = None) -> str:
    """Return a text without our spans, and without marks of them that are left over.

    A span with a tag that is never closed takes the rest of the text with it; without one its mark
    may be what the text speaks of. tag: only spans with this one are ours, None for any. The cost
    is linear.
    """
    pieces: list[str] = []
    at = 0
    for begin, end in _spans(text, tag):
        pieces.append(text[at:begin])
        at = end
    return "".join([*pieces, text[at:]])


def _spans(text: str, tag: str | None) -> Iterator[tuple[int, int]]:
    """Yield where spans and marks begin and end, in order."""
    marks = list(_MARK.finditer(text))
    last_end = {mark["name"]: index for index, mark in enumerate(marks) if mark["end"]}
    past = 0
    for index, mark in enumerate(marks):
        if mark.start() < past:
            continue
        if mark["end"]:
            if tag is None:
                yield mark.span()
            continue
        if tag is not None and f'tag="{tag}"' not in mark["more"]:
            continue
        past = mark.end()
        if last_end.get(mark["name"], -1) > index:
            past = _closing(marks, index).end()
        elif "tag=" in mark["more"]:
            past = len(text)
        yield mark.start(), past


def _closing(marks: Sequence[re.Match[str]], opening: int) -> re.Match[str]:
    """Return the mark that ends a span, of which there is one."""
    name = marks[opening]["name"]
    following = (marks[index] for index in range(opening, len(marks)))
    return next(mark for mark in following if mark["end"] and mark["name"] == name)
