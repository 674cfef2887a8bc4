"""Rows of the operator's tools that hold on every API alike, streamed and plain."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.e2e.operator_tools import ADMIN, SECRET, ToolServer, granting
from tests.e2e.three_apis import APIS, Client, results_in, three_gateways
from tests.sockets import within
from tests.wire_models import use

RANDOM = re.compile(r"\b(?:mg|req|node|epoch|cnv|msg)[-_][0-9a-z]+|[0-9a-f]{8,}")
QUIET = {"server": {"keepalive_seconds": 1, "commit_seconds": 1}}
SIGNS_OF_LIFE = {"chat": ": keep-alive", "responses": ": keep-alive", "messages": "event: ping"}


def own_tool(api, name):
    """A tool of the client in the form of an API."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    return {
        "chat": {"type": "function", "function": {"name": name, "parameters": schema}},
        "responses": {"type": "function", "name": name, "parameters": schema},
        "messages": {"name": name, "input_schema": schema},
    }[api]


def names_of(body):
    return [(t.get("function") or t)["name"] for t in body["tools"]]


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_t_g1_without_a_grant_every_api_sends_what_it_sends_without_tools(data, mode):
    sent = {}
    async with ToolServer() as server:
        for tools in ({}, {"weather": server.entry("weather")}):
            config = granting(tools, "nothing")
            async with three_gateways(data / str(len(tools)), config) as (live, apis):
                for api in APIS:
                    apis.play(api, ["Hi."])
                    client = Client(live, api, "ada", stream=False)
                    client.headers = {"x-memory": mode}
                    await client.say("Hello")
                    (request,) = apis.models[api].requests
                    sent.setdefault(api, []).append(RANDOM.sub("#", request.body.decode()))
        assert server.requests == []
    for api in APIS:
        assert sent[api][0] == sent[api][1], api


FREE = {"price": {"input": 0, "output": 0}}


async def test_t_g4_the_clients_tool_wins_in_every_form(data):
    async with ToolServer() as server:
        tools = {name: server.entry(name) for name in ("weather", "other")}
        async with three_gateways(data, granting(tools)) as (live, apis):
            for api in APIS:
                apis.play(api, [[use("weather", {"x": 1})]])
                client = Client(live, api, f"u{api}", stream=True, tools=[own_tool(api, "weather")])
                answer = await client.say("Go")
                assert list(answer.calls.values()) == ["weather"]
                names = names_of(apis.bodies(api)[0])
                assert [n for n in names if n in tools] == ["weather", "other"]
                explain = await live.memory(
                    "GET", f"/explain/{answer.headers['x-memory-explain']}", headers=ADMIN
                )
                (withheld,) = explain.json()["withheld"]
                assert withheld["name"] == "weather"
            assert server.requests == []


async def test_t_g2_two_keys_never_see_each_others_tools(data):
    async with ToolServer() as server:
        config = granting({name: server.entry(name) for name in ("a", "b")}, "a")
        config["keys"].append(
            {"name": "two", "key": f"{SECRET}-two", "tenant": "t", "tools": ["b"]}
        )
        async with three_gateways(data, config) as (live, apis):
            for api in APIS:
                for key, name in ((SECRET, "a"), (f"{SECRET}-two", "b")):
                    apis.play(api, ["Hi."])
                    client = Client(live, api, "ada", stream=False)
                    client.headers = {"authorization": f"Bearer {key}"}
                    await client.say("Hello")
                    names = names_of(apis.bodies(api)[0])
                    assert [n for n in names if n in ("a", "b")] == [name]


@pytest.mark.parametrize("api", APIS)
async def test_t_g6_a_silent_run_is_kept_alive_and_ends_with_its_client(data, api):
    async with ToolServer() as server:
        server.delays["slow"] = 2.5
        config = granting({"slow": server.entry("slow")}) | QUIET
        async with three_gateways(data, config) as (live, apis):
            apis.play(api, [[use("slow", {"city": "x"})], "Done."])
            answer = await Client(live, api, "ada", stream=True).say("Go")
            assert answer.text == "Done."
            assert answer.raw.count(SIGNS_OF_LIFE[api]) >= 2
            server.delays["slow"] = 30
            for stream in (True, False):
                server.requests.clear()
                apis.play(api, [[use("slow", {"city": f"y{stream}"})], "Done."])
                client = Client(live, api, f"bob{stream}", stream=stream)
                asking = asyncio.ensure_future(client.say("Go"))
                assert await within(5, lambda: len(server.requests) == 1)
                asking.cancel()
                await asyncio.wait([asking])
                await server.requests[-1].leaves(1.0)


async def test_t_g10_an_unknown_tool_and_a_spent_budget_are_results(data):
    async with ToolServer() as server:
        tools = {"paid": server.writing("paid", price=1.0)}
        config = granting(tools, key={"budget": {"usd": 1.5, "period": "day"}})
        async with three_gateways(data, config, **FREE) as (live, apis):
            for number, api in enumerate(APIS):
                gone = use("result_open", {"id": "res_0123456789abcdef"})
                two = [use("paid", {"city": "a"}), use("paid", {"city": "b"}), gone]
                apis.play(api, [two, "Done."])
                answer = await Client(live, api, f"u{api}", stream=False).say("Go")
                assert (answer.text, answer.headers["x-memory-status"]) == ("Done.", "ok")
                results = results_in(apis.bodies(api)[-1])
                refused = "Error: the budget has no room for a run of paid."
                assert results.count(refused) == (1 if number == 0 else 2)
                assert results[-1] == "Error: there is no such result."
            assert len(server.runs("paid")) == 1
            metrics = (await live.http.get(f"{live.root}/metrics", headers=ADMIN)).text
            assert 'mnemogate_tool_runs_total{entry="paid",status="refused"} 5.0' in metrics
            assert "mnemogate_tools_waiting 0.0" in metrics
