"""Agents write to each other and ask each other: rows D1 to D4 of the contract on agents."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from sqlalchemy import select

from gateway.letta.ids import letta_id
from memory.stores.sql.engine import schema
from tests.e2e.operator_tools import ADMIN, SECRET, gateway, granting, offered
from tests.models import Model, call, calls
from tests.sockets import within

AGENTS = {
    "manager": {"home": "agent", "may_ask": ["worker*", "manager"], "may_message": ["worker"]},
    "worker": {"home": "agent", "may_ask": ["manager", "worker-2"]},
    "worker-2": {"home": "agent", "may_ask": ["worker-3"]},
    "worker-3": {"home": "agent", "may_ask": ["worker-4"]},
    "worker-4": {"home": "agent", "may_ask": ["helper"]},
    "helper": {"home": "user"},
    "boss": {"home": "user", "may_ask": ["helper", "worker"], "may_message": ["helper"]},
}
BROKEN = (500, {"error": {"message": "no"}})


def ask(to, text="Do it", ident=None):
    return call("agent_ask", {"to": to, "text": text}, ident or f"call_{to}")


class Team(Model):
    """Answers for each agent by its instruction. answers: by the agent, replies in order."""

    def __init__(self, **answers):
        super().__init__(self._answer_as)
        self.answers = {name.replace("_", "-"): list(given) for name, given in answers.items()}

    def agent_of(self, body):
        text = json.dumps(body["messages"])
        return text.split("You are agent ")[1].split(".")[0]

    async def _answer_as(self, seen, wire):
        given = self.answers[self.agent_of(seen.json)]
        answer = given.pop(0) if len(given) > 1 else given[0]
        if callable(answer):
            answer = await answer(seen)
        return answer

    def of(self, name):
        """The requests of an agent."""
        return [body for body in self.bodies if self.agent_of(body) == name]


def config(**more):
    agents = {
        name: {"model": "m", "instruction": f"You are agent {name}.", **members}
        for name, members in AGENTS.items()
    }
    return granting({}, agents=agents, **more)


def told_to(body):
    return [m["content"] for m in body["messages"] if m["role"] == "tool"]


async def chat(live, name, text="Go", user="ann", **more):
    got = await live.chat(text, model=f"agent:{name}", user=user, **more)
    assert got.status_code == 200, got.text
    return got


async def explained(live, name):
    return (await live.memory("GET", f"/explain/{name}", headers=ADMIN)).json()


async def test_a_d1_a_message_is_in_the_addressees_next_request_once(data):
    send = call("agent_message", {"to": "worker", "text": "Build <it>"})
    team = Team(manager=[calls(send), "Told."], worker=["Yes.", "Well.", BROKEN, "Good."])
    async with team as up, gateway(up, data, config(routing={"retries": 0})) as live:
        await chat(live, "manager")
        assert {"agent_message", "agent_ask"} <= set(offered(up.of("manager")[0]))
        assert told_to(up.of("manager")[1])[0].startswith("The message waits for worker")
        await chat(live, "worker", "What is new?")
        await chat(live, "worker", "And now?")
        first, second = (body["messages"][-1]["content"] for body in up.of("worker"))
        assert '<message from="manager"' in first
        assert "Build &lt;it&gt;" in first
        assert "agent_messages" not in second
        team.answers["manager"] = [
            calls(call("agent_message", {"to": "worker", "text": "Again"})),
            "Told.",
        ]
        await chat(live, "manager", "Tell it")
        failed = await live.chat("Third", model="agent:worker", user="ann")
        assert failed.status_code >= 500
        await chat(live, "worker", "Third")
        assert [b["messages"][-1]["content"].count("Again") for b in up.of("worker")[2:]] == [1, 1]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_d2_an_ask_returns_the_answer_and_the_records_name_each_other(data, stream):
    team = Team(manager=[calls(ask("worker", "Count to 3")), "Done."], worker=["1, 2, 3."])
    async with team as up, gateway(up, data, config()) as live:
        got = await chat(live, "manager", stream=stream)
        assert "agent_ask" not in got.text
        (worker,) = up.of("worker")
        said = worker["messages"][-1]
        assert said["role"] == "user"
        assert said["content"].startswith('Message from the agent "manager":\n\nCount to 3')
        assert told_to(up.of("manager")[1]) == ["1, 2, 3."]
        record = await explained(live, got.headers["x-memory-explain"])
        (run,) = record["tools"]
        asked = run["agent"]
        assert (run["status"], asked["name"], asked["depth"]) == ("ok", "worker", 1)
        assert (asked["rounds"], asked["tokens"]) == (1, 110)
        other = await explained(live, asked["explain"])
        assert other["asked_by"] == {
            "agent": "manager",
            "explain": record["id"],
            "request_id": record["request_id"],
            "depth": 1,
        }
        assert other["request_id"] == asked["request_id"]
        await live.gateway.usage.flush()
        query = select(schema.usage.c.request_id, schema.usage.c.key, schema.usage.c.parent)
        booked = await live.gateway.memory.db.read(lambda conn: list(conn.execute(query)))
        parent = record["request_id"]
        assert sorted(map(tuple, booked), key=lambda row: row[2] or "") == [
            (parent, "app", None),
            (asked["request_id"], "app", parent),
        ]


async def test_a_d2_asks_of_one_pair_share_a_conversation(data):
    team = Team(
        manager=[calls(ask("worker", "One", "c1"), ask("worker", "Two", "c2")), "Done."],
        worker=["First.", "Second."],
    )
    async with team as up, gateway(up, data, config()) as live:
        await chat(live, "manager")
        first, second = up.of("worker")
        assert "First." in [m["content"] for m in second["messages"]]
        assert len(first["messages"]) < len(second["messages"])


async def test_a_d2_asks_of_one_reply_run_side_by_side(data):
    started, both = [], asyncio.Event()

    async def wait(seen):
        started.append(seen)
        if len(started) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 10)
        return "Here."

    team = Team(
        manager=[calls(ask("worker"), ask("worker-2")), "Done."], worker=[wait], worker_2=[wait]
    )
    async with team as up, gateway(up, data, config()) as live:
        got = await chat(live, "manager")
        assert got.json()["choices"][0]["message"]["content"] == "Done."
        assert told_to(up.of("manager")[1]) == ["Here.", "Here."]


async def test_a_d3_what_is_refused_is_a_result_and_the_client_gets_200(data):
    deep = {f"worker_{i}": [calls(ask(f"worker-{i + 1}")), f"{i}."] for i in (2, 3)}
    team = Team(
        manager=[calls(ask("worker"), ask("manager"), ask("nobody")), "Done."],
        worker=[calls(ask("manager"), ask("worker-2")), "W."],
        worker_4=[calls(ask("helper")), "4."],
        helper=["H."],
        **deep,
    )
    more = {"delegation": {"max_depth": 3}}
    async with team as up, gateway(up, data, config(**more)) as live:
        got = await chat(live, "manager")
        assert got.headers["x-memory-status"] == "ok"
        worker, itself, nobody = told_to(up.of("manager")[1])
        assert worker == "W."
        assert itself.startswith("Error: manager is already waiting (manager > manager).")
        assert nobody.startswith("Error: this agent may not reach")
        assert "worker" in nobody
        cycle, below = told_to(up.of("worker")[1])
        assert cycle.startswith("Error: manager is already waiting (manager > worker > manager).")
        assert below == "2."
        assert told_to(up.of("worker-2")[1]) == ["3."]
        assert told_to(up.of("worker-3")[1])[0].startswith(
            "Error: agents may ask each other 3 deep"
        )
        assert up.of("worker-4") == []


async def test_a_d3_asks_of_the_whole_tree_are_counted(data):
    asks = [ask("worker", f"Ask {i}", f"c{i}") for i in range(9)]
    team = Team(manager=[calls(*asks), "Done."], worker=["W."])
    async with team as up, gateway(up, data, config()) as live:
        await chat(live, "manager")
        told = told_to(up.of("manager")[1])
        assert told[:8] == ["W."] * 8
        assert told[8].startswith("Error: the agents of one request may ask 8 times, and did.")
        assert len(up.of("worker")) == 8


async def test_a_d3_a_stalled_or_failing_addressee_is_a_result_within_its_time(data):
    async def stall(seen):
        await asyncio.sleep(20)

    refused = (403, {"error": {"message": "no", "code": "no_access"}})
    team = Team(
        manager=[calls(ask("worker"), ask("worker-2")), "Done."], worker=[stall], worker_2=[refused]
    )
    more = {"delegation": {"ask_seconds": 0.5}}
    async with team as up, gateway(up, data, config(**more)) as live:
        await asyncio.wait_for(chat(live, "manager"), 10)
        stalled, failed = told_to(up.of("manager")[1])
        assert stalled == "Error: agent_ask did not answer within 0.5 s."
        assert failed.startswith("Error: worker-2 could not answer (HTTP 403 no_access).")


async def test_a_d3_a_client_that_leaves_ends_the_tree(data):
    async def stall(seen):
        await asyncio.sleep(20)

    team = Team(manager=[calls(ask("worker")), "Done."], worker=[stall])
    async with team as up, gateway(up, data, config()) as live:
        asking = asyncio.ensure_future(chat(live, "manager"))
        assert await within(10, lambda: len(up.bodies) == 2)
        asking.cancel()
        await up.requests[-1].leaves(2.0)


async def test_a_d4_an_ask_reads_the_memory_of_the_asking_turns_user(data):
    team = Team(boss=[calls(ask("helper")), "Done."], helper=["H."])
    async with team as up, gateway(up, data, config()) as live:
        for user, secret in (("ann", "tea"), ("bob", "coffee")):
            put = await live.memory(
                "PUT",
                f"/users/{user}/blocks/human?agent=helper",
                json={"value": f"Likes {secret}."},
                headers=ADMIN,
            )
            assert put.status_code == 200, put.text
        await chat(live, "boss", user="ann")
        (helper,) = up.of("helper")
        assert "Likes tea." in json.dumps(helper)
        assert "coffee" not in json.dumps(helper)
        assert "shell" not in offered(helper)


async def test_a_d4_what_an_agent_with_one_memory_has_with_another_is_reached_by_its_name(data):
    save = call("archival_memory_insert", {"content": "The boat is blue"})
    team = Team(worker_4=[calls(ask("helper")), "Done."], helper=[calls(save), "Saved."])
    async with team as up, gateway(up, data, config()) as live:
        told = await live.memory(
            "POST",
            "/agents/helper/inbox?user=agent%3Aworker-4",
            json={"text": "Paint it"},
            headers=ADMIN,
        )
        assert told.status_code == 201, told.text
        await chat(live, "worker-4")
        assert "Paint it" in up.of("helper")[0]["messages"][-1]["content"]
        for path, count in (
            ("/users/agent%3Aworker-4/passages?agent=helper", 1),
            ("/users/agent%3Aworker-4/passages", 0),
            ("/users/user%3Aagent%3Aworker-4/passages?agent=helper", 0),
            ("/agents/helper/inbox?user=agent%3Aworker-4", 1),
            ("/agents/helper/inbox?user=user%3Aagent%3Aworker-4", 0),
        ):
            found = await live.memory("GET", path, headers=ADMIN)
            assert len(found.json()["data"]) == count, path


async def test_agents_of_other_tenants_and_unnamed_requests_reach_nobody(data):
    keys = config()
    keys["keys"].append({"name": "other", "key": f"{SECRET}-other", "tenant": "u"})
    team = Team(boss=[calls(ask("helper")), "Done."], helper=["H."])
    async with team as up, gateway(up, data, keys) as live:
        await live.chat("Go", model="agent:boss")
        assert not {"agent_ask", "agent_message"} & set(offered(up.bodies[-1]))
        await live.chat("Go", {"x-memory": "read"}, model="agent:boss", user="ann")
        assert not {"agent_ask", "agent_message"} & set(offered(up.bodies[-1]))


async def test_an_ask_that_broke_off_is_not_asked_again(data):
    async def stall(seen):
        await asyncio.sleep(20)

    team = Team(manager=[calls(ask("worker")), "Done."], worker=[stall])
    sent = {"model": "agent:manager", "user": "ann"}
    sent |= {"messages": [{"role": "user", "content": "Go"}]}
    async with team as up, gateway(up, data, config()) as live:
        url, once = f"{live.url}/chat/completions", {"idempotency-key": "k1"}
        with pytest.raises(httpx.ReadTimeout):
            await live.http.post(url, json=sent, headers=once, timeout=1.0)
        await up.requests[-1].leaves(2.0)
        team.answers["manager"] = ["Done."]
        got = await live.http.post(url, json=sent, headers=once)
        assert got.json()["choices"][0]["message"]["content"] == "Done."
        assert len(up.of("worker")) == 1
        (told,) = told_to(up.of("manager")[-1])
        assert told.startswith("Error: agent_ask was started before the connection broke")


async def test_a_rule_judges_asks_as_any_run(data):
    told = config()
    rules = [{"type": "max_count", "tools": ["agent_ask"], "count": 1}]
    told["agents"]["manager"]["tool_rules"] = rules
    team = Team(manager=[calls(ask("worker"), ask("worker-2")), "Done."], worker=["W."])
    async with team as up, gateway(up, data, told) as live:
        await chat(live, "manager")
        assert told_to(up.of("manager")[1])[1].startswith("Error: agent_ask may be called 1 times")


async def test_letta_s_names_are_these_two_where_a_profile_grants_them(data):
    told = config()
    names = ["send_message_to_agent_async", "send_message_to_agent_and_wait_for_reply"]
    told["agents"]["manager"]["tools"] = names
    team = Team(manager=["Hi."], worker=["One, two."])
    async with team as up, gateway(up, data, told) as live:
        worker = (await live.memory("GET", "/agents/worker", headers=ADMIN)).json()
        spelled = letta_id("agent", worker["id"])
        message, wait = names
        team.answers["manager"] = [
            calls(
                call(wait, {"message": "Count", "other_agent_id": spelled}, "c1"),
                call(message, {"message": "Later", "other_agent_id": "worker"}, "c2"),
                call(message, {"message": "No", "other_agent_id": "worker-2"}, "c3"),
                call(wait, {"message": "No", "other_agent_id": "helper"}, "c4"),
            ),
            "Done.",
        ]
        await chat(live, "manager")
        first, last = up.of("manager")
        assert {*names, "agent_ask", "agent_message"} <= set(offered(first))
        answered, left, *refused = told_to(last)
        assert (answered, left[:29]) == ("One, two.", "The message waits for worker,")
        assert [text[:44] for text in refused] == [
            "Error: this agent may not reach 'worker-2' s",
            "Error: this agent may not reach 'helper' so;",
        ]
        (asked,) = up.of("worker")
        assert '"manager":\n\nCount' in asked["messages"][-1]["content"]
        await chat(live, "worker", "What is new?")
        # The message is told with the next request of that agent, an ask or a chat.
        assert any("Later" in str(body["messages"]) for body in up.of("worker"))
        # No other agent has them.
        assert not {*names} & set(offered(up.of("worker")[-1]))
