"""Which first messages of a named conversation are another one, edited."""

from __future__ import annotations

import pytest

from memory.stores.sql.turns.sibling_turns import EDITED_SHARE, _shared_part


@pytest.mark.parametrize(
    ("text", "other", "is_edit"),
    [
        ("i am allergic to peanuts", "i am allergic to pistachio", True),
        ("ich wohne seit zwei jahren in lyon", "ich wohne seit drei jahren in lyon", True),
        ("我对花生过敏，请记住", "我对榛子过敏，请记住", True),
        ("i am allergic to peanuts", "what is the capital of france", False),
        ("what is the capital of france", "what is the population of spain", False),
        ("ab", "abc", False),
        ("", "", False),
    ],
)
def test_an_edit_leaves_half_of_a_text(text, other, is_edit):
    assert (_shared_part(text, other) >= EDITED_SHARE) is is_edit
    assert _shared_part(text, other) == _shared_part(other, text)


def test_texts_that_repeat_one_character_are_compared_in_linear_time():
    looked_at = []

    class Watched(str):
        def __getitem__(self, part):
            looked_at.append(part)
            return super().__getitem__(part)

    assert _shared_part(Watched("a" * 400), Watched("a" * 400)) == 1.0
    assert len(looked_at) <= 800
