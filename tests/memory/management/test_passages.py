"""Passages from outside: kept, found, set aside, brought back, removed."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from memory import BadArguments, NewPassage, NotFound, PassageFilter, SearchQuery
from memory.management import passages
from memory.stores.sql.engine import schema as t


async def listed(store, scope, *, forgotten=False):
    found = await passages.list_passages(store, scope, None, 10, forgotten=forgotten)
    return [p["content"] for p in found]


async def test_a_text_is_kept_found_set_aside_and_brought_back(store, actor, scope):
    [kept] = await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    assert (await passages.get_passage(store, scope, kept["id"]))["content"] == "Ada keeps bees."
    wanted = PassageFilter(SearchQuery("bees"))
    assert [h["id"] for h in await passages.search_passages(store, scope, wanted)] == [kept["id"]]
    await passages.set_passage_aside(store, actor, kept["id"])
    assert await listed(store, scope) == []
    assert await listed(store, scope, forgotten=True) == ["Ada keeps bees."]
    await passages.restore_passage(store, actor, kept["id"])
    assert await listed(store, scope) == ["Ada keeps bees."]


async def test_a_removal_leaves_a_job_for_the_index_beside(store, actor, scope):
    [kept] = await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    await passages.delete_passage(store, actor, kept["id"])
    assert await listed(store, scope) == []
    jobs = await store.db.read(lambda conn: conn.execute(select(t.jobs.c.kind)).scalars().all())
    assert "erase" in jobs


async def test_nobody_finds_what_is_not_there(store, actor, scope):
    assert await passages.search_passages(store, scope, PassageFilter()) == []
    with pytest.raises(NotFound):
        await passages.get_passage(store, scope, "passage_x")
    for change in (
        passages.restore_passage,
        passages.set_passage_aside,
        passages.delete_passage,
    ):
        with pytest.raises(NotFound):
            await change(store, actor, "passage_x")


def test_what_cannot_be_a_passage_is_refused():
    with pytest.raises(BadArguments):
        passages.check_passage(" ", "fact", 0.5)
