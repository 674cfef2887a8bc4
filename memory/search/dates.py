"""Finds the dates that a query names: "in May 2023", "8 June", "2022-03-01", "in 2021", 五月. Pure.

Relative dates ("yesterday", "last week") are ignored, since they refer to the day of the message,
not of the search.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memory.search.vocabulary import MONTHS

_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_MONTH = re.compile(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?P<month>{'|'.join(MONTHS)})\b"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,?\s+(?:of\s+)?(?P<year>(?:19|20)\d\d)\b)?",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_CJK = re.compile(
    r"(?:((?:19|20)\d\d)\s*年\s*)?(1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])\s*月(?!\s*[个個])(?:\s*(\d{1,"
    r"2})\s*[日号])?"
)
_CENTURIES = ("19", "20")
_MONTH_BEGINNINGS = tuple([name[:3] for name in MONTHS])
_NUMERALS = {
    name: i
    for i, name in enumerate(
        ["一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"], 1
    )
}
# "may" and "march" are verbs as well: alone they are months only after one of these words.
_VERBS = frozenset({"may", "march"})
# Characters to look back for them.
LEAD = 40
_BEFORE = re.compile(
    r"\b(?:in|of|on|by|during|since|until|last|this|next|early|late|mid)\s+$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DateRange:
    """A day, a month or a year; None matches any."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def holds(self, timestamp: float) -> bool:
        """Tell whether a Unix time lies in it."""
        moment = datetime.fromtimestamp(timestamp, UTC)
        return (
            self.year in (None, moment.year)
            and self.month in (None, moment.month)
            and self.day in (None, moment.day)
        )


def dates_in(query: str) -> Sequence[DateRange]:
    """Return the dates that the query names, in their most exact reading."""
    # Few queries have any: that shows sooner than the patterns are searched.
    has_year = any(x in query for x in _CENTURIES)
    dates = [
        DateRange(int(m[1]), int(m[2]), int(m[3]) if m[3] else None)
        for m in (_ISO.finditer(query) if has_year else ())
    ]
    for m in _MONTH.finditer(query) if _may_name_month(query) else ():
        day = m["before"] or m["after"]
        name = m["month"].lower()
        if name in _VERBS and not (
            day or m["year"] or _BEFORE.search(query[max(0, m.start() - LEAD) : m.start()])
        ):
            continue
        dates.append(
            DateRange(
                int(m["year"]) if m["year"] else None, MONTHS[name], int(day) if day else None
            )
        )
    dates += [
        DateRange(
            int(m[1]) if m[1] else None,
            int(m[2]) if m[2].isdigit() else _NUMERALS[m[2]],
            int(m[3]) if m[3] else None,
        )
        for m in (_CJK.finditer(query) if "月" in query else ())
    ]
    return dates or [DateRange(int(m[0])) for m in (_YEAR.finditer(query) if has_year else ())]


def _may_name_month(query: str) -> bool:
    folded_query = query.casefold()
    return any(x in folded_query for x in _MONTH_BEGINNINGS)
