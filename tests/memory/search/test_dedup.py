"""A text that is there already in the same words, or nearly, is kept once, and a search of the
whole store is not needed to see it.
"""

from __future__ import annotations

import json

import pytest
from sqlalchemy import select

from memory.retrieval.retriever import Retriever
from memory.scope import Scope
from memory.search import dedup
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import passage_lifecycle, passages, scopes
from memory.stores.sql import schema as t
from memory.tools import ToolCall, ToolContext, run_edits

SECRET = b"s" * 32


@pytest.fixture
async def hands(db):
    scope = await db.write(
        lambda conn: scopes.get_or_create(
            conn, scopes.current_owner(conn, Scope("acme", "ada", "default", SECRET))
        )
    )
    return ToolContext(scope, block_rows.BlockSet(scope, {}), Retriever(db), "req", {})


async def insert(db, hands, text, **more):
    (result,) = (
        await db.write(
            lambda conn: run_edits(
                conn,
                [ToolCall("c", "archival_memory_insert", json.dumps({"content": text, **more}))],
                hands,
            )
        )
    ).values()
    return result


async def there(db, hands):
    p = t.passages.c
    return await db.read(
        lambda conn: list(
            conn.execute(
                select(p.content)
                .where(p.scope_id == hands.scope_id, p.deleted_at.is_(None))
                .order_by(p.id)
            ).scalars()
        )
    )


@pytest.mark.parametrize(
    "again",
    [
        "Ada plays the violin in a quartet.",
        "ada plays violin in the quartet",
        "Ada  plays the violin, in a quartet!",
        "ADA PLAYS THE VIOLIN IN A QUARTET",
    ],
)
async def test_a_repetition_is_told_and_not_stored(db, hands, again):
    assert (
        await insert(db, hands, "Ada plays the violin in a quartet.")
        == "Stored in archival memory."
    )
    assert await insert(db, hands, again) == "Already stored: nothing was added."
    assert await there(db, hands) == ["Ada plays the violin in a quartet."]
    assert len(set(hands.inserted)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Her sister arrives on 4 May", "Her sister arrives on 5 May"),
        ("Her sister Eva arrives by train", "Her sister Eve arrives by train"),
        ("She eats the fish at the harbour", "She never eats the fish at the harbour"),
        ("The code of the door is 4711", "The code of the door is 4712"),
    ],
)
async def test_what_differs_in_a_number_a_name_or_a_negation_is_stored(db, hands, one, other):
    for text in (one, other):
        assert await insert(db, hands, text) == "Stored in archival memory."
    assert await there(db, hands) == [one, other]


async def test_a_fuller_wording_stands_in_place_of_the_shorter_one_which_can_be_brought_back(
    db, hands
):
    await insert(db, hands, "Ada works at the big bakery in Lyon")
    assert (
        await insert(db, hands, "Ada works at the big old bakery in Lyon")
        == "Stored in archival memory, in place of a shorter wording."
    )
    assert await there(db, hands) == ["Ada works at the big old bakery in Lyon"]
    (aside,) = await db.read(
        lambda conn: passage_lifecycle.list_superseded(conn, hands.scope_id, None, 10)
    )
    assert (aside["content"], aside["forgotten_by"]) == (
        "Ada works at the big bakery in Lyon",
        "model",
    )
    assert (
        await insert(db, hands, "Ada works at the big bakery in Lyon")
        == "Already stored: nothing was added."
    )


async def test_a_repetition_is_found_in_a_full_store_of_texts_alike(db, hands):
    def fill(conn):
        for i in range(300):
            passages.add(
                conn,
                hands.scope_id,
                passages.NewPassage(
                    f"Ada reported quarterly revenue of {i * 37} crowns for department number "
                    f"{i % 7}"
                ),
            )

    await db.write(fill)
    assert (
        await insert(
            db, hands, "Ada reported the quarterly revenue of 111 crowns for department number 3!"
        )
        == "Already stored: nothing was added."
    )
    assert (
        await insert(
            db, hands, "Ada reported quarterly revenue of 112 crowns for department number 3"
        )
        == "Stored in archival memory."
    )


async def test_others_and_other_branches_are_not_looked_at(db, hands):
    await insert(db, hands, "Ada plays the violin")
    bob = await db.write(
        lambda conn: scopes.get_or_create(
            conn, scopes.current_owner(conn, Scope("acme", "bob", "default", SECRET))
        )
    )
    for scope, node in ((bob, 0), (hands.scope_id, 7)):
        kept = await db.write(
            lambda conn, s=scope, n=node: passage_lifecycle.keep(
                conn, s, passages.NewPassage("Ada plays violin", node=n)
            )
        )
        assert kept.made == 1


async def test_a_long_text_in_pieces_is_a_repetition_piece_by_piece(db, hands):
    long = " ".join(f"The report says on page {i} that the bridge needs paint." for i in range(60))
    assert (await insert(db, hands, long)).startswith("Stored in archival memory as ")
    assert await insert(db, hands, long) == "Already stored: nothing was added."


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Ada likes green tea", "ada likes  green tea.", True),
        ("Ada likes green tea", "Ada likes green tea very much", False),
        ("the user really likes green tea", "the user likes green tea", True),
        ("Ada likes green tea", "Ada likes black tea", False),
        ("", "Ada", False),
    ],
)
def test_texts_that_differ_in_a_telling_word_say_something_else(one, other, same):
    assert dedup.is_duplicate(one, other) is same
    assert dedup.find_duplicates(one, ["", other]) == ([1] if same else [])


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("She moved to Berlin in 2021 with her dog", True),
        ("In 2021 to Berlin she moved", True),
        ("She moved to Paris in 2021", False),
        ("", False),
    ],
)
def test_a_text_covers_a_fact_whose_telling_words_it_has(text, covered):
    assert dedup.covers(text, "moved to Berlin in 2021") is covered
    assert not dedup.covers(text, "the user")
