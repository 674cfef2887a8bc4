"""The benches are run by hand, so that nothing else tells when a name of theirs is gone."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.bench.freeze.__main__ import cells, verdict
from tests.bench.freeze.stage import Outcome

ROOT = Path(__file__).parent.parent
BENCHES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in (ROOT / "tests" / "bench").rglob("*.py")
)


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_can_be_imported(name):
    import_module(name)


def outcomes(*waits, status=200):
    """Plays of one size in which others waited so many milliseconds."""
    return [
        Outcome(1, status, "ok", 1.0, 0.1, 0, {"health": wait / 1e3, "machine": 0.0})
        for wait in waits
    ]


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        ((49, 5, 140), "-"),
        ((5, 53, 149), "HOLDS 51 ms in the median (at most 50)"),
        ((5, 6, 154), "HOLDS 152 ms at worst (at most 150)"),
        ((60, 5, 200), "HOLDS 58 ms in the median (at most 50), HOLDS 198 ms at worst"),
    ],
)
def test_the_freeze_bench_judges_by_the_median_and_by_the_worst(waits, told):
    """The numbers of the acceptance: 50 ms in the median of three plays, 150 ms in any."""
    plays = outcomes(*waits)
    assert verdict(plays[:1], plays, 0.002).startswith(told)
    median, worst = sorted(waits)[1:]
    assert cells("d", plays[:1], plays).endswith(f"| {median} | {worst} |")


def test_a_smaller_size_that_holds_others_is_told_too():
    plays = outcomes(1, 1, 1)
    assert "at worst" in verdict([*outcomes(160), plays[0]], plays, 0.002)
    assert "NO ANSWER" in verdict(outcomes(1, status=500), plays, 0.002)
