"""Conversations from outside: brought along, listed, read, found, deleted."""

from __future__ import annotations

import pytest

from memory import (
    AmbiguousName,
    ConversationName,
    EditSource,
    ImportedMessage,
    ManagementActor,
    NotFound,
    Scope,
    SearchQuery,
    VisibleScopes,
)
from memory.core.screen import Screen
from memory.management import conversations
from tests.memory.management.conftest import SECRET

SAID = [
    ImportedMessage({"role": "user", "content": "I keep bees."}, 1.0),
    ImportedMessage({"role": "assistant", "content": "How many?"}, 2.0),
]
EVERYTHING = VisibleScopes(None)


async def test_a_chat_brought_along_is_listed_read_and_found(store, actor, scope):
    found = await conversations.import_conversation(store, actor, SAID, "bees")
    assert await conversations.list_conversations(store, scope, None, 10) == [found]
    rows = await conversations.list_messages(store, scope, "bees", 0, 10)
    assert [conversations.read_message(r, Screen()) for r in rows] == [s.message for s in SAID]
    which = ConversationName("bees")
    assert await conversations.read_conversation(store, EVERYTHING, which, 0, 10) == (found, rows)
    hits = await conversations.search_messages(store, scope, SearchQuery("bees"))
    assert hits[0]["content"] == "I keep bees."


async def test_what_a_deletion_leaves_nobody_finds(store, actor, scope):
    await conversations.import_conversation(store, actor, SAID, "bees")
    await conversations.delete_conversation(store, EVERYTHING, ConversationName("bees"))
    assert await conversations.list_conversations(store, scope, None, 10) == []
    with pytest.raises(NotFound):
        await conversations.list_messages(store, scope, "bees", 0, 10)
    with pytest.raises(NotFound):
        await conversations.delete_conversation(store, EVERYTHING, ConversationName("bees"))


async def test_a_name_of_two_users_asks_whose_is_meant_and_deletes_neither(store, actor):
    bob = ManagementActor(Scope("acme", "bob", "default", SECRET), {}, EditSource("api"))
    for who in (actor, bob):
        await conversations.import_conversation(store, who, SAID, "bees")
    with pytest.raises(AmbiguousName):
        await conversations.delete_conversation(store, EVERYTHING, ConversationName("bees"))
    which = ConversationName("bees", user="bob")
    found, _ = await conversations.read_conversation(store, EVERYTHING, which, 0, 10)
    assert found.user == "bob"
    with pytest.raises(NotFound):
        await conversations.read_conversation(store, VisibleScopes("other"), which, 0, 10)


async def test_nothing_is_known_of_a_stranger(store, scope):
    assert await conversations.list_conversations(store, scope, None, 10) == []
    assert await conversations.search_messages(store, scope, SearchQuery()) == []
    assert await conversations.find_explain_record(store, EVERYTHING, "explain_x") is None
