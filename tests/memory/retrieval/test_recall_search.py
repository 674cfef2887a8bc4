"""Recall asks the postings in memory where they are at hand, and else the index."""

from __future__ import annotations

import pytest

from memory.retrieval.auto_recall import recall_query
from memory.retrieval.retriever import SemanticSearch
from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from tests.memory.retrieval.test_active_scopes import TOLD, Person, play

ASKED = recall_query("which boats has Ada bought, albatross?")


@pytest.fixture
async def person(db):
    found = await play(db, TOLD)
    yield found
    await found.recall.active.close()


async def test_the_postings_answer_most_searches_of_a_user(person):
    assert person.in_memory >= 2


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
    assert person.recall._rank_in_memory(person.scope_id, ASKED, None) is None


async def test_what_asks_for_a_time_is_searched_in_the_index(person):
    await person.settled()
    find = person.recall._rank_in_memory
    assert find(person.scope_id, ASKED, None) is not None
    assert find(person.scope_id, recall_query("When did Ada buy boats?"), None) is None
    assert find(person.scope_id, recall_query("tea\u19b0cup boats"), None) is None


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
        found = await person.recall.find(person.scope_id, ASKED, person.talks[0])
        assert (found.passages, found.messages) == ((), ())
    assert person.recall.active.held == 0
    assert not person.recall.active._reading
