"""U3: rules on tools hold over all requests of one user turn, whatever comes between them."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import running
from tests.e2e.operator_tools import ADMIN, KEY, ToolServer, city_of, granting
from tests.e2e.three_apis import APIS, Client, ThreeApis, results_in, three_gateways
from tests.wire_models import use

TWICE = {"type": "max_count", "tools": ["weather"], "count": 2}
REFUSED = "Error: weather may be called 2 times in a turn, and was."


def mixed(city):
    """A reply that calls a tool of ours and one of the client's."""
    return [use("weather", {"city": city}), use("shell", {"command": "ls"})]


def ruled(server, *rules, **more):
    entry = server.entry("weather")
    return granting({"weather": entry}, toolbox={"rules": list(rules)}, **more)


async def edit_from_outside(live, client):
    """Change a block by API, so that the next request begins an epoch."""
    path = f"/users/{client.user}/blocks/human"
    got = await live.memory("PUT", path, json={"value": "Likes tea."}, headers=ADMIN)
    assert got.status_code == 200, got.text


async def narrow(live, client):
    client.headers = {"x-memory-tools": "weather, other"}


async def withdraw(live, client):
    client.headers = {"x-memory-tools": "none"} if not client.headers else {}


async def nothing(live, client):
    pass


BETWEEN = {
    "nothing": nothing,
    "an edit": edit_from_outside,
    "a header": narrow,
    "no tools": withdraw,
}


@pytest.mark.parametrize("between", BETWEEN)
async def test_t_u3_runs_count_over_the_requests_of_a_turn(data, between):
    async with ToolServer() as server, three_gateways(data, ruled(server, TWICE)) as (live, apis):
        for api in APIS:
            for stream in (False, True):
                server.requests.clear()
                apis.play(api, [mixed("a"), mixed("b"), mixed("c"), "Done.", mixed("d"), "Done."])
                client = Client(live, api, f"{api}{stream}", stream=stream)
                answer = await client.say("Go")
                for _ in range(3):
                    await BETWEEN[between](live, client)
                    answer = await client.give_results(answer)
                assert (answer.text, answer.calls) == ("Done.", {})
                assert len(server.runs("weather")) == 2
                # Else the epoch ended, with what it hid.
                if between == "nothing":
                    assert REFUSED in results_in(apis.bodies(api)[-1])
                assert "weather" not in answer.raw
                client.headers = {}
                # Another turn of the user.
                answer = await client.say("Again")
                assert len(server.runs("weather")) == 3


async def test_calls_per_turn_bounds_the_turn_of_a_user_over_its_requests(data):
    async with ToolServer() as server:
        config = granting({"weather": server.entry("weather")}, toolbox={"calls_per_turn": 2})
        async with three_gateways(data, config) as (live, apis):
            for api in APIS:
                server.requests.clear()
                apis.play(api, [mixed("a"), mixed("b"), mixed("c"), "Done.", mixed("d"), "Done."])
                client = Client(live, api, api, stream=False)
                answer = await client.say("Go")
                for _ in range(3):
                    answer = await client.give_results(answer)
                assert (answer.text, len(server.runs("weather"))) == ("Done.", 2)
                (refused,) = [r for r in results_in(apis.bodies(api)[-1]) if r[:6] == "Error:"]
                assert refused.startswith("Error: 2 calls of tools were made in this turn")
                await client.say("Again")
                assert len(server.runs("weather")) == 3


async def test_t_u3_runs_count_on_another_worker(data, tmp_path):
    async with ToolServer() as server, ThreeApis() as apis:
        config = apis.config(ruled(server, TWICE))
        for api in APIS:
            server.requests.clear()
            apis.play(api, [mixed("a"), mixed("b"), mixed("c"), "Done."])
            client = Client(None, api, "ada", stream=True)
            answer = None
            for _ in range(4):
                async with running(apis.url, data, config, key="") as live:
                    live.http.headers.update(KEY)
                    client.live = live
                    if answer is None:
                        answer = await client.say(f"Go {api}")
                    else:
                        answer = await client.give_results(answer)
            assert (answer.text, len(server.runs("weather"))) == ("Done.", 2)


async def leave_when(condition, asking):
    """Close a client's connection once something holds, and wait until its runs have ended."""
    async with asyncio.timeout(20):
        while not condition():
            assert not asking.done()
            await asyncio.sleep(0.02)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("has_key", [False, True])
