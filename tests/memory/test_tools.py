"""What the memory tools answer to a model's calls."""

from __future__ import annotations

import asyncio
import json

import pytest

from memory import tools
from memory.core.blocks import CoreBlock
from memory.core.screen import Screen
from memory.core.tool_definitions import OURS, SEARCHES
from memory.errors import BadArguments, StoreUnavailable
from memory.scope import Scope
from memory.stores.sql.rows import passage_lifecycle as fact_rows
from memory.stores.sql.rows import passages, scopes
from memory.stores.sql.rows.blocks import BlockSet, all_of
from memory.tools import (
    MAX_ARGUMENT_CHARACTERS,
    MAX_CALLS,
    TOO_MANY_CALLS,
    ToolCall,
    ToolContext,
    parse_arguments,
    refuse_calls,
    run_edits,
    run_searches,
)

BLOCKS = {
    "human": CoreBlock("human", "Likes tea.", limit=40),
    "rules": CoreBlock("rules", "Be kind.", read_only=True),
}


class Finder:
    """Finds what a test says. asked: what it was asked."""

    def __init__(self, *hits, fault=None):
        self.hits, self.fault, self.asked = list(hits), fault, []

    async def _find(self, scope_id, wanted):
        self.asked.append(wanted)
        if self.fault is not None:
            raise self.fault
        return self.hits

    passages = messages = _find


def call(name, ident="1", **arguments):
    return ToolCall(ident, name, json.dumps(arguments))


def context(scope_id=1, finder=None, seen=None, **members):
    shelf = BlockSet(scope_id, BLOCKS)
    return ToolContext(scope_id, shelf, finder or Finder(), "request-1", seen or {}, **members)


async def search(made, found=None):
    return (await run_searches([made], context(finder=found)))[0]


async def edit(db, *calls, seen=None, **members):
    """The results of these calls, and the blocks after them."""

    def work(conn):
        owner = scopes.current_owner(conn, Scope("t", "ada", "default", b"s" * 32))
        hands = context(scopes.get_or_create(conn, owner), seen=seen, **members)
        results = run_edits(conn, calls, hands)
        return list(results.values()), all_of(conn, hands.block_set), hands

    return await db.write(work)


async def test_a_line_is_appended(db):
    (told,), blocks, hands = await edit(
        db, call("core_memory_append", label="human", content="Has a cat."), seen={"human": 0}
    )
    assert told == "Saved: human now holds 21/40 characters."
    assert blocks["human"].value == "Likes tea.\nHas a cat."
    assert hands.seen_versions == {"human": blocks["human"].version}
    assert hands.edited


async def test_edits_of_a_reply_run_in_order(db):
    told, blocks, _ = await edit(
        db,
        call("core_memory_append", label="human", content="Has a cat."),
        call("core_memory_replace", label="human", old_content="cat", new_content="dog"),
    )
    assert all(t.startswith("Saved") for t in told)
    assert blocks["human"].value == "Likes tea.\nHas a dog."


async def test_what_is_there_already_is_not_saved_twice(db):
    (told,), _, hands = await edit(
        db, call("core_memory_append", label="human", content="Likes tea.")
    )
    assert told == "Already there: human is unchanged (10/40 characters)."
    assert not hands.edited


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (call("core_memory_append", label="human", content="x" * 50), "Error: "),
        (call("core_memory_append", label="rules", content="x"), "Error: "),
        (call("core_memory_append", label="pets", content="x"), "Error: "),
        (call("core_memory_append", label="human"), "Error: `content` is None"),
        (call("core_memory_append", label="human", content=" "), "Error: `content` is ' '"),
        (
            call("core_memory_replace", label="human", old_content="no", new_content=""),
            "Error: ",
        ),
        (ToolCall("1", "core_memory_append", "{"), "Error: The arguments of core_memory_append"),
        (call("archival_memory_insert", content="x", type="song"), "Error: `type` is 'song'"),
        (call("archival_memory_insert", content="x", importance=2), "Error: `importance` is 2"),
        (call("archival_memory_insert", content="x", tags="a"), "Error: `tags` is 'a'"),
        (
            call("archival_memory_insert", content="x", tags=["a"] * 65),
            "Error: `tags` has 65 tags",
        ),
    ],
)
async def test_a_refusal_says_what_to_do_and_changes_nothing(db, made, says):
    (told,), blocks, hands = await edit(db, made)
    assert told.startswith(says)
    assert blocks["human"].value == "Likes tea."
    assert not hands.edited


