"""Repeated tasks among turns, and how uses of skills ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.core.task_turns import (
    RepetitionRules,
    TaskTurn,
    find_repeated,
    is_error,
    settle_uses,
)

RULES = RepetitionRules(2, 2)


def turn(node, steps, conversation=0, **more):
    return TaskTurn(conversation or node, [node], list(steps), **{"is_over": True, **more})


def test_a_task_is_repeated_if_enough_turns_of_two_conversations_have_its_calls():
    turns = [turn(5, "ab"), turn(4, "abc"), turn(3, "ab"), turn(2, "abc"), turn(1, "abc")]
    found = find_repeated(turns, RULES, ())
    assert [(task.steps, len(task.turns)) for task in found] == [
        (["a", "b", "c"], 3),
        (["a", "b"], 2),
    ]
    assert [t.nodes for t in found[0].turns] == [[4], [2], [1]]
    assert find_repeated(turns, RULES, {found[0].digest, found[1].digest}) == []
    assert find_repeated([turn(1, "ab", 9), turn(2, "ab", 9)], RULES, ()) == []
    assert find_repeated([turn(1, "a"), turn(2, "a")], RULES, ()) == []
    failed = [turn(1, "ab", has_failed=True), turn(2, "ab"), turn(3, "ab", is_over=False)]
    assert find_repeated(failed, RULES, ()) == []


@given(st.lists(st.lists(st.sampled_from(["a", "b", "\0", "ab"]), max_size=3), max_size=8))
def test_other_sequences_have_other_digests(sequences):
    names = {tuple(steps): turn(1, steps).digest for steps in sequences if "\0" not in steps}
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize(
    "result",
    ["Error: HTTP 500", " error", '{"error": "no"}', '{ "is_error": true }', "Traceback (most"],
)
def test_a_result_says_that_it_failed(result):
    assert is_error(result)


@pytest.mark.parametrize(
    "result",
    ["", "errors: 0", '{"error": null}', '{"is_error":false}', '{"error": ""}', "No error"],
)
def test_a_result_that_speaks_of_errors_has_not_failed(result):
    assert not is_error(result)


def test_uses_are_settled_by_the_end_of_their_turns():
    turns = [turn(1, "a"), turn(2, "a", has_failed=True), turn(3, "a", is_over=False)]
    assert settle_uses(turns, {10: 1, 20: 2, 30: 3, 40: 4}) == {10: True, 20: False}