async def test_t_u3_runs_count_over_a_retry(data, has_key, stream):
    """The client leaves while the second run is under way, and asks the same again."""
    rules = [TWICE, {"type": "after", "tools": ["pay"], "after": ["weather"]}]
    replies = [[use("weather", {"city": city})] for city in "ab"]
    more = [[use("weather", {"city": city}), use("pay", {"city": city})] for city in "cd"]
    async with ToolServer() as server:
        config = ruled(server, *rules)
        config["tools"]["pay"] = server.writing("pay")
        async with three_gateways(data, config) as (live, apis):
            for api in APIS:
                server.requests.clear()
                client = Client(live, api, f"{api}{stream}", stream=stream)
                if has_key:
                    client.headers = {"idempotency-key": f"once-{api}"}
                apis.play(api, [*replies, [use("pay", {"city": "a"})], *more, "Done."])
                server.delays["pay"] = 60
                asking = asyncio.create_task(client.say("Go"))
                await leave_when(lambda: server.runs("pay"), asking)
                async with asyncio.timeout(5):
                    while server.running:
                        await asyncio.sleep(0.02)
                server.delays.clear()
                answer = await client.ask()
                assert answer.text == "Done."
                assert len(server.runs("weather")) == 2
                refusals = [r for r in results_in(apis.bodies(api)[-1]) if r == REFUSED]
                assert len(refusals) == 2
                # One that broke off may have had its effect, and is not run again.
                paid = [city_of(run) for run in server.runs("pay")]
                assert paid == ["a", "c", "d"]


async def test_t_u3_a_result_that_begins_like_an_error_is_a_success(data):
    """The status of a run is recorded, and not read from its text."""
    pytest.importorskip("pydantic_monty")
    source = "def look() -> str:\n    return 'Error: is how this text begins.'\n"
    rule = {"type": "after", "tools": ["weather"], "after": ["look"]}
    async with ToolServer() as server:
        config = ruled(server, rule)
        config["tools"]["look"] = {"kind": "python", "source": source}
        async with three_gateways(data, config) as (live, apis):
            for api in APIS:
                first = [use("look"), use("shell", {"command": "ls"})]
                apis.play(api, [first, [use("weather", {"city": api})], "Done."])
                client = Client(live, api, api, stream=False)
                answer = await client.give_results(await client.say("Go"))
                assert answer.text == "Done."
            assert len(server.runs("weather")) == len(APIS)


async def test_memory_tools_that_a_rule_names_are_judged_and_counted(data):
    rules = [
        {"type": "max_count", "tools": ["core_memory_append"], "count": 1},
        {"type": "after", "tools": ["weather"], "after": ["core_memory_append"]},
    ]
    fact = {"label": "human", "content": "Likes tea."}
    more = {"label": "human", "content": "Likes coffee."}
    async with ToolServer() as server, three_gateways(data, ruled(server, *rules)) as (live, apis):
        for api in APIS:
            calls = [use("core_memory_append", fact), use("core_memory_append", more)]
            too_early = [use("weather", {"city": "a"}), use("shell", {"command": "ls"}), *calls]
            apis.play(api, [too_early, [use("weather", {"city": api})], "Done."])
            client = Client(live, api, f"u{api}", stream=True)
            answer = await client.give_results(await client.say("Go"))
            assert answer.text == "Done."
            got = await live.memory("GET", f"/users/{client.user}/blocks/human", headers=ADMIN)
            assert got.json()["value"] == "Likes tea."
        assert len(server.runs("weather")) == len(APIS)


async def test_memory_tools_are_judged_where_no_tool_is_granted(data):
    rule = {"type": "deny", "tools": ["core_memory_append"], "reason": "Ask first."}
    fact = {"label": "human", "content": "Likes tea."}
    config = granting({}, "nothing", toolbox={"rules": [rule]})
    config["keys"][0]["tools"] = []
    async with three_gateways(data, config) as (live, apis):
        apis.play("chat", [[use("core_memory_append", fact)], "Done."])
        assert (await Client(live, "chat", "ann", stream=False).say("Go")).text == "Done."
        (told,) = results_in(apis.bodies("chat")[-1])
        assert told == "Error: core_memory_append is not allowed here. Ask first."
