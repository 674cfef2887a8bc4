"""Letta's nine kinds of rules as ours."""

import pytest

from memory.core.letta_rules import LETTA_KINDS, convert_letta_rules, show_letta_rules
from memory.core.rule_kinds import KINDS
from memory.core.tool_rules import InvalidRule, RuleChain, ToolRun, parse_rules

CASES = {
    "continue_loop": ({}, []),
    "exit_loop": ({}, [{"type": "ends_turn", "tools": ["t"], "answer": "result"}]),
    "run_first": ({}, [{"type": "first", "tools": ["t"]}]),
    "constrain_child_tools": (
        {"children": ["a", "b"]},
        [{"type": "children", "parent": ["t"], "tools": ["a", "b"]}],
    ),
    "parent_last_tool": (
        {"children": ["a"]},
        [
            {"type": "after", "tools": ["a"], "after": ["t"], "directly": True},
            {"type": "children", "parent": ["t"], "tools": ["a"]},
        ],
    ),
    "max_count_per_step": (
        {"max_count_limit": 2},
        [{"type": "max_count", "tools": ["t"], "count": 2}],
    ),
    "required_before_exit": ({}, [{"type": "required_before_exit", "tools": ["t"]}]),
    "requires_approval": ({}, [{"type": "requires_approval", "tools": ["t"]}]),
    "conditional": (
        {"child_output_mapping": {"yes": "a"}, "default_child": "b"},
        [
            {
                "type": "conditional",
                "parent": ["t"],
                "cases": [{"pointer": "/message", "equals": "yes", "tools": ["a"]}],
                "otherwise": ["b"],
            }
        ],
    ),
}


@pytest.mark.parametrize("kind", LETTA_KINDS)
def test_each_kind_becomes_rules_of_ours(kind):
    members, wanted = CASES[kind]
    converted = convert_letta_rules([{"type": kind, "tool_name": "t", **members}])
    assert converted == wanted
    assert len(parse_rules(converted)) == len(wanted)


def test_all_first_tools_are_one_rule_in_the_place_of_the_first():
    rules = [
        {"type": "requires_approval", "tool_name": "x"},
        {"type": "run_first", "tool_name": "a"},
        {"type": "exit_loop", "tool_name": "x"},
        {"type": "run_first", "tool_name": "b"},
    ]
    kinds = [(rule["type"], rule["tools"]) for rule in convert_letta_rules(rules)]
    assert kinds == [("requires_approval", ["x"]), ("first", ["a", "b"]), ("ends_turn", ["x"])]


@pytest.mark.parametrize(
    ("members", "otherwise"),
    [
        ({}, ["*"]),
        ({"default_child": None}, ["*"]),
        ({"default_child": "b"}, ["b"]),
        ({"require_output_mapping": True, "default_child": "b"}, []),
    ],
)
def test_what_a_condition_allows_otherwise(members, otherwise):
    rule = {"type": "conditional", "tool_name": "t", "child_output_mapping": {}, **members}
    assert convert_letta_rules([rule])[0]["otherwise"] == otherwise


def test_without_children_nothing_follows_a_parent():
    for kind in ("constrain_child_tools", "parent_last_tool"):
        converted = convert_letta_rules([{"type": kind, "tool_name": "t", "children": []}])
        chain = RuleChain(parse_rules(converted))
        assert chain.judge("a").decision == "run"
        chain.finish_round([ToolRun("t")])
        verdict = chain.judge("a")
        assert verdict.message == "Error: after t only these may be called now: none."


def test_a_mapping_that_is_none_is_refused_by_the_parser():
    rule = {"type": "conditional", "tool_name": "t", "child_output_mapping": 3}
    with pytest.raises(InvalidRule, match="cases"):
        parse_rules(convert_letta_rules([rule]))
    assert not {"run_first", "exit_loop"} & KINDS.keys()


@pytest.mark.parametrize("kind", [k for k in LETTA_KINDS if k in CASES and len(CASES[k][1]) == 1])
def test_what_has_a_form_of_lettas_is_shown_so(kind):
    rule = {"type": kind, "tool_name": "t", **CASES[kind][0]}
    shown = show_letta_rules(convert_letta_rules([rule]))
    assert shown == ([rule] if kind != "conditional" else [])


def test_rules_about_patterns_have_no_form_of_lettas():
    assert show_letta_rules([{"type": "first", "tools": ["a*"]}]) == []
    assert show_letta_rules([{"type": "max_count", "tools": ["a", "b"], "count": 1}]) == []
