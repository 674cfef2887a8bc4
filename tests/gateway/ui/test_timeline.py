"""The timeline of a turn's runs: what overlapped is beside, and each bar is where it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.timeline import lay_out_runs
from memory import iso

TIMES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500), st.integers(1, 3000)))


def call(name, start, queued=0, ms=100, **more):
    return {
        "name": name,
        "started_at": iso(1e9 + start / 1000),
        "queued_ms": queued,
        "ms": ms,
        **more,
    }


def test_runs_beside_each_other_and_one_after():
    runs = lay_out_runs(
        [
            call("b", 0, queued=50, ms=150, status="ok", cost_usd=0.5),
            call("a", 0, ms=100, round=1),
            call("c", 300, ms=100, round=2, status="timeout"),
            {"name": "core_memory_append", "ms": 3.0, "round": 1},
            {"name": "bad", "started_at": "yesterday"},
        ]
    )
    assert [(r.name, r.begin_ms, r.x, r.width, list(r.beside)) for r in runs] == [
        ("b", 0.0, 0.0, 37.5, ["a"]),
        ("a", 0.0, 0.0, 25.0, ["b"]),
        ("c", 300.0, 75.0, 25.0, []),
    ]
    assert (runs[0].wait, runs[0].queued_ms, runs[0].cost_usd) == (12.5, 50.0, 0.5)
    assert (runs[2].status, runs[2].round) == ("timeout", 2)
    assert lay_out_runs([{"name": "x"}]) == []


@given(TIMES)
def test_bars_stay_in_the_picture_and_overlap_is_mutual(times):
    calls = [call(str(i), *one) for i, one in enumerate(times)]
    runs = {run.name: run for run in lay_out_runs(calls)}
    assert len(runs) == len(times)
    for run in runs.values():
        assert 0 <= run.x <= 100
        assert run.x + run.wait + run.width <= 101
        if max(len(runs[name].beside) for name in runs) < 6:
            assert all(run.name in runs[name].beside for name in run.beside)
