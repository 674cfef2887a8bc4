"""Finds a text or a regular expression in lines, without case. Pure.

Regular expressions are those of RE2, which takes linear time for any of them; it is loaded at the
first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from memory.errors import BadArguments
from memory.formats.documents.regex_literals import required_texts
from memory.formats.documents.trigrams import LENGTH

# Of a text; also what is looked at of the passage behind.
PATTERN_CHARACTERS = 200
REGEX_CHARACTERS = 1000
# That one expression may need.
REGEX_BYTES = 8 << 20
# Of a line.
SHOWN_CHARACTERS = 300
MISSING = "regular expressions need google-re2: pip install 'mnemogate[tools]'"


class LineMatcher(Protocol):
    """What is looked for. texts: that every match holds, none if that cannot be told."""

    texts: Sequence[str]

    def find(self, text: str) -> int:
        """Return where the first match begins, -1 for none. text: without line ends, or not."""
        ...


class TextMatcher:
    """A text, without case."""

    def __init__(self, text: str) -> None:
        self.texts: Sequence[str] = [text]
        self._folded_pattern = text.casefold()

    def find(self, text: str) -> int:
        return text.casefold().find(self._folded_pattern)


class RegexMatcher:
    """A regular expression. Raises BadArguments."""

    def __init__(self, pattern: str) -> None:
        try:
            re2 = import_module("re2")
        except ImportError as e:
            raise BadArguments(MISSING) from e
        self.texts: Sequence[str] = required_texts(pattern)
        options = re2.Options()
        options.case_sensitive = False
        options.log_errors = False
        options.max_mem = REGEX_BYTES
        try:
            self._regex: Any = re2.compile(f"(?m:{pattern})", options)
        except re2.error as e:
            message = str(e.args[0] if e.args else e)
            raise BadArguments(f"`pattern` is no regular expression: {message[:200]}") from e

    def find(self, text: str) -> int:
        match = self._regex.search(text)
        if match is None:
            return -1
        return int(match.start())


def make_matcher(pattern: str, *, regex: bool) -> LineMatcher:
    """Return what finds a pattern. Raises BadArguments."""
    if regex:
        max_characters = REGEX_CHARACTERS
    else:
        max_characters = PATTERN_CHARACTERS
    if not pattern.strip() or len(pattern) > max_characters:
        raise BadArguments(
            f"`pattern` has {len(pattern)} characters; give 1 to {max_characters}, not all "
            "of them blank."
        )
    if "\n" in pattern:
        raise BadArguments("`pattern` has several lines: give a text that stands in one line.")
    if regex:
        return RegexMatcher(pattern)
    return TextMatcher(pattern)


def has_trigrams(matcher: LineMatcher) -> bool:
    """Tell whether the trigram index says where a match may be."""
    return any(len(text.casefold()) >= LENGTH for text in matcher.texts)


@dataclass(frozen=True, slots=True)
class GrepPassage:
    """A passage that is looked at. following: what its last line goes on with."""

    page: int
    line_start: int
    content: str
    following: str = ""


@dataclass(frozen=True, slots=True)
class MatchedLine:
    page: int
    line: int
    content: str


def match_passages(matcher: LineMatcher, passages: Iterable[GrepPassage]) -> Iterator[MatchedLine]:
    """Yield the lines that match, in order."""
    for passage in passages:
        if matcher.find(passage.content + passage.following) >= 0:
            yield from _match_lines(matcher, passage)


def _match_lines(matcher: LineMatcher, passage: GrepPassage) -> Iterator[MatchedLine]:
    lines = (passage.content + passage.following).split("\n")
    for i, line in enumerate(lines):
        match_start = matcher.find(line)
        if match_start >= 0:
            yield MatchedLine(passage.page, passage.line_start + i, _show(line, match_start))


def _show(line: str, match_start: int) -> str:
    """Return the part of a line around a match."""
    if len(line) <= SHOWN_CHARACTERS:
        return line
    begin = max(0, min(match_start - SHOWN_CHARACTERS // 3, len(line) - SHOWN_CHARACTERS))
    end = begin + SHOWN_CHARACTERS
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"
