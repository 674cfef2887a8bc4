"""Search by meaning: fusion, exact scoring, and Chroma under the same contract."""

from __future__ import annotations

import asyncio
import hashlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from memory.embed.base import EmbedRefused, EmbedUnavailable
from memory.errors import StoreUnavailable
from memory.jobs import maintenance, reindex
from memory.jobs.worker import Worker
from memory.retrieval.retriever import SemanticSearch, _name
from memory.scope import Scope
from memory.search.similarity import near, pack_vector, unpack_vector
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.chroma import ChromaIndex
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.index import vectors
from memory.stores.sql.index.vectors import KINDS, MESSAGES, VectorSet, job_of
from memory.stores.sql.owners import erasure
from memory.stores.sql.rows import conversations, scopes
from memory.stores.sql.rows.jobs import enqueue
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.passages import NewPassage, PassageFilter, add
from memory.stores.sql.transfer.transcripts import (
    ConversationHeader,
    ImportedMessage,
    Transcriber,
    steps_of,
)

CONCEPTS = {"tea": 0, "drink": 0, "dog": 1, "pet": 1, "car": 2, "vehicle": 2}


class Concepts:
    """An embedder that knows a few synonyms. refuses: words of texts that it does not take."""

    def __init__(self):
        self.model, self.down, self.calls, self.refuses = "concepts", False, 0, ()

    async def __call__(self, tenant, texts):
        self.calls += 1
        if self.down:
            raise EmbedUnavailable
        if any(word in text for word in self.refuses for text in texts):
            raise EmbedRefused
        return [self.vector(x) for x in texts]

    def vector(self, text):
        out = [0.01 * b for b in hashlib.blake2b(text.encode(), digest_size=4).digest()[:1]] + [
            0.0
        ] * 3
        for word in text.lower().replace(".", "").split():
            if word in CONCEPTS:
                out[1 + CONCEPTS[word]] += 1.0
        return out


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3).filter(
        lambda v: sum(x * x for x in v) > 0.01
    )
)
def test_a_packed_vector_has_unit_length_and_is_nearest_to_itself(vector):
    assert abs(sum(x * x for x in unpack_vector(pack_vector(vector))) - 1) < 1e-4
    assert abs(near(vector, {1: pack_vector(vector)})[1] - 1) < 1e-4


SECRET = b"s" * 32
ADA = Scope("t", "ada", "default", SECRET)
CHAT = (
    ("user", "My dog is called Rex."),
    ("assistant", "A fine dog."),
    ("user", "We went by car."),
    ("assistant", "How was the trip?"),
    ("tool", "dog dog dog"),
)


@pytest.fixture(params=["exact", "chroma"])
async def memory(request, tmp_path):
    """With an embedder; scored exactly or in embedded Chroma."""
    index = (
        ChromaIndex("chroma:embedded", tmp_path / "chroma") if request.param == "chroma" else None
    )
    out = Memory(
        Database(f"sqlite+aiosqlite:///{tmp_path}/m.db"),
        Policy(),
        SECRET,
        meaning=SemanticSearch(Concepts(), index, 1),
    )
    await out.open()
    yield out
    await out.close()


async def kept(memory, *texts, tags=(), scope=ADA):
    """Stores passages and embeds them. Returns the scope."""

    def work(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
        for text in texts:
            add(conn, scope_id, NewPassage(text, tags))
        return scope_id

    scope_id = await memory.db.write(work)
    await memory.retrieval.embed_scope(scope_id)
    return scope_id


async def said(memory, chat=CHAT, scope=ADA, name="c", at=1683540000.0):
    """Stores a chat, and leaves its vectors to be made. Returns the scope."""

    def work(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
        steps = steps_of(
            [
                ImportedMessage({"role": role, "content": words}, at + i)
                for i, (role, words) in enumerate(chat)
            ]
        )
        Transcriber(conn, scope_id, scope.key).conversation(ConversationHeader(name), steps)
        return scope_id

    return await memory.db.write(work)


async def drained(memory):
    worker = Worker(memory.db)
    maintenance.register(worker, memory.db, maintenance.RetentionPolicy(7, 30), memory.retrieval)
    await worker.drain()


async def found(memory, scope_id, words, roles=("user", "assistant"), **more):
    return [
        h["content"]
        for h in await memory.retrieval.messages(scope_id, SearchQuery(words, roles, **more))
    ]


async def many(memory, table):
    return await memory.db.read(lambda conn: len(conn.execute(select(table)).all()))


async def test_meaning_finds_what_words_do_not(memory):
    scope_id = await kept(memory, "Ada likes tea.", "Rex is a dog.", "She drives a car.")
    hits = await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("her pet")))
    assert hits[0]["content"] == "Rex is a dog."
    assert hits[0]["why"]["similarity"] > 0.5
    hits = await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("Rex vehicle")))
    assert {h["content"] for h in hits[:2]} == {"Rex is a dog.", "She drives a car."}


