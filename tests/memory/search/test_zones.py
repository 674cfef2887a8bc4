"""Days are told in a zone; what is no zone is refused by its name."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.zones import day_of, moment_of, parse_zone, time_of

NO_ZONES = ["", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Europe", "a" * 99, "UTC\x00"]
# What a system keeps among its zones.
OF_SYSTEMS = ["localtime", "posixrules", "right/UTC"]


@pytest.mark.parametrize("name", [*NO_ZONES, *OF_SYSTEMS])
def test_what_is_no_zone_is_refused(name):
    with pytest.raises(ValueError, match="time zone"):
        parse_zone(name)


@given(st.text(max_size=80))
def test_any_name_is_a_zone_or_refused(name):
    with contextlib.suppress(ValueError):
        assert parse_zone(name).key == name


def test_a_day_is_that_of_the_zone():
    assert day_of(0) == "1970-01-01"
    assert day_of(0, "America/New_York") == "1969-12-31"
    assert moment_of(0, "Asia/Tokyo") == "Thu 1970-01-01 09:00 +09:00"


def test_a_time_is_told_with_its_offset():
    assert time_of(0) == "1970-01-01T00:00:00.000Z"
    assert time_of(0, "Asia/Kolkata") == "1970-01-01T05:30:00+05:30"
