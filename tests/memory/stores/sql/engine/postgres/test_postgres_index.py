"""The search index on Postgres: the same rows in the same order as on SQLite, and no word kept."""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial

import pytest
from sqlalchemy import select

from memory.scope import Scope
from memory.search.query import word_lookup
from memory.search.ranking import SimilarityScores
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.sql_driver import IndexPlace, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.statements import add_row, execute_sql
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.index import message_index
from memory.stores.sql.rows import messages, passages
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.passages import NewPassage, PassageFilter
from memory.stores.sql.rows.scopes import ScopeOwner, get_or_create
from tests import stores

WORDS = [
    word
    for line in (
        "I you my was the cooked lasagna Sunday Monday May 2023 pottery class glaze success",
        "running runs ran Café cafes naïve 東京 東京都 に 行きました rain raining garden gardens",
        "seed Ada Bob favourite tea teas black green museum tickets train trains",
    )
    for word in line.split()
]
QUERIES = [
    "lasagna",
    "what did Ada cook on Sunday?",
    "when did I go to the pottery class",
    "東京",
    "running in the rain",
    "cafés and gardens",
    "my favourite tea",
    "May 2023",
    "the",
    "tickets for trains to the museum, Bob",
    "nothing of it",
    "?",
]


def corpus(seed=3, size=400):
    rng = random.Random(seed)
    return [
        (rng.choice(("user", "assistant")), " ".join(rng.choices(WORDS, k=rng.randint(1, 14))))
        for _ in range(size)
    ]


def filling(scope, said):
    """Messages and passages with the same keys wherever they are stored."""

    def work(conn):
        scope_id = get_or_create(conn, ScopeOwner(scope, 0))
        row = {"explicit": False, "created_at": 1.0, "updated_at": 1.0}
        add_row(conn, t.conversations, id=5, scope_id=scope_id, name="c", **row)
        for i, (role, words) in enumerate(said):
            row = {
                "public_id": f"msg_{i}", "scope_id": scope_id, "conversation": 5, "node": 100 + i,
                "role": role, "body": "", "content": words, "digest": b"d", "aborted": False,
                "source": "chat", "created_at": 1.68e9 + i * 40000, "pieces": None,
            }  # fmt: skip
            add_row(conn, t.messages, id=1000 + i, **row)
        if conn.dialect.name == "postgresql":
            sql_driver(conn).index.add_waiting(conn, scope_id, range(1000, 1000 + len(said)))
        for i, (_, words) in enumerate(said[:60]):
            new = NewPassage(words, [words.split()[0]], created_at=1.68e9 + i)
            passages.add(conn, scope_id, new)
        return scope_id

    return work


async def indexed(db, scope, said):
    await db.open()
    scope_id = await db.write(filling(scope, said))
    while await db.write(lambda conn: message_index.index_pending(conn, 64), lock=NOTHING):
        pass
    return scope_id


@contextlib.asynccontextmanager
async def in_both(tmp_path, url, said):
    """The same memory in both stores, each with its scope."""
    found = []
    scope = Scope("t", "ada", "a", stores.SECRET)
    for where in (f"sqlite+aiosqlite:///{tmp_path}/a.db", url):
        db = Database(where, secret=stores.SECRET)
        found.append((db, await indexed(db, scope, said)))
    yield found
    for db, _ in found:
        await db.close()


@pytest.fixture
async def both(tmp_path, postgres_url):
    async with in_both(tmp_path, postgres_url, corpus()) as found:
        yield found


def any_words(seed=5, size=150):
    """Sentences of words from everywhere in Unicode, and as programs and languages write them."""
    rng = random.Random(seed)
    ranges = (
        (0x20, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0x1E00, 0x1FFF),
        (0x2000, 0x2BFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1E900, 0x1F9FF),
    )  # fmt: skip

    def word():
        low, high = rng.choice(ranges)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 9)))

    spoken = (
        "parseHTTPResponse(self, max_retries=3)", "snake_case_name", "C:\\temp\\x.py", "a.b.c",
        "我昨天在北京吃了烤鸭", "她喜欢喝绿茶", "Straße in Köln", "l'été à Besançon",
        "İstanbul ILIK", "she organised the organisations", "they argued, arguing",
        "co-operate cooperative",
    )  # fmt: skip
    words = [word() for _ in range(size)]
    said = [" ".join(rng.choices(words, k=5)) for _ in range(size)]
    mixed = [f"{rng.choice(spoken)} {rng.choice(words)}" for _ in range(60)]
    return [("user", text) for text in (*spoken, *said, *mixed)], [*words, *spoken]


async def test_words_of_any_script_find_the_same_rows_in_the_same_order(tmp_path, postgres_url):
    said, queries = any_words()
    found = 0
    async with in_both(tmp_path, postgres_url, said) as both:
        for query in queries:
            asked = SearchQuery(query, limit=20)
            lite, there = [
                told(await db.read(lambda conn, i=i: messages.search(conn, i, asked)))  # noqa: B023
                for db, i in both
            ]
            assert lite == there, ascii(query)
            found += len(lite)
    assert found > 500