async def test_messages_are_found_by_meaning_and_say_why(memory):
    scope_id = await said(memory)
    assert await found(memory, scope_id, "pet") == []
    assert not await memory.retrieval.embed_scope(scope_id)
    hits = await memory.retrieval.messages(scope_id, SearchQuery("pet", ("user", "assistant")))
    assert {h["content"] for h in hits[:2]} == {"My dog is called Rex.", "A fine dog."}
    assert all(
        h["score"]
        == pytest.approx(sum(x for part, x in h["why"].items() if part != "similarity"), abs=0.001)
        for h in hits
    )
    assert hits[0]["why"]["similarity"] > 0.5
    # A tool's result has none.
    assert await many(memory, t.message_vectors) == 4


async def test_who_spoke_or_is_tagged_is_no_part_of_what_is_meant(memory, monkeypatch):
    scope_id = await said(
        memory,
        [
            ("user", "Grace: My dog is called Rex."),
            ("assistant", "A fine dog, Grace."),
            ("user", "Adam went by car."),
        ],
    )
    await kept(memory, "Rex is a dog.", tags=["Grace"])
    # Nobody here.
    await said(memory, [("user", "Zoe: hello")], scope=Scope("t", "bob", "default", SECRET))
    await memory.retrieval.embed_scope(scope_id)
    asked = []
    vector = memory.retrieval.meaning.embed.vector
    monkeypatch.setattr(
        memory.retrieval.meaning.embed, "vector", lambda text: asked.append(text) or vector(text)
    )
    hits = await found(memory, scope_id, "What pet is Grace's?")
    assert set(hits[:2]) == {"Grace: My dog is called Rex.", "A fine dog, Grace."}
    await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("Grace and a vehicle")))
    for whole in (
        "Where did Adam go?",
        "Who is Grace?",
        "what did the user say?",
        "Has Zoe a pet?",
    ):
        await found(memory, scope_id, whole)
    assert asked == [
        "What pet is ?",
        "and a vehicle",
        "Where did Adam go?",
        "Who is Grace?",
        "what did the user say?",
        "Has Zoe a pet?",
    ]


async def test_the_filters_hold_for_what_is_found_by_meaning(memory):
    scope_id = await said(memory)
    await said(
        memory,
        [("user", "The tea shop is closed."), ("assistant", "What a pity.")],
        name="later",
        at=1686218400.0,
    )
    await memory.retrieval.embed_scope(scope_id)
    assert (await found(memory, scope_id, "pet", roles=("assistant",)))[0] == "A fine dog."
    assert "My dog is called Rex." not in await found(memory, scope_id, "pet", roles=("assistant",))
    assert "My dog is called Rex." not in await found(memory, scope_id, "pet", since=1686218400.0)
    assert (await found(memory, scope_id, "vehicle", since=1683540002.0, until=1683540002.0)) == [
        "We went by car."
    ]
    await kept(memory, "Rex is a dog.", tags=["home"])
    await kept(memory, "Max is a dog.", tags=["work"])
    assert [
        h["content"]
        for h in await memory.retrieval.passages(
            scope_id, PassageFilter(SearchQuery("pet"), ["work"])
        )
    ] == ["Max is a dog."]


async def test_while_vectors_are_being_made_words_find_what_they_found_before(memory):
    scope_id = await said(memory)
    await memory.retrieval.embed_scope(scope_id)
    await said(memory, [("user", "The dog of my aunt is called Max.")], name="new")
    assert (await found(memory, scope_id, "aunt Max dog"))[0] == "The dog of my aunt is called Max."
    await memory.retrieval.embed_scope(scope_id)
    assert "The dog of my aunt is called Max." in await found(memory, scope_id, "pet")


