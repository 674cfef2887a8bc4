"""The search index over a store: what it finds, that it stays in its scope, and that it can be made
anew.
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from sqlalchemy import insert, select, text, update

from memory import ids
from memory.jobs import maintenance
from memory.jobs.reindex import ReindexProgress, begin, step
from memory.jobs.worker import Worker
from memory.retrieval import indexer
from memory.scope import Scope
from memory.search.query import scope_mark
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import ScopeBacklog, sql_driver
from memory.stores.sql.engine.sqlite import fts, sqlite_index
from memory.stores.sql.index import message_index
from memory.stores.sql.rows import jobs, messages, scopes
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.passages import NewPassage, PassageFilter, add
from memory.stores.sql.transfer.transcripts import (
    ConversationHeader,
    ImportedMessage,
    Transcriber,
    steps_of,
)
from memory.stores.sql.turns import turn_reader
from tests import stores

MAY, JUNE = 1683540000.0, 1686218400.0
SECRET = b"s" * 32
CHAT = (
    ("user", "Ada", "What did you cook on Sunday?"),
    ("assistant", "Bob", "A lasagna, it was a success."),
    ("user", "Ada", "I went to a pottery class."),
    ("assistant", "Bob", "Wonderful! Did you glaze it?"),
)


def opened(path):
    return Memory(stores.database(path / "m.db"), Policy(), SECRET)


@pytest.fixture
async def memory(tmp_path):
    out = opened(tmp_path)
    await out.open()
    yield out
    await out.close()


async def filled(memory, user="ada", at=MAY, chat=CHAT, name="c1"):
    scope = Scope("t", user, "default", SECRET)

    def work(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
        said = [
            ImportedMessage({"role": role, "name": who, "content": words}, at)
            for role, who, words in chat
        ]
        Transcriber(conn, scope_id, scope.key).conversation(
            ConversationHeader(f"{user} {name}"), steps_of(said)
        )
        return scope_id

    return await memory.db.write(work)


async def asked(memory, scope_id, words, **more):
    return [
        h["content"]
        for h in await memory.retrieval.messages(
            scope_id, SearchQuery(words, more.pop("roles", ("user", "assistant")), **more)
        )
    ]


async def test_the_answer_comes_with_its_question_and_says_why(memory):
    scope_id = await filled(memory)
    hits = await memory.retrieval.messages(
        scope_id, SearchQuery("cook on sunday", ("user", "assistant"))
    )
    assert [h["content"] for h in hits[:2]] == [CHAT[0][2], CHAT[1][2]]
    assert hits[0]["why"]["keyword"] == 1.0
    assert {"keyword", "neighbour", "session"} <= set(hits[1]["why"])
    assert hits[0]["score"] >= hits[1]["score"] > 0


async def test_irregular_forms_and_names_are_understood(memory):
    scope_id = await filled(memory)
    assert (await asked(memory, scope_id, "Where did Ada go?"))[0] == CHAT[2][2]
    assert set((await asked(memory, scope_id, "Bob"))[:2]) == {CHAT[1][2], CHAT[3][2]}


async def test_the_filters_hold_for_neighbours_too(memory):
    scope_id = await filled(memory)
    await filled(memory, at=JUNE, name="c2")
    assert await asked(memory, scope_id, "cook sunday", roles=("assistant",)) == [
        CHAT[1][2],
        CHAT[1][2],
    ]
    assert len(await asked(memory, scope_id, "cook sunday", until=MAY + 1)) == len(
        set(await asked(memory, scope_id, "cook sunday", until=MAY + 1))
    )
    assert await asked(memory, scope_id, "cook sunday", since=JUNE + 1) == []


async def test_a_pasted_document_does_not_drown_what_was_said(memory):
    """It is found by its beginning and its end; what is between matches no query."""
    between = " ".join(f"{CHAT[i % 4][2]} section {i}." for i in range(2000))
    pasted = f"Minutes of the zeppelin club. {between} Signed, the quartermaster."
    scope_id = await filled(memory, chat=(*CHAT, ("user", "Ada", pasted)))
    assert CHAT[1][2] in (await asked(memory, scope_id, "lasagna success"))[:2]
    assert (await asked(memory, scope_id, "zeppelin club"))[0] == pasted
    assert (await asked(memory, scope_id, "quartermaster"))[0] == pasted
    assert pasted not in await asked(memory, scope_id, "1000")
    memory.db.index_limit.characters = 100_000
    progress = ReindexProgress()
    while progress.kind != "done":
        progress, _ = await memory.db.write(lambda conn, at=progress: step(conn, at))
    assert pasted in await asked(memory, scope_id, "300")


async def test_what_waits_for_the_index_has_the_same_limit(memory):
    text = "beginning " + "filler words " * 1000 + "needle " + "filler words " * 1000 + "ending"
    ada = await spoken(memory, "ada", {"role": "user", "content": text})
    assert await asked(memory, ada, "beginning ending") == [text]
    assert await asked(memory, ada, "needle") == []


async def test_identifiers_are_found_in_messages_and_passages(memory):
    chat = (("user", "Ada", "Call getUserById() in src/user_card.py, please."),)
    scope_id = await filled(memory, chat=chat)
    new = NewPassage("The owner of parse_http_header left.")
    await memory.db.write(lambda conn: add(conn, scope_id, new))
    for words in ("getUserById", "get_user_by_id", "user id", "user_card.py", "userCard"):
        assert await asked(memory, scope_id, words) == [chat[0][2]], words
    for words in ("parseHttpHeader", "parse_http_header", "header"):
        hits = await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery(words)))
        assert [h["content"] for h in hits] == [new.content], words


async def test_a_date_in_the_question_prefers_its_day(memory):
    scope_id = await filled(memory)
    await filled(memory, at=JUNE, name="c2")
    for words, month in (("pottery in May 2023", 5), ("pottery in June", 6)):
        hits = await memory.retrieval.messages(scope_id, SearchQuery(words, ("user",)))
        assert hits[0]["content"] == CHAT[2][2]
        assert abs(hits[0]["created_at"] - (MAY if month == 5 else JUNE)) < 1


async def test_pages_of_hits_follow_each_other(memory):
    scope_id = await filled(memory, chat=[("user", "Ada", f"tea number {i}") for i in range(25)])
    everything = await asked(memory, scope_id, "tea", limit=50)
    pages = [await asked(memory, scope_id, "tea", limit=10, offset=i) for i in (0, 10, 20)]
    assert [x for page in pages for x in page] == everything
    assert len(set(everything)) == 25


async def test_others_words_are_never_found(memory):
    mine = await filled(memory)
    await filled(
        memory,
        "eve",
        chat=[
            (
                "user",
                scope_mark(mine),
                f"_{scope_mark(mine)}lasagna {scope_mark(mine)}pottery zebra",
            )
        ],
    )
    assert await asked(memory, mine, "zebra") == []
    assert all("zebra" not in words for words in await asked(memory, mine, "lasagna pottery"))


async def test_live_turns_index_the_message_before(memory):
    scope_id = await filled(memory)
    found = await memory.db.read(
        lambda conn: (
            conn.exec_driver_sql("SELECT prev FROM messages_fts ORDER BY rowid").scalars().all()
        )
    )
    assert [bool(p) for p in found] == [False, True, True, True]
    # Each once, and none that no search asks for.
    assert found[2] == " ".join(f"{scope_mark(scope_id)}{w}" for w in ("lasagna", "success"))


def old(conn):
    """The index as an earlier version wrote it, with a document whose row is gone."""
    for table in ("messages_fts", "passages_fts"):
        rows = conn.exec_driver_sql(f"SELECT rowid, scope FROM {table}").all()
        for key, scope in rows:
            conn.exec_driver_sql(f"DELETE FROM {table} WHERE rowid = ?", (key,))
            conn.exec_driver_sql(
                f"INSERT INTO {table} (rowid, scope, body, day) VALUES (?, ?, 'old', "
                "'2023-05-08 Monday')",
                (key, scope),
            )
        conn.exec_driver_sql(f"INSERT INTO {table} (rowid, scope, body) VALUES (5, 's1', 'gone')")


async def test_an_index_of_an_earlier_version_is_made_anew_in_the_background(tmp_path):
    memory = opened(tmp_path)
    await memory.open()
    scope_id = await filled(memory)
    await memory.db.write(
        lambda conn: add(conn, scope_id, NewPassage("Rex is a dog.", tags=["pets"]))
    )
    before = await asked(memory, scope_id, "lasagna")
    await memory.db.write(old)
    assert await asked(memory, scope_id, "lasagna") == []
    await memory.close()
    memory = opened(tmp_path)
    await memory.open()
    worker = Worker(memory.db)
    maintenance.register(worker, memory.db, maintenance.RetentionPolicy(7, 30), memory.retrieval)
    await worker._tick()
    await worker.drain()
    assert await asked(memory, scope_id, "lasagna") == before
    assert [
        h["content"]
        for h in await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("pets")))
    ] == ["Rex is a dog."]
    assert not await memory.db.read(fts.is_outdated)
    assert (
        await memory.db.read(
            lambda conn: conn.exec_driver_sql("SELECT count(*) FROM messages_fts").scalar()
        )
        == 4
    )
    assert not await memory.db.read(jobs.due(jobs.JobFilter(("reindex",))))
    await memory.close()


async def test_making_it_anew_goes_on_where_it_was(memory, monkeypatch):
    monkeypatch.setattr("memory.jobs.reindex.PAGE", 3)
    monkeypatch.setattr("memory.jobs.reindex.JOB_SECONDS", 0.0)
    scope_id = await filled(memory)
    before = await asked(memory, scope_id, "lasagna")
    await memory.db.write(fts.recreate_indexes)
    mark, count = await memory.db.write(lambda conn: step(conn, ReindexProgress()))
    assert (mark.kind, count) == ("messages", 3)
    await memory.db.write(lambda conn: begin(conn, mark))
    worker = Worker(memory.db)
    maintenance.register(worker, memory.db, maintenance.RetentionPolicy(7, 30), memory.retrieval)
    # A page a job, each handing on to the next.
    await worker.drain()
    assert await asked(memory, scope_id, "lasagna") == before


async def test_passages_of_one_moment_belong_together_and_those_of_another_do_not(memory):
    scope = Scope("t", "ada", "default", SECRET)

    def work(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
        for words, at in (
            ("The boiler is by Vaillant.", MAY),
            ("Its warranty ends in 2031.", MAY),
            ("Rex is a dog.", MAY + 5),
        ):
            add(conn, scope_id, NewPassage(words, created_at=at))
        return scope_id

    scope_id = await memory.db.write(work)
    hits = await memory.retrieval.passages(scope_id, PassageFilter(SearchQuery("boiler")))
    assert [h["content"] for h in hits] == [
        "The boiler is by Vaillant.",
        "Its warranty ends in 2031.",
    ]
    assert "neighbour" in hits[1]["why"]


async def test_a_chat_told_with_names_knows_its_speakers(memory):
    scope_id = await filled(
        memory,
        chat=[
            ("user", None, "Zoe: the lake is cold"),
            ("user", None, "Max: the lake is warm"),
            ("user", None, "note that 5: is odd"),
        ],
    )
    assert (await asked(memory, scope_id, "What does Max say of the lake?"))[
        0
    ] == "Max: the lake is warm"


async def spoken(memory, user, *said):
    """What a turn stores, to be indexed behind it."""
    scope = Scope("t", user, "default", SECRET)

    def work(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
        found = turn_reader.find_conversation(conn, scope_id, user)
        if found is None:
            conn.execute(
                insert(t.conversations).values(
                    id=scope_id,
                    scope_id=scope_id,
                    name=user,
                    explicit=False,
                    created_at=MAY,
                    updated_at=MAY,
                )
            )
        messages.append(
            conn,
            list(
                messages.rows_of(
                    scope_id,
                    messages.MessagePlace(scope_id, None, "chat", time.time()),
                    contents_of((m, b"d") for m in said),
                )
            ),
        )
        return scope_id

    return await memory.db.write(work)


async def indexed(memory):
    return await memory.db.read(
        lambda conn: (
            conn.exec_driver_sql("SELECT rowid FROM messages_fts ORDER BY rowid").scalars().all()
        )
    )


async def test_each_message_is_put_in_once_by_whoever_comes_first(memory):
    await memory.retrieval.indexing.stop()
    ada = await spoken(
        memory,
        "ada",
        {"role": "user", "content": "a kettle"},
        {"role": "assistant", "content": "for tea"},
    )
    bob = await spoken(memory, "bob", {"role": "user", "content": "a teapot"})
    imported = await filled(memory, "cy")
    assert await asked(memory, ada, "kettle") == ["a kettle", "for tea"]
    assert await memory.db.read(lambda conn: message_index.index_waits(conn, bob))
    assert not await memory.db.read(lambda conn: message_index.index_waits(conn, imported))
    assert await memory.db.write(
        lambda conn: [message_index.index_pending(conn, 16), message_index.index_pending(conn, 16)]
    ) == [1, 0]
    assert await indexed(memory) == await memory.db.read(
        lambda conn: conn.execute(select(t.messages.c.id).order_by(t.messages.c.id)).scalars().all()
    )
    assert not await memory.db.read(lambda conn: message_index.index_waits(conn, bob))


async def test_what_waits_of_a_scope_is_looked_at_once(memory, monkeypatch):
    """Batches of a search go on behind one another, and the next search behind them all."""
    await memory.retrieval.indexing.stop()
    ada = await spoken(memory, "ada", *({"role": "user", "content": f"tea {i}"} for i in range(40)))
    checked = []

    def note(conn):
        raw_connection = conn.connection.dbapi_connection
        raw_connection.create_function("checked", 1, lambda key: checked.append(key) or 0)

    await memory.db.write(note)
    for name in ("NEXT_HERE", "SIZE_HERE"):
        sql = str(getattr(sqlite_index, name)).replace(
            sqlite_index.THERE, f"(checked(m.id) OR {sqlite_index.THERE})"
        )
        monkeypatch.setattr(sqlite_index, name, text(sql))
    backlog = ScopeBacklog(ada)

    def index(conn):
        sizes = message_index.waiting_size(conn, 16, backlog)
        return sizes, message_index.index_pending(conn, 16, backlog)

    batches = [await memory.db.write(index) for _ in range(3)]
    assert [count for _, count in batches] == [16, 16, 8]
    assert sum(size for size, _ in batches) == sum(len(f"tea {i}") for i in range(40))
    # once for the size and once for the batch
    assert sorted(checked) == sorted(2 * await indexed(memory))
    assert not await memory.db.read(
        lambda conn: message_index.index_waits(conn, ada, after=backlog.newest)
    )
    await spoken(memory, "ada", {"role": "user", "content": "coffee"})
    assert await memory.db.read(
        lambda conn: message_index.index_waits(conn, ada, after=backlog.newest)
    )


async def test_a_batch_that_was_rolled_back_is_looked_at_again(memory, monkeypatch):
    await memory.retrieval.indexing.stop()
    ada = await spoken(memory, "ada", *({"role": "user", "content": f"tea {i}"} for i in range(4)))
    write = memory.db.write

    async def fail_once(work, **options):
        def fail(conn):
            work(conn)
            raise LookupError

        with pytest.raises(LookupError):
            await write(fail, **options)
        # As a write goes that found the database locked: the same work runs again.
        return await write(work, **options)

    monkeypatch.setattr(memory.db, "write", fail_once)
    backlog = ScopeBacklog(ada)
    assert not await memory.retrieval.indexing._batch(16, backlog)
    assert backlog.newest == max(await indexed(memory))
    assert len(await indexed(memory)) == 4


async def test_a_long_import_does_not_keep_what_is_said_after_it(memory, monkeypatch):
    await memory.retrieval.indexing.stop()
    monkeypatch.setattr(sqlite_index, "LOOK_AHEAD_ROWS", 3)
    # Waits, so the import may not pass it over.
    await spoken(memory, "bob", {"role": "user", "content": "a teapot"})
    await filled(memory, "cy")
    await spoken(memory, "ada", {"role": "user", "content": "a kettle"})
    assert await memory.db.write(
        lambda conn: [message_index.index_pending(conn, 16) for _ in range(3)]
    ) == [
        16,
        16,
        0,
    ]
    assert await indexed(memory) == await memory.db.read(
        lambda conn: conn.execute(select(t.messages.c.id).order_by(t.messages.c.id)).scalars().all()
    )


async def test_an_import_is_not_looked_through_for_what_waits(memory):
    await memory.retrieval.indexing.stop()
    await filled(memory, "cy")
    await filled(memory, "di")
    newest = await memory.db.read(lambda conn: sql_driver(conn).index.newest_key(conn, 0))
    mark = await memory.db.read(lambda conn: conn.execute(sqlite_index.MARK).scalar())
    assert newest == mark
    ada = await spoken(memory, "ada", {"role": "user", "content": "a kettle"})
    assert await memory.db.read(lambda conn: message_index.index_waits(conn, ada))
    assert await memory.db.write(
        lambda conn: [message_index.index_pending(conn, 16) for _ in range(2)]
    ) == [
        1,
        0,
    ]


async def test_what_is_said_with_the_clock_set_back_is_found(memory, monkeypatch):
    await memory.retrieval.indexing.stop()
    await spoken(memory, "ada", {"role": "user", "content": "a kettle"})
    await memory.db.write(lambda conn: message_index.index_pending(conn, 16))
    await memory.db.write(lambda conn: messages.remove(conn, t.messages.c.id > 0))
    # As after a restart.
    monkeypatch.setattr(ids, "row_keys", ids.RowKeys())
    monkeypatch.setattr(ids.time, "time_ns", lambda: 7)
    ada = await spoken(memory, "ada", {"role": "user", "content": "a teapot"})
    assert await asked(memory, ada, "teapot") == ["a teapot"]
    assert await memory.db.write(lambda conn: message_index.index_pending(conn, 16)) == 0


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "tea"},
        {"content": "tea", "role": "user"},
        {"role": "user", "content": "tea", "name": "Ada"},
        {"role": "user", "content": " tea\n"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "tea"}]},
    ],
)
def test_a_message_comes_back_from_its_row_as_it_was(message):
    (row,) = messages.rows_of(
        1, messages.MessagePlace(1, 1, "chat", MAY), contents_of([(message, b"d")])
    )
    found = messages.parse_message(row["body"], row["role"], row["content"])
    assert list(found.items()) == list(message.items())


async def test_recall_does_not_index_what_the_request_holds_but_finds_all_else(memory):
    await memory.retrieval.indexing.stop()
    ada = await spoken(memory, "ada", {"role": "user", "content": "a kettle"})
    (here,) = await memory.db.read(
        lambda conn: conn.execute(select(t.conversations.c.id)).scalars().all()
    )
    wanted = SearchQuery("kettle", ("user",))

    async def recalled(sent):
        return [h["content"] for h in (await memory.retrieval.recall(ada, wanted, sent)).messages]

    assert await recalled(here) == []
    assert await memory.db.read(lambda conn: message_index.index_waits(conn, ada))
    assert await recalled(None) == ["a kettle"]
    assert not await memory.db.read(lambda conn: message_index.index_waits(conn, ada))


@pytest.mark.parametrize("more", [0, messages.FEW_ROWS], ids=["few", "many"])
async def test_recall_in_a_large_memory_does_not_run_on_the_event_loop(memory, monkeypatch, more):
    said = [{"role": "user", "content": f"kettle {i}"} for i in range(1 + more)]
    ada = await spoken(memory, "ada", *said)
    search, threads = messages.search, []

    def noting(*arguments):
        threads.append(threading.get_ident())
        return search(*arguments)

    monkeypatch.setattr(messages, "search", noting)
    await memory.retrieval.recall(ada, SearchQuery("kettle", ("user",), thorough=False), None)
    assert [thread == threading.get_ident() for thread in threads] == [not more]


async def test_the_index_waits_for_turns_under_way_but_not_for_ever(tmp_path, monkeypatch):
    """A search finds what waits all the same."""
    monkeypatch.setattr(indexer, "GATHER", 0.01)
    memory = opened(tmp_path)
    memory.in_flight.nodes.add(1)
    await memory.open()

    async def waits(said):
        ada = await spoken(memory, "ada", {"role": "user", "content": said})
        memory.retrieval.indexing.notify_added()
        await asyncio.sleep(0.2)
        # On a busy machine.
        for _ in range(20):
            left = await memory.db.read(lambda conn: message_index.index_waits(conn, ada))
            if not left or (memory.in_flight.nodes and indexer.LOOKS > 2):
                break
            await asyncio.sleep(0.1)
        return ada, left

    ada, there = await waits("a kettle")
    assert there
    assert await asked(memory, ada, "kettle") == ["a kettle"]
    memory.in_flight.nodes.clear()
    assert not (await waits("a teapot"))[1]
    memory.in_flight.nodes.add(1)
    assert (await waits("a cup"))[1]
    memory.in_flight.nodes.clear()
    assert not (await waits("a spoon"))[1]
    monkeypatch.setattr(indexer, "LOOKS", 2)
    memory.in_flight.nodes.add(1)
    assert not (await waits("a sieve"))[1]
    await memory.close()


async def damaged(memory, scope_id):
    """Takes the newest message of the scope out of shape."""
    newest = (
        select(t.messages.c.id)
        .where(t.messages.c.scope_id == scope_id)
        .order_by(t.messages.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    await memory.db.write(
        lambda conn: (
            conn.execute(
                update(t.messages).where(t.messages.c.id == newest).values(body='{"role": "us')
            )
            and None
        )
    )


async def test_an_index_pass_that_meets_a_defect_is_logged_without_words_and_goes_on_later(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(indexer, "GATHER", 0.01)
    pauses, sleep, put = [], asyncio.sleep, fts.put_document

    async def slept(seconds):
        pauses.append(seconds)
        await sleep(min(seconds, 0.01))

    def failing(conn, *what):
        if len([x for x in pauses if x != indexer.PAUSE_SECONDS]) < 5:
            raise RuntimeError("what the user said")
        put(conn, *what)

    monkeypatch.setattr(indexer.asyncio, "sleep", slept)
    monkeypatch.setattr(fts, "put_document", failing)
    memory = opened(tmp_path)
    await memory.open()
    ada = await spoken(memory, "ada", {"role": "user", "content": "a kettle"})
    memory.retrieval.indexing.notify_added()
    async with asyncio.timeout(5):
        while await memory.db.read(lambda conn: message_index.index_waits(conn, ada)):
            await sleep(0.01)
    assert {0.01, 0.02, 0.04} <= set(pauses)
    assert "of new messages pauses for 0 s: RuntimeError in failing, line" in caplog.text
    assert "what the user said" not in caplog.text
    assert await asked(memory, ada, "kettle") == ["a kettle"]
    await memory.close()


async def test_a_message_that_cannot_be_indexed_stops_no_other(memory, caplog):
    await memory.retrieval.indexing.stop()
    ada = await spoken(
        memory,
        "ada",
        {"role": "user", "content": "a kettle"},
        {"role": "user", "content": "a secret cup"},
    )
    await damaged(memory, ada)
    bob = await spoken(memory, "bob", {"role": "user", "content": "a teapot"})
    assert (await asked(memory, ada, "kettle"))[0] == "a kettle"
    assert await memory.db.write(
        lambda conn: [message_index.index_pending(conn, 16), message_index.index_pending(conn, 16)]
    ) == [2, 0]
    assert len(await indexed(memory)) == 2
    assert not await memory.db.read(
        lambda conn: message_index.index_waits(conn, bob) or message_index.index_waits(conn, ada)
    )
    assert "cannot be put into the search index: DecodeError" in caplog.text
    assert "cup" not in caplog.text


async def test_a_message_that_cannot_be_indexed_waits_while_no_other_can_be(memory, caplog):
    """It may be no fault of its own. A search goes on without it."""
    await memory.retrieval.indexing.stop()
    ada = await spoken(memory, "ada", {"role": "user", "content": "a kettle"})
    await memory.db.write(lambda conn: message_index.index_pending(conn, 16))
    await spoken(memory, "ada", {"role": "user", "content": "a cup"})
    await damaged(memory, ada)
    assert (await asked(memory, ada, "kettle"))[0] == "a kettle"
    assert "a search continues without the newest messages: DecodeError" in caplog.text
    with pytest.raises(ValueError, match="truncated"):
        await memory.db.write(lambda conn: message_index.index_pending(conn, 16))
    await spoken(memory, "bob", {"role": "user", "content": "a teapot"})
    assert await memory.db.write(
        lambda conn: [message_index.index_pending(conn, 16), message_index.index_pending(conn, 16)]
    ) == [2, 0]


async def test_an_index_of_other_words_is_made_anew_in_the_background(tmp_path, monkeypatch):
    memory = opened(tmp_path)
    await memory.open()
    monkeypatch.setattr(fts, "document_words", plain_words)
    scope_id = await memory.db.write(
        lambda conn: scopes.get_or_create(
            conn, scopes.current_owner(conn, Scope("t", "ada", "default", SECRET))
        )
    )
    await memory.db.write(lambda conn: add(conn, scope_id, NewPassage("Я не ем торт с фундуком.")))
    monkeypatch.undo()
    # Rows that come before the first look at it make no index of this version outdated.
    assert not await memory.db.read(fts.is_outdated)
    # As an earlier version left it.
    await memory.db.write(
        lambda conn: conn.execute(t.marks.delete().where(t.marks.c.name == "terms")) and None
    )
    assert await memory.db.read(fts.is_outdated)
    wanted = PassageFilter(SearchQuery("фундук"))
    assert await memory.retrieval.passages(scope_id, wanted) == []
    worker = Worker(memory.db)
    maintenance.register(worker, memory.db, maintenance.RetentionPolicy(7, 30), memory.retrieval)
    await worker._tick()
    await worker.drain()
    assert not await memory.db.read(fts.is_outdated)
    (hit,) = await memory.retrieval.passages(scope_id, wanted)
    assert hit["content"] == "Я не ем торт с фундуком."
    await memory.close()


def plain_words(table, doc, limit):
    """What an earlier version indexed."""
    return {
        "body": doc.body.lower().rstrip(".").split(),
        "speaker": [],
        "prev": [],
        "day": ["2026"],
    }
