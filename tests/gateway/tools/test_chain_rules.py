"""The rules of a request over its trace: the same from a solver and from the exchange itself."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.chain_rules import ToolChain
from gateway.tools.past_runs import called_name, read_exchange, read_round
from memory import RuleChain, ToolRun, parse_rules
from tests.memory.core.test_tool_rules import NAMES, rule_sets

OWNED = frozenset((*NAMES, "core_memory_append", "tool_call"))
WIRES = ("chat", "responses", "messages")


def chat_reply(calls):
    listed = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in calls
    ]
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": listed}}]}


def responses_reply(calls):
    items = [
        {"type": "function_call", "call_id": i, "name": n, "arguments": "{}"} for i, n in calls
    ]
    return {"object": "response", "output": [{"type": "reasoning", "summary": []}, *items]}


def messages_reply(calls):
    blocks = [{"type": "tool_use", "id": i, "name": n, "input": {}} for i, n in calls]
    return {"role": "assistant", "content": [{"type": "text", "text": "So."}, *blocks]}


REPLIES = {"chat": chat_reply, "responses": responses_reply, "messages": messages_reply}


def exchange(wire, calls, results):
    """A finished round as it is put back into later requests."""
    reply = REPLIES[wire](calls)
    pairs = list(zip(calls, results, strict=True))
    if wire == "chat":
        told = [{"role": "tool", "tool_call_id": i, "content": r} for (i, _), r in pairs]
        return [reply["choices"][0]["message"], *told]
    if wire == "responses":
        told = [
            {"type": "function_call_output", "call_id": i, "output": [{"type": "t", "text": r}]}
            for (i, _), r in pairs
        ]
        return [*reply["output"], *told]
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": r} for (i, _), r in pairs]
    return [reply, {"role": "user", "content": blocks}]


calls = st.tuples(st.sampled_from(NAMES), st.sampled_from(["ok", "Error: it failed."]))
rounds = st.lists(st.lists(calls, min_size=1, max_size=3), max_size=4)


@settings(max_examples=300, deadline=None)
@given(rule_sets, rounds, st.sampled_from(WIRES), st.integers(0, 4))
def test_verdicts_are_the_same_from_the_exchange_on_every_wire(rules, sent, wire, split):
    parsed = parse_rules(rules)
    chain, entries, hidden = RuleChain(parsed), [], []
    tools = ToolChain(parsed, "allow", frozenset(NAMES), OWNED)
    for number, reply_calls in enumerate(sent):
        past = SimpleNamespace(rounds=entries, hidden=hidden)
        verdicts = tools.solve([name for name, _ in reply_calls], past)
        runs, results = [], []
        for (name, result), verdict in zip(reply_calls, verdicts, strict=True):
            assert verdict == chain.judge(name)
            if verdict.decision == "refuse":
                results.append(verdict.message)
                continue
            chain.accept(name)
            results.append(result)
            runs.append(ToolRun(name, result == "ok", result))
        chain.finish_round(runs)
        named = [(f"call_{number}_{i}", name) for i, (name, _) in enumerate(reply_calls)]
        if number < split:  # an earlier request of the same turn
            hidden = [*hidden, *exchange(wire, named, results)]
        else:
            entries = [*entries, {"reply": REPLIES[wire](named), "results": results}]
    past = SimpleNamespace(rounds=entries, hidden=hidden)
    assert tools.find_end(past) == chain.end
    assert tools.list_unmet(past) == chain.list_unmet()


def test_memory_tools_are_governed_only_where_a_rule_names_them():
    past = SimpleNamespace(rounds=[], hidden=[])
    names = ["core_memory_append", "a"]
    for rules, decisions in (
        ([{"type": "deny", "tools": ["*"]}], ["run", "refuse"]),
        ([{"type": "deny", "tools": ["core_memory_append"]}], ["refuse", "run"]),
    ):
        chain = ToolChain(parse_rules(rules), "allow", frozenset("a"), OWNED)
        assert [verdict.decision for verdict in chain.judge(names, past)] == decisions


@pytest.mark.parametrize(
    "result",
    [
        "Error: a person refused this call. No.",
        "Error: nobody decided on this call within 120 s; it was not run.",
        "Error: a is no longer available.",
        "Error: a was already called twice with these arguments in this turn; use that result.",
        "Error: the arguments of a are not valid JSON (x). Call it again with a JSON object.",
        "Error: 64 calls of tools were made in this turn, which is the most. Answer.",
    ],
)
def test_a_call_that_was_not_run_is_in_no_trace(result):
    chain = ToolChain(
        parse_rules([{"type": "max_count", "tools": ["a"], "count": 1}]),
        "allow",
        frozenset("a"),
        OWNED,
    )
    entry = {"reply": chat_reply([("1", "a")]), "results": [result]}
    past = SimpleNamespace(rounds=[entry], hidden=[])
    assert chain.judge(["a"], past)[0].decision == "run"


def test_calls_of_the_client_are_not_read():
    reply = chat_reply([("1", "theirs"), ("2", "a"), ("3", "b")])
    read = read_round(reply, ["one", "two"], {"a", "b"})
    assert [(call.name, call.result) for call in read] == [("a", "one"), ("b", "two")]
    (hidden,) = read_exchange(exchange("chat", [("1", "a")], ["one"])[:1])
    assert hidden[0].result is None
    assert (
        read_exchange([None, "x", {"tool_calls": ["x", {"function": 3}], "choices": ["x"]}]) == []
    )


def test_tool_call_counts_as_the_tool_that_it_calls():
    assert called_name("tool_call", '{"name": "a", "arguments": {}}') == "a"
    assert called_name("tool_call", {"name": "a"}) == "a"
    for arguments in ("{", "[]", '{"name": 3}', None):
        assert called_name("tool_call", arguments) == "tool_call"
    assert called_name("b", '{"name": "a"}') == "b"