async def test_messages_of_nobody_cost_no_embedding(memory):
    scope_id = await said(memory, scope=Scope("t", None, "default", SECRET))
    await memory.retrieval.embed_scope(scope_id)
    assert await many(memory, t.message_vectors) == 0


async def test_a_failing_embedder_leaves_keywords(memory):
    scope_id = await kept(memory, "Rex is a dog.")
    memory.retrieval.meaning.embed.down = True
    assert [
        h["content"]
        for h in await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("Rex")))
    ] == ["Rex is a dog."]
    assert await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("pet"))) == []


async def test_a_query_is_embedded_once_for_both_searches(memory):
    scope_id = await said(memory)
    await kept(memory, "Rex is a dog.")
    before = memory.retrieval.meaning.embed.calls
    await found(memory, scope_id, "pet")
    await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("pet")))
    assert memory.retrieval.meaning.embed.calls == before + 1


async def test_an_index_keeps_what_a_deletion_leaves_and_no_more(memory):
    scope_id = await said(memory)
    await said(memory, [("user", "Max is a dog too.")], name="other")
    await kept(memory, "Rex is a dog.")
    await drained(memory)
    index, vector = (
        memory.retrieval.meaning.index,
        await memory.retrieval.meaning.embed("t", ["dog"]),
    )
    gone = await memory.db.read(lambda conn: conversations.find_named(conn, scope_id, "c"))
    await erasure.delete_conversation(memory.db, lambda conn: gone)
    await drained(memory)
    assert await many(memory, t.message_vectors) == 1
    names = [_name(VectorSet(kind, scope_id, "concepts")) for kind in KINDS]
    if index:
        assert [len(await index.nearest(name, vector[0], 9)) for name in names] == [1, 1]
    receipt = (await erasure.erase(memory.db, SECRET, ("t", "ada"), ())).counts
    assert receipt["vectors"] == 2
    await drained(memory)
    assert await many(memory, t.message_vectors) + await many(memory, t.vectors) == 0
    if index:
        assert [len(await index.nearest(name, vector[0], 9)) for name in names] == [0, 0]


async def test_a_job_that_was_interrupted_before_it_was_settled_goes_on_and_doubles_nothing(
    memory, monkeypatch
):
    monkeypatch.setattr("memory.retrieval.retriever.BATCH", 1)
    scope_id = await said(memory)
    made = memory.retrieval.meaning.embed.calls
    await memory.db.write(lambda conn: enqueue(conn, job_of(scope_id)))
    monkeypatch.setattr("memory.retrieval.retriever.JOB_SECONDS", -1.0)
    # Its time is over before it began.
    assert await memory.retrieval.embed_scope(scope_id)
    monkeypatch.setattr("memory.retrieval.retriever.JOB_SECONDS", 60.0)
    await drained(memory)
    assert memory.retrieval.meaning.embed.calls == made + 4
    await memory.db.write(lambda conn: enqueue(conn, job_of(scope_id)))
    await drained(memory)
    assert memory.retrieval.meaning.embed.calls == made + 4


def refused(conn, model="concepts"):
    return [
        conn.execute(select(kind.key).where(kind.vectors.c.model == f"refused by {model}"))
        .scalars()
        .all()
        for kind in KINDS
    ]


async def test_a_text_that_is_refused_costs_its_own_vector_alone_and_is_not_asked_for_again(memory):
    embed = memory.retrieval.meaning.embed
    embed.refuses = ("obscene", "endless")
    lines = [f"Note {i} of the voyage." for i in range(70)]
    lines[9], lines[40], lines[41], lines[69] = (
        "An obscene song.",
        "An endless list.",
        "Another endless list.",
        "The last obscene word.",
    )
    scope_id = await said(memory, [("user", x) for x in lines])
    await kept(memory, "An endless passage.")
    assert [len(found) for found in await memory.db.read(refused)] == [1, 4]
    assert await memory.db.read(
        lambda conn: [vectors.count_made(conn, "concepts"), vectors.count_refused(conn, "concepts")]
    ) == [66, 5]
    assert embed.calls < 60
    before = embed.calls
    assert not await memory.retrieval.embed_scope(scope_id)
    assert not await memory.retrieval.embed_scope(scope_id, all_rows=True)
    assert embed.calls == before
    assert (await found(memory, scope_id, "obscene song"))[0] == "An obscene song."
    assert [
        h["content"]
        for h in await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("endless")))
    ] == ["An endless passage."]
    await said(memory, [("user", "My dog is called Rex.")], name="later")
    assert not await memory.retrieval.embed_scope(scope_id)
    assert await memory.db.read(lambda conn: vectors.count_made(conn, "concepts")) == 67
    # The query that had vectors to be compared with, and the text.
    assert embed.calls == before + 2


