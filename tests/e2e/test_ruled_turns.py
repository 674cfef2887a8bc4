"""Rules on tools in turns: what is refused does not run, and what must waits for a person."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.config.settings import ConfigError, parse_settings
from tests.e2e.operator_tools import ADMIN, ToolServer, gateway, granting
from tests.models import Model, call, calls


def ruled(tools, *rules, **more):
    return granting(tools, toolbox={"rules": list(rules), **more})


def named(name, city="Oslo", ident=None):
    return call(name, {"city": city}, ident or f"call_{name}_{city}")


def results(up):
    """The tool results in the newest upstream request."""
    return [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]


async def test_a_refused_call_does_not_run_and_the_model_is_told_why(data):
    rule = {"type": "max_count", "tools": ["weather"], "count": 1}
    turns = (calls(named("weather"), named("weather", "Rome")), "Cold.")
    async with ToolServer() as server, Model(*turns) as up:
        config = ruled({"weather": server.entry("weather")}, rule)
        async with gateway(up, data, config) as live:
            got = await live.chat("How is it?", user="ann")
            assert got.json()["choices"][0]["message"]["content"] == "Cold."
            assert len(server.runs("weather")) == 1
            refusal = "Error: weather may be called 1 times in a turn, and was."
            assert results(up)[1] == refusal
            explained = await live.memory("GET", f"/explain/{got.headers['x-memory-explain']}")
            tools = explained.json()["tools"]
            assert [(t["status"], t.get("rule", "")) for t in tools] == [
                ("ok", ""),
                ("refused", "rules[0]"),
            ]
            assert tools[0].keys() - {"origin"} == tools[1].keys() - {"rule"}


async def test_rules_hold_over_the_rounds_of_a_turn_and_not_over_turns(data):
    rule = {"type": "after", "tools": ["book"], "after": ["weather"]}
    round_ = calls(named("book")), calls(named("weather")), calls(named("book", "Rome")), "Done."
    async with ToolServer() as server, Model(*round_, calls(named("book")), "No.") as up:
        tools = {n: server.entry(n) for n in ("weather", "book")}
        async with gateway(up, data, ruled(tools, rule)) as live:
            got = await live.chat("Book it", user="ann")
            assert [len(server.runs(n)) for n in ("weather", "book")] == [1, 1]
            history = [
                {"role": "user", "content": "Book it"},
                got.json()["choices"][0]["message"],
                {"role": "user", "content": "Again"},
            ]
            await live.chat(history, user="ann")
            assert len(server.runs("book")) == 1


async def test_an_agents_rules_stand_behind_the_operators(data):
    operators = {"type": "allow", "tools": ["weather"]}
    own = [{"type": "deny", "tools": ["*"], "reason": "Not here."}]
    turns = (calls(named("weather"), named("book")), "Done.")
    async with ToolServer() as server, Model(*turns) as up:
        tools = {n: server.entry(n) for n in ("weather", "book")}
        config = ruled(tools, operators)
        config["agents"] = {"helper": {"model": "m", "tool_rules": own}}
        async with gateway(up, data, config) as live:
            await live.chat("Go", model="agent:helper", user="ann")
            assert [len(server.runs(n)) for n in ("weather", "book")] == [1, 0]
            assert results(up)[1] == "Error: book is not allowed here. Not here."


@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_call_waits_for_a_person_while_others_run(data, decision):
    rule = {"type": "requires_approval", "tools": ["book"]}
    turns = (calls(named("book"), named("weather")), "Done.")
    async with ToolServer() as server, Model(*turns) as up:
        tools = {n: server.entry(n) for n in ("weather", "book")}
        async with gateway(up, data, ruled(tools, rule)) as live:
            asking = asyncio.ensure_future(live.chat("Go", user="ann"))
            found = []
            while not found or not server.runs("weather"):
                got = await live.memory("GET", "/tool-approvals?status=pending", headers=ADMIN)
                found = got.json()["data"]
                await asyncio.sleep(0.02)
            (waits,) = found
            assert (waits["tool"], json.loads(waits["arguments"])) == ("book", {"city": "Oslo"})
            assert (waits["user"], server.runs("book")) == ("ann", [])
            await live.memory(
                "POST",
                f"/tool-approvals/{waits['id']}",
                json={"decision": decision, "reason": "No."},
                headers=ADMIN,
            )
            got = await asyncio.wait_for(asking, 20)
            assert got.status_code == 200
            assert len(server.runs("book")) == (decision == "allow")
            if decision == "deny":
                assert results(up)[0] == "Error: a person refused this call. No."
            explained = await live.memory("GET", f"/explain/{got.headers['x-memory-explain']}")
            booked = next(t for t in explained.json()["tools"] if t["name"] == "book")
            assert booked["approval"] == waits["id"]


async def test_nobody_decides_in_time(data):
    rule = {"type": "requires_approval", "tools": ["*"]}
    async with ToolServer() as server, Model(calls(named("book")), "Done.") as up:
        config = ruled({"book": server.entry("book")}, rule, approval_seconds=0.3)
        async with gateway(up, data, config) as live:
            assert (await live.chat("Go", user="ann")).status_code == 200
            text = "Error: nobody decided on this call within 0.3 s; it was not run."
            assert (results(up), server.runs("book")) == ([text], [])


async def test_nobody_is_asked_about_a_call_that_the_budget_has_no_room_for(data):
    rule = {"type": "requires_approval", "tools": ["*"]}
    async with ToolServer() as server, Model(calls(named("book")), "Done.") as up:
        config = ruled({"book": server.entry("book", price=1.0)}, rule, approval_seconds=5)
        config["keys"][0]["budget"] = {"usd": 0.5, "period": "day"}
        price = {"input": 0, "output": 0}
        config["models"] = {"*": {"targets": [{"provider": "openai"}], "price": price}}
        async with gateway(up, data, config) as live:
            assert (await live.chat("Go", user="ann")).status_code == 200
            text = "Error: the budget has no room for a run of book."
            assert (results(up), server.runs("book")) == ([text], [])
            asked = await live.memory("GET", "/tool-approvals", headers=ADMIN)
            assert asked.json()["data"] == []


def test_rules_of_the_operator_are_checked_at_the_start():
    rules = [{"type": "required_before_exit", "tools": ["a*"]}]
    with pytest.raises(ConfigError, match=r"toolbox\.rules: rules\[0\]\.tools"):
        parse_settings({"toolbox": {"rules": rules}})
