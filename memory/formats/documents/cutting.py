"""Cuts a text into passages that follow each other without gap or overlap. Pure.

A passage is whole lines, or a part of a line that is longer than a passage: then the next one
begins in the line in which this one ends. So the text can be told again from its passages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import msgspec

# Characters of a passage at most.
SIZE = 1200
# Below which a heading or a symbol does not begin a new one.
SECTION_CHARACTERS = 200
HEADING = re.compile(r"#{1,6}\s")
SENTENCE_END = re.compile(r"[.!?。！？]['\")\]]*\s|[。！？]")
# How well a line is suited to begin a passage.
ANY_LINE, PARAGRAPH, SECTION = range(3)


class CutPassage(msgspec.Struct, array_like=True):
    """A passage. page: from 1, 0 where the file has no pages. Lines count from 1, over all pages.

    content: lines joined by line feeds, without one at the end.
    """

    page: int
    line_start: int
    line_end: int
    content: str


def cut_passages(
    lines: Sequence[str], page_lines: Sequence[int] = (), symbol_lines: Collection[int] = ()
) -> Iterator[CutPassage]:
    """Yield the passages of a text, in order.

    page_lines: the number of the first line of each page, none without pages. symbol_lines: where
    definitions begin.
    """
    firsts = list(page_lines) or [1]
    for i, first_line in enumerate(firsts):
        if i + 1 < len(firsts):
            last_line = firsts[i + 1] - 1
        else:
            last_line = len(lines)
        page = i + 1 if page_lines else 0
        yield from _cut_page(_Cutter(lines, symbol_lines, page), first_line, last_line)


class _Cutter:
    """The lines of a page that are not in a passage yet."""

    def __init__(self, lines: Sequence[str], symbol_lines: Collection[int], page: int) -> None:
        self._lines = lines
        self._symbols = symbol_lines
        self._page = page
        self.begin = 0
        self._size = 0
        # Of the lines in hand that may begin a passage, the newest of each rank.
        self._breaks: dict[int, int] = {}

    def rank(self, number: int) -> int:
        """Return how well a line is suited to begin a passage."""
        line = self._lines[number - 1]
        if number in self._symbols or HEADING.match(line):
            return SECTION
        line_before = ""
        if number > 1:
            line_before = self._lines[number - 2]
        if line.strip() and not line_before.strip():
            return PARAGRAPH
        return ANY_LINE

    def take(self, number: int) -> Iterator[CutPassage]:
        """Take a line; yield what it ends."""
        rank = self.rank(number)
        length = len(self._lines[number - 1]) + 1
        if self.begin and rank == SECTION and self._size >= SECTION_CHARACTERS:
            yield self.passage(number - 1)
        while self.begin and self._size + length - 1 > SIZE:
            place = self._best_break() or number
            yield self.passage(place - 1)
            if place < number:
                self._resume(place, number)
        if length - 1 > SIZE:
            yield from self._cut_line(number)
            return
        if not self.begin:
            self.begin = number
        elif number > self.begin:
            self._breaks[rank] = number
        self._size += length

    def _best_break(self) -> int:
        """Return the line at which what is in hand is cut, 0 for its end."""
        for rank in (SECTION, PARAGRAPH):
            place = self._breaks.get(rank, 0)
            if place > self.begin and self._length(self.begin, place) >= SIZE // 3:
                return place
        return 0

    def _length(self, first_line: int, last_line: int) -> int:
        return sum(len(line) + 1 for line in self._lines[first_line - 1 : last_line - 1])

    def _resume(self, place: int, number: int) -> None:
        """Go on with the lines behind a cut, up to the one that is taken."""
        self.begin = place
        self._size = self._length(place, number)

    def passage(self, last_line: int) -> CutPassage:
        """Return the lines in hand up to one as a passage, and let go of all."""
        content = "\n".join(self._lines[self.begin - 1 : last_line])
        passage = CutPassage(self._page, self.begin, last_line, content)
        self.begin = self._size = 0
        self._breaks = {}
        return passage

    def _cut_line(self, number: int) -> Iterator[CutPassage]:
        """Yield the parts of a line that is longer than a passage."""
        line = self._lines[number - 1]
        part_start = 0
        while part_start < len(line):
            end = _part_end(line, part_start)
            yield CutPassage(self._page, number, number, line[part_start:end])
            part_start = end


def _cut_page(cutter: _Cutter, first_line: int, last_line: int) -> Iterator[CutPassage]:
    for number in range(first_line, last_line + 1):
        yield from cutter.take(number)
    if cutter.begin:
        yield cutter.passage(last_line)


def _part_end(line: str, part_start: int) -> int:
    """Return where a part of a long line ends: behind a sentence, else a space, else anywhere."""
    limit = part_start + SIZE
    if len(line) <= limit:
        return len(line)
    ends = [match.end() for match in SENTENCE_END.finditer(line, part_start + SIZE // 3, limit)]
    if ends:
        return ends[-1]
    space = line.rfind(" ", part_start + SIZE // 3, limit)
    if space > 0:
        return space + 1
    return limit


def join_lines(parts: Sequence[CutPassage]) -> list[tuple[int, str]]:
    """Return the numbered lines of passages that follow each other."""
    rows: list[tuple[int, str]] = []
    for part in parts:
        for i, line in enumerate(part.content.split("\n")):
            number = part.line_start + i
            if rows and rows[-1][0] == number:
                rows[-1] = (number, rows[-1][1] + line)
            else:
                rows.append((number, line))
    return rows
