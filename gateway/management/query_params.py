"""Query parameters that several routes share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from litestar.di import NamedDependency
from litestar.params import FromQuery

from gateway.errors import BadRequest
from gateway.management.context import Cursor, PageLimit
from gateway.management.schemas import cursor_of, place_of
from memory import SearchQuery, parse_time

T = TypeVar("T")
# The plus of a time zone, not percent-encoded.
BARE_ZONE = re.compile(r" (\d\d:?\d\d)$")


@dataclass(slots=True)
class TimeRange:
    """Unix times, both included; None for no bound."""

    since: float | None
    until: float | None


async def span(
    since: FromQuery[str | None] = None, until: FromQuery[str | None] = None
) -> TimeRange:
    """Return the time range of a request. Raises BadRequest."""
    return TimeRange(parse_time_bound(since, "since"), parse_time_bound(until, "until"))


@dataclass(slots=True)
class SearchParams:
    """The parameters of a search.

    query: for one hit more than a page has, which shows whether there are more.
    """

    query: SearchQuery

    def page(self, hits: Sequence[T]) -> tuple[Sequence[T], str | None]:
        """Return the hits of this page and the cursor to the rest."""
        limit = self.query.limit - 1
        return hits[:limit], cursor_of(self.query.offset + limit) if len(hits) > limit else None

    def by(self, role: str | None) -> SearchQuery:
        """Return the query, limited to messages of a role if one is given. Raises BadRequest."""
        if role is not None and role not in ("user", "assistant", "tool"):
            raise BadRequest(f"`role` is {role[:40]!r}: use user, assistant or tool.", param="role")
        if role:
            return replace(self.query, roles=(role,))
        return self.query


Within = NamedDependency[TimeRange]
Sought = NamedDependency[SearchParams]


async def search(
    span: Within, q: FromQuery[str] = "", cursor: Cursor = None, limit: PageLimit = 10
) -> SearchParams:
    """Return the search parameters of a request. Raises BadRequest."""
    return SearchParams(
        SearchQuery(q, (), span.since, span.until, limit + 1, max(place_of(cursor, int) or 0, 0))
    )


def parse_time_bound(value: str | None, name: str) -> float | None:
    """Return `since` or `until` as Unix time; a date without a time covers the whole day.

    Raises BadRequest.
    """
    if not value:
        return None
    try:
        return parse_time(
            BARE_ZONE.sub(r"+\1", value) if "T" in value else value, end=name == "until"
        )
    except (ValueError, OverflowError) as e:
        raise BadRequest(
            f"`{name}` is {value[:60]!r}: give an ISO 8601 date or time, like 2026-03-01.",
            param=name,
        ) from e
