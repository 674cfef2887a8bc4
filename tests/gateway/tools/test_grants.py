"""Grants: patterns of names, and who bounds them."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.grants import Grants, limits_of, matches, narrowing_of


@given(st.text("ab_*", max_size=12), st.text("ab_", max_size=12))
def test_a_pattern_matches_what_a_shell_would(pattern, name):
    assert matches(pattern, name) == bool(re.match(fnmatch.translate(pattern), name))


def test_a_hostile_pattern_costs_what_its_length_does():
    assert not matches("a*" * 128 + "b", "a" * 64)


@pytest.mark.parametrize(
    ("header", "patterns"),
    [
        ("", None),
        ("none", ()),
        ("NONE", ()),
        ("a, b_* ,", ("a", "b_*")),
        (",", ()),
    ],
)
def test_the_header_names_patterns_or_none(header, patterns):
    assert narrowing_of(header) == patterns


def test_every_limit_bounds_what_is_granted():
    grants = Grants(("github_*", "weather"), limits_of(("*",), None, ("github_list*", "weather")))
    names = ["github_list_issues", "github_delete", "weather", "other"]
    assert [n for n in names if grants.allow(n)] == ["github_list_issues", "weather"]
    assert not Grants().allow("weather")