async def test_a_rebuilt_index_asks_for_refused_texts_again_and_another_model_for_all(memory):
    embed = memory.retrieval.meaning.embed
    embed.refuses = ("dog",)
    scope_id = await said(memory)
    assert not await memory.retrieval.embed_scope(scope_id)
    assert [len(found) for found in await memory.db.read(refused)] == [0, 2]
    embed.refuses = ("fine",)
    await reindex.schedule_embedding(memory.db)
    await drained(memory)
    assert [len(found) for found in await memory.db.read(refused)] == [0, 1]
    assert (await found(memory, scope_id, "pet"))[0] == "My dog is called Rex."
    embed.model, embed.refuses = "concepts-2", ()
    await memory.retrieval.embed_scope(scope_id)
    assert await memory.db.read(
        lambda conn: [
            vectors.count_made(conn, "concepts-2"),
            vectors.count_refused(conn, "concepts"),
            vectors.count_refused(conn, "concepts-2"),
        ]
    ) == [4, 0, 0]


async def test_an_embedder_that_refuses_every_text_is_unavailable_and_marks_none(memory):
    embed = memory.retrieval.meaning.embed
    embed.refuses = ("",)
    scope_id = await said(memory)
    with pytest.raises(EmbedUnavailable, match="every text"):
        await memory.retrieval.embed_scope(scope_id)
    assert embed.calls == 2
    assert await memory.db.read(refused) == [[], []]
    with pytest.raises(EmbedUnavailable):
        await kept(memory, "Alone.")
    assert await memory.db.read(refused) == [[], []]
    assert (await found(memory, scope_id, "Rex"))[0] == "My dog is called Rex."
    embed.refuses = ()
    await memory.retrieval.embed_scope(scope_id)
    assert await many(memory, t.message_vectors) == 4


async def test_a_job_whose_time_ends_among_refusals_has_come_past_a_text(memory, monkeypatch):
    """Else the one that follows would ask for the very same, for ever."""
    embed = memory.retrieval.meaning.embed
    embed.refuses = ("dog", "car", "trip")
    monkeypatch.setattr(
        "memory.retrieval.retriever.time", SimpleNamespace(monotonic=lambda: embed.calls)
    )
    monkeypatch.setattr("memory.retrieval.retriever.JOB_SECONDS", 0.5)
    scope_id = await said(memory)
    for i in range(4):
        assert await memory.retrieval.embed_scope(scope_id) is (i < 3)
        assert await many(memory, t.message_vectors) == i + 1


async def test_what_was_refused_goes_with_its_conversation_and_its_user(memory):
    memory.retrieval.meaning.embed.refuses = ("dog",)
    scope_id = await said(memory)
    await kept(memory, "Rex is a dog.", "Ada likes tea.")
    assert [len(found) for found in await memory.db.read(refused)] == [1, 2]
    gone = await memory.db.read(lambda conn: conversations.find_named(conn, scope_id, "c"))
    await erasure.delete_conversation(memory.db, lambda conn: gone)
    await drained(memory)
    assert [len(found) for found in await memory.db.read(refused)] == [1, 0]
    await erasure.erase(memory.db, SECRET, ("t", "ada"), ())
    await drained(memory)
    assert await many(memory, t.message_vectors) + await many(memory, t.vectors) == 0


async def test_another_embedder_makes_its_own_vectors(memory):
    scope_id = await said(memory)
    await memory.retrieval.embed_scope(scope_id)
    memory.retrieval.meaning.embed.model = "concepts-2"
    assert await found(memory, scope_id, "pet") == []
    await memory.retrieval.embed_scope(scope_id)
    assert set((await found(memory, scope_id, "pet"))[:2]) == {
        "My dog is called Rex.",
        "A fine dog.",
    }


