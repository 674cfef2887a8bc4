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


def newest(up):
    """The newest user message of the newest upstream request."""
    return next(m for m in reversed(up.bodies[-1]["messages"]) if m["role"] == "user")["content"]


async def test_a_d1_messages_are_in_the_next_request_once_and_stay_where_they_stood(data):
    async with Model("One.", "Two.", "Three.") as up, gateway(up, data) as live:
        await put(live, "worker", model="m", home="agent")
        await leave(live, "worker", 'Build <it> "now"', **{"from": 'boss "x"'})
        await leave(live, "worker", "And test it")
        history = [{"role": "user", "content": "Go"}]
        got = await live.chat(history, model="agent:worker")
        assert got.status_code == 200
        first = up.bodies[-1]["messages"]
        note = newest(up)
        assert note.startswith("Go\n\n<agent_messages tag=")
        assert 'from="boss &quot;x&quot;"' in note
        assert "Build &lt;it&gt;" in note
        assert note.index("Build") < note.index("And test it")
        assert all(m["delivered_at"] for m in await listed(live, "worker"))
        history += [got.json()["choices"][0]["message"], {"role": "user", "content": "More"}]
        await live.chat(history, model="agent:worker")
        assert up.bodies[-1]["messages"][: len(first)] == first
        assert newest(up) == "More"
        await live.chat("A new talk", model="agent:worker")
        assert "agent_messages" not in str(up.bodies[-1])


async def test_a_d1_a_failed_turn_delivers_them_again(data):
    async with Model(500, "Done.") as up, gateway(up, data, {"routing": {"retries": 0}}) as live:
        await put(live, "worker", model="m", home="agent")
        await leave(live, "worker", "Build it")
        assert (await live.chat("Go", model="agent:worker")).status_code >= 500
        assert [m["delivered_at"] for m in await listed(live, "worker")] == [None]
        assert (await live.chat("Go", model="agent:worker")).status_code == 200
        assert newest(up).count("Build it") == 1
        assert [m["delivered_at"] is None for m in await listed(live, "worker")] == [False]


async def test_a_d1_a_turn_that_is_asked_anew_has_the_same_messages(data):
    async with Model("One.", "Two.") as up, gateway(up, data) as live:
        await put(live, "worker", model="m", home="agent")
        history = [{"role": "user", "content": "Go"}]
        await leave(live, "worker", "First")
        retried = {"x-stainless-retry-count": "1"}
        # A retry whose first attempt was answered, and a new conversation with the same words.
        for headers, shown in (({}, 1), (retried, 1), (retried, 1), ({}, 0)):
            got = await live.chat(history, headers, model="agent:worker")
            assert newest(up).count("First") == shown
        history += [got.json()["choices"][0]["message"], {"role": "user", "content": "More"}]
        await leave(live, "worker", "Second")
        await live.chat(history, model="agent:worker")
        body = up.bodies[-1]
        assert newest(up).count("Second") == 1
        for headers in ({}, retried):
            got = await live.chat(history, headers, model="agent:worker")
            assert up.bodies[-1] == body
        history += [got.json()["choices"][0]["message"], {"role": "user", "content": "On"}]
        await live.chat(history, model="agent:worker")
        assert up.bodies[-1]["messages"][: len(body["messages"])] == body["messages"]
        assert newest(up) == "On"


async def test_nothing_is_delivered_without_full_memory_or_to_another_user(data):
    async with Model(*["Hi."] * 6) as up, gateway(up, data) as live:
        await put(live, "helper", model="m")
        await leave(live, "helper", "For ann", user="ann")
        for mode in ("read", "write", "off"):
            await live.chat("Go", {"x-memory": mode}, model="agent:helper", user="ann")
        await live.chat("Go", model="agent:helper", user="bob")
        await live.chat("Go", model="m", user="ann")
        assert "For ann" not in str(up.bodies)
        await live.chat("Go on", model="agent:helper", user="ann")
        assert "For ann" in newest(up)


async def test_so_many_are_delivered_as_fit_and_the_others_wait(data):
    config = {"delegation": {"inbox_messages": 2, "inbox_characters": 100}}
    async with Model(*["Hi."] * 4) as up, gateway(up, data, config) as live:
        await put(live, "worker", model="m", home="agent")
        for text in ("a" * 150, "b" * 60, "c" * 60, "d"):
            await leave(live, "worker", text)
        shown = []
        for i in range(3):
            await live.chat(f"Go {i}", model="agent:worker")
            shown.append([newest(up).count(c * 20) for c in "abc"] + [">d<" in newest(up)])
        assert shown == [[5, 0, 0, False], [0, 3, 0, False], [0, 0, 3, True]]
        assert "[50 characters left out]" in str(up.bodies[0])
