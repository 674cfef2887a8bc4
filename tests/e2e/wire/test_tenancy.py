"""H. Whose is what: two keys, tenants, users or agents that send the very same bytes never meet."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import running
from tests.e2e.wire.reading import WEATHER, asked, both, case, message_of
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_mem")
HOPE = call("archival_memory_insert", {"content": "Ada likes tea."}, "call_mem")
OSLO = call("get_weather", {"city": "Oslo"}, "call_w")
FIND = call("conversation_search", {"query": "tea"}, "call_find")
KEYS = [
    {"name": n, "key": f"mg-{n}", "tenant": t}
    for n, t in (("one", "acme"), ("two", "acme"), ("three", "other"))
]
MANAGED = {"providers": {"openai": {"base_url": "x", "api_key": "sk-provider"}}, "keys": KEYS}


def by(key, **headers):
    return {
        "authorization": f"Bearer mg-{key}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }


# Two callers that the same body does not make one: (headers, members) of each.
APART = {
    "tenants": ((by("one"), {"user": "ada"}), (by("three"), {"user": "ada"})),
    "users": ((by("one"), {"user": "ada"}), (by("one"), {"user": "bob"})),
    "users by header": ((by("one", x_memory_user="ada"), {}), (by("one", x_memory_user="bob"), {})),
    "agents": (
        (by("one", x_memory_agent="a"), {"user": "ada"}),
        (by("one", x_memory_agent="b"), {"user": "ada"}),
    ),
    "spelling": ((by("one"), {"user": "ada"}), (by("one"), {"user": "Ada"})),
    "nobody": ((by("one"), {}), (by("three"), {})),
    "a conversation's name": (
        (by("one", x_memory_conversation="c"), {"user": "ada"}),
        (by("three", x_memory_conversation="c"), {"user": "ada"}),
    ),
}


@row(119)
@both
@pytest.mark.parametrize("what", APART)
async def test_equal_bodies_of_two_callers_share_nothing(data, stream, what):
    (mine, my_body), (yours, your_body) = APART[what]
    key = {"idempotency-key": "the-same"}
    async with Model("") as up, running(up.url, data, MANAGED, key="") as live:
        with case(up, what, calls(TEA, OSLO, content="My tea."), "Mine.", calls(FIND), "Yours."):
            history = [{"role": "user", "content": "I like tea"}]
            _, answer = await asked(
                live, stream, history, {**mine, **key}, tools=[WEATHER], **my_body
            )
            resent = [
                *history,
                message_of(answer),
                {"role": "tool", "tool_call_id": "call_w", "content": "-5"},
            ]
            await asked(live, stream, resent, {**mine, **key}, tools=[WEATHER], **my_body)
            before = len(up.bodies)
            # the same history with its answers, the same keys for the retry, by another
            await asked(live, stream, resent, {**yours, **key}, tools=[WEATHER], **your_body)
            other = up.bodies[before]
            assert [
                # No splice, no note.
                m
                for m in other["messages"]
                if m["role"] != "system"
            ] == resent
            assert "Likes tea" not in str([m for m in other["messages"] if m["role"] == "system"])
            # Nobody's request that continues nothing gets no tools.
            if len(up.bodies) > before + 1:
                assert "My tea" not in up.bodies[-1]["messages"][-1]["content"]


@row(119)
@both
@pytest.mark.parametrize("what", ["tenants", "users", "agents"])
async def test_the_dedupe_of_retries_knows_whose_they_are(data, stream, what):
    (mine, my_body), (yours, your_body) = APART[what]
    key = {"idempotency-key": "the-same", "x-stainless-retry-count": "1"}
    async with (
        Model(calls(HOPE), "Mine.", calls(HOPE), "Yours.") as up,
        running(up.url, data, MANAGED, key="") as live,
    ):
        for headers, body, word in ((mine, my_body, "Mine."), (yours, your_body, "Yours.")):
            _, answer = await asked(live, stream, "hi", {**headers, **key}, **body)
            assert answer["choices"][0]["content"] == word
        assert len(up.requests) == 4
        scopes = await live.gateway.memory.db.read(
            lambda c: [r[0] for r in c.exec_driver_sql("SELECT scope_id FROM passages")]
        )
        assert len(set(scopes)) == len(scopes) == 2


@row(119)
async def test_nobody_waits_for_anothers_request_of_the_same_key(data):
    go = asyncio.Event()

    async def slow(seen, wire):
        await go.wait()
        await up._plain(
            seen,
            wire,
            [{"message": {"role": "assistant", "content": "Slow."}, "finish_reason": "stop"}],
        )

    key = {"idempotency-key": "the-same"}
    async with Model(slow, "Quick.") as up, running(up.url, data, MANAGED, key="") as live:
        first = asyncio.create_task(live.chat("hi", {**by("one"), **key}, user="ada"))
        async with asyncio.timeout(5):
            while not up.requests:
                await asyncio.sleep(0.01)
            second = await live.chat("hi", {**by("three"), **key}, user="ada")
        assert second.json()["choices"][0]["message"]["content"] == "Quick."
        go.set()
        assert (await first).json()["choices"][0]["message"]["content"] == "Slow."


@row(119)
async def test_ids_of_another_tenant_open_nothing(data):
    async with Model(calls(HOPE), "Mine.") as up, running(up.url, data, MANAGED, key="") as live:
        response, _ = await asked(live, False, "I like tea", by("one"), user="ada")
        explain, conversation = (
            response.headers[f"x-memory-{n}"] for n in ("explain", "conversation")
        )
        passage = (await live.memory("GET", "/users/ada/passages", headers=by("one"))).json()[
            "data"
        ][0]["id"]
        paths = [
            f"/explain/{explain}",
            f"/conversations/{conversation}",
            f"/users/ada/conversations/{conversation}/messages",
        ]
        for path in paths:
            assert (await live.memory("GET", path, headers=by("one"))).status_code == 200, path
            assert (await live.memory("GET", path, headers=by("three"))).status_code == 404, path
        for path in (f"/conversations/{conversation}", f"/users/ada/passages/{passage}"):
            assert (await live.memory("DELETE", path, headers=by("three"))).status_code == 404, path
        assert (await live.memory("GET", "/users/ada/passages", headers=by("three"))).json()[
            "data"
        ] == []
        # One tenant, two keys.
        assert (
            len((await live.memory("GET", "/users/ada/passages", headers=by("two"))).json()["data"])
            == 1
        )


@row(123)
@both
async def test_a_stateful_turn_is_asked_anew_every_time(data, stream):
    same = {"temperature": 0, "seed": 1}
    async with Model("") as up, running(up.url, data) as live:
        for what, script, body, rounds in (
            ("store", ["a", "b"], {"store": True}, 1),
            ("a memory tool", [calls(HOPE), "a", calls(HOPE), "b"], {}, 2),
            ("plain", ["a", "b"], {}, 1),
        ):
            with case(up, what, *script) as user:
                answers = [
                    (await asked(live, stream, "hi", user=user, **same, **body))[1]["choices"][0][
                        "content"
                    ]
                    for _ in range(2)
                ]
                assert answers == ["a", "b"]
                assert len(up.bodies) == 2 * rounds
                assert all(b.get("store") == body.get("store") for b in up.bodies)
