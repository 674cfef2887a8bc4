"""Erasing a user reaches every place where their words or their name may stand: rows, indexes,
files and what is answered.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from sqlalchemy import select

from memory.retrieval.retriever import _name
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.vacuum import vacuum
from memory.stores.sql.index.vectors import KINDS, VectorSet
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.e2e.test_faults import REMEMBER, breaking
from tests.e2e.test_turns import WEATHER
from tests.models import Model, call, calls

# What was said, and who said it.
WORD, USER = "xyzzy", "plugh"
CONFIG = {
    "memory.read_deadline_ms": 20000,
    "memory.recall": "always",
    "memory.embedder": "upstream:e",
    "storage.vectors": "chroma:embedded",
    "storage.exact_below": 0,
}
REPLIES = [
    calls(
        call("core_memory_append", {"label": "human", "content": f"Likes {WORD}"}, "a"),
        call("archival_memory_insert", {"content": f"Owns a {WORD} garden"}, "b"),
        call("archival_memory_search", {"query": f"{WORD} garden"}, "c"),
    ),
    f"Noted {WORD}.",
    calls(
        call("core_memory_append", {"label": "human", "content": f"Grows {WORD}"}, "d"),
        call("get_weather", {}, "w"),
    ),
    f"Sunny {WORD}.",
    f"Again {WORD}.",
    f"Lost {WORD}.",
]


def holding(data):
    """The files of the data folder that hold a word or the name."""
    return {
        str(p.relative_to(data))
        for p in data.rglob("*")
        if p.is_file() and any(w in p.read_bytes().lower() for w in (WORD.encode(), USER.encode()))
    }


async def places(live, table):
    """The columns of a table that hold a word or the name."""
    return {
        (table.name, name)
        for row in await rows(live, table)
        for name, value in row.items()
        if WORD in str(value).lower() or USER in str(value).lower()
    }


async def lived(live, local, monkeypatch):
    """Everything that a user's turns leave. Returns the explain ids."""

    async def said(history, text):
        history.append({"role": "user", "content": text})
        return await asked(history)

    async def asked(history):
        r = await live.chat(history, user=USER, tools=[WEATHER])
        assert r.status_code == 200, r.text
        history.append(r.json()["choices"][0]["message"])
        return r.headers["x-memory-explain"]

    history = []
    found = [await said(history, f"I like my {WORD} garden")]
    await settled(live)
    found.append(await said(history, f"How is the weather in the {WORD} garden?"))
    history.append({"role": "tool", "tool_call_id": "w", "content": f"{WORD} and sun"})
    found.append(await asked(history))
    base = f"/users/{USER}"
    await live.memory(
        "PUT", f"{base}/blocks/{WORD}", json={"value": WORD, "description": WORD}, headers=local
    )
    await live.memory("DELETE", f"{base}/blocks/{WORD}", headers=local)
    # An epoch of its own: a block was edited from outside.
    found.append(await said(history, f"And now? {WORD}"))
    for text in (f"Works at the {WORD} bakery", f"Works at another {WORD} bakery"):
        await live.memory(
            "POST", f"{base}/passages", json={"content": text, "tags": [WORD]}, headers=local
        )
    await live.memory(
        "POST",
        f"{base}/conversations",
        json={"id": f"old-{WORD}", "messages": [{"role": "user", "content": WORD}]},
        headers=local,
    )
    await settled(live)
    indexing = live.gateway.memory.retrieval.indexing
    # Its writes are not the turn's, nor are the index's and those of the usage.
    await live.stop_worker()
    await live.gateway.usage.stop()
    await indexing.stop()
    while await indexing._batch(64):
        pass
    with monkeypatch.context() as patch:
        breaking(patch, writes=2)
        # Whose answer left before the store failed.
        r = await live.chat(f"This is lost, {WORD}", user=USER, stream=True)
        found.append(r.headers["x-memory-explain"])
    live.gateway.worker.start()
    live.gateway.usage.start()
    indexing.start()
    await live.gateway.memory.db.write(
        lambda conn: (
            conn.execute(
                t.jobs.insert().values(
                    scope_id=conn.execute(select(t.scopes.c.id)).scalar(),
                    kind="extract",
                    payload=f'{{"words": "{WORD}"}}',
                    state="dead",
                    run_at=9e9,
                    created_at=0,
                )
            )
            and None
        )
    )
    await live.gateway.usage.flush()
    return found


