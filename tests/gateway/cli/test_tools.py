"""`mnemogate tools`: what rules say of calls, through the API of a database without a gateway."""

from __future__ import annotations

import json

import pytest

from tests.gateway.cli.command import mnemogate

RULES = [
    {"type": "requires_approval", "tools": ["b"]},
    {"type": "max_count", "tools": ["a"], "count": 1},
    {"type": "ends_turn", "tools": ["b"]},
    {"type": "required_before_exit", "tools": ["c"]},
]
CALLS = [{"name": "a"}, {"name": "a"}, {"name": "b"}]


def test_a_check_shows_what_happens_with_each_call(tmp_path):
    sent = json.dumps({"rules": RULES, "rounds": [CALLS]})
    assert mnemogate(tmp_path, "tools", "check", "-", stdin=sent).stdout.splitlines() == [
        "round 1  a runs (policy)",
        "round 1  a is refused (rules[1])  Error: a may be called 1 times in a turn, and was.",
        "round 1  b waits for a person (policy)",
        "The turn has ended.",
        "Required before the turn ends: c",
    ]
    answer = json.loads(mnemogate(tmp_path, "tools", "check", "-", "--json", stdin=sent).stdout)
    assert (answer["ended"], answer["unmet"]) == (True, ["c"])


def test_a_file_that_is_no_check_is_refused(tmp_path):
    failed = mnemogate(tmp_path, "tools", "check", "-", stdin="{")
    assert ("The file is not JSON" in failed.stderr, failed.returncode) == (True, 2)
    failed = mnemogate(tmp_path, "tools", "check", "-", stdin='{"rules": [3], "rounds": []}')
    assert "rules[0]" in failed.stderr


def test_a_python_file_becomes_a_tool(tmp_path):
    pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
    source = "def double(x: int) -> int:\n    return 2 * x\n"
    made = mnemogate(tmp_path, "tools", "put", "-", stdin=source)
    assert (made.stdout, made.returncode) == ("double is at version 1.\n", 0), made.stderr
    again = mnemogate(tmp_path, "tools", "put", "-", "--json", stdin=source.replace("2", "3"))
    assert json.loads(again.stdout)["version"] == 2
    wrong = mnemogate(tmp_path, "tools", "put", "-", stdin="def double(x): return x")
    assert ("line 1: the parameter x has no annotation" in wrong.stderr, wrong.returncode) == (
        True,
        2,
    )
