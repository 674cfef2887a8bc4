"""Recall asks the postings in memory where they are at hand, and else the index."""

from __future__ import annotations

import pytest

from memory.retrieval.auto_recall import alternate, recall_query
from memory.retrieval.retriever import SemanticSearch
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.index.message_index import index_waits
from tests.memory.retrieval.test_active_scopes import TOLD, Person, play

ASKED = recall_query("which boats has Ada bought, albatross?")


@pytest.fixture
async def person(db):
    found = await play(db, TOLD)
    yield found
    await found.recall.active.close()


async def test_the_postings_answer_most_searches_of_a_user(person):
    assert person.in_memory >= 2


async def test_the_first_search_of_a_small_scope_reads_it(db):
    person = Person(db)
    await person.begin()
    await person.say([(i % 4, "user", f"Ada bought boats {i} albatross") for i in range(8)])
    assert person.recall.active.find(person.scope_id) is None
    found = await person.recall.find(person.scope_id, ASKED, person.talks[0])
    assert found.messages
    assert person.recall.active.find(person.scope_id) is not None


async def test_what_was_said_a_moment_ago_is_found_before_the_index_has_it(person, monkeypatch):
    await person.settled()
    await person.say([(1, "user", "Ottilie bought a trombone"), (1, "assistant", "Noted.")])
    query = recall_query("Did Ottilie buy that trombone?")
    found = await person.recall.find(person.scope_id, query, person.talks[0])
    assert found.messages[0]["content"] == "Ottilie bought a trombone"
    assert await person.db.read(lambda conn: index_waits(conn, person.scope_id))
    # The index takes over the words, and what is in memory stays.
    scope = person.recall.active.find(person.scope_id)
    monkeypatch.setattr(fts, "document_words", None)
    await person.index(50)
    assert not await person.db.read(lambda conn: index_waits(conn, person.scope_id))
    assert person.recall.active.find(person.scope_id) is scope
    assert await person.recall._rank_in_memory(person.scope_id, query, None) is not None
    monkeypatch.undo()
    assert alternate(found) == await person.full(query, person.talks[0])


async def test_long_texts_wait_for_the_index(person):
    await person.settled()
    await person.say([(1, "user", "boats " * 20_000)])
    assert await person.recall._rank_in_memory(person.scope_id, ASKED, person.talks[0]) is None


async def test_words_that_are_added_count(person):
    active = person.recall.active
    active._max_bytes = active.held + 100
    await person.settled()
    await person.say([(1, "user", "trombone " * 3), (1, "user", "Ottilie went swimming")])
    await person.recall.find(person.scope_id, ASKED, person.talks[0])
    assert active.held <= active._max_bytes


async def test_nothing_relevant_is_known_without_the_store(person, monkeypatch):
    await person.settled()

    async def refused(*args, **kwargs):
        raise AssertionError("the store was asked")

    monkeypatch.setattr(Database, "read", refused)
    query = recall_query("Explain how compilers allocate registers, with graphs")
    found = await person.recall.find(person.scope_id, query, person.talks[0])
    assert (found.passages, found.messages) == ((), ())


async def test_an_embedder_is_asked_whatever_words_say(person):
    await person.settled()

    async def embed(tenant, texts):
        return [[1.0, 0.0] for _ in texts]

    embed.model = "m"
    person.retriever.meaning = SemanticSearch(embed)
    assert await person.recall._rank_in_memory(person.scope_id, ASKED, None) is None


async def test_what_asks_for_a_time_is_searched_in_the_index(person):
    await person.settled()
    find = person.recall._rank_in_memory
    assert await find(person.scope_id, ASKED, None) is not None
    assert await find(person.scope_id, recall_query("When did Ada buy boats?"), None) is None
    assert await find(person.scope_id, recall_query("tea\u19b0cup boats"), None) is None


async def test_a_first_conversation_is_not_read_into_memory(db):
    person = Person(db)
    await person.begin()
    await db.write(
        lambda conn: conn.execute(
            t.conversations.delete().where(t.conversations.c.id != person.talks[0])
        )
    )
    await person.say([(0, "user", "Ada bought boats")])
    for _ in range(4):
        assert not await person.recall.may_find(person.scope_id, person.talks[0])
    assert await person.recall.may_find(person.scope_id, None)
    assert person.recall.active.held == 0
    assert not person.recall.active._reading
