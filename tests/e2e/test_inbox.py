"""Messages that wait for an agent: put, listed, taken back, and delivered by its next turn."""

from __future__ import annotations

from tests.e2e.test_agents import gateway, put
from tests.models import Model

STRANGER = {"authorization": "Bearer mg-0123456789abcdef01231"}


async def leave(live, agent, text, headers=None, user=None, **more):
    query = f"?user={user}" if user else ""
    sent = {"text": text, **more}
    return await live.memory("POST", f"/agents/{agent}/inbox{query}", json=sent, headers=headers)


async def listed(live, agent, user=None):
    query = f"?user={user}" if user else ""
    got = await live.memory("GET", f"/agents/{agent}/inbox{query}")
    return got.json()["data"]


async def test_messages_wait_are_listed_and_taken_back(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await put(live, "worker", model="m", home="agent")
        one = (await leave(live, "worker", "First", **{"from": "cron"})).json()
        two = (await leave(live, "worker", "Second")).json()
        assert (one["from"], two["from"], one["delivered_at"]) == ("cron", "app0", None)
        assert [m["text"] for m in await listed(live, "worker")] == ["Second", "First"]
        page = (await live.memory("GET", "/agents/worker/inbox?limit=1")).json()
        more = await live.memory("GET", f"/agents/worker/inbox?cursor={page['next_cursor']}")
        assert [m["text"] for m in more.json()["data"]] == ["First"]
        gone = await live.memory("DELETE", f"/agents/worker/inbox/{one['id']}")
        assert (gone.status_code, gone.json()["deleted"]) == (200, True)
        again = await live.memory("DELETE", f"/agents/worker/inbox/{one['id']}")
        assert again.status_code == 404
        assert [m["text"] for m in await listed(live, "worker")] == ["Second"]


async def test_an_inbox_of_home_user_is_that_of_one_user(data):
    keys = ({}, {"trusted": False, "users": ["ann"]})
    async with Model("Hi.") as up, gateway(up, data, None, *keys) as live:
        await put(live, "helper", model="m")
        await put(live, "worker", model="m", home="agent")
        got = await leave(live, "helper", "Hello")
        assert (got.status_code, got.json()["error"]["param"]) == (400, "user")
        assert (await leave(live, "helper", "Hello", STRANGER, user="ann")).status_code == 201
        assert (await leave(live, "helper", "Hello", STRANGER, user="bob")).status_code == 403
        assert (await leave(live, "worker", "Hello", STRANGER)).status_code == 403
        assert (await leave(live, "nobody", "Hello")).status_code == 404
        assert (await leave(live, "helper", "", user="ann")).status_code == 400
        assert len(await listed(live, "helper", "ann")) == 1
        assert await listed(live, "helper", "bob") == []
        await live.memory("DELETE", "/users/ann")
        assert await listed(live, "helper", "ann") == []
