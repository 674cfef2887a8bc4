"""Searches a user's files: by words, by name of a definition, by text; and tells their text."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, select

from memory.errors import BadArguments
from memory.formats.documents.cutting import CutPassage, join_lines
from memory.formats.documents.line_matching import (
    GrepPassage,
    LineMatcher,
    MatchedLine,
    has_trigrams,
    make_matcher,
    match_passages,
)
from memory.scope import Scope
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.file_tables import file_versions
from memory.stores.sql.rows import file_grams, file_passages, file_symbols, files, scopes

READ_SECONDS = 10.0
GREP_SECONDS = 2.0
# Passages that are looked at in the first step, and in one at most.
FIRST, TOGETHER = 50, 800
# Of a text that is told at once.
LINES = 2000
TEXT_CHARACTERS = 200_000
QUERY_CHARACTERS = 4000
KINDS = ("text", "symbol")
decode = msgspec.json.decode
T = TypeVar("T")
# Files with the places of some of their passages.
GrepStep = list[tuple[Any, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class FileQuery:
    """What is looked for by words. file: an id or a name, "" for all. kind: one of KINDS."""

    query: str
    file: str = ""
    kind: str = "text"
    limit: int = 10


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """What is looked for by text. file: an id or a name, "" for all."""

    pattern: str
    file: str = ""
    regex: bool = False
    limit: int = 20


@dataclass(frozen=True, slots=True)
class TextQuery:
    """Which part of a file is told: from a page, or from a line on."""

    file: str
    page: int | None = None
    line: int | None = None
    lines: int = 100


@dataclass(frozen=True, slots=True)
class FileHit:
    """A line or a passage. page: None where the file has none."""

    file: str
    name: str
    page: int | None
    line_start: int
    line_end: int
    content: str
    score: float
    kind: str = ""
    symbol: str = ""


@dataclass(slots=True)
class GrepResult:
    """is_cut: the time was over before all was looked at."""

    hits: list[FileHit] = field(default_factory=list)
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class FileText:
    """Numbered lines of a file. row: the file's."""

    row: Any
    lines: list[tuple[int, str]]
    page_lines: list[int]

    @property
    def page(self) -> int | None:
        """The page of the first line."""
        return page_of(self.page_lines, self.lines[0][0])


class FileSearch:
    """The files of a database."""

    def __init__(self, db: Database, *, grep_seconds: float = GREP_SECONDS) -> None:
        self._db = db
        self._grep_seconds = grep_seconds

    async def search(self, scope: Scope, query: FileQuery) -> list[FileHit]:
        """Return hits, best first. Raises NotFound, BadArguments, StoreUnavailable."""
        if query.kind not in KINDS:
            raise BadArguments(f"`kind` is {query.kind[:60]!r}: use text or symbol.")
        if not query.query.strip():
            raise BadArguments("`query` is empty: give words to search for.")
        return await self._read(partial(_search, scope=scope, file_query=query))

    async def grep(self, scope: Scope, query: GrepQuery) -> GrepResult:
        """Return the lines that hold a text. Raises NotFound, BadArguments, StoreUnavailable."""
        deadline = time.monotonic() + self._grep_seconds
        matcher = make_matcher(query.pattern, regex=query.regex)
        plan = await self._read(partial(_plan_grep, scope=scope, query=query, matcher=matcher))
        result = GrepResult()
        matched_lines = set[tuple[int, int]]()
        for step in _steps(plan):
            free_hits = query.limit - len(result.hits)
            if free_hits <= 0:
                break
            if time.monotonic() > deadline:
                result.is_cut = True
                break
            passages = await self._read(partial(_read_step, step=step))
            look = partial(_match_step, matcher, passages, matched_lines)
            result.hits += await asyncio.to_thread(look, free_hits)
        return result

    async def open(self, scope: Scope, query: TextQuery) -> FileText:
        """Return lines of a file. Raises NotFound, BadArguments, StoreUnavailable."""
        if query.page is not None and query.line is not None:
            raise BadArguments("Give `page` or `line`, not both.")
        return await self._read(partial(_read_text, scope=scope, query=query))

    async def list_files(self, scope: Scope) -> list[Any]:
        """Return the files of a scope, by name. Raises StoreUnavailable."""
        return await self._read(partial(_list_files, scope=scope))

    async def _read(self, work: Callable[[Connection], T]) -> T:
        return await self._db.read(work, READ_SECONDS, of=NO_TURNS)


def _list_files(conn: Connection, scope: Scope) -> list[Any]:
    scope_id = scopes.find(conn, scope)
    if scope_id is None:
        return []
    return files.list_files(conn, scope_id)


def _search(conn: Connection, scope: Scope, file_query: FileQuery) -> list[FileHit]:
    scope_id = scopes.find(conn, scope)
    if scope_id is None:
        return _none_of(conn, 0, file_query.file)
    upload = 0
    if file_query.file:
        upload = files.get_file(conn, scope_id, file_query.file).shown
        if not upload:
            return []
    query = file_query.query[:QUERY_CHARACTERS]
    rows = (file_symbols if file_query.kind == "symbol" else file_passages).search(
        conn, scope_id, query, file_query.limit, upload
    )
    return [
        FileHit(
            row["file"],
            row["name"],
            row["page"] or None,
            row["line_start"],
            row["line_end"],
            row["content"],
            row["score"],
            row.get("kind", ""),
            row.get("symbol", ""),
        )
        for row in rows
    ]