async def test_a_rewrite_of_a_block_that_changed_shows_it_first(db):
    rewrite = call("memory_rethink", label="human", new_memory="Likes coffee.")
    (told, again), blocks, _ = await edit(db, rewrite, rewrite, seen={"human": 3})
    assert "changed since you saw it" in told
    assert "Likes tea." in told
    assert again.startswith("Saved")
    assert blocks["human"].value == "Likes coffee."


async def test_a_fact_is_stored_once(db):
    insert = call("archival_memory_insert", content="The cat is called Tom.", tags=["cat"])
    told, _, hands = await edit(db, insert, insert)
    assert told == ["Stored in archival memory.", "Already stored: nothing was added."]
    assert len(set(hands.inserted)) == 1


async def test_a_tool_that_was_not_offered_changes_nothing(db):
    append = call("core_memory_append", label="human", content="x")
    (told,), _, _ = await edit(db, append, allowed=frozenset())
    assert told == "Error: Memory cannot be changed in this request."


async def test_a_reply_has_so_many_calls(db):
    append = call("core_memory_append", label="human", content="Likes tea.")
    told, _, _ = await edit(db, *[append] * (MAX_CALLS + 1))
    assert told[-1] == TOO_MANY_CALLS
    assert TOO_MANY_CALLS not in told[:-1]


async def test_searches_are_told_as_data():
    hit = {"key": 5, "id": "passage_5", "content": "<b>Tom</b>", "tags": ["cat"], "created_at": 0.0}
    finder = Finder(hit)
    hands = context(finder=finder)
    made = call("archival_memory_search", query="cat", tags=["cat"], limit=3)
    told = (await run_searches([made], hands))[0]
    assert "&lt;b&gt;Tom" in told
    assert "<b>" not in told
    assert hands.found_passages == [5]
    (wanted,) = finder.asked
    assert (wanted.query.text, wanted.query.limit, list(wanted.tags)) == ("cat", 3, ["cat"])


async def test_a_conversation_is_searched_without_this_very_request():
    finder = Finder({"role": "user", "content": "hi", "created_at": 0.0, "conversation": "conv_1"})
    hands = context(finder=finder, node=9, within=4)
    told = (await run_searches([call("conversation_search", role="user")], hands))[0]
    assert "conv_1" in told
    (wanted,) = finder.asked
    assert (wanted.roles, wanted.skip, wanted.within, wanted.text) == (("user",), 9, 4, "")


async def test_nothing_found_says_so():
    assert await search(call("archival_memory_search", query="x")) == (
        "Nothing found in archival memory. Try other words."
    )


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (call("conversation_search", role="system"), "Error: `role` is 'system'"),
        (call("conversation_search", limit=51), "Error: `limit` is 51"),
        (call("conversation_search", limit=True), "Error: `limit` is True"),
        (call("conversation_search", since="soon"), "Error: `since` is 'soon'"),
        (call("conversation_search", query="x" * 5000), "Error: `query` has 5000 characters"),
        (call("archival_memory_search"), "Error: `query` is None"),
    ],
)
async def test_a_search_that_cannot_be_run_says_why(made, says):
    assert (await search(made)).startswith(says)


@pytest.mark.parametrize("fault", [StoreUnavailable("late"), TimeoutError()])
async def test_a_search_that_fails_is_told_as_unavailable(fault):
    told = await search(call("conversation_search", query="x"), Finder(fault=fault))
    assert told.startswith("Error: memory search is unavailable")


async def test_a_search_has_so_much_time(monkeypatch):
    monkeypatch.setattr(tools, "CALL_SECONDS", 0.01)
    finder = Finder()

    async def slow(scope_id, wanted):
        await asyncio.sleep(5)

    finder.messages = slow
    assert "unavailable" in await search(call("conversation_search", query="x"), finder)


async def test_searches_keep_their_places_among_the_calls():
    calls = [call("core_memory_append"), call("conversation_search", query="x")]
    assert list(await run_searches(calls, context())) == [1]
    assert await run_searches(calls, context(allowed=OURS - SEARCHES)) == {}


def test_a_request_that_changes_nothing_refuses_the_rest():
    calls = [call("core_memory_append"), call("conversation_search", query="x")]
    assert refuse_calls(calls, context()) == {0: "Error: Memory cannot be changed in this request."}
    many = refuse_calls([calls[1]] * (MAX_CALLS + 1), context())
    assert many == {MAX_CALLS: TOO_MANY_CALLS}


