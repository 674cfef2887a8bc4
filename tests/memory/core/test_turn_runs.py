"""The runs of a user's turn, as they are stored between its requests."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.core.tool_trace import ToolRun
from memory.core.turn_runs import NO_RUNS, TurnRuns, read_runs, runs_of_round

names = st.text(min_size=1, max_size=5)
runs = st.builds(ToolRun, names, st.booleans(), st.text(max_size=5), st.sampled_from(["", "d1"]))
rounds = st.lists(st.lists(runs, max_size=3), max_size=4)


@given(rounds, st.booleans())
def test_what_is_stored_is_read_again_but_for_results_of_earlier_rounds(made, is_reminded):
    kept = TurnRuns((), is_reminded).add_rounds(made)
    stored = kept.to_json()
    read = read_runs(None if stored is None else json.loads(json.dumps(stored)))
    assert read.is_reminded == is_reminded
    filled = [round_ for round_ in made if round_]
    assert [[(r.name, r.is_ok, r.digest) for r in one] for one in read.rounds] == [
        [(r.name, r.is_ok, r.digest) for r in one] for one in filled
    ]
    assert read.rounds[-1:] == tuple(tuple(one) for one in filled[-1:])
    assert all(not run.result for one in read.rounds[:-1] for run in one)


def test_nothing_is_stored_of_a_turn_without_runs():
    assert NO_RUNS.to_json() is None
    assert NO_RUNS.add_rounds([[]]).to_json() is None


@pytest.mark.parametrize("stored", [None, {}, [], "x", 3, {"rounds": 3}, {"rounds": [[3]]}])
def test_what_cannot_be_read_is_no_run(stored):
    assert read_runs(stored) == NO_RUNS


def test_a_call_that_was_refused_or_is_not_over_is_no_run():
    entry = {"results": ["one", "Error: no.", None], "runs": [["a", True], None, ["b", False]]}
    assert runs_of_round(entry) == [ToolRun("a", True, "one")]
    entry = {"results": ["one"], "runs": [["a", True, "d1"]]}
    assert runs_of_round(entry) == [ToolRun("a", True, "one", "d1")]
    assert runs_of_round({"results": ["written by an earlier version"]}) == []
