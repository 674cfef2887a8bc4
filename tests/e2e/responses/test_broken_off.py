"""Answers of `/v1/responses` that nobody waited for: the client left, or the gateway was killed."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, ask, kinds, texts, user
from tests.e2e.test_crash import spawned
from tests.sockets import within
from tests.wire_models import ResponsesModel, say, think, use

OWN = {"server.single_user": False, "routing.retries": 0}
PAIR = [say("Wait."), use(APPEND, FACT)]


async def said(live):
    """What is recorded, as (role, text, aborted) of each message."""
    (found,) = (await live.memory("GET", "/users/ada/conversations")).json()["data"]
    path = f"/users/ada/conversations/{found['id']}/messages"
    rows = (await live.memory("GET", path)).json()["data"]
    return [(r["role"], r["content"], r["aborted"]) for r in rows]


def stalls(up, reached, parts, after):
    """An answer that goes no further after so many events; None: it does not begin."""

    async def behave(seen, wire):
        if after is not None and seen.json.get("stream"):
            await wire.start_stream()
            for event in list(up.events(up.reply(parts, seen.json)))[:after]:
                await up.write_event(wire, event)
        reached.set()
        await seen.gone.wait()

    return behave


PHASES = {
    "before the answer": ([], [], None),
    "before its text": ([], [say("One two")], 1),
    "amid its text": ([], [say("One two three")], 5),
    "amid a call of ours": ([], [use(APPEND, FACT)], 4),
    "in the second round": ([PAIR], [say("Noted and all")], 5),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_who_leaves_finds_every_message_once_when_it_asks_again(data, phase, stream):
    before, parts, after = PHASES[phase]
    reached = asyncio.Event()
    async with ResponsesModel("Hello.") as up, running(up.url, data, OWN) as live:
        # Proves the key.
        await ask(live, "Hello", store=False, headers={"x-memory": "read"})
        up.script = [*before, stalls(up, reached, parts, after)]
        body = {"model": "m", "input": "I like tea", "user": "ada", "stream": stream}
        asking = asyncio.create_task(
            live.http.post(f"{live.url}/responses", json={**body, "store": False})
        )
        await asyncio.wait_for(reached.wait(), 20)
        # What came is shown.
        await asyncio.sleep(0.1)
        asking.cancel()
        await up.requests[-1].leaves()
        assert await within(5, lambda: not live.gateway.process.live)
        up.script = ["Done."]
        shown, _ = await ask(live, "I like tea", store=False)
        told = [*(["Wait."] if before else []), "Done."]
        assert texts(shown) == told
        assert await said(live) == [
            ("user", "I like tea", False),
            ("assistant", "\n\n".join(told), False),
        ]
        if before:
            block = (await live.memory("GET", "/users/ada/blocks/human")).json()
            assert (block["value"], block["version"]) == (FACT["content"], 1)


@pytest.mark.parametrize("store", [False, True])
async def test_a_gateway_that_was_killed_goes_on_from_finished_rounds(data, store):
    asked = asyncio.Event()

    async def hangs(seen, wire):
        asked.set()
        await seen.gone.wait()

    body = {"model": "m", "input": "I like tea", "user": "ada", "store": store, "stream": True}
    async with ResponsesModel([think("Hm."), use(APPEND, FACT)], hangs, "Noted.") as up:
        async with spawned(up.url, data) as (child, client):
            asking = asyncio.create_task(client.post("/v1/responses", json=body))
            await asyncio.wait_for(asked.wait(), 20)
            child.kill()
            with pytest.raises(httpx.HTTPError):
                await asking
        async with spawned(up.url, data) as (_, client):
            response = await client.post("/v1/responses", json={**body, "stream": False})
            token = next(data.rglob("token")).read_text().strip()
            client.headers["authorization"] = f"Bearer {token}"
            path = "/memory/v1/users/ada/conversations"
            (found,) = (await client.get(path)).json()["data"]
            rows = (await client.get(f"{path}/{found['id']}/messages")).json()["data"]
        assert kinds(response.json()["output"]) == ["reasoning", "message"]
        assert len(up.bodies) == 3
        assert [i["type"] for i in up.bodies[2]["input"][1:]] == [
            "reasoning",
            "function_call",
            "function_call_output",
        ]
        told = [(r["role"], r["content"]) for r in rows]
        assert told == [("user", "I like tea"), ("assistant", "Noted.")]


async def test_many_at_once_go_on_from_one_response(data):
    script = [[use(APPEND, FACT)], "Noted.", "So."]
    async with ResponsesModel(*script) as up, running(up.url, data, OWN) as live:
        first, _ = await ask(live, "I like tea")
        chained = {"previous_response_id": first["id"]}
        found = await asyncio.gather(
            *(ask(live, f"Question {i}", stream=i % 2 > 0, **chained) for i in range(12))
        )
        headers = {"x-memory-user": "ada"}
        for shown, _ in found:
            http = await live.http.get(f"{live.url}/responses/{shown['id']}", headers=headers)
            assert http.json() == shown
        told = [text for role, text, _ in await said(live) if role == "user"]
        assert sorted(told) == sorted(["I like tea", *(f"Question {i}" for i in range(12))])


async def test_a_note_stays_where_it_was_put(data):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.", "Yes.") as up:
        async with running(up.url, data) as live:
            items = [{"role": "developer", "content": "You are X."}, user("I like tea")]
            for words in ("Second", "Third", "Fourth"):
                shown, _ = await ask(live, items, store=False)
                items += [*shown["output"], user(words)]
            sent = [b["input"] for b in up.bodies[2:]]
            assert "memory_updates" in str(sent[0][-1])
            assert [s[: len(sent[0])] for s in sent] == [sent[0]] * len(sent)
