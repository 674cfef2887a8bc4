"""What both searches read from a query string."""
from __future__ import annotations

import re

from gateway.errors import BadRequest
from gateway.manage.shapes import place_of
from memory.search import parse_time
from memory.stores.sql.messages import Query

BARE_ZONE = re.compile(r" (\d\d:?\d\d)$")  # the plus of a zone that nobody percent-encoded


def asked(words: str, between: tuple[str | None, str | None], cursor: str | None, limit: int, role: str | None = None) -> Query:
    """The search, for one hit more than `limit`, so that it is known whether there are more. Raises BadRequest."""
    if role is not None and role not in ("user", "assistant", "tool"):
        raise BadRequest(f"`role` is {role[:40]!r}: use user, assistant or tool.", param="role")
    since, until = bound(between[0], "since"), bound(between[1], "until")
    offset = place_of(cursor, int) or 0
    return Query(words, (role,) if role else (), since, until, limit + 1, max(offset, 0))


def bound(value: str | None, name: str) -> float | None:
    """Seconds since 1970 of `since` or `until`; a date without a time covers its whole day. Raises BadRequest."""
    if not value:
        return None
    try:
        return parse_time(BARE_ZONE.sub(r"+\1", value) if "T" in value else value, end=name == "until")
    except (ValueError, OverflowError) as e:
        raise BadRequest(f"`{name}` is {value[:60]!r}: give an ISO 8601 date or time, like 2026-03-01.", param=name) from e
