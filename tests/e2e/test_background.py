"""Background work over the whole gateway: summaries made ahead, no turn waiting for one, jobs that
wait for a credential.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest
from sqlalchemy import select

from memory.conversation.messages import DigestCache
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.vacuum import vacuum
from memory.stores.sql.rows import jobs
from memory.stores.sql.turns import turn_reader
from tests import stores
from tests.conftest import running
from tests.gateway.wire import test_title_prompts as title_prompts
from tests.gateway.wire import test_ui_prompts as ui_prompts
from tests.models import Model

TURNS = int(os.environ.get("MNEMOGATE_TEST_TURNS", "60"))
WINDOW = 3000
# A job of a tenant whose credential is not at hand. On Postgres another worker may have it.
LEFT = "ready" if stores.POSTGRES else "waiting"
CONFIG = {"models": {"m": {"targets": [{"provider": "openai"}], "context_window": WINDOW}}}


def summary_calls(up):
    return [b for b in up.bodies if b["messages"][0]["content"].startswith("You compress")]


def numbers(up):
    """Which turns each summary was given, beside the summary before."""
    return [
        [
            int(w[1:])
            for w in b["messages"][1]["content"].replace("?", " ").split()
            if w[0] == "q" and w[1:].isdigit()
        ]
        for b in summary_calls(up)
    ]


def scripted(seen, wire):
    if seen.json["messages"][0]["content"].startswith("You compress"):
        return "SUMMARY"
    return "a reply of some length, which tells nothing of any weight " * 20


async def never(job):
    await asyncio.Event().wait()


async def rows(live, table):
    await live.gateway.memory.wait_until_ready()
    return await live.gateway.memory.db.read(
        lambda conn: [
            dict(r._mapping) for r in conn.execute(select(table).order_by(*table.primary_key))
        ]
    )


async def summarising(live):
    return [j for j in await rows(live, t.jobs) if j["kind"] == "summarise"]


async def settled(live):
    """Every job that is due has run."""
    async with asyncio.timeout(10):
        while any(
            j["state"] in ("ready", "running") and j["run_at"] <= time.time()
            for j in await rows(live, t.jobs)
        ):
            live.gateway.worker.wake()
            await asyncio.sleep(0.01)


async def talk(live, history, turns, begin=0):
    for i in range(begin, begin + turns):
        history.append({"role": "user", "content": f"q{i} " + "what do you think of it? " * 20})
        answer = await live.chat(history, user="ada", max_tokens=200)
        assert answer.status_code == 200, answer.text
        history.append(answer.json()["choices"][0]["message"])
        await settled(live)


async def test_in_a_long_conversation_each_stretch_is_summarised_once_and_no_turn_waits(data):
    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        await talk(live, [], TURNS)
        found = numbers(up)
        flat = [n for some in found for n in some]
        assert len(found) >= TURNS // 20
        assert flat == list(range(len(flat)))
        await live.gateway.usage.flush()
        booked = [r for r in await rows(live, t.usage) if r["path"] == "background/summarise"]
        assert len(booked) == len(found)
        assert {(r["user"], r["key"], r["status"]) for r in booked} == {("ada", "", 200)}
        assert all(
            r["hidden_input"] == 0
            for r in await rows(live, t.usage)
            if r["path"] == "/chat/completions"
        )
        sent = [b for b in up.bodies if not b["messages"][0]["content"].startswith("You compress")]
        assert max(len(b["messages"]) for b in sent) < 60
        assert "SUMMARY" in sent[-1]["messages"][0]["content"]
        digests = [r["digest"] for r in await rows(live, t.messages)]
        # What was evicted was there already.
        assert len(digests) == 2 * TURNS


async def test_a_job_that_ran_costs_no_turn_a_read(data, monkeypatch):
    read = []
    snapshot = turn_reader.snapshot
    monkeypatch.setattr(
        turn_reader, "snapshot", lambda conn, ask: read.append(ask) or snapshot(conn, ask)
    )
    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        history = []
        # The chores of the start run beside the first.
        await talk(live, history, 3)
        read.clear()
        await talk(live, history, 30, 3)
        assert len(summary_calls(up)) >= 2
        assert not read


async def test_a_compaction_late_in_a_conversation_costs_no_more_than_an_early_one(
    data, monkeypatch
):
    hashed = []
    after = DigestCache.extend_chain
    monkeypatch.setattr(
        DigestCache,
        "extend_chain",
        lambda self, key, link, message: hashed.append(1) or after(self, key, link, message),
    )
    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        history, costs = [], []
        for begin in range(0, 120, 40):
            hashed.clear()
            await talk(live, history, 40, begin)
            costs.append(len(hashed))
        assert len(summary_calls(up)) >= 9
        assert costs[2] <= 1.05 * costs[1]


async def test_what_a_client_brought_along_is_found_by_search_once_it_is_left_out(data):
    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        old = [
            {"role": r, "content": f"{r} {i} " + "long ago and far away " * 25}
            for i in range(20)
            for r in ("user", "assistant")
        ]
        await talk(live, old, 10)
        found = [r["content"] for r in await rows(live, t.messages) if r["source"] == "evicted"]
        assert found
        assert found[0].startswith("user 0 ")


async def test_what_is_left_out_in_several_steps_of_one_turn_is_found_by_search(data):
    refusal = (
        400,
        {
            "error": {
                "message": "maximum context length exceeded",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
    )

    def picky(seen, wire):
        asked = seen.json["messages"]
        return (
            "SUMMARY"
            if asked[0]["content"].startswith("You compress")
            else refusal
            if len(summary_calls(up)) < 2 and len(asked) > 2
            else "fits"
        )

    async with Model(picky) as up, running(up.url, data) as live:
        await live.chat("hello", user="ada")
        old = [
            {"role": r, "content": f"{r} {i} " + "long ago and far away " * 25}
            for i in range(20)
            for r in ("user", "assistant")
        ]
        await talk(live, old, 1)
        assert len(summary_calls(up)) == 2
        found = [
            r["content"].split(" long")[0]
            for r in await rows(live, t.messages)
            if r["source"] == "evicted"
        ]
        assert found[:2] == ["user 0", "assistant 0"]
        left = {m["content"].split(" long")[0] for m in up.bodies[-1]["messages"]}
        assert {m["content"].split(" long")[0] for m in old[:40]} <= {*found, *left}


async def test_a_turn_past_the_window_does_not_wait_for_a_summary_under_way(data):
    async def stall(seen, wire):
        await asyncio.sleep(30)

    def slow(seen, wire):
        return (
            stall(seen, wire)
            if seen.json["messages"][0]["content"].startswith("You compress")
            else "a reply of some length " * 50
        )

    async with Model(slow) as up, running(up.url, data, CONFIG) as live:
        history = []
        async with asyncio.timeout(20):
            for i in range(22):
                history.append(
                    {"role": "user", "content": f"q{i} " + "what do you think of it? " * 20}
                )
                history.append(
                    (await live.chat(history, user="ada", max_tokens=200)).json()["choices"][0][
                        "message"
                    ]
                )
        live.gateway.worker.wake()
        assert len(summary_calls(up)) <= 1
        assert await rows(live, t.summaries) == []
        sent = [b for b in up.bodies if not b["messages"][0]["content"].startswith("You compress")]
        assert "earlier messages were left out" in sent[-1]["messages"][0]["content"]


async def test_without_summarize_ahead_the_turn_makes_its_own(data):
    async with (
        Model(scripted) as up,
        running(up.url, data, {**CONFIG, "memory.summarize_ahead": False}) as live,
    ):
        await talk(live, [], 20)
        assert summary_calls(up)
        await live.gateway.usage.flush()
        assert not [r for r in await rows(live, t.usage) if r["path"].startswith("background")]


async def test_a_job_without_a_credential_waits_for_its_tenants_next_request(data):
    async with Model(scripted) as up:
        async with running(up.url, data, CONFIG) as live:
            live.gateway.worker.register("summarise", never, slow=True)
            history = []
            for i in range(14):
                history.append(
                    {"role": "user", "content": f"q{i} " + "what do you think of it? " * 20}
                )
                history.append(
                    (await live.chat(history, user="ada", max_tokens=200)).json()["choices"][0][
                        "message"
                    ]
                )
                if await summarising(live):
                    break
        async with running(up.url, data, CONFIG) as live:
            async with asyncio.timeout(5):
                while [j["state"] for j in await summarising(live)] != [LEFT]:
                    await asyncio.sleep(0.02)
            (job,) = await summarising(live)
            assert job["attempts"] == 0
            assert not summary_calls(up)
            await live.chat("hello", user="bob")
            async with asyncio.timeout(5):
                while await summarising(live):
                    await asyncio.sleep(0.02)
            assert len(summary_calls(up)) >= len(await rows(live, t.summaries)) == 1


async def test_a_poison_job_ends_dead_and_stays_to_be_seen(data):
    def refusing(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You compress"):
            return (400, {"error": {"message": "no"}})
        return scripted(seen, wire)

    async with Model(refusing) as up, running(up.url, data, CONFIG) as live:
        history = []
        await talk(live, history, 14)
        (job,) = await summarising(live)
        assert (job["state"], job["error"]) == ("ready", "UpstreamRefused")
        await live.gateway.memory.db.write(
            lambda conn: (
                conn.execute(t.jobs.update().values(attempts=jobs.ATTEMPTS - 1, run_at=0)) and None
            )
        )
        await settled(live)
        (job,) = await summarising(live)
        assert (job["state"], job["attempts"]) == ("dead", jobs.ATTEMPTS)
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        (shown,) = (await live.memory("GET", "/jobs", headers=local)).json()["data"]
        assert (
            shown["kind"],
            shown["state"],
            shown["attempts"],
            shown["error"],
            shown["user"],
        ) == ("summarise", "dead", jobs.ATTEMPTS, "UpstreamRefused", "ada")
        assert "q1" not in str(shown)
        assert (await live.memory("GET", "/jobs?state=sad", headers=local)).status_code == 400
        assert (await live.memory("GET", "/jobs?state=waiting", headers=local)).json()["data"] == []
        up.script[0] = scripted
        assert (
            await live.memory("POST", f"/jobs/{shown['id']}/retry", headers=local)
        ).status_code == 200
        await settled(live)
        assert len(await rows(live, t.summaries)) == 1
        for ident in (shown["id"], "x", "9" * 30):
            assert (
                await live.memory("POST", f"/jobs/{ident}/retry", headers=local)
            ).status_code == 404


async def test_an_erasure_takes_the_jobs_and_their_words_along(data):
    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        live.gateway.worker.register("summarise", never, slow=True)
        history = [
            {"role": "user", "content": "My sentinel is XYZZY."},
            {"role": "assistant", "content": "Noted."},
        ]
        for i in range(14):
            history.append({"role": "user", "content": f"q{i} " + "what do you think of it? " * 20})
            answer = await live.chat(history, user="ada", max_tokens=200)
            history.append(answer.json()["choices"][0]["message"])
        assert "XYZZY" in str([j["payload"] for j in await rows(live, t.jobs)])
        headers = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        assert (
            await live.memory(
                "DELETE",
                f"/conversations/{answer.headers['x-memory-conversation']}",
                headers=headers,
            )
        ).status_code == 200
        assert "XYZZY" not in str([await rows(live, table) for table in t.metadata.sorted_tables])


async def test_after_an_erasure_no_word_is_left_of_any_background_work(data):
    """Facts, facts set aside, block versions, summaries, a job that gave up: all of it goes, and
    the file keeps no byte after the vacuum.
    """

    def telling(seen, wire):
        begin = str(seen.json["messages"][0]["content"])
        if begin.startswith("You keep the long-term"):
            lives = {
                "op": "supersede",
                "id": 1,
                "text": f"The user lives in XYZZY-{len(up.bodies)}",
                "quote": "I live in XYZZY.",
            }
            return json.dumps(
                {
                    "operations": [
                        lives,
                        {
                            "text": f"The user is XYZZY number {len(up.bodies)}",
                            "quote": "I live in XYZZY.",
                            "type": "identity",
                        },
                    ]
                }
            )
        if begin.startswith("You compress"):
            return "SUMMARY of XYZZY" if not failing else (400, {"error": {"message": "no"}})
        return "a reply about XYZZY " * 60

    failing = []
    config = {
        "models": {
            "m": {
                "targets": [{"provider": "openai"}],
                "context_window": WINDOW,
                "supports_tools": False,
            }
        },
        "memory.extraction.every_turns": 1,
    }
    async with Model(telling) as up, running(up.url, data, config) as live:
        history = []
        for i in range(40):
            history.append(
                {
                    "role": "user",
                    "content": f"q{i} I live in XYZZY. " + "what do you think of it? " * 40,
                }
            )
            history.append(
                (await live.chat(history, user="ada", max_tokens=200)).json()["choices"][0][
                    "message"
                ]
            )
            await settled(live)
            if await rows(live, t.summaries):
                failing.append(True)
            if failing and await summarising(live):
                break
        await live.gateway.memory.db.write(
            lambda conn: (
                conn.execute(
                    t.jobs.update().where(t.jobs.c.kind == "summarise").values(state="dead")
                )
                and None
            )
        )
        full = {
            table.name: str(await rows(live, table)).count("XYZZY")
            for table in t.metadata.sorted_tables
        }
        assert [
            name
            for name in (
                "jobs",
                "summaries",
                "passages",
                "blocks",
                "block_versions",
                "messages",
                "explains",
                "epochs",
            )
            if not full[name]
        ] == []
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        receipt = (await live.memory("DELETE", "/users/ada", headers=local)).json()["erased"]
        assert receipt["jobs"] >= 1
        assert receipt["summaries"] >= 1
        await settled(live)
        await live.gateway.usage.flush()
        for table in t.metadata.sorted_tables:
            assert "XYZZY" not in str(await rows(live, table)), table.name
        await vacuum(live.gateway.memory.db.url)
        assert not [p.name for p in data.rglob("*") if p.is_file() and b"XYZZY" in p.read_bytes()]


async def test_vectors_wait_for_a_credential_too(data):
    def embedding(seen, wire):
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
        return "ok"

    async with (
        Model(embedding) as up,
        running(up.url, data, {"memory.embedder": "upstream:e"}) as live,
    ):
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        assert (
            await live.memory(
                "POST", "/users/ada/passages", json={"content": "Ada likes tea"}, headers=local
            )
        ).status_code == 200
        async with asyncio.timeout(5):
            while [
                (j["state"], j["attempts"])
                for j in await rows(live, t.jobs)
                if j["kind"] == "embed"
            ] != [(LEFT, 0)]:
                await asyncio.sleep(0.02)
        await live.chat("hello", user="bob")
        async with asyncio.timeout(5):
            while not await rows(live, t.vectors):
                await asyncio.sleep(0.02)


async def test_what_was_said_is_embedded_and_found_by_meaning(data):
    def embedding(seen, wire):
        if seen.path.endswith("/embeddings"):
            return (
                200,
                {
                    "data": [
                        {
                            "index": i,
                            "embedding": [1.0, 0.1]
                            if "Rex" in text or "pet" in text
                            else [0.1, 1.0],
                        }
                        for i, text in enumerate(seen.json["input"])
                    ]
                },
            )
        return "noted"

    async with (
        Model(embedding) as up,
        running(up.url, data, {"memory.embedder": "upstream:e"}) as live,
    ):
        await live.chat("I call him Rex", user="ada")
        async with asyncio.timeout(5):
            while len(await rows(live, t.message_vectors)) < 2:
                await asyncio.sleep(0.02)
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        hits = (
            await live.memory(
                "GET", "/users/ada/messages/search", params={"q": "pet"}, headers=local
            )
        ).json()["data"]
        assert hits[0]["content"] == "I call him Rex"
        assert hits[0]["why"]["similarity"] > 0.9


async def test_a_turn_leaves_one_job_with_an_embedder_and_none_without(data):
    for config, left in (({}, []), ({"memory.embedder": "upstream:e"}, ["embed"])):
        async with Model("ok") as up, running(up.url, data, config) as live:
            # With which the worker starts.
            await live.gateway.memory.wait_until_ready()
            await live.stop_worker()
            for words in ("hello", "hello again"):
                await live.chat(words, user="ada")
            assert [
                j["kind"] for j in await rows(live, t.jobs) if j["scope_id"] is not None
            ] == left


@pytest.mark.parametrize(
    ("refusal", "state", "code"),
    [
        (
            (401, {"error": {"message": "bad key", "code": "invalid_api_key"}}),
            "waiting",
            "invalid_api_key",
        ),
        ((200, {"id": "x", "choices": []}), "ready", "malformed_completion"),
    ],
)
async def test_a_refused_credential_is_forgotten_and_a_broken_answer_is_a_failure(
    data, refusal, state, code
):
    def refusing(seen, wire):
        return (
            refusal
            if seen.json["messages"][0]["content"].startswith("You compress")
            else scripted(seen, wire)
        )

    async with Model(refusing) as up, running(up.url, data, CONFIG) as live:
        history = []
        for i in range(14):
            history.append({"role": "user", "content": f"q{i} " + "what do you think of it? " * 20})
            history.append(
                (await live.chat(history, user="ada", max_tokens=200)).json()["choices"][0][
                    "message"
                ]
            )
            if await summarising(live):
                break
        await settled(live)
        assert [j["state"] for j in await summarising(live)] == [state]
        assert (live.gateway.credentials.get("local") is None) == (state == "waiting")
        await live.gateway.usage.flush()
        assert [
            r["code"] for r in await rows(live, t.usage) if r["path"] == "background/summarise"
        ] == [code]


async def test_prompts_of_chat_programs_run_without_memory_in_each_language(data):
    """Titles, tags, queries, further questions: nothing is added to them, and nothing is kept."""
    prompts = [*title_prompts.PLAIN, *title_prompts.HEADED, *ui_prompts.TRANSLATED]
    async with Model("ok") as up, running(up.url, data) as live:
        for prompt in prompts:
            body = {"messages": [{"role": "user", "content": prompt}]}
            answer = await live.chat(body["messages"], user="ada")
            assert answer.headers["x-memory-status"] == "off", prompt
            assert answer.headers["x-memory-reason"] == "background", prompt
            assert up.bodies[-1]["messages"] == body["messages"]
            assert "tools" not in up.bodies[-1]
        assert await rows(live, t.messages) == []
        assert await rows(live, t.conversations) == []
