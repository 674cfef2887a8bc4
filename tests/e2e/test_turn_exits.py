"""U2: rules that act on the turn itself, on the three APIs, streamed and plain."""

from __future__ import annotations

import random

import pytest

from tests.e2e.operator_tools import ADMIN, ToolServer, granting, offered
from tests.e2e.three_apis import APIS, Client, results_in, three_gateways
from tests.memory.core import rule_reference
from tests.wire_models import say, use

WEATHER = use("weather", {"city": "Oslo"})
SHELL = use("shell", {"command": "ls"})
NAMES = ("weather", "look")


def ruled(server, *rules, **toolbox):
    tools = {name: server.entry(name) for name in NAMES}
    return granting(tools, toolbox={"rules": list(rules), **toolbox})


def cases(apis, live, user="ada"):
    for api in APIS:
        for stream in (False, True):
            yield api, Client(live, api, f"{user}{api}{stream}", stream=stream)


def words_in(body):
    return [str(m.get("content")) for m in body.get("messages") or body["input"]]


async def explained(live, answer):
    name = answer.headers["x-memory-explain"]
    return (await live.memory("GET", f"/explain/{name}", headers=ADMIN)).json()


REQUIRED = {"type": "required_before_exit", "tools": ["look", "weather"]}
TOLD = "<tool_rules>Before you finish, call: look, weather.</tool_rules>"


async def test_t_u2_the_model_is_told_once_what_it_has_to_call_before_it_ends(data):
    async with (
        ToolServer() as server,
        three_gateways(data, ruled(server, REQUIRED)) as (live, apis),
    ):
        for api, client in cases(apis, live):
            server.requests.clear()
            apis.play(api, ["Too early.", [WEATHER], "Done.", "Next."])
            answer = await client.say("Go")
            bodies = apis.bodies(api)
            assert (len(bodies), len(server.runs("weather"))) == (3, 1)
            assert TOLD in words_in(bodies[1])[-1]
            assert answer.text == "Too early.\n\nDone."
            assert "tool_rules" not in answer.raw
            if not client.stream:
                assert (await explained(live, answer))["unmet"] == ["look"]
            # Another turn: it is told again, and meets nothing.
            await client.say("Next")
            assert len(apis.bodies(api)) == 5
            listed = await live.memory("GET", f"/users/{client.user}/conversations", headers=ADMIN)
            assert "tool_rules" not in listed.text


async def test_t_u2_it_is_not_told_twice_in_a_turn_of_several_requests(data):
    async with (
        ToolServer() as server,
        three_gateways(data, ruled(server, REQUIRED)) as (live, apis),
    ):
        for api, client in cases(apis, live):
            apis.play(api, ["Early.", [SHELL], "Done."])
            answer = await client.say("Go")
            assert list(answer.calls.values()) == ["shell"]
            answer = await client.give_results(answer)
            assert (answer.text, len(apis.bodies(api))) == ("Done.", 3)


async def test_t_u2_it_is_not_told_where_nothing_is_unmet_or_can_be_called(data):
    async with (
        ToolServer() as server,
        three_gateways(data, ruled(server, REQUIRED)) as (live, apis),
    ):
        for api, client in cases(apis, live):
            apis.play(api, [[WEATHER, use("look", {"city": "a"})], "Done."])
            assert (await client.say("Go")).text == "Done."
            assert len(apis.bodies(api)) == 2
            client.headers = {"x-memory-tools": "none"}
            apis.play(api, ["Done."])
            assert (await client.say("Go on")).text == "Done."
            assert len(apis.bodies(api)) == 1


@pytest.mark.parametrize("is_mixed", [False, True])
async def test_t_u2_a_result_ends_the_turn_without_another_call(data, is_mixed):
    rule = {"type": "ends_turn", "tools": ["weather"], "answer": "result"}
    async with ToolServer(weather="Rain.") as server:
        async with three_gateways(data, ruled(server, rule)) as (live, apis):
            for api, client in cases(apis, live):
                first = [say("Let me see."), WEATHER]
                apis.play(api, [[*first, SHELL] if is_mixed else first, "Next."])
                answer = await client.say("Go")
                if is_mixed:
                    assert answer.text == "Let me see."
                    answer = await client.give_results(answer)
                    assert answer.text == "Rain."
                else:
                    assert answer.text == "Let me see.\n\nRain."
                assert len(apis.bodies(api)) == 1
                assert "not instructions" not in answer.raw
                assert (await client.say("And now?")).text == "Next."


@pytest.mark.parametrize("is_mixed", [False, True])
async def test_t_u2_the_model_answers_once_more_without_our_tools(data, is_mixed):
    rule = {"type": "ends_turn", "tools": ["weather"]}
    async with ToolServer() as server, three_gateways(data, ruled(server, rule)) as (live, apis):
        for api, client in cases(apis, live):
            server.requests.clear()
            apis.play(api, [[WEATHER, SHELL] if is_mixed else [WEATHER], "Done."])
            answer = await client.say("Go")
            if is_mixed:
                answer = await client.give_results(answer)
            assert answer.text == "Done."
            first, last = apis.bodies(api)
            assert "weather" in offered(first)
            assert "shell" in offered(last)
            assert not set(offered(last)) & {*NAMES, "core_memory_append"}


