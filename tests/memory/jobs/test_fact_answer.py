"""An answer is read with patience: no slip of a model loses a fact, and none invents one."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation.thoughts import without_thoughts
from memory.jobs.fact_answer import MAX_FACTS, read_answer

GOOD = {"op": "add", "text": "Ada likes tea", "quote": "I like tea", "type": "preference"}
MORE = {"op": "add", "text": "Ada has a cat", "quote": "I have a cat"}


def facts_of(answer):
    found = read_answer(without_thoughts(answer))
    return None if found is None else [f.text for f in found.facts]


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"operations": [GOOD, MORE]}),
        "Sure:\n```json\n" + json.dumps({"operations": [GOOD, MORE]}) + "\n```\nDone {}.",
        json.dumps([GOOD, MORE]),
        "<think>I see {x} and [1] and {}</think>" + json.dumps({"operations": [GOOD, MORE]}),
        "The user {Ada} said [1, 2]: " + json.dumps({"operations": [GOOD, MORE]}),
        "First [] then " + json.dumps({"Operations": [GOOD, MORE]}),
        json.dumps({"facts": [GOOD, 5, None, "x", MORE]}),
        json.dumps({"operations": [GOOD, MORE]})[:-2] + ",]}",
        json.dumps(GOOD) + "\n" + json.dumps(MORE),
        json.dumps({"new_facts": [GOOD, MORE]}),
        json.dumps({"notes": ["a"], "updates": [GOOD, MORE]}),
        '{"operations": ['
        + json.dumps(GOOD)
        + ', {"op": "add", "text": "a "b" c"}, '
        + json.dumps(MORE)
        + "]}",
    ],
)
def test_the_first_operations_that_decode_are_read_wherever_they_stand(answer):
    assert facts_of(answer) == ["Ada likes tea", "Ada has a cat"]


@pytest.mark.parametrize(
    ("slip", "expected"),
    [
        ({"op": "ADD"}, {"op": "add"}),
        ({"op": None}, {"op": "add"}),
        ({"op": "insert"}, {"op": "add"}),
        ({"op": "Replace", "id": 3}, {"op": "supersede", "id": 3}),
        ({"type": "hobby"}, {"type": "fact"}),
        ({"type": None}, {"type": "fact"}),
        ({"type": "Identity"}, {"type": "identity"}),
        ({"importance": 8}, {"importance": 0.8}),
        ({"importance": 90}, {"importance": 0.9}),
        ({"importance": -1}, {"importance": 0.0}),
        ({"importance": None}, {"importance": 0.5}),
        ({"importance": "high"}, {"importance": 0.5}),
        ({"importance": "0.7"}, {"importance": 0.7}),
        ({"importance": True}, {"importance": 0.5}),
        ({"id": "3"}, {"id": 3}),
        ({"id": "#3"}, {"id": 3}),
        ({"id": 3.0}, {"id": 3}),
        ({"id": "none"}, {"id": None}),
        ({"id": []}, {"id": None}),
        ({"category": None}, {"category": ""}),
        ({"quote": ["I like tea", "x"]}, {"quote": "I like tea"}),
        ({"quote": " I like\n tea "}, {"quote": "I like tea"}),
        ({"extra": {"a": [1]}}, {}),
    ],
)
def test_a_slip_in_a_member_costs_no_fact(slip, expected):
    (fact,) = read_answer(json.dumps({"operations": [{**GOOD, **slip}]})).facts
    assert fact.text == "Ada likes tea"
    assert {name: getattr(fact, name) for name in expected} == expected


@pytest.mark.parametrize(
    "members",
    [
        {"operation": "update", "fact": "Ada likes tea", "quote": "I like tea", "fact_id": 3},
        {"Action": "UPDATE", "content": "Ada likes tea", "evidence": "I like tea", "number": "3"},
        {"event": "update", "memory": "Ada likes tea", "source_quote": "I like tea", "id": 3},
        {"op": "update", "action": "add", "text": "Ada likes tea", "quote": "I like tea", "id": 3},
    ],
)
def test_a_member_of_another_name_costs_no_fact(members):
    (fact,) = read_answer(json.dumps({"facts": [members]})).facts
    assert (fact.op, fact.text, fact.quote, fact.id) == ("update", "Ada likes tea", "I like tea", 3)


def test_what_is_more_than_is_kept_is_told():
    found = read_answer(json.dumps([{**GOOD, "text": f"Fact {n}"} for n in range(30)]))
    assert found.excess == [f"Fact {n}" for n in range(MAX_FACTS, 30)]


def test_what_is_too_long_is_clipped_between_words():
    long = {**GOOD, "text": "word " * 200, "quote": "I like tea " * 200}
    (fact,) = read_answer(json.dumps({"operations": [long]})).facts
    assert fact.text == ("word " * 80).strip()
    assert len(fact.quote) == 600
    assert len(read_answer(json.dumps([GOOD] * 50)).facts) == MAX_FACTS


def test_one_malformed_item_never_loses_the_others_and_is_told():
    bad = [{"text": "no quote"}, 5, "x", {"op": "ignore", "text": "y", "quote": "z"}, None, {}]
    found = read_answer(json.dumps({"operations": [*bad, GOOD, {"quote": "z", "op": "supersede"}]}))
    assert [f.text for f in found.facts] == ["Ada likes tea"]
    assert found.malformed[:4] == ["no quote", "5", "x", "y"]
    assert len(found.malformed) == 5


def test_a_removal_needs_no_text():
    for op in ("delete", "forget", "remove", "supersede"):
        item = {"op": op, "id": 2, "quote": "forget my address", "text": ""}
        (fact,) = read_answer(json.dumps([item])).facts
        assert (fact.op, fact.text, fact.id) == ("supersede", "", 2)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I cannot do that.",
        "{",
        '{"operations": 5}',
        '{"other": []}',
        "[1, 2]",
        '{"operations": [' + "[" * 5000,
        "<think>" + json.dumps({"operations": [GOOD]}),
    ],
)
def test_what_proposes_nothing_in_any_form_is_unusable(answer):
    assert facts_of(answer) is None


@pytest.mark.parametrize("answer", ["[]", '{"operations": []}', '{"operations": null}', "ok: []"])
def test_nothing_to_report_is_an_answer(answer):
    assert facts_of(answer) == []


@given(st.text())
def test_reading_never_raises(answer):
    read_answer(answer)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["op", "text", "quote", "type", "importance", "id", "category"])


@given(st.lists(st.dictionaries(NAMES, JSON) | JSON, max_size=6))
def test_a_good_fact_survives_beside_anything(items):
    found = read_answer(json.dumps({"operations": [*items, GOOD]}))
    assert "Ada likes tea" in [f.text for f in found.facts]


@pytest.mark.parametrize("piece", ["[", "{", "[1,", '{"a":', "[]", "{}", "x{ ", '[{"a":['])
def test_the_cost_is_bounded(piece):
    began = time.process_time()
    read_answer(piece * (2_000_000 // len(piece)))
    assert time.process_time() - began < 2
