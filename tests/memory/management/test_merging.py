"""Two memories become one: nothing is lost, nothing comes twice, whatever interrupts it."""

from __future__ import annotations

import dataclasses

import pytest
from sqlalchemy import update

from memory import (
    Conflict,
    EditSource,
    ImportedMessage,
    ManagementActor,
    NewPassage,
    NotFound,
    OwnerRename,
    Scope,
    SearchQuery,
    StoreUnavailable,
    VisibleScopes,
)
from memory.core.edits import BlockEdit, put_block
from memory.management import blocks, conversations, merging, passages, users
from memory.stores.sql.engine import schema as t
from memory.stores.sql.owners import erasure
from memory.stores.sql.rows import passage_lifecycle
from memory.stores.sql.transfer import importer
from tests.memory.management.conftest import SECRET

ADA, ME = Scope("acme", "ada", "default", SECRET), Scope("acme", "me", "default", SECRET)
WANTED = merging.Merge(OwnerRename(SECRET, ("acme", "me"), ("acme", "ada")))


def hand(scope):
    return ManagementActor(scope, {}, EditSource("api"))


async def put(store, scope, label, value, **more):
    edit = put_block(label, BlockEdit(value, f"of {scope.user}", **more), {})
    await blocks.edit_block(store, hand(scope), label, edit)


async def chat(store, scope, name, at, *texts):
    said = [ImportedMessage({"role": "user", "content": x}, at + i) for i, x in enumerate(texts)]
    await conversations.import_conversation(store, hand(scope), said, name)


async def remember(store, scope, *texts):
    return [(await passages.add_passage(store, hand(scope), NewPassage(text)))[0] for text in texts]


@pytest.fixture
async def both(store):
    """Two memories, of which each has something that the other has, and something of its own."""
    await put(store, ADA, "human", "Ada\nLikes tea", limit=30)
    await put(store, ME, "human", "Likes tea\nKeeps bees, and sells honey")
    await put(store, ME, "work", "Builds engines")
    await remember(store, ADA, "Grace arrives on Friday")
    await remember(store, ME, "Grace arrives on Friday", "The key is with Bob")
    await chat(store, ADA, "main", 1.0, "I am Ada")
    await chat(store, ME, "main", 5.0, "I keep bees", "and a cat")
    await chat(store, ME, "other", 9.0, "I sell honey")
    cook = dataclasses.replace(ME, agent="cook")
    await remember(store, cook, "No nuts")
    return store


async def seen(store):
    """What ada's memory has."""
    held = await passages.list_passages(store, ADA, None, 50)
    found = await conversations.list_conversations(store, ADA, None, 50)
    shelf = await blocks.list_blocks(store, hand(ADA))
    said = {
        c.name: len(await conversations.list_messages(store, ADA, c.name, 0, 50)) for c in found
    }
    return (
        sorted(p["content"] for p in held),
        said,
        {label: block.value for label, block in shelf.items()},
    )


MERGED = (
    ["Grace arrives on Friday", "The key is with Bob"],
    {"main": 1, "main (me)": 2, "other": 1},
    {"human": "Ada\nLikes tea\nKeeps bees, and sells honey", "work": "Builds engines"},
)


async def names(store):
    return [u["id"] for u in await users.list_users(store, VisibleScopes(None), None, 10)]


async def test_two_memories_become_one_and_it_is_told_before(both):
    plan = await merging.plan_merge(both.db, WANTED)
    assert plan.counts == {"blocks": 2, "passages": 3, "conversations": 2, "messages": 3}
    assert plan.joined["default"] == ["human"]
    assert plan.renamed["default"] == {"main": "main (me)"}
    # Asked, not done.
    assert await names(both) == ["ada", "me"]
    await merging.merge_live_users(both, WANTED)
    assert await seen(both) == MERGED
    assert await names(both) == ["ada"]
    cook = dataclasses.replace(ADA, agent="cook")
    assert [p["content"] for p in await passages.list_passages(both, cook, None, 9)] == ["No nuts"]
    hits = await conversations.search_messages(both, ADA, SearchQuery("honey"))
    assert hits[0]["content"] == "I sell honey"
    shelf = await blocks.list_blocks(both, hand(ADA))
    assert shelf["human"].description == "of ada"
    await blocks.undo_edit(both, hand(ADA), "human")
    assert (await seen(both))[2]["human"] == "Ada\nLikes tea"


async def test_an_interrupted_merge_is_completed_by_doing_it_again(both, monkeypatch):
    async def fails(*_, **__):
        raise StoreUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(erasure, "erase", fails)
        with pytest.raises(StoreUnavailable):
            await merging.merge_live_users(both, WANTED)
    assert await names(both) == ["ada", "me"]
    await merging.merge_live_users(both, WANTED)
    assert await seen(both) == MERGED
    assert await names(both) == ["ada"]


async def test_what_is_said_meanwhile_is_not_erased(both, monkeypatch):
    whole = importer.import_into

    async def slow(*arguments):
        await remember(both, ME, "Said meanwhile")
        return await whole(*arguments)

    with monkeypatch.context() as busy:
        busy.setattr(importer, "import_into", slow)
        with pytest.raises(Conflict, match="was used meanwhile"):
            await merging.merge_live_users(both, WANTED)
    assert await names(both) == ["ada", "me"]
    await merging.merge_live_users(both, WANTED)
    held, *rest = await seen(both)
    assert "Said meanwhile" in held
    assert rest == list(MERGED[1:])


async def test_a_superseded_passage_names_the_one_that_came_along(store):
    await remember(store, ADA, "Has a dog")
    old, new = await remember(store, ME, "Lives in Rome", "Lives in Oslo")
    scope_id = await users.find_scope(store, ME)
    await store.db.write(
        lambda conn: passage_lifecycle.set_aside(conn, scope_id, old["id"], "model", new["id"])
    )
    await merging.merge_live_users(store, WANTED)
    [aside] = await passages.list_passages(store, ADA, None, 9, forgotten=True)
    newer = await passages.get_passage(store, ADA, aside["superseded_by"])
    assert (aside["content"], newer["content"]) == ("Lives in Rome", "Lives in Oslo")


async def test_a_merge_that_cannot_be_changes_nothing(both):
    with pytest.raises(NotFound):
        nobody = OwnerRename(SECRET, ("acme", "me"), ("acme", "nobody"))
        await merging.merge_users(both.db, merging.Merge(nobody))
    with pytest.raises(Conflict, match="same user"):
        same = OwnerRename(SECRET, ("acme", "me"), ("acme", "me"))
        await merging.merge_users(both.db, merging.Merge(same))
    locked = update(t.blocks).where(t.blocks.c.value.like("Ada%")).values(read_only=True)
    await both.db.write(lambda conn: conn.execute(locked))
    with pytest.raises(Conflict, match="read-only"):
        await merging.merge_users(both.db, WANTED)
    assert await names(both) == ["ada", "me"]