@pytest.mark.parametrize("text", ["", "{}", '{"a": 1}'])
def test_arguments_are_an_object(text):
    assert parse_arguments(ToolCall("1", "x", text)) == json.loads(text or "{}")


TOO_LONG = "x" * (MAX_ARGUMENT_CHARACTERS + 1)


@pytest.mark.parametrize("text", ["[]", "1", "{", "nope", '{"a": 1} more', TOO_LONG])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(BadArguments):
        parse_arguments(ToolCall("1", "x", text))


async def stored(db):
    """The passages that a search finds, by their text."""

    def work(conn):
        scope_id = scopes.find(conn, Scope("t", "ada", "default", b"s" * 32))
        return {p["content"]: p for p in passages.page(conn, scope_id, None, 50)}

    return await db.read(work)


async def test_a_stored_detail_is_corrected_by_its_id_and_the_older_wording_can_be_restored(db):
    await edit(db, call("archival_memory_insert", content="Lives in Bonn.", tags=["home"]))
    old = (await stored(db))["Lives in Bonn."]
    update = call("archival_memory_update", id=old["id"], content="Lives in Ulm.")
    told = (await edit(db, update))[0]
    found = await stored(db)
    assert list(found) == ["Lives in Ulm."]
    assert found["Lives in Ulm."]["tags"] == ["home"]
    assert told == [f"Updated: {found['Lives in Ulm.']['id']} now stands for {old['id']}."]
    scope = Scope("t", "ada", "default", b"s" * 32)
    await db.write(lambda conn: fact_rows.restore(conn, scopes.find(conn, scope), old["id"]))
    assert set(await stored(db)) == {"Lives in Bonn.", "Lives in Ulm."}


@pytest.mark.parametrize("by", ["id", "text", "content"])
async def test_a_stored_detail_is_forgotten_by_its_id_or_its_exact_text(db, by):
    await edit(db, call("archival_memory_insert", content="Lives in Bonn."))
    ident = (await stored(db))["Lives in Bonn."]["id"]
    asked = {by: ident if by == "id" else " lives in  BONN."}
    assert (await edit(db, call("memory_forget", **asked)))[0][0].startswith("Forgotten")
    assert await stored(db) == {}


async def test_a_line_of_a_block_is_forgotten_by_its_exact_text(db):
    (told,), blocks, hands = await edit(db, call("memory_forget", text="Likes tea."))
    assert told == "Forgotten: the line is gone from human."
    assert blocks["human"].value == ""
    assert hands.edited


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (call("memory_forget", id="passage_0"), "Nothing stored has the id"),
        (call("memory_forget", text="Likes"), "or reads exactly so"),
        (call("memory_forget", text="Be kind."), "read-only"),
        (call("memory_forget"), "`id` is None"),
        (call("archival_memory_update", id="passage_0", content="x"), "No stored detail has"),
    ],
)
async def test_what_cannot_be_forgotten_or_corrected_says_why(db, made, says):
    (told,), blocks, _ = await edit(db, made)
    assert told.startswith("Error: ")
    assert says in told
    assert blocks["human"].value == "Likes tea."


async def test_secrets_are_left_out_of_what_is_saved_and_the_receipt_says_so(db):
    line = call("core_memory_append", label="human", content="password: q7w8e9")
    roomy = [call("core_memory_replace", label="human", old_content="Likes tea.", new_content="")]
    (_, told), blocks, _ = await edit(db, *roomy, line)
    assert told.endswith("Left out: password; secrets are not kept.")
    assert "q7w8e9" not in blocks["human"].value
    key = call("archival_memory_insert", content="sk-" + "a1b2c3d4" * 4)
    assert (await edit(db, key))[0][0].startswith("Error: Nothing was saved")
    assert (await edit(db, key, screen=Screen({})))[0] == ["Stored in archival memory."]


async def test_a_model_makes_a_block_only_where_it_may(db):
    pets = call("core_memory_append", label="pets", content="Has a cat.")
    assert "no memory block" in (await edit(db, pets))[0][0]
    (told,), blocks, _ = await edit(db, pets, model_blocks=True)
    assert told == "Saved: pets now holds 10/4000 characters."
    assert blocks["pets"].value == "Has a cat."
    wrong = call("core_memory_append", label="Pets!", content="x")
    assert (await edit(db, wrong, model_blocks=True))[0][0].startswith("Error: ")
