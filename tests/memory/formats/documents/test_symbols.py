"""Definitions of a source file are found by a fork, which ends when it takes too long."""

from __future__ import annotations

from memory.formats.documents import symbols
from memory.formats.documents.symbols import SourceSymbol, find_symbols_apart

SOURCE = "def race(): pass\n"


def test_a_text_that_takes_too_long_has_no_definitions(monkeypatch):
    assert find_symbols_apart("text/x-python", SOURCE) == [SourceSymbol("race", "function", 1, 1)]
    # The time grows with the square of these: they take a minute.
    monkeypatch.setattr(symbols, "CPU_SECONDS", 1)
    assert find_symbols_apart("text/x-python", SOURCE + "(" * 200_000) == []
