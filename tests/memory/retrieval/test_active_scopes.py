"""What recall finds by the postings in memory is what the index finds, whatever happened before."""

from __future__ import annotations

import asyncio
from itertools import count

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory.conversation.messages import keyed_hash
from memory.ids import new_key
from memory.retrieval.active_scopes import MESSAGES_INDEX, WAITING_BATCH, ActiveScopes
from memory.retrieval.auto_recall import alternate, recall_query
from memory.retrieval.gate import pass_gate
from memory.retrieval.recall_search import RecallSearch
from memory.retrieval.retriever import RecallHits, Retriever
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import ScopeBacklog
from memory.stores.sql.index import message_index
from memory.stores.sql.index.index_changes import IndexChange
from memory.stores.sql.rows import messages as rows
from memory.stores.sql.rows import openings, passage_lifecycle, passages, scopes
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.rows.messages import MessagePlace

# Stop words, irregular forms, names, digits, days, identifiers; scripts that are split, and one
# that SQLite splits where Python does not.
WORDS = (
    *("the", "I", "you", "my", "what", "go", "went", "gone", "bought", "buying", "Ada", "Bert"),
    *("ada", "boat", "boats", "albatross", "peanut", "peanuts", "17", "2023", "March", "Monday"),
    *(
        "monday",
        "getUserById",
        "get_user_by_id",
        "café",
        "cafe",
        "İstanbul",
        "ISTANBUL",
        "海边散步",
    ),
    *(
        "海边",
        "帆船",
        "x²",
        "tea\u19b0cup",
        "tea",
        "allergic",
        "allergy",
        "user",
        "assistant",
        "naïve",
        "Ottilie",
    ),
    *("swimming", "swim", "swam"),
)
text_of = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
said = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["user", "assistant", "user", "assistant", "tool"]),
    st.one_of(text_of, text_of.map("Ada: {}".format), st.just("")),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.lists(said, min_size=1, max_size=3)),
        st.tuples(st.just("index"), st.integers(1, 8)),
        st.tuples(st.just("ask"), text_of),
        st.tuples(st.just("ask"), text_of),
        st.tuples(st.just("keep"), text_of),
        st.tuples(st.sampled_from(["aside", "restore", "remove"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["task", "evict", "unsay", "version"]), st.integers(0, 3)),
    ),
    min_size=4,
    max_size=24,
)
numbers = count(1)


class Person:
    """A user whose memory is filled by small writes, as turns and jobs make them."""

    def __init__(self, db):
        self.db, self.retriever = db, Retriever(db)
        self.recall = RecallSearch(db, self.retriever)
        self.scope_id, self.talks, self.in_memory = 0, [], 0

    async def begin(self):
        who = Scope("t", f"user-{next(numbers)}", "a", b"s" * 32)
        self.scope_id = await self.write(
            lambda conn: scopes.get_or_create(conn, scopes.current_owner(conn, who))
        )
        for name in "wxyz":
            self.talks.append(key := new_key())
            await self.write(lambda conn, key=key, name=name: self._add_talk(conn, key, name))

    def _add_talk(self, conn, key, name):
        row = {"id": key, "scope_id": self.scope_id, "name": f"{name}-{key}", "explicit": False}
        opening = b"\x00" * 64
        conn.execute(
            t.conversations.insert().values(**row, opening=opening, created_at=1.0, updated_at=1.0)
        )

    async def write(self, work):
        return await self.db.write(work, small=True)

    async def say(self, lines):
        def work(conn):
            for talk, role, text in lines:
                place = MessagePlace(self.talks[talk], None, "chat", 1.7e9 + 86400.5 * talk)
                found = contents_of([({"role": role, "content": text}, digest())])
                rows.append(conn, list(rows.rows_of(self.scope_id, place, found)))

        await self.write(work)

    async def index(self, most):
        await self.write(
            lambda conn: message_index.index_pending(conn, most, ScopeBacklog(self.scope_id))
        )

    async def keep(self, text):
        new = passages.NewPassage(text, tags=["tea"], created_at=1.7e9)
        await self.write(lambda conn: passage_lifecycle.keep(conn, self.scope_id, new))

    async def change_passage(self, how, number):
        def work(conn):
            of = t.passages.c.scope_id == self.scope_id
            found = list(conn.execute(t.passages.select().where(of)))
            if found:
                ident = found[number % len(found)].public_id
                if how == "aside":
                    passage_lifecycle.set_aside(conn, self.scope_id, ident, "model")
                elif how == "restore":
                    passage_lifecycle.restore(conn, self.scope_id, ident)
                else:
                    passages.remove(conn, [self.scope_id], ident)

        await self.write(work)

    async def change_talk(self, how, talk):
        key = self.talks[talk]

        def work(conn):
            if how == "task":
                openings.mark_tasks(conn, self.scope_id, [key])
            elif how == "evict":
                place = MessagePlace(key, None, "evicted", 1.7e9)
                said = {"role": "user", "content": "my albatross swam to Ottilie"}
                rows.add(conn, self.scope_id, place, [(said, digest())])
            else:
                rows.remove(conn, t.messages.c.conversation == key)

        await self.db.write(work if how != "version" else lambda conn: None, small=how != "version")

    async def ask(self, text):
        """Both ways, for a request of each conversation and of none."""
        if (query := recall_query(text)) is None:
            return
        for sent in (None, self.talks[0]):
            await self.settled()
            scope = self.recall.active.find(self.scope_id)
            found = await self.recall.find(self.scope_id, query, sent)
            self.in_memory += scope is not None
            assert alternate(found) == await self.full(query, sent)

    async def full(self, query, sent):
        """What the whole search finds, and the gate lets pass."""
        found = await self.retriever.recall(self.scope_id, query, sent)
        return alternate(RecallHits(pass_gate(found.passages), pass_gate(found.messages)))

    async def settled(self):
        """Read the postings, unless they are at hand."""
        active = self.recall.active
        for _ in range(3):
            if active.find(self.scope_id) is None:
                active.want(self.scope_id)
                await asyncio.gather(*active._reading.values())

    async def do(self, what, value):
        if what in ("aside", "restore", "remove"):
            await self.change_passage(what, value)
        elif what in ("task", "evict", "unsay", "version"):
            await self.change_talk(what, value)
        else:
            await {"say": self.say, "index": self.index, "ask": self.ask, "keep": self.keep}[what](
                value
            )


