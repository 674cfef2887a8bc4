"""A gateway killed in the middle of its jobs: the next one resumes them, and the effect of each
happens once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3

from tests.e2e.test_crash import spawned
from tests.models import Model, call, calls

OPENINGS = {"You compress": "summarise", "You keep the long-term": "extract", "You tidy": "reflect"}
KINDS = "('summarise', 'extract', 'reflect')"
# Not those that wait for a user to be idle.
DUE = "AND run_at < unixepoch() + 60"
OF_ADA = "JOIN scopes ON scopes.id = {0}.scope_id WHERE scopes.user = 'ada'"
# Reflection has a round behind it when it is killed.
STALLS = {
    "summarise": 1,
    "extract": 1,
    "reflect": 2,
}
CONFIG = """
[models."m"]
targets = [{{ provider = "openai" }}]
context_window = 3000
supports_tools = false
[memory]
extraction = {{ every_turns = 1 }}
reflect = {{ every_turns = 2 }}
blocks = [{{ label = "human", value = "Ada builds trains" }}]
[providers.openai]
base_url = "{0}"
"""


def answer(kind, n):
    if kind == "extract":
        return json.dumps(
            {"operations": [{"text": "The user lives in Lyon", "quote": "I live in Lyon."}]}
        )
    if kind == "reflect":
        return (
            calls(call("archival_memory_insert", {"content": "Trains are what Ada builds"}, "r1"))
            if n == 1
            else "done"
        )
    return "SUMMARY"


def select(data, query):
    with contextlib.closing(sqlite3.connect(data / "mnemogate.db")) as db:
        return db.execute(query).fetchall()


async def until(found):
    async with asyncio.timeout(20):
        while not found():
            await asyncio.sleep(0.02)


async def test_jobs_killed_while_they_ran_are_resumed_and_write_once(data, tmp_path, monkeypatch):
    asked = dict.fromkeys(STALLS, 0)

    async def stall(seen, wire):
        await asyncio.sleep(60)

    def scripted(seen, wire):
        begin = str(seen.json["messages"][0]["content"])
        kind = next((k for words, k in OPENINGS.items() if begin.startswith(words)), None)
        if kind is None:
            return "a reply of some length " * 60
        asked[kind] += 1
        return stall(seen, wire) if asked[kind] == STALLS[kind] else answer(kind, asked[kind])

    def all_stall():
        return all(asked[kind] >= n for kind, n in STALLS.items())

    async with Model(scripted) as up:
        config = tmp_path / "gateway.toml"
        config.write_text(CONFIG.format(up.url))
        monkeypatch.setenv("MNEMOGATE_CONFIG", str(config))
        async with spawned(up.url, data) as (child, client):
            history = []
            for i in range(30):
                history.append(
                    {
                        "role": "user",
                        "content": f"q{i} I live in Lyon. " + "what do you think of it? " * 20,
                    }
                )
                r = await client.post(
                    "/v1/chat/completions", json={"model": "m", "messages": history, "user": "ada"}
                )
                assert r.status_code == 200, r.text
                history.append(r.json()["choices"][0]["message"])
                if select(data, "SELECT 1 FROM jobs WHERE kind = 'summarise'"):
                    break
            await until(all_stall)
            child.kill()
            await child.wait()
        with contextlib.closing(sqlite3.connect(data / "mnemogate.db")) as db, db:
            # Their leases would end in two minutes.
            stalled = db.execute(
                f"UPDATE jobs SET lease_until = 0 WHERE kind IN {KINDS} AND state = 'running' "
                "RETURNING kind"
            ).fetchall()
        assert {"summarise", "extract", "reflect"} == {kind for (kind,) in stalled}
        async with spawned(up.url, data) as (_, client):
            hello = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "user": "bob"}
            assert (
                # Brings the credential.
                await client.post("/v1/chat/completions", json=hello)
            ).status_code == 200
            await until(
                lambda: (
                    not select(
                        data,
                        f"SELECT 1 FROM jobs {OF_ADA.format('jobs')} AND kind IN {KINDS} {DUE}",
                    )
                )
            )
    assert select(data, "SELECT content FROM summaries") == [
        ("SUMMARY\n(Details: conversation_search.)",)
    ]
    kept = select(data, f"SELECT content, actor FROM passages {OF_ADA.format('passages')}")
    assert sorted(kept) == [
        ("The user lives in Lyon", "extraction"),
        ("Trains are what Ada builds", "reflection"),
    ]
