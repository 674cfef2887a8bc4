"""Rules on tools, from outside: what a check answers, and which rules are refused."""

import random

import pytest

from gateway.config.agents import AgentSettings
from gateway.config.settings import ConfigError, parse_settings
from gateway.config.tool_rules import check_rules, read_stored_rules
from memory import RuleChain
from tests.e2e.test_agents import gateway, put
from tests.memory.core import rule_reference
from tests.memory.core.test_tool_rules import NAMES, PATTERNS, RESULTS
from tests.models import Model

KINDS = (
    "allow",
    "deny",
    "first",
    "after",
    "children",
    "conditional",
    "max_count",
    "requires_approval",
    "required_before_exit",
    "ends_turn",
)


def random_rule(chance):
    def some(names, least=1):
        return chance.sample(names, chance.randint(least, 3))

    kind = chance.choice(KINDS)
    rule = {"type": kind, "tools": some(NAMES if kind == "required_before_exit" else PATTERNS)}
    if kind in ("allow", "deny", "requires_approval", "after"):
        rule["after"] = some(PATTERNS)
    if kind == "after":
        rule["directly"] = chance.random() < 0.5
    if kind in ("children", "conditional"):
        rule["parent"] = some(PATTERNS)
    if kind == "conditional":
        case = {"contains": "yes", "tools": rule.pop("tools")}
        rule |= {"cases": [case], "otherwise": some(PATTERNS, least=0)}
    if kind == "max_count":
        rule["count"] = chance.randint(1, 3)
    return rule


def random_call(chance):
    status = "ok" if chance.random() < 0.8 else "error"
    return {"name": chance.choice(NAMES), "status": status, "result": chance.choice(RESULTS)}


async def check(live, **body):
    return await live.memory("POST", "/tools/check", json=body)


async def test_t_u1_a_check_of_two_thousand_rule_sets_answers_as_the_contract_says(data):
    chance = random.Random(11)
    async with Model("Hi.") as up, gateway(up, data) as live:
        for _ in range(2000):
            rules = [random_rule(chance) for _ in range(chance.randint(0, 5))]
            rounds = [
                [random_call(chance) for _ in range(chance.randint(0, 3))]
                for _ in range(chance.randint(0, 4))
            ]
            policy = chance.choice(["allow", "deny"])
            got = (await check(live, rules=rules, policy=policy, rounds=rounds)).json()
            trace = [
                [(c["name"], c["status"] == "ok", c["result"]) for c in calls] for calls in rounds
            ]
            answers, has_ended, unmet = rule_reference.check(rules, policy, trace)
            shown = [
                [(c["verdict"], c["rule"], c["message"]) for c in calls] for calls in got["rounds"]
            ]
            expected = [
                [(*v[:2], c[2] if v[2] is None else v[2]) for v, c in zip(a, b, strict=True)]
                for a, b in zip(answers, shown, strict=True)
            ]
            assert (shown, got["ended"], got["unmet"]) == (expected, has_ended, unmet)


async def test_a_check_has_defaults_and_bounds(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        rules = [{"type": "max_count", "tools": ["a"], "count": 2}]
        got = (await check(live, rules=rules, rounds=[[{"name": "a"}] * 3])).json()
        assert [call["verdict"] for call in got["rounds"][0]] == ["run", "run", "refuse"]
        assert got["rounds"][0][2] == {
            "name": "a",
            "verdict": "refuse",
            "rule": 0,
            "message": "Error: a may be called 2 times in a turn, and was.",
        }
        most = await check(
            live, rules=rules * 100, rounds=[[{"name": f"a{i}"}] for i in range(1000)]
        )
        assert most.status_code == 200
        for rounds in ([[{"name": "a"}] * 1001], [[]] * 1001):
            got = await check(live, rules=rules, rounds=rounds)
            assert (got.status_code, got.json()["error"]["param"]) == (400, "rounds")
        got = await check(live, rules=[*rules, {**rules[0], "count": 0}], rounds=[])
        error = got.json()["error"]
        assert (got.status_code, error["code"]) == (400, "invalid_rule")
        assert error["param"] == "rules[1].count"


async def test_only_trusted_keys_check_rules(data):
    keys = ({}, {"trusted": False, "users": ["ann"]})
    async with Model("Hi.") as up, gateway(up, data, None, *keys) as live:
        own = {"authorization": "Bearer mg-0123456789abcdef01231"}
        got = await live.memory(
            "POST", "/tools/check", json={"rules": [], "rounds": []}, headers=own
        )
        assert got.status_code == 403


async def test_a_profile_takes_rules_that_can_be_used_alone(data):
    keys = ({"admin": True},)
    async with Model("Hi.") as up, gateway(up, data, None, *keys) as live:
        rules = [{"type": "first", "tools": ["a"]}]
        got = await put(live, "x", model="m", tool_rules=rules)
        assert got.json()["tool_rules"] == rules
        got = await put(live, "x", model="m", tool_rules=[*rules, {"type": "first", "tools": []}])
        error = got.json()["error"]
        assert (error["code"], error["param"]) == ("invalid_rule", "tool_rules[1].tools")
        got = await live.memory("PATCH", "/agents/x", json={"tool_rules": {}})
        assert got.json()["error"]["param"] == "tool_rules"


def test_rules_of_the_configuration_are_checked_when_it_is_read():
    config = {"agents": {"x": {"tool_rules": [{"type": "max_count", "tools": ["a"], "count": 0}]}}}
    with pytest.raises(ConfigError, match=r"agents\.x\.tool_rules\[0\]\.count"):
        parse_settings(config)
    assert check_rules([]) == []


def test_stored_rules_that_cannot_be_read_refuse_every_call():
    stored = AgentSettings(tool_rules=({"type": "of another version"},))
    chain = RuleChain(read_stored_rules(stored.tool_rules))
    assert chain.judge("a").message.startswith("Error: a is not allowed here. The rules of this")
    assert read_stored_rules([]) == ()
