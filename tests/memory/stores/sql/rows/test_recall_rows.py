"""What recall shows of rows that the postings ranked is what a search shows of them."""

from __future__ import annotations

from memory.stores.sql.rows import recall_rows
from memory.stores.sql.rows.recall_rows import RankedRows
from tests.memory.retrieval.test_active_scopes import TOLD, play
from tests.memory.retrieval.test_recall_search import ASKED


async def test_rows_are_read_with_their_ranks(db):
    person = await play(db, [*TOLD, ("keep", "Ada bought boats and an albatross")])
    await person.settled()
    scope = person.recall.active.find(person.scope_id)
    ranked = person.recall.active.rank(scope, ASKED.text)

    async def read(sent):
        return await db.read(lambda conn: recall_rows.read(conn, person.scope_id, ranked, sent))

    passages, messages, outdated = await read(None)
    assert [h["key"] for h in passages] == list(ranked.passages)
    assert [h["id"] for h in messages] == list(ranked.messages)
    assert messages
    assert passages
    assert outdated == []
    assert (await read(person.talks[0]))[1] == messages
    await person.recall.active.close()


def test_nothing_ranked_is_empty():
    assert RankedRows({}, {}).is_empty
