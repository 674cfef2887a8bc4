"""Definitions of a source file are found by a fork, which ends when it takes too long."""

from __future__ import annotations

from memory.formats.documents import symbols
from memory.formats.documents.symbols import SourceSymbol, find_symbols_apart

RACE = SourceSymbol("race", "function", 1, 1)


def find_for_ever(media_type, text):
    """As a parser does with some texts, whose time grows with the square of their length."""
    while text == "hostile":
        pass
    return [RACE]


def test_a_text_that_takes_too_long_has_no_definitions(monkeypatch):
    monkeypatch.setattr(symbols, "find_symbols", find_for_ever)
    monkeypatch.setattr(symbols, "CPU_SECONDS", 1)
    assert find_symbols_apart("text/x-python", "def race(): pass\n") == [RACE]
    assert find_symbols_apart("text/x-python", "hostile") == []


def test_a_text_of_another_kind_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(symbols, "find_symbols", find_for_ever)
    assert find_symbols_apart("text/plain", "def race(): pass\n") == []
