"""Texts of others as a terminal may show them."""

from __future__ import annotations

from gateway.cli.formatting import changed_lines


def test_only_lines_that_differ_are_shown_and_nothing_moves_the_terminal():
    assert changed_lines("a\nold\x1b[2J\nz", "a\nnew\nz") == ["- old?[2J", "+ new"]
    assert changed_lines(None, "a") == ["+ a"]
    assert changed_lines("a", "a") == []


def test_texts_too_long_to_compare_are_told_as_such():
    (line,) = changed_lines("a\n" * 5_000, "b\n" * 5_000)
    assert "too many lines to compare" in line
