"""The dates that a query names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.search.dates import DateRange, dates_in


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("what happened in May 2023?", [(2023, 5, None)]),
        ("on 8 June", [(None, 6, 8)]),
        ("June 8th, 2022", [(2022, 6, 8)]),
        ("2022-03-01 and 2022-04", [(2022, 3, 1), (2022, 4, None)]),
        ("in 2021", [(2021, None, None)]),
        ("2023年5月8日", [(2023, 5, 8)]),
        ("五月", [(None, 5, None)]),
        ("she may march on", []),
        ("last week, yesterday", []),
    ],
)
def test_a_query_names_its_dates(query, found):
    assert [(d.year, d.month, d.day) for d in dates_in(query)] == found


def test_a_range_holds_the_moments_within_it():
    noon = datetime(2023, 5, 8, 12, tzinfo=UTC).timestamp()
    assert DateRange(2023, 5).holds(noon)
    assert DateRange(month=5, day=8).holds(noon)
    assert not DateRange(2022, 5).holds(noon)