def digest():
    return keyed_hash(b"k", b"test", str(next(numbers)).encode())


async def play(db, found):
    person = Person(db)
    await person.begin()
    for what, value in [*found, ("index", 50), ("ask", "Ada went boats Monday 海边散步 peanuts")]:
        await person.do(what, value)
    await person.recall.active.close()
    return person


SAID = [(i % 4, "user", f"Ada bought boats {i} albatross") for i in range(12)]
TOLD = [("say", SAID), ("index", 50)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([*TOLD, ("ask", "albatross boats"), ("keep", "Ada swam"), ("ask", "Ada")])
@example([*TOLD, ("ask", "boats"), ("say", SAID), ("ask", "boats"), ("index", 50)])
@example([("say", SAID[:1]), ("task", 0), ("ask", "boats"), ("say", SAID), ("ask", "boats")])
@example([("keep", "Ada bought boats"), ("ask", "Ada boats"), ("aside", 0), ("ask", "Ada boats")])
@example([("keep", "Ada bought boats"), ("aside", 0), ("ask", "boats"), ("restore", 0)])
@example([*TOLD, ("ask", "boats"), ("task", 0), ("ask", "boats")])
@example([*TOLD, ("ask", "boats"), ("version", 0), ("unsay", 1), ("ask", "boats"), ("evict", 0)])
@given(steps)
async def test_recall_finds_the_same_by_postings_and_by_the_index(db, found):
    await play(db, found)


async def test_what_changes_while_nobody_searches_stays_within_the_bound(db):
    """What waits to be read counts too: the scopes that were not used for longest make room."""
    bound = 200_000
    active, scope_ids = ActiveScopes(db, bound), range(1, 21)
    for scope_id in scope_ids:
        assert active.find(scope_id) is None
        await active.read_few(scope_id)
    assert all(active.find(scope_id) is not None for scope_id in scope_ids)
    changes = db.index_changes
    for key in range(1, 11):
        for scope_id in scope_ids:
            row = {"id": key, "conversation": 1, "created_at": 1.0, "role": "user", "content": "x"}
            changes.note(IndexChange(message_index.MESSAGES_INDEX, scope_id, rows=[row]))
            words = {"body": [f"word{n}" for n in range(100)]}
            put = IndexChange(message_index.MESSAGES_INDEX, scope_id, key=key, words=words)
            changes.note(put)
            changes.settle(committed=True)
    assert 0 < active.held <= bound
    assert active.find(scope_ids[-1]) is not None


async def test_many_messages_that_wait_for_the_index_are_added_in_portions(db):
    person = Person(db)
    await person.begin()
    await person.say([(0, "user", "Ada bought boats")])
    await person.settled()
    for number in range(5 * WAITING_BATCH // 2):
        await person.say([(number % 3, "user", f"the albatross swam to Ottilie {number}")])
    active = person.recall.active
    scope = active.find(person.scope_id)
    assert len(scope.parts[MESSAGES_INDEX].pending) > 2 * WAITING_BATCH
    assert await active.read_waiting(scope)
    assert not scope.parts[MESSAGES_INDEX].pending
    await person.ask("did the albatross swim to Ottilie?")
    assert person.in_memory == 2
    await active.close()
