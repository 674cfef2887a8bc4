"""Search by meaning: fusion, exact scoring, and Chroma under the same contract."""
from __future__ import annotations

import asyncio
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.ask import Policy
from memory.embed.base import EmbedUnavailable
from memory.errors import StoreUnavailable
from memory.retrieval import Meaning, Retrieval
from memory.scope import Scope
from memory.service import Memory
from memory.stores.chroma import ChromaIndex
from memory.stores.sql import owners
from memory.stores.sql.engine import Database
from memory.stores.sql.messages import Query
from memory.stores.sql.passages import Filter, Insert, add
from memory.vectors import packed, scored, unpacked

CONCEPTS = {"tea": 0, "drink": 0, "dog": 1, "pet": 1, "car": 2, "vehicle": 2}


class Concepts:
    """An embedder that knows a few synonyms."""

    model = "concepts"
    down = False

    async def __call__(self, tenant, texts):
        if self.down:
            raise EmbedUnavailable
        return [self.vector(x) for x in texts]

    def vector(self, text):
        out = [0.01 * b for b in hashlib.blake2b(text.encode(), digest_size=4).digest()[:1]] + [0.0] * 3
        for word in text.lower().replace(".", "").split():
            if word in CONCEPTS:
                out[1 + CONCEPTS[word]] += 1.0
        return out


@given(st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3).filter(lambda v: sum(x * x for x in v) > 0.01))
def test_a_packed_vector_has_unit_length_and_is_nearest_to_itself(vector):
    assert abs(sum(x * x for x in unpacked(packed(vector))) - 1) < 1e-4
    assert abs(scored(vector, {1: packed(vector)}, 5)[1] - 1) < 1e-4


@pytest.fixture(params=["exact", "chroma"])
async def store(request, tmp_path):
    """(retrieval, insert): one scope, scored exactly or in embedded Chroma."""
    memory = Memory(Database(f"sqlite+aiosqlite:///{tmp_path}/m.db"), Policy(), b"s" * 32)
    await memory.open()
    index = ChromaIndex("chroma:embedded", tmp_path / "chroma") if request.param == "chroma" else None
    retrieval = Retrieval(memory.db, Meaning(Concepts(), index, 1))
    owner = owners.Owner(Scope("t", "ada", "default", b"s" * 32), 0)

    async def insert(text):
        def work(conn):
            scope_id = owners.ensure(conn, owner)
            add(conn, scope_id, Insert(text))
            return scope_id

        scope_id = await memory.db.write(work)
        await retrieval.embed_scope(scope_id)
        return scope_id

    yield retrieval, insert
    if index:
        await index.close()
    await memory.close()


async def test_meaning_finds_what_words_do_not(store):
    retrieval, insert = store
    for text in ("Ada likes tea.", "Rex is a dog.", "She drives a car."):
        scope_id = await insert(text)
    hits = await retrieval.passages(scope_id, Filter(Query("her pet")))
    assert hits[0]["content"] == "Rex is a dog."
    assert hits[0]["why"]["similarity"] > 0.5
    hits = await retrieval.passages(scope_id, Filter(Query("Rex vehicle")))
    assert {h["content"] for h in hits[:2]} == {"Rex is a dog.", "She drives a car."}


async def test_a_failing_embedder_leaves_keywords(store):
    retrieval, insert = store
    scope_id = await insert("Rex is a dog.")
    retrieval.meaning.embed.down = True
    assert [h["content"] for h in await retrieval.passages(scope_id, Filter(Query("Rex")))] == ["Rex is a dog."]
    assert await retrieval.passages(scope_id, Filter(Query("pet"))) == []


async def test_embedded_chroma_is_for_one_process(tmp_path):
    one, two = ChromaIndex("chroma:embedded", tmp_path), ChromaIndex("chroma:embedded", tmp_path)
    await one.upsert(1, [(1, [1.0, 0.0])])
    with pytest.raises(StoreUnavailable, match="another process"):
        await two.upsert(1, [(1, [1.0, 0.0])])
    await asyncio.gather(one.forget(1, None), one.forget(2, [5]))
    assert await one.nearest(1, [1.0, 0.0], 3) == {}
    await one.close()
    await two.close()