async def test_a_scope_that_grows_large_goes_into_the_index_whole(tmp_path):
    index = ChromaIndex("chroma:embedded", tmp_path / "chroma")
    memory = Memory(
        Database(f"sqlite+aiosqlite:///{tmp_path}/m.db"),
        Policy(),
        SECRET,
        meaning=SemanticSearch(Concepts(), index, 4),
    )
    await memory.open()
    scope_id = await said(memory, CHAT[:2])
    await memory.retrieval.embed_scope(scope_id)
    name = _name(VectorSet(MESSAGES, scope_id, "concepts"))
    assert await index.nearest(name, [1.0, 0, 0, 0], 9) == {}
    await said(memory, CHAT[2:], name="more")
    await memory.retrieval.embed_scope(scope_id)
    assert len(await index.nearest(name, [1.0, 0, 0, 0], 9)) == 4
    await index.forget(f"scope-{scope_id}-", None)
    await memory.retrieval.embed_scope(scope_id, all_rows=True)
    assert len(await index.nearest(name, [1.0, 0, 0, 0], 9)) == 4
    await memory.close()


class Shelf:
    """An index in memory. meanwhile: what happens while vectors are put, once."""

    def __init__(self):
        self.held, self.meanwhile = {}, None

    async def upsert(self, name, items):
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
        self.held.setdefault(name, {}).update(items)

    async def nearest(self, name, vector, limit):
        return dict.fromkeys(list(self.held.get(name, ()))[:limit], 1.0)

    async def forget(self, prefix, keys):
        for name in [n for n in self.held if n.startswith(prefix)]:
            self.held[name] = {
                k: v for k, v in self.held[name].items() if keys is not None and k not in keys
            }

    async def close(self):
        pass


@pytest.fixture
async def shelved(tmp_path):
    """A memory, and the index in memory that all of its vectors go into."""
    index = Shelf()
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/m.db")
    memory = Memory(db, Policy(), SECRET, meaning=SemanticSearch(Concepts(), index, 1))
    await memory.open()
    yield memory, index
    await memory.close()


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_erased_while_its_vectors_are_put_is_taken_out_again(shelved, whole):
    memory, index = shelved
    scope_id = await said(memory)
    # They are in SQL, and the index is made anew.
    if whole:
        await memory.retrieval.embed_scope(scope_id)
        await index.forget(f"scope-{scope_id}-", None)

    async def erase():
        await erasure.erase(memory.db, SECRET, ("t", "ada"), ())
        # The job of another worker.
        await memory.retrieval.forget(scope_id, None, None)

    index.meanwhile = erase
    await memory.retrieval.embed_scope(scope_id, all_rows=whole)
    assert index.meanwhile is None
    assert not any(index.held.values())
    assert await many(memory, t.message_vectors) == 0


async def test_a_deleted_conversation_leaves_no_vector_that_was_put_meanwhile(shelved):
    memory, index = shelved
    scope_id = await said(memory)
    await said(memory, (("user", "My car is red."),), name="other")
    gone = await memory.db.read(lambda conn: conversations.find_named(conn, scope_id, "c"))

    async def delete():
        await erasure.delete_conversation(memory.db, lambda conn: gone)

    index.meanwhile = delete
    await memory.retrieval.embed_scope(scope_id)
    (left,) = [found for found in index.held.values() if found]
    assert len(left) == await many(memory, t.message_vectors) == 1


async def test_embedded_chroma_is_for_one_process(tmp_path):
    one, two = ChromaIndex("chroma:embedded", tmp_path), ChromaIndex("chroma:embedded", tmp_path)
    await one.upsert("scope-1-x", [(1, [1.0, 0.0])])
    with pytest.raises(StoreUnavailable, match="another process"):
        await two.upsert("scope-1-x", [(1, [1.0, 0.0])])
    await one.upsert("scope-11-x", [(1, [1.0, 0.0])])
    await asyncio.gather(one.forget("scope-1-", None), one.forget("scope-2-", [5]))
    assert await one.nearest("scope-1-x", [1.0, 0.0], 3) == {}
    assert len(await one.nearest("scope-11-x", [1.0, 0.0], 3)) == 1
    await one.close()
    await two.close()
