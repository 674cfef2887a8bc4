"""A scope's rows and words are read as the index has them, and of that scope alone."""

from __future__ import annotations

from functools import partial

from memory.search import postings
from memory.search.query import term_lookups
from memory.search.ranking import weigh_postings
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.sqlite.fts import MESSAGES_INDEX, PASSAGES_INDEX, IndexScope
from memory.stores.sql.index import scope_postings
from tests.memory.retrieval.test_active_scopes import TOLD, Person, play
from tests.stores import POSTGRES

QUERY = "Has Ada bought boats, albatross 7?"


async def read(db, person, table=MESSAGES_INDEX):
    return await db.read(lambda conn: scope_postings.load(conn, table, person.scope_id))


async def test_words_weigh_what_they_weigh_in_the_index(db):
    one, other = await play(db, TOLD), await play(db, TOLD)
    await one.keep("Ada bought boats")
    for person in (one, other):
        for table in (MESSAGES_INDEX, PASSAGES_INDEX):
            found = await read(db, person, table)
            lookups = list(term_lookups(person.scope_id, QUERY, thorough=False))
            look = partial(
                fts._postings,
                corner=IndexScope(table, person.scope_id, None, {}),
                lookups=lookups,
                max_rows=fts.MAX_OCCURRENCES,
            )
            keys = await db.read(look)
            pairs = ((x.term, x.column, k) for x, k in zip(lookups, keys, strict=True))
            by_index = weigh_postings(pairs, len(found.rows))
            scope = person.recall.active
            scope.find(person.scope_id)
            asked = scope.stored_query(person.scope_id, QUERY)
            by_words = found.weigh(asked.terms)
            numbered = {found.rows.keys[n]: x for n, x in by_words.weight.items()}
            assert (numbered, by_words.asked) == (by_index.weight, by_index.asked)
            assert {found.rows.keys[n] for n in by_words.named} == by_index.named
    for person in (one, other):
        await person.recall.active.close()


async def test_a_scope_with_too_many_rows_is_left_to_the_index(db, monkeypatch):
    person = await play(db, TOLD)
    for module in (postings, scope_postings):
        monkeypatch.setattr(module, "MOST_ROWS", 5)
    assert await read(db, person) is None
    await person.recall.active.close()


async def test_only_sqlite_has_them(db):
    person = Person(db)
    await person.begin()
    assert (await read(db, person) is None) == POSTGRES
