"""A model that does not ask is known by its record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.core.autonomy import SILENT_TURNS, ModelRecord, decide


def record(calls):
    found = ModelRecord()
    for called in calls:
        found = found.after(has_called=called)
    return found


@given(st.lists(st.booleans(), max_size=40))
def test_it_is_helped_where_it_called_nothing_in_its_last_turns(calls):
    helped = decide("auto", takes_tools=True, record=record(calls)).on
    assert helped == (len(calls) >= SILENT_TURNS and not any(calls[-SILENT_TURNS:]))


@given(st.lists(st.booleans(), max_size=40))
def test_its_counts_are_those_of_its_turns(calls):
    found = record(calls)
    assert (found.offered, found.called) == (len(calls), sum(calls))


def test_a_model_without_tools_is_helped_at_once():
    assert decide("auto", takes_tools=False, record=ModelRecord()).on


@pytest.mark.parametrize(("setting", "on"), [("always", True), ("off", False), ("tools", False)])
def test_a_setting_overrules_the_record(setting, on):
    for takes_tools in (True, False):
        found = decide(setting, takes_tools=takes_tools, record=record([False] * 9))
        assert (found.on, found.open) == (on, False)


def test_turns_before_a_decision_may_still_be_read():
    assert decide("auto", takes_tools=True, record=record([False] * 7)).open
    assert not decide("auto", takes_tools=True, record=record([True] + [False] * 7)).open
