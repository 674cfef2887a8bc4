"""Takes our own spans out of what models said: some repeat what they were shown. Pure.

What a client resends is recognised by its tag (see `blocks.strip_spans`). A model may leave the tag
out, escape the marks, or be cut off within a span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memory.core.blocks import SPANS

# Of a mark, after its name.
MAX_MARK_CHARACTERS = 100
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
    if "<" not in text and "&lt;" not in text:
        return text
    parts: list[str] = []
    part_start = 0
    for begin, end in _spans(text, tag):
        parts.append(text[part_start:begin])
        part_start = end
    return "".join([*parts, text[part_start:]])


def _spans(text: str, tag: str | None) -> Iterator[tuple[int, int]]:
    """Yield where spans and marks begin and end, in order."""
    tags = list(_MARK.finditer(text))
    last_end = {
        opening_tag["name"]: index for index, opening_tag in enumerate(tags) if opening_tag["end"]
    }
    span_end = 0
    for index, opening_tag in enumerate(tags):
        if opening_tag.start() < span_end:
            continue
        if opening_tag["end"]:
            if tag is None:
                yield opening_tag.span()
            continue
        if tag is not None and f'tag="{tag}"' not in opening_tag["more"]:
            continue
        span_end = opening_tag.end()
        if last_end.get(opening_tag["name"], -1) > index:
            span_end = _closing(tags, index).end()
        elif "tag=" in opening_tag["more"]:
            span_end = len(text)
        yield opening_tag.start(), span_end


def _closing(tags: Sequence[re.Match[str]], opening: int) -> re.Match[str]:
    """Return the mark that ends a span, of which there is one."""
    name = tags[opening]["name"]
    following = (tags[index] for index in range(opening, len(tags)))
    return next(tag for tag in following if tag["end"] and tag["name"] == name)
