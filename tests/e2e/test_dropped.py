"""No filter is silent: what was not kept is in the job's record, with its reason, and a secret's
text is nowhere.
"""

from __future__ import annotations

import json
from functools import partial
from typing import get_args

import pytest

from gateway.ui.dropped import MEANINGS
from memory.ids import clock
from memory.search.drop_reasons import REASONS, STAGES, Reason
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import job_records
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.e2e.test_extraction import CONFIG, Chat, asked, fact, kept, proposing, talk
from tests.models import Model

KEY = "sk-" + "a1B2" * 8


async def drops(live):
    return [(d["stage"], d["reason"], d["text"]) for d in await rows(live, t.dropped)]


async def test_each_proposed_fact_that_is_not_kept_has_its_reason(data):
    script = proposing(
        [
            fact("The user lives in Lyon", "I live in Lyon"),
            fact("The user lives in Lyon", "i live in lyon."),
            fact("The user hates tea", "I hate tea"),
            fact("The user is a pilot", "I live in Lyon"),
            fact("The user asks", "where is Oslo?"),
            fact(f"The key is {KEY}", "I live in Lyon"),
            {"text": "no quote"},
            fact("", "I live in Lyon", op="supersede", id=9),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I live in Lyon. where is Oslo?")
        assert [c for c, _, _ in await kept(live)] == ["The user lives in Lyon"]
        facts = [x for x in await drops(live) if x[0] == "fact"]
        assert sorted(facts) == sorted(
            [
                ("fact", "malformed", "no quote"),
                ("fact", "duplicate", "The user lives in Lyon"),
                ("fact", "no_quote", "The user hates tea"),
                ("fact", "no_shared_word", "The user is a pilot"),
                ("fact", "question", "The user asks"),
                ("fact", "secret", ""),
                ("fact", "wrong_id", "I live in Lyon"),
            ]
        )
        (record,) = [r for r in await rows(live, t.job_records) if r["proposed"]]
        assert (record["read"], record["shown"], record["proposed"], record["kept"]) == (2, 1, 8, 1)
        assert KEY not in json.dumps([str(r) for r in await rows(live, t.dropped)])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("thanks a lot!", "small_talk"),
        ("What is a monad?", "question"),
        ("```\nx = 1\n```", "code"),
        ("> You said so\n> yesterday", "quoted"),
        ("I am Ada", "duplicate"),
        ("I like boats. " * 900, "too_long"),
        (f"{KEY}", "secret"),
    ],
)
async def test_each_message_that_no_model_is_shown_has_its_reason(data, line, reason):
    async with Model(proposing()) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live)
        await chat.say("I am Ada", line)
        await settled(live)
        said = {m["public_id"]: m["content"] for m in await rows(live, t.messages)}
        found = [(d["reason"], said[d["message"]]) for d in await rows(live, t.dropped)]
        assert reason in {r for r, _ in found}
        assert {m for r, m in found if r == reason} == {line.replace(KEY, "[removed: API key]")}
        assert KEY not in json.dumps(asked(up))


async def test_a_drop_is_listed_counted_shown_and_kept_after_all(data):
    script = proposing(
        [
            fact("The user lives in Lyon", "I live in Lyon"),
            fact("The user hates tea", "I hate tea"),
            fact(f"The key is {KEY}", "I live in Lyon"),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I live in Lyon", "What is a monad?")
        await talk(live, "I like Lyon")
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}

        async def get(path):
            answer = await live.memory("GET", path, headers=local)
            assert answer.status_code == 200, answer.text
            assert KEY not in answer.text
            return answer.json()

        listed = (await get("/users/ada/dropped"))["data"]
        found = {(d["stage"], d["reason"], d["text"]) for d in listed}
        assert found >= {
            ("fact", "no_quote", "The user hates tea"),
            ("fact", "secret", ""),
            ("message", "question", "What is a monad?"),
            ("message", "small_talk", "hello"),
        }
        one = (await get("/users/ada/dropped?reason=no_quote"))["data"]
        assert [d["text"] for d in one] == ["The user hates tea"]
        assert (await get("/users/ada/dropped?since=2100-01-01"))["data"] == []
        page = await get("/users/ada/dropped?limit=1")
        second = await get(f"/users/ada/dropped?limit=1&cursor={page['next_cursor']}")
        assert page["data"][0]["id"] == listed[0]["id"]
        assert second["data"][0]["id"] == listed[1]["id"]
        refused = await live.memory("GET", "/users/ada/dropped?reason=x", headers=local)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "reason")

        records = (await get("/users/ada/jobs"))["data"]
        record = next(r for r in records if r["proposed"])
        assert (record["kept"], record["proposed"], record["kind"]) == (1, 3, "extract")
        assert [d["reason"] for d in record["dropped"]] == ["no_quote", "secret"]
        assert {w["reason"] for r in records for w in r["withheld"]} >= {"question", "small_talk"}

        metrics = (await live.http.get(f"{live.root}/metrics")).text
        assert 'mnemogate_memory_dropped_total{reason="no_quote",stage="fact"} 1.0' in metrics
        assert 'mnemogate_memory_dropped_total{reason="question",stage="message"} 1.0' in metrics

        kept_one = await live.memory(
            "POST", f"/users/ada/dropped/{one[0]['id']}/keep", headers=local
        )
        assert [p["content"] for p in kept_one.json()["data"]] == ["The user hates tea"]
        assert (await get("/users/ada/dropped?reason=no_quote"))["data"] == []
        secret = (await get("/users/ada/dropped?reason=secret"))["data"][0]["id"]
        for ident in (secret, one[0]["id"], "drop_1", "drop_x", "drop_" + "9" * 19, "x"):
            again = await live.memory("POST", f"/users/ada/dropped/{ident}/keep", headers=local)
            assert again.status_code == 404
        for user in ("bob", "nobody"):
            assert (await get(f"/users/{user}/dropped"))["data"] == []
            assert (await get(f"/users/{user}/jobs"))["data"] == []

        await live.memory("DELETE", "/users/ada", headers=local)
        await settled(live)
        assert await rows(live, t.dropped) == []
        assert await rows(live, t.job_records) == []


async def test_what_was_dropped_of_a_conversation_leaves_with_it(data):
    script = proposing([fact("The user is a pilot", "I live in Lyon")])
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I live in Lyon")
        assert [d["reason"] for d in await rows(live, t.dropped)][-1] == "no_shared_word"
        (name,) = {c["name"] for c in await rows(live, t.conversations)}
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        gone = await live.memory("DELETE", f"/conversations/{name}", headers=local)
        assert gone.status_code == 200
        await settled(live)
        assert [d for d in await rows(live, t.dropped) if d["conversation"]] == []


async def test_drops_expire_after_thirty_days(data):
    async with Model(proposing()) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "What is a monad?")
        assert await rows(live, t.dropped)
        db = live.gateway.memory.db
        old = clock.now() - 29 * 86400
        await db.write(
            lambda conn: conn.execute(t.dropped.update().values(created_at=old)) and None
        )
        work = partial(job_records.expire, before=clock.now() - job_records.KEPT_DAYS * 86400)
        assert await db.write(work) == 0
        old -= 2 * 86400
        await db.write(
            lambda conn: conn.execute(t.dropped.update().values(created_at=old)) and None
        )
        assert await db.write(work) > 0
        assert await rows(live, t.dropped) == []


def test_a_reason_that_is_not_listed_is_none():
    assert get_args(Reason) == REASONS
    assert tuple(MEANINGS) == REASONS
    assert set(REASONS) >= {"small_talk", "secret", "malformed", "wrong_id"}
    assert STAGES == ("message", "fact")
