"""Vectors under fire: a gateway killed while it makes them, and `mnemogate index rebuild` beside
one that serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
from collections import Counter

import pytest

from gateway.cli.lockfile import hold_lock
from tests.conftest import running
from tests.e2e.test_crash import ROOT, spawned
from tests.e2e.test_jobs_killed import select, until
from tests.models import Model

EMBEDDER = {"MNEMOGATE_MEMORY__EMBEDDER": "upstream:e"}
CHROMA = {
    **EMBEDDER,
    "MNEMOGATE_STORAGE__VECTORS": "chroma:embedded",
    "MNEMOGATE_STORAGE__EXACT_BELOW": "80",
}
# More than are embedded together.
SAID = [f"Note item{i} of the voyage." for i in range(100)]
PET = "Rex sleeps in the barn."


def vector(text):
    return [1.0, 0.2, 0.1] if text == PET or "pet" in text else [0.0, 1.0, (hash(text) % 97) / 97]


def embedded(seen):
    return (
        200,
        {
            "data": [
                {"index": i, "embedding": vector(text)} for i, text in enumerate(seen.json["input"])
            ]
        },
    )


def made(data):
    return select(data, "SELECT count(*) FROM message_vectors")[0][0]


async def brought(client, data, texts, ident):
    local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
    chat = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    r = await client.post(
        "/memory/v1/users/ada/conversations", json={"id": ident, "messages": chat}, headers=local
    )
    assert r.status_code == 200, r.text


async def found(client, data, words):
    local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
    hits = (
        await client.get("/memory/v1/users/ada/messages/search", params={"q": words}, headers=local)
    ).json()["data"]
    return [h["content"] for h in hits]


async def hello(client, text="hi", user="ada"):
    r = await client.post(
        "/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": text}], "user": user},
    )
    assert r.status_code == 200, r.text


async def test_a_gateway_killed_while_it_embeds_goes_on_where_it_was_and_loses_nothing(data):
    asked = Counter()
    stalled = asyncio.Event()

    async def stall(seen, wire):
        stalled.set()
        await asyncio.sleep(60)

    def scripted(seen, wire):
        if not seen.path.endswith("/embeddings"):
            return "ok"
        if SAID[80] in seen.json["input"] and not stalled.is_set():
            return stall(seen, wire)
        asked.update(seen.json["input"])
        return embedded(seen)

    async with Model(scripted) as up:
        async with spawned(up.url, data, **CHROMA) as (child, client):
            # Brings the credential.
            await hello(client, user="bob")
            await brought(client, data, [*SAID[:99], PET], "voyage")
            await until(stalled.is_set)
            # The first batch is there.
            assert made(data) >= 64
            child.kill()
            await child.wait()
        with contextlib.closing(sqlite3.connect(data / "mnemogate.db")) as db, db:
            # The lease would end in two minutes.
            assert (
                db.execute(
                    "UPDATE jobs SET lease_until = 0 WHERE kind = 'embed' AND state = 'running'"
                ).rowcount
                == 1
            )
        async with spawned(up.url, data, **CHROMA) as (_, client):
            await hello(client, user="bob")
            await until(lambda: not select(data, "SELECT 1 FROM jobs WHERE kind = 'embed'"))
            assert (await found(client, data, "pet"))[
                # In the index: there are more than are compared one by one.
                0
            ] == PET
    assert select(
        data,
        "SELECT count(*) FROM message_vectors JOIN scopes ON scopes.id = scope_id WHERE user = "
        "'ada'",
    ) == [(100,)]
    assert {asked[text] for text in [*SAID[:99], PET]} == {1}


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_text_that_its_provider_refuses_holds_up_no_other(data, status):
    """What was said after it, and another kind of memory, have their vectors; no job fails, and
    none asks for it again.
    """
    refused = Counter()

    def scripted(seen, wire):
        if not seen.path.endswith("/embeddings"):
            return "ok"
        if "Unheard-of." in seen.json["input"]:
            refused[len(seen.json["input"])] += 1
            return (status, {"error": {"message": "not this one"}})
        return embedded(seen)

    async with (
        Model(scripted) as up,
        running(up.url, data, {"memory.embedder": "upstream:e"}) as live,
    ):
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        await live.memory(
            "POST", "/users/ada/passages", json={"content": "Unheard-of."}, headers=local
        )
        chat = [
            {"role": ("user", "assistant")[i % 2], "content": text}
            for i, text in enumerate([*SAID[:5], "Unheard-of.", PET])
        ]
        await live.memory(
            "POST", "/users/ada/conversations", json={"messages": chat}, headers=local
        )
        assert (await live.chat("hi", user="ada")).status_code == 200
        await until(lambda: not select(data, "SELECT 1 FROM jobs WHERE kind = 'embed'"))
        assert select(
            data, "SELECT model, count(*) FROM message_vectors GROUP BY model ORDER BY model"
        ) == [("e", 8), ("refused by e", 1)]
        assert select(data, "SELECT model FROM vectors") == [("refused by e",)]
        before = refused.copy()
        assert (await live.chat("hello", user="ada")).status_code == 200
        await until(
            lambda: made(data) == 11 and not select(data, "SELECT 1 FROM jobs WHERE kind = 'embed'")
        )
        assert refused == before
        assert refused[1] == 2
        with hold_lock(data, live.url):
            assert "vectors: e refused 2 texts" in await rebuilt(data)
        assert refused[1] == 4


@pytest.mark.parametrize("status", [400, 404])
async def test_a_provider_that_refuses_all_is_tried_again_later(data, status):
    def scripted(seen, wire):
        return (
            (status, {"error": {"message": "no such model"}})
            if seen.path.endswith("/embeddings")
            else "ok"
        )

    async with (
        Model(scripted) as up,
        running(up.url, data, {"memory.embedder": "upstream:e"}) as live,
    ):
        assert (await live.chat("hi", user="ada")).status_code == 200
        await until(
            lambda: (
                select(data, "SELECT error, state FROM jobs WHERE kind = 'embed'")
                == [("EmbedUnavailable", "ready")]
            )
        )
        assert made(data) == 0


async def rebuilt(data):
    env = {
        **os.environ,
        "MNEMOGATE_STORAGE__DATA": str(data),
        "MNEMOGATE_STORAGE__VECTORS": "none",
        **EMBEDDER,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        "index",
        "rebuild",
        cwd=ROOT,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await child.communicate()
    assert child.returncode == 0, out.decode()
    return out.decode()


async def test_an_index_is_rebuilt_beside_a_gateway_that_serves_and_nothing_is_lost(data):
    def scripted(seen, wire):
        return embedded(seen) if seen.path.endswith("/embeddings") else "noted"

    async with Model(scripted) as up, spawned(up.url, data, **EMBEDDER) as (_, client):
        await hello(client, user="bob")
        await brought(client, data, [*SAID[:99], PET], "voyage")
        await until(lambda: made(data) >= 100)
        with contextlib.closing(sqlite3.connect(data / "mnemogate.db", timeout=20)) as db, db:
            db.execute("DELETE FROM messages_fts WHERE rowid % 2")
            db.execute("DELETE FROM message_vectors WHERE message % 3")
        task = asyncio.create_task(rebuilt(data))
        turns = 0
        while not task.done():
            await hello(client, f"meanwhile {turns}")
            turns += 1
            await asyncio.sleep(0.1)
        out = await task
        await until(lambda: not select(data, "SELECT 1 FROM jobs WHERE kind = 'embed'"))
        assert (await found(client, data, "pet"))[0] == PET
        assert f"meanwhile {turns - 1}" in await found(client, data, f"meanwhile {turns - 1}")
        assert [text for text in SAID[:99:7] if text not in await found(client, data, text)] == []
    assert "vectors: " in out
    assert "the gateway will process them at its next start" not in out
    said = select(data, "SELECT count(*) FROM messages")
    assert (
        said
        == select(data, "SELECT count(*) FROM messages_fts")
        == select(data, "SELECT count(*) FROM message_vectors")
        == [(100 + 2 + 2 * turns,)]
    )
