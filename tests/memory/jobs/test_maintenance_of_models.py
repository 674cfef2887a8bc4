"""Jobs that ask a model, by themselves: what there is nothing left to do of asks nobody, and what
cannot be used is not kept.
"""

from __future__ import annotations

import time

import pytest
from sqlalchemy import delete, insert, select

from memory.core.blocks import CoreBlock
from memory.errors import Unusable
from memory.jobs import extraction, reflection, summarization
from memory.jobs.extraction import ExtractionCounters
from memory.jobs.fact_prompt import ExtractionRules
from memory.jobs.unusable_answers import UnusableAnswers
from memory.retrieval.retriever import Retriever
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import QueuedJob

BLOCKS = {"human": CoreBlock("human", "Ada")}
COUNTERS = ExtractionCounters(UnusableAnswers())
LINK, BASE = b"\x01" * 16, b"\x02" * 16


@pytest.fixture
async def scope(db):
    return await db.write(
        lambda conn: scopes.get_or_create(
            conn, scopes.current_owner(conn, Scope("t", "ada", "default", b"s" * 32))
        )
    )


class Envoy:
    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, errand, messages, max_tokens):
        self.asked.append((errand, messages))
        return self.answers.pop(0)


def summary_job(scope, base=None):
    return QueuedJob(
        "summarise",
        {
            "link": LINK.hex(),
            "base": base and base.hex(),
            "text": "user: hi",
            "tokens": 100,
            "count": 1,
            "model": "m",
        },
        scope,
        conversation=7,
    )


async def keep(db, scope, link, text):
    await db.write(
        lambda conn: (
            conn.execute(
                insert(t.summaries).values(
                    scope_id=scope,
                    conversation=7,
                    chain=link,
                    content=text,
                    count=1,
                    created_at=time.time(),
                )
            )
            and None
        )
    )


async def test_what_is_gone_asks_nobody(db, scope):
    envoy = Envoy()
    summarise, extract = (
        summarization.summary_handler(db, envoy),
        extraction.extraction_handler(db, envoy, lambda _: BLOCKS, ExtractionRules, COUNTERS),
    )
    reflect = reflection.reflection_handler(db, envoy, Retriever(db), lambda _: BLOCKS)
    for whose in (None, 12345):
        assert await summarise(summary_job(whose)) is None
        assert await extract(QueuedJob("extract", {"model": "m"}, whose)) is None
        assert await reflect(QueuedJob("reflect", {"rounds": 0, "model": "m"}, whose)) is None
    # Its turn was deleted.
    assert await extract(QueuedJob("extract", {"model": "m"}, scope)) is None
    # And the summary to go on from.
    assert await summarise(summary_job(scope, BASE)) is None
    await keep(db, scope, LINK, "there")
    assert await summarise(summary_job(scope)) is None
    # Nothing to tidy.
    assert (
        await reflection.reflection_handler(db, envoy, Retriever(db), dict)(
            QueuedJob("reflect", {"rounds": 0, "model": "m"}, scope)
        )
        is None
    )
    assert envoy.asked == []


async def test_a_summary_goes_on_from_the_one_before(db, scope):
    await keep(db, scope, BASE, "EARLIER")
    envoy = Envoy({"content": " both "})
    effect = await summarization.summary_handler(db, envoy)(summary_job(scope, BASE))
    assert envoy.asked[0][1][1]["content"].startswith(
        "<earlier_summary>\nEARLIER\n</earlier_summary>"
    )
    await db.write(effect)
    found = await db.read(
        lambda conn: [
            r.content for r in conn.execute(select(t.summaries).where(t.summaries.c.chain == LINK))
        ]
    )
    assert found == ["both\n(Details: conversation_search.)"]


@pytest.mark.parametrize("message", [{}, {"content": None}, {"content": " "}])
async def test_a_summary_without_text_is_unusable(db, scope, message):
    with pytest.raises(Unusable):
        await summarization.summary_handler(db, Envoy(message))(summary_job(scope))


@pytest.mark.parametrize(
    "calls",
    [
        None,
        [],
        "x",
        [5],
        [{"id": "a"}],
        [{"id": 5, "function": {"name": "x", "arguments": "{}"}}],
        [{"id": "a", "function": {"name": "x"}}],
    ],
)
async def test_reflection_ends_with_calls_that_are_none(db, scope, calls):
    envoy = Envoy({"content": "done", "tool_calls": calls})
    await reflection.reflection_handler(db, envoy, Retriever(db), lambda _: BLOCKS)(
        QueuedJob("reflect", {"rounds": 0, "model": "m"}, scope)
    )
    assert len(envoy.asked) == 1


async def test_reflection_writes_nothing_once_its_job_is_gone(db, scope):
    call = {
        "id": "a",
        "function": {
            "name": "core_memory_append",
            "arguments": '{"label": "human", "content": "x"}',
        },
    }
    with pytest.raises(Exception, match="taken over or erased"):
        await reflection.reflection_handler(
            db, Envoy({"tool_calls": [call]}), Retriever(db), lambda _: BLOCKS
        )(QueuedJob("reflect", {"rounds": 0, "model": "m"}, scope, held=(9, 1)))
    assert await db.read(lambda conn: conn.execute(select(t.block_versions)).all()) == []


async def test_an_answer_without_facts_is_unusable_and_a_turn_that_is_gone_is_not_asked_about(
    db, scope
):
    await db.write(
        lambda conn: (
            conn.execute(
                insert(t.conversations).values(
                    id=7, scope_id=scope, name="c", explicit=False, created_at=1, updated_at=1
                )
            )
            and None
        )
    )
    node = {"id": 3, "scope_id": scope, "conversation": 7, "turn": 3, "depth": 1, "state": "done"}
    await db.write(
        lambda conn: conn.execute(insert(t.nodes).values(**node, branch=0, at=1, unread=1)) and None
    )
    await db.write(
        lambda conn: (
            conn.execute(
                insert(t.messages).values(
                    id=1,
                    public_id="msg_1",
                    scope_id=scope,
                    conversation=7,
                    node=3,
                    role="user",
                    body="{}",
                    content="I am Ada",
                    source="chat",
                    created_at=1,
                )
            )
            and None
        )
    )
    no_user = extraction.extraction_handler(
        db, Envoy({"content": "no"}), lambda _: BLOCKS, ExtractionRules, COUNTERS
    )
    with pytest.raises(Unusable):
        await no_user(QueuedJob("extract", {"model": "m", "at_once": True}, scope))
    await db.write(lambda conn: conn.execute(delete(t.nodes)) and None)
    assert await no_user(QueuedJob("extract", {"model": "m", "at_once": True}, scope)) is None
