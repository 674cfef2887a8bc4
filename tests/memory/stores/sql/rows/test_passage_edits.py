"""A passage that a person corrects keeps its id; each change is a version that can be undone."""

from __future__ import annotations

import pytest

from memory import (
    EditSource,
    ManagementActor,
    NewPassage,
    NotFound,
    PassageChange,
    PassageFilter,
    Scope,
    SearchQuery,
)
from memory.core.edits import BlockEdit, put_block
from memory.management import blocks, passages
from tests.memory.management.conftest import SECRET, store

__all__ = ["store"]
SCOPE = Scope("acme", "ada", "default", SECRET)
ACTOR = ManagementActor(SCOPE, {}, EditSource("dashboard"))


async def add(store, text, **more):
    return (await passages.add_passage(store, ACTOR, NewPassage(text, **more)))[0]["id"]


async def found(store, words):
    wanted = PassageFilter(SearchQuery(words))
    return [hit["content"] for hit in await passages.search_passages(store, SCOPE, wanted)]


async def edit(store, ident, content=None, **more):
    return await passages.edit_passage(store, ACTOR, ident, PassageChange(content, **more))


async def test_an_edited_passage_keeps_its_id_its_source_and_its_time(store):
    ident = await add(store, "Likes green tea", created_at=5.0, source="msg_1", tags=["food"])
    changed = await edit(store, ident, "Likes black coffee")
    assert changed["id"] == ident
    assert (changed["created_at"], changed["source"], changed["tags"]) == (5.0, "msg_1", ["food"])
    assert (await passages.get_passage(store, SCOPE, ident))["content"] == "Likes black coffee"
    assert await found(store, "green tea") == []
    assert await found(store, "black coffee") == ["Likes black coffee"]
    (older,) = await passages.list_passages(store, SCOPE, None, 9, forgotten=True)
    assert (older["content"], older["superseded_by"]) == ("Likes green tea", ident)


async def test_undo_walks_back_through_all_versions_of_a_passage(store):
    texts = ["One cat", "Two cats", "Three dogs", "Four birds"]
    ident = await add(store, texts[0])
    for text in texts[1:]:
        await edit(store, ident, text)
    for text in reversed(texts[:-1]):
        undone = await passages.undo_passage(store, ACTOR, ident)
        assert (undone["id"], undone["content"]) == (ident, text)
        assert await found(store, text) == [text]
    with pytest.raises(NotFound):
        await passages.undo_passage(store, ACTOR, ident)


async def test_tags_and_type_alone_can_be_changed_and_nothing_is_no_version(store):
    ident = await add(store, "Likes tea")
    changed = await edit(store, ident, tags=["drinks"], type="preference", importance=0.9)
    assert (changed["content"], changed["tags"], changed["type"]) == (
        "Likes tea",
        ["drinks"],
        "preference",
    )
    await edit(store, ident, "Likes tea")
    assert len(await passages.list_passages(store, SCOPE, None, 9, forgotten=True)) == 1


async def test_a_wording_that_is_there_already_is_not_stored_twice(store):
    first, second = await add(store, "Likes tea"), await add(store, "Likes coffee")
    assert (await edit(store, second, "likes  TEA"))["id"] == first
    assert await found(store, "tea coffee") == ["Likes tea"]


async def test_undo_takes_back_the_newest_change_of_either_kind(store):
    put = put_block("human", BlockEdit("Ada"), {})
    await blocks.edit_block(store, ACTOR, "human", put)
    ident = await add(store, "Likes tea")
    await edit(store, ident, "Likes coffee")
    await passages.set_passage_aside(store, ACTOR, ident)
    undone = [await passages.undo_newest(store, ACTOR) for _ in range(4)]
    assert [(u.kind, u.text) for u in undone] == [
        ("forgotten", "Likes coffee"),
        ("edited", "Likes tea"),
        ("added", "Likes tea"),
        ("block", None),
    ]
    with pytest.raises(NotFound):
        await passages.undo_newest(store, ACTOR)
