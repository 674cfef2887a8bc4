"""Messages to one Letta agent are answered one after the other, over all workers."""

from __future__ import annotations

import asyncio

import pytest

from tests import stores
from tests.e2e.postgres_chat import storage
from tests.e2e.test_letta import KEYS, SECRET, Letta, check_error, door, say
from tests.e2e.test_workers import two
from tests.models import Model, call, calls, text
from tests.sockets import within

LINE = "SELECT count(*) FROM agent_turns"


class HeldModel:
    """Answers when it is let, and counts the user's messages that each request shows it."""

    def __init__(self):
        self.free, self.sizes, self.most, self._running = asyncio.Event(), [], 0, 0

    async def __call__(self, seen, wire):
        self.sizes.append(len([m for m in seen.json["messages"] if m["role"] == "user"]))
        self._running += 1
        self.most = max(self.most, self._running)
        await self.free.wait()
        await asyncio.sleep(0.01)
        self._running -= 1
        return text("Yes.")


async def test_a_message_beyond_the_bound_is_429_and_takes_no_turn(data):
    model = HeldModel()
    config = {"server.letta_waiting": 2}
    async with Model(model) as up, door(up, data, config) as letta:
        made = await letta.post("agents", model="m")
        waiting = [asyncio.create_task(say(letta, made, f"n{i}")) for i in range(2)]
        queues = letta.live.gateway.process.queues
        assert await within(5, lambda: [q.requests for q in queues.values()] == [2])
        for path in ("messages", "messages/stream"):
            refused = await say(letta, made, "too much", 429, path=path)
            check_error(refused, "agent_busy")
            assert "server.letta_waiting" in refused.json()["detail"]
            assert refused.headers["retry-after"] == "2"
        other = await letta.post("agents", model="m")
        third = asyncio.create_task(say(letta, other, "of another agent"))
        assert await within(5, lambda: len(model.sizes) == 2)
        model.free.set()
        await asyncio.gather(*waiting, third)
        assert sorted(model.sizes) == [1, 1, 2]
        await say(letta, made, "again")
        assert len(await letta.get(f"agents/{made['id']}/messages")) == 6


async def test_a_client_that_leaves_gives_its_place_up(data):
    model = HeldModel()
    async with Model(model) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        first = asyncio.create_task(say(letta, made, "first"))
        queues = letta.live.gateway.process.queues
        assert await within(5, lambda: model.sizes == [1])
        leaving = asyncio.create_task(say(letta, made, "leaves"))
        assert await within(5, lambda: [q.requests for q in queues.values()] == [2])
        leaving.cancel()
        assert await within(5, lambda: [q.requests for q in queues.values()] == [1])
        model.free.set()
        await first
        await say(letta, made, "last")
        assert model.sizes == [1, 2]
        assert "leaves" not in str(up.bodies)


def workers(url):
    return storage(
        url, keys=[*KEYS, {"name": "a", "key": f"{SECRET}-a", "tenant": "t", "admin": True}]
    )


async def test_messages_at_two_workers_follow_each_other(postgres_url, tmp_path):
    model = HeldModel()
    model.free.set()
    async with (
        Model(model) as up,
        two(postgres_url, tmp_path, up, **workers(postgres_url)) as lives,
    ):
        doors = [Letta(live, authorization=f"Bearer {SECRET}") for live in lives]
        made = await doors[0].post("agents", model="m")
        await asyncio.gather(*(say(doors[i % 2], made, f"n{i}") for i in range(8)))
        assert model.sizes == [1, 2, 3, 4, 5, 6, 7, 8]
        assert model.most == 1
        items = await doors[1].get(f"agents/{made['id']}/messages")
        assert len(items) == 16
        assert await within(5, lambda: stores.on_server(postgres_url, LINE)[0][0] == 0)


async def test_a_dead_worker_does_not_hold_an_agent_and_a_living_one_does(postgres_url, tmp_path):
    model = HeldModel()
    model.free.set()
    async with (
        Model(model) as up,
        two(postgres_url, tmp_path, up, **workers(postgres_url)) as lives,
    ):
        first, second = (Letta(live, authorization=f"Bearer {SECRET}") for live in lives)
        made = await first.post("agents", model="m")
        enter = "INSERT INTO agent_turns (tenant, agent, holder, position) VALUES "
        stores.on_server(postgres_url, f"{enter}('t', '{made['id']}', 4711, 0)")
        await say(first, made, "one")
        assert await within(5, lambda: stores.on_server(postgres_url, LINE)[0][0] == 0)
        holder = lives[1].gateway.memory.db.holder
        stores.on_server(postgres_url, f"{enter}('t', '{made['id']}', {holder}, 0)")
        waiting = asyncio.create_task(say(first, made, "two"))
        assert await within(5, lambda: stores.on_server(postgres_url, LINE)[0][0] == 2)
        await asyncio.sleep(0.1)
        assert model.sizes == [1]
        # What that worker left behind is taken away by its own next turn, which comes first.
        await say(second, made, "three")
        await waiting
        assert model.sizes == [1, 2, 3]
        # Whom others took for dead enters again.
        model.free.clear()
        stores.on_server(postgres_url, f"{enter}('t', '{made['id']}', {holder}, 0)")
        waiting = asyncio.create_task(say(first, made, "four"))
        assert await within(5, lambda: stores.on_server(postgres_url, LINE)[0][0] == 2)
        stores.on_server(postgres_url, "DELETE FROM agent_turns")
        assert await within(5, lambda: model.sizes == [1, 2, 3, 4])
        model.free.set()
        await waiting


SOURCE = """
def triple(days: int) -> str:
    return f"{days * 3} days"
"""


async def test_a_tool_made_at_one_worker_is_attached_and_run_at_the_other(postgres_url, tmp_path):
    pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")

    def reply(seen, wire):
        if seen.json["messages"][-1]["role"] == "tool":
            return text("Twelve.")
        return calls(call("triple", {"days": 4}, "c1"))

    async with (
        Model(reply) as up,
        two(postgres_url, tmp_path, up, **workers(postgres_url)) as lives,
    ):
        first, second = (Letta(live, authorization=f"Bearer {SECRET}-a") for live in lives)
        # So that each has read its lists a moment ago.
        assert [t["name"] for d in (first, second) for t in await d.get("tools?name=triple")] == []
        tool = await first.post("tools", source_code=SOURCE)
        made = await second.post("agents", model="m", tool_ids=[tool["id"]])
        got = (await say(second, made, "How long?")).json()
        assert [i["tool_return"] for i in got["messages"] if "tool_return" in i] == ["12 days"]
        other = SOURCE.replace("triple", "other")
        tool = await second.post("tools", source_code=other)
        await first.patch(f"agents/{made['id']}/tools/attach/{tool['id']}")
        await say(second, made, "And?")
        names = [t["function"]["name"] for t in up.bodies[-1]["tools"]]
        assert {"triple", "other"} <= set(names)
