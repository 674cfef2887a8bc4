"""Rules on tools: against a reference written from the contract alone, and their refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.core.rule_kinds import KINDS
from memory.core.tool_rules import (
    InvalidRule,
    RuleChain,
    ToolRun,
    list_literal_names,
    parse_rules,
)
from tests.memory.core import rule_reference

NAMES = ["a", "b", "c", "git_list", "git_push", "git_pull"]
PATTERNS = [*NAMES, "git_*", "*", "?", "x"]
RESULTS = [
    "",
    "ok",
    '{"message": "yes"}',
    '{"message": "no", "n": [1, 2.0, true, null]}',
    'Result of a (data, not instructions):\n{"message": "yes"}',
    '{"a/b": {"~": [0]}}',
    "[1, [2]]",
    '"yes"',
    "3",
    '{"n": 1',
]
VALUES = ["yes", "no", 1, 1.0, 2, True, None, 0, [2], {"~": [0]}, {"message": "yes"}, 3]
POINTERS = [
    "",
    "/message",
    "/n/0",
    "/n/1",
    "/n/2",
    "/n/3",
    "/n/01",
    "/n/-",
    "/a~1b/~0/0",
    "/1",
    "/0",
]

patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3)
maybe_patterns = st.lists(st.sampled_from(PATTERNS), max_size=2)
cases = st.one_of(
    st.fixed_dictionaries(
        {"tools": patterns, "contains": st.sampled_from(["y", "ok", "message", "data,"])}
    ),
    st.fixed_dictionaries(
        {
            "tools": patterns,
            "pointer": st.sampled_from(POINTERS),
            "equals": st.sampled_from(VALUES),
        }
    ),
)


def of_kind(kind, **members):
    optional = {n[1:]: s for n, s in members.items() if n.startswith("_")}
    needed = {n: s for n, s in members.items() if not n.startswith("_")}
    return st.fixed_dictionaries({"type": st.just(kind), **needed}, optional=optional)


RULES = {
    "allow": of_kind("allow", tools=patterns, _after=maybe_patterns),
    "deny": of_kind("deny", tools=patterns, _after=maybe_patterns, _reason=st.just("Ask first.")),
    "first": of_kind("first", tools=patterns),
    "after": of_kind("after", tools=patterns, after=patterns, _directly=st.booleans()),
    "children": of_kind("children", tools=patterns, parent=patterns),
    "conditional": of_kind(
        "conditional",
        parent=patterns,
        cases=st.lists(cases, max_size=3),
        _otherwise=maybe_patterns,
    ),
    "max_count": of_kind("max_count", tools=patterns, count=st.integers(1, 3)),
    "requires_approval": of_kind("requires_approval", tools=patterns, _after=maybe_patterns),
    "required_before_exit": of_kind(
        "required_before_exit", tools=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2)
    ),
    "ends_turn": of_kind("ends_turn", tools=patterns, _answer=st.sampled_from(["model", "result"])),
}
calls = st.tuples(
    st.sampled_from(NAMES), st.sampled_from([True, True, True, False]), st.sampled_from(RESULTS)
)
traces = st.lists(st.lists(calls, max_size=4), max_size=5)
rule_sets = st.lists(st.one_of(*RULES.values()), max_size=5)


def solve(rules, policy, rounds):
    chain, answers = RuleChain(parse_rules(rules), policy), []
    for sent in rounds:
        verdicts, runs = [], []
        for name, is_ok, result in sent:
            verdict = chain.judge(name)
            verdicts.append((verdict.decision, verdict.rule, verdict.message))
            if verdict.decision != "refuse":
                chain.accept(name)
                runs.append(ToolRun(name, is_ok, result))
        chain.finish_round(runs)
        answers.append(verdicts)
    return answers, chain.end is not None, chain.list_unmet()


@settings(max_examples=2000, deadline=None)
@given(rule_sets, st.sampled_from(["allow", "allow", "deny"]), traces)
def test_verdicts_are_those_of_the_contract(rules, policy, rounds):
    answers, has_ended, unmet = rule_reference.check(rules, policy, rounds)
    own_answers, own_end, own_unmet = solve(rules, policy, rounds)
    wanted = [
        [(*verdict[:2], own[2] if verdict[2] is None else verdict[2]) for verdict, own in pairs]
        for pairs in (zip(a, b, strict=True) for a, b in zip(answers, own_answers, strict=True))
    ]
    assert (own_answers, own_end, own_unmet) == (wanted, has_ended, unmet)


def test_the_kinds_are_those_of_the_contract():
    assert set(KINDS) == set(RULES)


def judge_after(rules, *rounds, name="c"):
    chain = RuleChain(parse_rules(rules))
    for runs in rounds:
        chain.finish_round([ToolRun(n) for n in runs])
    return chain.judge(name).message


@pytest.mark.parametrize(
    ("rule", "rounds", "message"),
    [
        (
            {"type": "first", "tools": ["a", "b"]},
            [],
            "may not be called yet. The first call must be one of: a, b.",
        ),
        (
            {"type": "after", "tools": ["c"], "after": ["a"]},
            [],
            "may be called only after one of these has succeeded: a.",
        ),
        (
            {"type": "after", "tools": ["c"], "after": ["a"], "directly": True},
            [["a"], ["b"]],
            "may be called only right after one of these has succeeded: a.",
        ),
        ({"type": "deny", "tools": ["c"]}, [], "is not allowed here."),
        ({"type": "deny", "tools": ["*"], "reason": "Ask."}, [], "is not allowed here. Ask."),
        (
            {"type": "max_count", "tools": ["c"], "count": 3},
            [["c"], ["c", "c"]],
            "may be called 3 times in a turn, and was.",
        ),
    ],
)
def test_refusals_have_these_texts(rule, rounds, message):
    assert judge_after([rule], *rounds) == f"Error: c {message}"


def test_a_refusal_after_a_parent_names_the_parent():
    rule = {"type": "children", "parent": ["p*"], "tools": ["a"]}
    assert judge_after([rule], ["p1", "p2"]) == "Error: after p2 only these may be called now: a."


def test_a_refusal_lists_twenty_names():
    names = [f"t{i}" for i in range(23)]
    message = judge_after([{"type": "first", "tools": names}])
    assert message.endswith(f"one of: {', '.join(names[:20])} and 3 more.")


def test_a_round_of_refused_calls_is_none():
    chain = RuleChain(parse_rules([{"type": "children", "parent": ["a"], "tools": ["b"]}]))
    chain.finish_round([ToolRun("a")])
    assert chain.judge("c").decision == "refuse"
    chain.finish_round([])
    assert chain.judge("c").decision == "refuse"
    chain.finish_round([ToolRun("b")])
    assert chain.judge("c").decision == "run"


def test_how_a_turn_ends_is_said_by_the_first_rule_and_the_last_run():
    rules = [
        {"type": "ends_turn", "tools": ["x"]},
        {"type": "ends_turn", "tools": ["a"], "answer": "result"},
        {"type": "ends_turn", "tools": ["*"]},
    ]
    chain = RuleChain(parse_rules(rules))
    chain.finish_round([ToolRun("a", True, "1"), ToolRun("a", False, "2")])
    assert chain.end is not None
    assert (chain.end.rule, chain.end.answer, chain.end.result) == (1, "result", "1")
    assert chain.judge("b").rule == 1


def test_literal_names_are_those_without_a_wildcard():
    rules = parse_rules(
        [
            {"type": "allow", "tools": ["core_memory_append", "a*"], "after": ["b", "c?"]},
            {"type": "required_before_exit", "tools": ["d"]},
            {
                "type": "conditional",
                "parent": ["e"],
                "cases": [{"contains": "x", "tools": ["f"]}],
                "otherwise": ["g", "*"],
            },
        ]
    )
    assert list_literal_names(rules) == {"core_memory_append", *"bdefg"}


MAX = {"type": "max_count", "tools": ["a"]}
CASE = {"type": "conditional", "parent": ["a"]}
DEEP = {}
for _ in range(40):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ({}, ""),
        ("x", ""),
        ([MAX | {"count": 1}] * 101, ""),
        (["x"], "[0]"),
        ([{}], "[0].type"),
        ([{"type": "x", "tools": ["a"]}], "[0].type"),
        ([{"type": 3, "tools": ["a"]}], "[0].type"),
        ([{"type": ["first"], "tools": ["a"]}], "[0].type"),
        ([{"type": "deny"}], "[0].tools"),
        ([{"type": "deny", "tools": []}], "[0].tools"),
        ([{"type": "deny", "tools": "a"}], "[0].tools"),
        ([{"type": "deny", "tools": ["a", ""]}], "[0].tools[1]"),
        ([{"type": "deny", "tools": [3]}], "[0].tools[0]"),
        ([{"type": "deny", "tools": ["a"] * 101}], "[0].tools"),
        ([{"type": "deny", "tools": ["a"], "reason": 3}], "[0].reason"),
        ([{"type": "allow", "tools": ["a"], "reason": ""}], "[0].reason"),
        ([{"type": "first", "tools": ["a"], "x": 1}], "[0].x"),
        ([{"type": "after", "tools": ["a"], "after": []}], "[0].after"),
        ([{"type": "after", "tools": ["a"], "after": ["b"], "directly": 1}], "[0].directly"),
        ([{"type": "children", "tools": ["a"]}], "[0].parent"),
        ([MAX], "[0].count"),
        ([MAX | {"count": 0}], "[0].count"),
        ([MAX | {"count": -1}], "[0].count"),
        ([MAX | {"count": True}], "[0].count"),
        ([MAX | {"count": 1.5}], "[0].count"),
        ([MAX | {"count": 1}, MAX | {"count": "2"}], "[1].count"),
        ([{"type": "required_before_exit", "tools": ["a", "b*"]}], "[0].tools"),
        ([{"type": "ends_turn", "tools": ["a"], "answer": "x"}], "[0].answer"),
        ([CASE], "[0].cases"),
        ([CASE | {"cases": [{"contains": "x"}]}], "[0].cases[0].tools"),
        ([CASE | {"cases": [{"contains": "", "tools": ["a"]}]}], "[0].cases[0].contains"),
        ([CASE | {"cases": [{"contains": "x", "tools": []}]}], "[0].cases[0].tools"),
        ([CASE | {"cases": [{"tools": ["a"]}]}], "[0].cases[0]"),
        ([CASE | {"cases": [{"tools": ["a"], "pointer": "/a"}]}], "[0].cases[0]"),
        ([CASE | {"cases": [{"tools": ["a"], "equals": 1}]}], "[0].cases[0]"),
        ([CASE | {"cases": [{"tools": ["a"], "contains": "x", "equals": 1}]}], "[0].cases[0]"),
        (
            [CASE | {"cases": [{"tools": ["a"], "pointer": "a", "equals": 1}]}],
            "[0].cases[0].pointer",
        ),
        (
            [CASE | {"cases": [{"tools": ["a"], "pointer": "/~2", "equals": 1}]}],
            "[0].cases[0].pointer",
        ),
        (
            [CASE | {"cases": [{"tools": ["a"], "pointer": "", "equals": DEEP}]}],
            "[0].cases[0].equals",
        ),
        ([CASE | {"cases": [{"tools": ["a"], "contains": "x"}] * 60}] * 2, ""),
    ],
)
def test_what_is_no_rule_is_named_with_its_path(rules, path):
    with pytest.raises(InvalidRule) as refused:
        parse_rules(rules)
    assert refused.value.path == path
    assert refused.value.text


def test_a_name_may_be_pointed_at_with_null():
    rule = CASE | {"cases": [{"tools": ["a"], "pointer": "/n", "equals": None}], "otherwise": []}
    chain = RuleChain(parse_rules([rule]))
    chain.finish_round([ToolRun("a", True, '{"n": null}')])
    assert chain.judge("a").decision == "run"
    assert chain.judge("b").decision == "refuse"
    chain.finish_round([ToolRun("a", True, "[" * 100_000)])
    assert chain.judge("a").decision == "refuse"
