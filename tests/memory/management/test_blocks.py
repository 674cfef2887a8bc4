"""Blocks from outside: an edit, what it leaves behind, and the way back."""

from __future__ import annotations

import pytest

from memory import BlockEdit, Conflict, NotFound
from memory.management import blocks


async def put(store, actor, value, expect=None):
    how = blocks.put_block("human", BlockEdit(value), {})
    return await blocks.edit_block(store, actor, "human", how, expect)


async def test_an_edit_is_listed_with_its_versions_and_can_be_taken_back(store, actor):
    assert await blocks.list_blocks(store, actor) == {}
    await put(store, actor, "Name: Ada")
    now = await put(store, actor, "Name: Ada. Likes tea.")
    assert (await blocks.list_blocks(store, actor))["human"].value == now.value
    listed = await blocks.list_versions(store, actor, "human", None, 10)
    assert [(v["version"], v["actor"], v["request_id"]) for v in listed] == [
        (2, "api", "req"),
        (1, "api", "req"),
    ]
    assert (await blocks.undo_edit(store, actor, "human")).value == "Name: Ada"


async def test_a_stale_edit_is_a_conflict_and_changes_nothing(store, actor):
    await put(store, actor, "one")
    with pytest.raises(Conflict):
        await put(store, actor, "two", expect=7)
    assert (await blocks.list_blocks(store, actor))["human"].value == "one"


async def test_what_was_never_there_has_no_versions_and_no_way_back(store, actor):
    with pytest.raises(NotFound):
        await blocks.list_versions(store, actor, "human", None, 10)
    with pytest.raises(NotFound):
        await blocks.undo_edit(store, actor, "human")