def _none_of(conn: Connection, scope_id: int, file: str) -> list[Any]:
    """Return nothing. Raises NotFound if a file is named."""
    if file:
        files.get_file(conn, scope_id, file)
    return []


def _plan_grep(
    conn: Connection, scope: Scope, query: GrepQuery, matcher: LineMatcher
) -> list[tuple[Any, Sequence[int]]]:
    """Return the files with the places of passages that are to be looked at."""
    scope_id = scopes.find(conn, scope)
    if scope_id is None:
        return _none_of(conn, 0, query.file)
    if query.file:
        rows = [files.get_file(conn, scope_id, query.file)]
    else:
        rows = files.list_files(conn, scope_id)
    rows = [row for row in rows if row.shown]
    if not has_trigrams(matcher):
        return [(row, range(row.passages)) for row in rows]
    places = file_grams.find_places(conn, scope_id, [row.shown for row in rows], matcher.texts)
    return [(row, places[row.shown]) for row in rows if places.get(row.shown)]


def _steps(plan: Sequence[tuple[Any, Sequence[int]]]) -> Iterator[GrepStep]:
    """Yield files with places of theirs, so many together that a step takes some milliseconds.

    The first step is small: a frequent text stands in the first passages.
    """
    size = free_places = FIRST
    step: GrepStep = []
    for row, places in plan:
        begin = 0
        while begin < len(places):
            step.append((row, places[begin : begin + free_places]))
            begin += len(step[-1][1])
            free_places -= len(step[-1][1])
            if not free_places:
                yield step
                step = []
                size = min(4 * size, TOGETHER)
                free_places = size
    if step:
        yield step


def _read_step(conn: Connection, step: GrepStep) -> list[tuple[Any, list[GrepPassage]]]:
    """Return the passages of a step with what their last line goes on with."""
    candidates: dict[int, list[GrepPassage]] = {row.shown: [] for row, _ in step}
    places = [(row.shown, place) for row, file_places in step for place in file_places]
    for passage in file_passages.read_places(conn, places):
        following = (passage.following or "").split("\n", 1)[0]
        candidates[passage.upload].append(
            GrepPassage(passage.page, passage.line_start, passage.content, following)
        )
    return [(row, candidates[row.shown]) for row, _ in step]


def _match_step(
    matcher: LineMatcher,
    step: Sequence[tuple[Any, Sequence[GrepPassage]]],
    matched_lines: set[tuple[int, int]],
    limit: int,
) -> list[FileHit]:
    """Return the lines that match, at most so many. matched_lines: of earlier steps."""
    hits: list[FileHit] = []
    for row, passages in step:
        for match in match_passages(matcher, passages):
            # What stands in the beginning of the passage behind is seen twice.
            if (row.shown, match.line) in matched_lines:
                continue
            matched_lines.add((row.shown, match.line))
            hits.append(_to_hit(row, match))
            if len(hits) >= limit:
                return hits
    return hits


def _to_hit(row: Any, match: MatchedLine) -> FileHit:
    page = match.page or None
    return FileHit(row.public_id, row.name, page, match.line, match.line, match.content, 1.0)


def _read_text(conn: Connection, scope: Scope, query: TextQuery) -> FileText:
    scope_id = scopes.find(conn, scope)
    row = files.get_file(conn, scope_id or 0, query.file)
    if row.status == files.FAILED:
        raise BadArguments(f"{row.name!r} has no text: {row.reason}.")
    if not row.shown:
        raise BadArguments(f"{row.name!r} is being read: try again in some seconds.")
    version_query = select(file_versions.c.page_lines).where(file_versions.c.id == row.shown)
    page_lines: list[int] = decode(conn.execute(version_query).scalar() or "[]")
    first_line = _first_line(row, query, page_lines)
    last_line = min(first_line + max(1, min(query.lines, LINES)) - 1, row.lines)
    passages = [
        CutPassage(p.page, p.line_start, p.line_end, p.content)
        for p in file_passages.read_lines(conn, row.shown, first_line, last_line)
    ]
    numbered = [(n, line) for n, line in join_lines(passages) if first_line <= n <= last_line]
    return FileText(row, _bounded(numbered), page_lines)


def _first_line(row: Any, query: TextQuery, page_lines: list[int]) -> int:
    """Return the first line that is told. Raises BadArguments."""
    if query.page is not None:
        if not page_lines:
            raise BadArguments(f"{row.name!r} has no pages: give `line`, from 1 to {row.lines}.")
        if not 1 <= query.page <= len(page_lines):
            raise BadArguments(f"`page` is {query.page}: {row.name!r} has {len(page_lines)} pages.")
        return page_lines[query.page - 1]
    line = 1 if query.line is None else query.line
    if not 1 <= line <= row.lines:
        raise BadArguments(f"`line` is {line}: {row.name!r} has {row.lines} lines.")
    return line


def _bounded(numbered: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return lines up to a number of characters, at least one."""
    free_characters = TEXT_CHARACTERS
    bounded_lines: list[tuple[int, str]] = []
    for number, line in numbered:
        if bounded_lines and len(line) > free_characters:
            break
        bounded_lines.append((number, line[:TEXT_CHARACTERS]))
        free_characters -= len(line)
    return bounded_lines


def page_of(page_lines: Sequence[int], line: int) -> int | None:
    """Return the page of a line, None where there are no pages."""
    return bisect_right(page_lines, line) or None