async def test_nothing_of_an_erased_user_is_left_in_rows_answers_indexes_or_files(
    data, monkeypatch
):
    replies = iter(REPLIES)
    # What its tools write is late on a busy machine, and told as lost.
    monkeypatch.setattr("memory.session.tool_runner.EDIT_SECONDS", 20.0)

    def model(seen, wire):
        if seen.path.endswith("/embeddings"):
            return (
                200,
                {
                    "data": [
                        {"index": i, "embedding": [1.0, 0.5]}
                        for i, _ in enumerate(seen.json["input"])
                    ]
                },
            )
        return next(replies)

    async with Model(model) as up, running(up.url, data, CONFIG) as live:
        await live.gateway.memory.wait_until_ready()
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        explains = await lived(live, local, monkeypatch)

        told = {
            column for table in t.metadata.sorted_tables for column in await places(live, table)
        }
        assert told >= {
            ("messages", "content"),
            ("messages", "body"),
            ("passages", "content"),
            ("passages", "tags"),
            ("blocks", "value"),
            ("block_versions", "before"),
            ("block_versions", "after"),
            ("epochs", "core"),
            ("nodes", "note"),
            ("nodes", "hidden"),
            ("nodes", "recall"),
            ("nodes", "rounds"),
            ("explains", "record"),
            ("conversations", "name"),
            ("jobs", "payload"),
            ("usage", "user"),
            ("scopes", "user"),
        }
        index, (scope,) = (
            live.gateway.memory.retrieval.meaning.index,
            [s["id"] for s in await rows(live, t.scopes) if s["user"] == USER],
        )
        kept = [_name(VectorSet(kind, scope, "e")) for kind in KINDS]
        assert [len(await index.nearest(name, [1.0, 0.5], 9)) >= 3 for name in kept] == [True, True]
        assert await rows(live, t.vectors)
        assert await rows(live, t.message_vectors)
        assert holding(data) >= {"mnemogate.db-wal", "spill.ndjson"}

        receipt = (await live.memory("DELETE", f"/users/{USER}", headers=local)).json()["erased"]
        absent = (
            *("summaries", "responses", "tool_calls", "tool_results", "files"),
            *("file_passages", "skills"),
        )
        assert all(n for kind, n in receipt.items() if kind not in absent), receipt
        await settled(live)
        await live.gateway.usage.flush()
        assert {
            column for table in t.metadata.sorted_tables for column in await places(live, table)
        } == set()
        async with asyncio.timeout(10):
            while any([await index.nearest(name, [1.0, 0.5], 9) for name in kept]):
                await asyncio.sleep(0.02)
        paths = (
            f"/users/{USER}/{p}"
            for p in (
                "blocks",
                "passages",
                "passages?forgotten=true",
                f"passages/search?q={WORD}",
                f"messages/search?q={WORD}",
                "conversations",
                "export",
            )
        )
        for path in (*paths, "/users", "/usage", "/jobs", *(f"/explain/{e}" for e in explains)):
            r = await live.memory("GET", path, headers=local)
            assert r.status_code == (404 if path.startswith("/explain/") else 200), path
            assert WORD not in r.text.replace(path, "").lower(), path
        await vacuum(live.gateway.memory.db.url)
        assert holding(data) == set()
    assert holding(data) == set()


async def test_a_deleted_conversation_leaves_the_spill_file_and_does_not_come_back(
    data, monkeypatch
):
    """What another one spilled is there after the next start."""
    spill = data / "spill.ndjson"
    async with Model(REMEMBER, "Doomed words.", REMEMBER, "Kept words.") as up:
        async with running(up.url, data) as live:
            await live.gateway.memory.wait_until_ready()
            # Its writes are not the turn's, nor are the index's.
            await live.stop_worker()
            await live.gateway.memory.retrieval.indexing.stop()
            for name in ("doomed", "kept"):
                with monkeypatch.context() as patch:
                    breaking(patch, writes=3)
                    assert (
                        await live.chat(f"About {name}", {"x-memory-conversation": name}, user=USER)
                    ).status_code == 200
            before = spill.read_bytes()
            assert b"Doomed words." in before
            local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
            assert (
                await live.memory("DELETE", "/conversations/doomed", headers=local)
            ).status_code == 200
            assert b"Doomed" not in spill.read_bytes()
            assert b"Kept words." in spill.read_bytes()
        # As if the gateway was killed between the rows and the file.
        spill.write_bytes(before)
        async with running(up.url, data) as live:
            await live.gateway.memory.wait_until_ready()
            assert not spill.exists()
            assert [m["content"] for m in await rows(live, t.messages)] == [
                "About kept",
                "Kept words.",
            ]
            assert [c["name"] for c in await rows(live, t.conversations)] == ["kept"]


@pytest.mark.parametrize("file", ["of this worker", "left by another"])
async def test_a_turn_that_waits_in_the_recovery_log_does_not_bring_an_erased_speaker_back(
    data, monkeypatch, file
):
    """The memory is an agent's own, so its generation tells nothing of who spoke to it."""
    # Nothing is replayed before the next start.
    monkeypatch.setattr("memory.session.replay.FOLLOW_SECONDS", 3600.0)
    spill = data / "spill.ndjson"
    config = {
        "agents": {"support": {"model": "m", "instruction": "Help.", "home": "agent"}},
        "server.single_user": False,
    }
    async with Model("Hi.", REMEMBER, "Ann's quetzal.", REMEMBER, "Bob's ocelot.") as up:
        async with running(up.url, data, config) as live:
            await live.gateway.memory.wait_until_ready()
            # Its writes are not the turn's, nor are the index's.
            await live.stop_worker()
            await live.gateway.memory.retrieval.indexing.stop()
            # Proves the key.
            await live.chat("Hi", user="cleo")
            for user in ("ann", "bob"):
                with monkeypatch.context() as patch:
                    breaking(patch, writes=3)
                    named = {"x-memory-conversation": user}
                    answer = await live.chat(
                        f"I am {user}", named, user=user, model="agent:support"
                    )
                    assert answer.status_code == 200
            before = spill.read_bytes()
            assert b"quetzal" in before
            got = await live.memory("DELETE", "/users/ann")
            assert got.status_code == 200
            assert b"quetzal" not in spill.read_bytes()
            assert b"ocelot" in spill.read_bytes()
        if file == "left by another":
            spill.write_bytes(before)
        async with running(up.url, data, config) as live:
            await live.gateway.memory.wait_until_ready()
            assert not spill.exists()
            found = [(m["content"], m["said_by"]) for m in await rows(live, t.messages)]
            assert "quetzal" not in json.dumps(found)
            found = [(said, user) for said, user in found if user is not None]
            assert found == [("I am bob", "bob"), ("Bob's ocelot.", "bob")]
            assert "quetzal" not in json.dumps([r["record"] for r in await rows(live, t.explains)])
            got = await live.memory("DELETE", "/users/bob")
            assert got.status_code == 200
            assert "bob" not in [m["said_by"] for m in await rows(live, t.messages)]
