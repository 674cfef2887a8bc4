"""The stems of a text's words."""

from __future__ import annotations

from memory.search.stems_of_words import stems_of


def test_words_and_parts_of_identifiers_are_stemmed():
    assert stems_of("Creates issues") == stems_of("create_issue")
    assert stems_of("listCalendarEvents") == stems_of("list calendar event")
    assert stems_of("") == []
