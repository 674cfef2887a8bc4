"""The rules of a request over its user's turn: the same, however the turn was cut into requests."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.chain_rules import ToolChain
from gateway.tools.checked_call import called_name
from memory import RuleChain, ToolRun, TurnRuns, parse_rules
from memory.core.turn_runs import read_runs, runs_of_round
from tests.memory.core.test_tool_rules import NAMES, rule_sets

calls = st.tuples(st.sampled_from(NAMES), st.booleans(), st.sampled_from(["", "Error: no.", "ok"]))
rounds = st.lists(st.lists(calls, min_size=1, max_size=3), max_size=4)


@settings(max_examples=300, deadline=None)
@given(rule_sets, rounds, st.sets(st.integers(0, 4)))
def test_verdicts_are_the_same_wherever_a_request_ended(rules, sent, ends):
    parsed = parse_rules(rules)
    chain, earlier, entries = RuleChain(parsed), TurnRuns(), []
    tools = ToolChain(parsed, "allow")
    for number, reply_calls in enumerate(sent):
        before = earlier.add_rounds(map(runs_of_round, entries))
        reply = tools.begin_reply(before)
        results, runs, recorded = [], [], []
        for name, is_ok, text in reply_calls:
            expected, verdict = chain.judge(name), reply.judge(name)
            assert (verdict.decision, verdict.message) == (expected.decision, expected.message)
            results.append(verdict.message if verdict.decision == "refuse" else text)
            if verdict.decision == "refuse":
                recorded.append(None)
                continue
            chain.accept(name)
            reply.accept(name)
            runs.append(ToolRun(name, is_ok, text))
            recorded.append([name, is_ok])
        chain.finish_round(runs)
        entries.append({"results": results, "runs": recorded})
        # The client has a call of its own, and sends its result.
        if number in ends:
            after = earlier.add_rounds(map(runs_of_round, entries))
            earlier, entries = read_runs(json.loads(json.dumps(after.to_json()))), []
    runs = earlier.add_rounds(map(runs_of_round, entries))
    assert tools.find_end(runs) == chain.end
    assert tools.list_unmet(runs) == chain.list_unmet()


def test_memory_tools_are_governed_only_where_a_rule_names_them():
    names = ["core_memory_append", "a", "result_open"]
    for rules, decisions in (
        ([{"type": "deny", "tools": ["*"]}], ["run", "refuse", "run"]),
        ([{"type": "deny", "tools": ["core_memory_append"]}], ["refuse", "run", "run"]),
    ):
        reply = ToolChain(parse_rules(rules), "allow").begin_reply(TurnRuns())
        assert [reply.judge(name).decision for name in names] == decisions


def test_runs_of_what_is_not_governed_count_nowhere():
    rules = parse_rules([{"type": "max_count", "tools": ["*"], "count": 1}])
    runs = TurnRuns(((ToolRun("result_open"), ToolRun("core_memory_append")),))
    assert ToolChain(rules, "allow").begin_reply(runs).judge("a").decision == "run"
    runs = TurnRuns(((ToolRun("a"),),))
    assert ToolChain(rules, "allow").begin_reply(runs).judge("a").decision == "refuse"


@pytest.mark.parametrize("withholds", [True, False])
def test_a_tool_is_withheld_where_no_call_of_it_could_be_allowed(withholds):
    rules = parse_rules(
        [
            {"type": "first", "tools": ["a"]},
            {"type": "requires_approval", "tools": ["a"]},
            {"type": "max_count", "tools": ["a"], "count": 1},
        ]
    )
    tools, names = ToolChain(rules, "allow", withholds=withholds), ["a", "b", "memory_rethink"]
    assert tools.list_withheld(names, TurnRuns()) == (frozenset("b") if withholds else frozenset())
    after = TurnRuns(((ToolRun("a"),),))
    assert tools.list_withheld(names, after) == (frozenset("a") if withholds else frozenset())


def test_rules_that_act_on_the_turn_are_told():
    for kind in ("ends_turn", "required_before_exit"):
        rules = parse_rules([{"type": kind, "tools": ["a"]}])
        assert ToolChain(rules, "allow").exits is not None
    assert ToolChain(parse_rules([{"type": "first", "tools": ["a"]}]), "allow").exits is None


def test_tool_call_counts_as_the_tool_that_it_calls():
    assert called_name("tool_call", '{"name": "a", "arguments": {}}') == "a"
    for arguments in ("{", "[]", '{"name": 3}', ""):
        assert called_name("tool_call", arguments) == "tool_call"
    assert called_name("b", '{"name": "a"}') == "b"