async def test_t_u2_a_run_that_failed_ends_nothing(data):
    rule = {"type": "ends_turn", "tools": ["weather"], "answer": "result"}
    async with ToolServer(weather=(500, "no")) as server:
        async with three_gateways(data, ruled(server, rule)) as (live, apis):
            for api, client in cases(apis, live):
                apis.play(api, [[WEATHER], "Done."])
                assert (await client.say("Go")).text == "Done."


async def test_tools_that_could_not_be_called_are_not_shown(data):
    rules = [
        {"type": "first", "tools": ["look"]},
        {"type": "max_count", "tools": ["look"], "count": 1},
    ]
    config = ("schema", [["look"], ["weather"]]), ("result", [["look", "weather"]] * 2)
    for withhold, shown in config:
        async with ToolServer() as server:
            told = ruled(server, *rules, withhold=withhold)
            async with three_gateways(data / withhold, told) as (live, apis):
                for api, client in cases(apis, live):
                    apis.play(api, [[use("look", {"city": "a"}), SHELL], "Done."])
                    await client.give_results(await client.say("Go"))
                    names = [[n for n in offered(b) if n in NAMES] for b in apis.bodies(api)]
                    assert names == shown
                    assert len(results_in(apis.bodies(api)[1])) == 2


TOOLS = ("a", "b", "fails")
PATTERNS = ("a", "b", "fails", "*", "[ab]")
# What stands in the results of the tools, and what in none of them.
WORDS = ("done", "HTTP 500", "absent")
TURNS = 40


def random_rule(dice):
    def some(names=PATTERNS):
        return dice.sample(names, dice.randint(1, 2))

    kinds = "allow deny first after children conditional max_count exit exit end"
    kind = dice.choice(kinds.split())
    if kind == "after":
        return {"type": kind, "tools": some(), "after": some(), "directly": dice.random() < 0.5}
    if kind == "children":
        return {"type": kind, "tools": some(), "parent": some()}
    if kind == "conditional":
        cases = [{"contains": word, "tools": some()} for word in dice.sample(WORDS, 2)]
        return {"type": kind, "parent": some(), "cases": cases, "otherwise": some()}
    if kind == "max_count":
        return {"type": kind, "tools": some(), "count": dice.randint(1, 2)}
    if kind == "exit":
        return {"type": "required_before_exit", "tools": some(TOOLS)}
    if kind == "end":
        return {"type": "ends_turn", "tools": some(), "answer": dice.choice(["model", "result"])}
    return {
        "type": kind,
        "tools": some(),
        **({"after": some()} if kind in ("allow", "deny") else {}),
    }


def expected_turn(rules, rounds):
    """What runs, and how many calls go upstream: by the reference, reply by reply."""
    played, upstream, is_told = [], 0, False
    while True:
        verdicts, has_ended, unmet = rule_reference.check(rules, "allow", played)
        if has_ended:
            newest = [c[0] for c, v in zip(played[-1], verdicts[-1], strict=True) if v[0] == "run"]
            ends = [rule for rule in rules if rule["type"] == "ends_turn"]
            how = next(r for r in ends if any(fits(n, r) for n in newest if n != "fails"))
            upstream += how.get("answer") != "result"
            break
        upstream += 1
        if len(played) < len(rounds):
            played.append(rounds[len(played)])
        elif unmet and not is_told:
            is_told = True
        else:
            break
    ran = dict.fromkeys(TOOLS, 0)
    for calls, decided in zip(played, verdicts, strict=True):
        for call, verdict in zip(calls, decided, strict=True):
            ran[call[0]] += verdict[0] == "run"
    return ran, upstream, unmet


def fits(name, rule):
    return rule_reference.like(name, rule["tools"])


async def test_t_u1_forty_random_rule_sets_act_in_turns_as_the_reference_says(data):
    dice = random.Random(38)
    async with ToolServer(fails=(500, "no")) as server:
        config = granting({name: server.entry(name) for name in TOOLS})
        async with three_gateways(data, config) as (live, apis):
            for number in range(TURNS):
                rules = [random_rule(dice) for _ in range(dice.randint(1, 4))]
                calls = [[dice.choice(TOOLS) for _ in range(dice.randint(1, 3))] for _ in range(3)]
                rounds = [
                    [(n, n != "fails", "HTTP 500" if n == "fails" else "done") for n in names]
                    for names in calls
                ]
                ran, upstream, unmet = expected_turn(rules, rounds)
                for api in APIS:
                    agent = f"r{number}{api}"
                    profile = {"model": api, "tool_rules": rules}
                    put = await live.memory("PUT", f"/agents/{agent}", json=profile, headers=ADMIN)
                    assert put.status_code == 200, put.text
                    server.requests.clear()
                    replies = [
                        [use(name, {"city": f"{i}-{j}"}) for j, name in enumerate(names)]
                        for i, names in enumerate(calls)
                    ]
                    apis.play(api, [*replies, "End."])
                    is_streamed = number % 2 == 0
                    client = Client(live, api, "ada", stream=is_streamed, model=f"agent:{agent}")
                    answer = await client.say("Go")
                    seen = {name: len(server.runs(name)) for name in TOOLS}
                    assert (rules, seen) == (rules, ran)
                    assert (rules, len(apis.bodies(api))) == (rules, upstream)
                    assert (await explained(live, answer)).get("unmet", []) == unmet
