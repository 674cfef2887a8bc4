"""Both stores rank alike: the Chinese set, and a third of the paraphrases."""

from __future__ import annotations

from memory.stores.sql.engine.database import Database
from tests import stores
from tests.bench.retrieval import both


async def test_both_stores_give_the_same_ids_in_the_same_order(postgres_url):
    chinese, (name, said, questions) = both.sets([])
    other = Database(postgres_url, secret=stores.SECRET)
    found = await both.differences([chinese, (name, said, questions[::3])], other)
    assert {each: unlike for each, (_, unlike) in found.items()} == {"Chinese": [], name: []}
    assert all(asked > 10 for asked, _ in found.values())


def test_what_differs_is_told():
    assert "messages: who?" in both.report({"a set": (2, ["messages: who?"])})