def told(hits):
    return [(hit["content"], hit["score"], hit["why"]) for hit in hits]


async def test_both_stores_rank_the_same_rows_in_the_same_order(both):
    near = SimilarityScores({1000 + i: 0.9 - i / 100 for i in range(20)})
    compared = 0
    for query in QUERIES:
        for q in (SearchQuery(query, limit=30), SearchQuery(query, roles=("user",), since=1.684e9)):
            found = [
                told(await db.read(lambda conn, i=i, q=q: messages.search(conn, i, q, near)))
                for db, i in both
            ]
            assert found[0] == found[1], query
            compared += len(found[0])
        asked = PassageFilter(SearchQuery(query))
        kept = [
            told(await db.read(lambda conn, i=i: passages.search(conn, i, asked)))  # noqa: B023
            for db, i in both
        ]
        assert kept[0] == kept[1], query
    assert compared > 200


async def test_near_duplicates_speakers_and_rare_words_are_the_same(both):
    for words in (["lasagna", "sunday", "success"], ["tea"], ["run", "running"], ["none"], []):
        found = [
            await db.read(
                lambda conn, i=i: [
                    conn.execute(
                        select(t.passages.c.content).where(t.passages.c.id == key)
                    ).scalar_one()
                    for key in fts.candidates_sharing_words(conn, i, words)  # noqa: B023
                ]
            )
            for db, i in both
        ]
        assert found[0] == found[1], words
    asked = "Did Ada or Bob say user, assistant, rain?"
    for kind in ("messages", "passages"):
        names = [await db.read(lambda c, i=i: fts.speakers(c, kind, i, asked)) for db, i in both]  # noqa: B023
        assert names[0] == names[1]
    for first in (0, 1200):
        rare = [await db.read(partial(read_rare, scope_id=i, first=first)) for db, i in both]
        assert rare[0] == rare[1]


def read_rare(conn, scope_id, first):
    """The rows of words, but of frequent ones."""
    index = sql_driver(conn).index
    lookups = [word_lookup(scope_id, word) for word in ("lasagna", "rain", "tea", "none")]
    place = IndexPlace("messages_fts", scope_id, first)
    every = index.postings(conn, place, lookups, 1000)
    limit = len(every[1])
    rare = index.postings(conn, place._replace(drops_frequent=True), lookups, limit)
    assert [sorted(keys) for keys in rare] == [
        sorted(keys) if len(keys) < limit else [] for keys in every
    ]
    assert rare[0]
    assert not rare[1]
    return list(map(sorted, rare))


async def test_the_index_holds_no_word_and_nothing_of_a_removed_row(both):
    db, scope_id = both[1]
    numbers = await db.read(
        lambda conn: [
            n for row in execute_sql(conn, "SELECT terms FROM message_terms") for n in row[0]
        ]
    )
    assert len(set(numbers)) > 30
    assert {type(n) for n in numbers} == {int}

    def remove(conn):
        sql_driver(conn).index.add_waiting(conn, scope_id, [1000])
        messages.remove(conn, t.messages.c.scope_id == scope_id)
        for key in conn.execute(select(t.passages.c.public_id)).scalars().all():
            passages.remove(conn, [scope_id], key)
        return [
            execute_sql(conn, f"SELECT count(*) FROM {table}")[0][0]
            for table in ("message_terms", "passage_terms", "unindexed")
        ]

    assert await db.write(remove) == [0, 0, 0]


async def test_two_indexers_share_what_waits_and_leave_nothing(postgres_url):
    scope = Scope("t", "ada", "a", stores.SECRET)
    one, two = (Database(postgres_url, secret=stores.SECRET) for _ in range(2))
    await one.open()
    await two.open()
    await one.write(filling(scope, corpus(size=150)))

    async def index(db):
        done = 0
        while n := await db.write(lambda conn: message_index.index_pending(conn, 8), lock=NOTHING):
            done += n
        return done

    assert sum(await asyncio.gather(index(one), index(two))) == 150
    assert await one.read(lambda conn: message_index.waiting_size(conn, 1)) == 0
    count = await one.read(lambda conn: execute_sql(conn, "SELECT count(*) FROM message_terms"))
    assert count[0][0] == 150
    await one.close()
    await two.close()


async def test_an_index_that_was_emptied_is_made_again(both):
    from memory.jobs.reindex import ReindexProgress, step

    db, scope_id = both[1]
    query = SearchQuery("lasagna", limit=5)
    before = await db.read(lambda conn: messages.search(conn, scope_id, query))
    await db.write(fts.recreate_indexes)
    assert await db.read(lambda conn: messages.search(conn, scope_id, query)) == []
    progress = ReindexProgress()
    while progress.kind != "done":
        progress, _ = await db.write(lambda conn, p=progress: step(conn, p))
    assert await db.read(lambda conn: messages.search(conn, scope_id, query)) == before
