"""A gateway killed in the middle of a job: the next one resumes it, and its effect happens once."""
from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3

import pytest

from tests.e2e.test_crash import spawned
from tests.models import Model, call, calls

WORDS = "what do you think of it, all things considered? " * 12
OF_ADA = "JOIN scopes ON scopes.id = passages.scope_id WHERE user = 'ada'"
OPENINGS = ("You compress", "You keep the long-term", "You tidy")
SETTINGS = {
    "summarise": 'context_window = 3000', "extract": 'supports_tools = false\n[memory]\nextract = "auto"', "reflect": '[memory]\nreflect = { every_turns = 2 }'}


def answer(kind, n):
    if kind == "extract":
        return json.dumps({"facts": [{"text": "The user lives in Lyon", "source": 1}]})
    if kind == "reflect":
        return calls(call("archival_memory_insert", {"content": "Ada lives in Lyon"}, f"r{n}")) if n == 1 else "done"
    return "SUMMARY"


def select(data, query):
    with contextlib.closing(sqlite3.connect(data / "memgate.db")) as db:
        return db.execute(query).fetchall()


async def until(found):
    async with asyncio.timeout(20):
        while not found():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", list(SETTINGS))
async def test_a_job_killed_while_it_ran_is_resumed_and_writes_once(data, tmp_path, monkeypatch, kind):
    jobs = []

    async def stall(seen, wire):
        await asyncio.sleep(60)

    def scripted(seen, wire):
        messages = seen.json["messages"]
        if not str(messages[0]["content"]).startswith(OPENINGS):
            if messages[-1]["content"] == "I am Ada, of Lyon" and kind == "reflect":
                return calls(call("core_memory_append", {"label": "human", "content": "Ada, of Lyon"}, "c"))
            return "a reply of some length " * 40
        jobs.append(seen.json)
        # Reflection has a round behind it when it is killed, the others are killed in their only call.
        return stall(seen, wire) if len(jobs) == (2 if kind == "reflect" else 1) else answer(kind, len(jobs))

    async with Model(scripted) as up:
        config = tmp_path / "gateway.toml"
        config.write_text(f'[providers.openai]\nbase_url = "{up.url}"\n[models."m"]\ntargets = [{{ provider = "openai" }}]\n{SETTINGS[kind]}\n')
        monkeypatch.setenv("MEMGATE_CONFIG", str(config))
        async with spawned(up.url, data) as (child, client):
            history = []
            for i in range(15):
                history.append({"role": "user", "content": "I am Ada, of Lyon" if i == 0 else f"q{i} {WORDS}"})
                r = await client.post("/v1/chat/completions", json={"model": "m", "messages": history, "user": "ada"})
                assert r.status_code == 200, r.text
                history.append(r.json()["choices"][0]["message"])
                if select(data, f"SELECT 1 FROM jobs WHERE kind = '{kind}'"):
                    break
            stalled = 2 if kind == "reflect" else 1
            await until(lambda: len(jobs) >= stalled)
            child.kill()
            await child.wait()
        # Its lease would end in two minutes.
        with contextlib.closing(sqlite3.connect(data / "memgate.db")) as db, db:
            assert db.execute(f"UPDATE jobs SET lease_until = 0 WHERE kind = '{kind}' AND state = 'running'").rowcount == 1
        async with spawned(up.url, data) as (_, client):
            assert (await client.post("/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": "hi"}], "user": "bob"})).status_code == 200
            await until(lambda: not select(data, f"SELECT 1 FROM jobs JOIN scopes ON scopes.id = jobs.scope_id WHERE kind = '{kind}' AND user = 'ada'"))
    if kind == "summarise":
        assert select(data, "SELECT content FROM summaries") == [("SUMMARY\n(Details: conversation_search.)",)]
    elif kind == "extract":
        assert select(data, f"SELECT content FROM passages {OF_ADA}") == [("The user lives in Lyon",)]
    else:
        assert select(data, f"SELECT content, actor FROM passages {OF_ADA}") == [("Ada lives in Lyon", "reflection")]
        assert len(jobs) == 3


