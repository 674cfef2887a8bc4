"""How fast passages fade."""

from __future__ import annotations

import pytest

from memory.search.decay import FAINT, TYPES, lasting_hours, strength


@pytest.mark.parametrize(
    ("kind", "hours"), [("trivial", 20), ("context", 60), ("fact", 120), ("preference", 600)]
)
def test_a_type_is_faint_after_its_time(kind, hours):
    assert strength(kind, 0.5, 0, hours) == pytest.approx(FAINT, rel=0.05)
    assert strength(kind, 0.5, 0, hours / 2) > FAINT


@pytest.mark.parametrize("kind", ["trivial", "context", "fact", "preference", "unknown"])
@pytest.mark.parametrize("uses", [0, 3])
def test_a_passage_lasts_until_it_is_faint(kind, uses):
    hours = lasting_hours(kind, 0.3, uses)
    assert strength(kind, 0.3, uses, hours) == pytest.approx(FAINT)
    assert lasting_hours("identity", 0, uses) is lasting_hours(kind, 1, uses) is None


def test_identity_and_full_importance_never_fade():
    assert strength("identity", 0, 0, 1e6) == 1
    assert {strength(kind, 1, 0, 1e6) for kind in TYPES} == {1}


def test_use_slows_the_decay_and_the_future_does_not_count():
    assert strength("fact", 0.5, 3, 100) > strength("fact", 0.5, 0, 100)
    assert strength("fact", 0.5, 0, -5) == 1
    assert strength("unknown", 0.5, 0, 10) == strength("fact", 0.5, 0, 10)
