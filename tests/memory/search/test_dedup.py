"""A text that is there already in the same words, or nearly, is kept once, and a search of the
whole store is not needed to see it.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from memory.retrieval.retriever import Retriever
from memory.scope import Scope
from memory.search import dedup
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows import passage_lifecycle, passages, scopes
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
        await insert(db, hands, "Ada really works at the big bakery in Lyon")
        == "Stored in archival memory, in place of a shorter wording."
    )
    assert await there(db, hands) == ["Ada really works at the big bakery in Lyon"]
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


# By language: a fact, and others that say something else although they share nearly all its words.
OTHER_FACTS = {
    "en": (
        "The user eats meat at the weekend",
        "The user never eats meat at the weekend",
        "The user eats no meat at the weekend",
        "The user's wife eats meat at the weekend",
        "The user rarely eats meat at the weekend",
        "The user ate meat at the weekend",
        "The user hardly eats meat at the weekend",
    ),
    "de": (
        "Der Nutzer isst gern Fleisch am Wochenende",
        "Der Nutzer isst nicht gern Fleisch am Wochenende",
        "Der Nutzer isst kein Fleisch gern am Wochenende",
        "Die Frau der Nutzer isst gern Fleisch am Wochenende",
        "Der Nutzer isst nie gern Fleisch am Wochenende",
        "Der Nutzer isst selten gern Fleisch am Wochenende",
    ),
    "fr": (
        "L'utilisateur mange de la viande le soir",
        "L'utilisateur ne mange pas de la viande le soir",
        "La femme de l'utilisateur mange de la viande le soir",
        "L'utilisateur mange jamais de la viande le soir",
    ),
    "es": (
        "El usuario come carne los fines de semana",
        "El usuario no come carne los fines de semana",
        "El usuario nunca come carne los fines de semana",
        "La hija del usuario come carne los fines de semana",
    ),
    "pt": (
        "O usuário come carne aos fins de semana",
        "O usuário não come carne aos fins de semana",
        "O usuário nunca come carne aos fins de semana",
        "A filha do usuário come carne aos fins de semana",
    ),
    "ru": (
        "Пользователь ест мясо по выходным дням дома",
        "Пользователь не ест мясо по выходным дням дома",
        "Жена пользователя ест мясо по выходным дням дома",
        "Пользователь редко ест мясо по выходным дням дома",
    ),
    "hi": (
        "उपयोगकर्ता रविवार को घर पर मांस खाता है",
        "उपयोगकर्ता रविवार को घर पर मांस नहीं खाता है",
        "उपयोगकर्ता की पत्नी रविवार को घर पर मांस खाता है",
        "उपयोगकर्ता रविवार को घर पर मांस कभी खाता है",
        "उपयोगकर्ता रविवार को घर पर मंस खाता है",
    ),
    "ar": (
        "المستخدم يأكل اللحم في عطلة نهاية الأسبوع",
        "المستخدم لا يأكل اللحم في عطلة نهاية الأسبوع",
        "زوجة المستخدم يأكل اللحم في عطلة نهاية الأسبوع",
    ),
    "ja": (
        "ユーザーは週末に肉を食べる",
        "ユーザーは週末に肉を食べない",
        "ユーザーの妻は週末に肉を食べる",
    ),
    "zh": ("用户周末在家吃肉", "用户周末在家不吃肉", "用户的妻子周末在家吃肉"),
}
# The same, but for a filler.
SAME_FACTS = {
    "en": (
        "The user lives in the old town of Lyon",
        "The user really lives in the old town of Lyon",
    ),
    "de": (
        "Der Nutzer wohnt in der Altstadt von Köln",
        "Der Nutzer wohnt ja in der Altstadt von Köln",
    ),
    "fr": (
        "L'utilisateur habite à Lyon avec son chien",
        "L’utilisateur habite aussi à Lyon avec son chien",
    ),
    "es": (
        "El usuario vive en Sevilla con su perro",
        "El usuario vive también en Sevilla con su perro",
    ),
    "pt": ("O usuário mora no Porto com o cão", "O usuário mora também no Porto com o cão"),
    "ru": ("Пользователь живёт в Казани с собакой", "Пользователь также живёт в Казани с собакой"),
    "hi": ("उपयोगकर्ता दिल्ली में कुत्ते के साथ रहता है", "उपयोगकर्ता दिल्ली में भी कुत्ते के साथ रहता है"),
    "ar": ("المستخدم يسكن في مدينة القاهرة", "المستخدم يسكن أيضا في مدينة القاهرة"),
    "ja": ("ユーザーは静かな町に住む", "ユーザーは静かな町に住む。"),
    "zh": ("用户喜欢喝绿茶", "用户喜欢喝绿茶！"),
}


@pytest.mark.parametrize("language", OTHER_FACTS)
def test_only_known_fillers_may_be_ignored_in_a_duplicate(language):
    fact, *others = OTHER_FACTS[language]
    assert [x for x in others if dedup.is_duplicate(fact, x)] == []
    assert [x for x in others if dedup.is_duplicate(x, fact)] == []
    one, same = SAME_FACTS[language]
    assert dedup.is_duplicate(one, same)
    assert dedup.is_duplicate(same, one.upper())


@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1), min_size=4), st.data())
def test_any_word_more_is_another_fact_unless_it_is_a_filler(words, data):
    more = data.draw(st.text(st.characters(categories=["L"]), min_size=3))
    at = data.draw(st.integers(0, len(words)))
    longer = " ".join([*words[:at], more, *words[at:]])
    if dedup.is_duplicate(" ".join(words), longer):
        assert dedup.is_filler(more)


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


# A fact, a message that says the same, and one that denies it.
DENIED = {
    "en": ("I eat pork", "Yesterday I told you: I eat pork", "I don't eat pork"),
    "en-2": ("lives in Bonn", "she lives in Bonn, not that it matters", "no longer lives in Bonn"),
    "de": ("Ich esse Schinken", "Ich esse gern Schinken", "Ich esse keinen Schinken"),
    "de-2": ("Ich mag Spinat", "Spinat mag ich", "Spinat mag ich nicht"),
    "fr": ("Je mange du porc", "Oui, je mange du porc", "Je ne mange pas de porc"),
    "es": ("Como carne de cerdo", "Yo como carne de cerdo", "No como carne de cerdo"),
    "pt": ("Eu como carne de porco", "Sim, eu como carne de porco", "Eu não como carne de porco"),
    "it": ("Mangio carne di maiale", "Io mangio carne di maiale", "Non mangio carne di maiale"),
    "ru": ("Я ем свинину", "Да, я ем свинину", "Я не ем свинину"),
    "hi": ("मैं मांस खाता हूँ", "हाँ, मैं मांस खाता हूँ", "मैं मांस नहीं खाता हूँ"),
    "ar": ("آكل لحم الخنزير", "نعم، آكل لحم الخنزير", "لا آكل لحم الخنزير"),
    "ja": ("豚肉を食べる", "はい、豚肉を食べる", "豚肉を食べることはしない"),
    "zh": ("我吃猪肉", "是的，我吃猪肉", "我不吃猪肉"),
    "ko": ("나는 돼지고기를 먹어요", "네, 나는 돼지고기를 먹어요", "나는 돼지고기를 안 먹어요"),
    "tr": ("Domuz eti yiyorum", "Evet, domuz eti yiyorum", "Domuz eti yemiyorum"),
}  # fmt: skip


@pytest.mark.parametrize("language", DENIED)
def test_a_text_that_denies_a_fact_does_not_cover_it(language):
    fact, same, denied = DENIED[language]
    assert dedup.covers(same, fact)
    assert not dedup.covers(denied, fact)
    assert not dedup.covers(fact, denied)
    assert dedup.covers(denied, denied)
