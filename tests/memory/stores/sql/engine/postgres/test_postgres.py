"""The store on a real Postgres: what it promises where SQLite's one writer did.

The same memory tests run on it too: `make test-postgres`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from memory import ids
from memory.errors import NotUpgraded, StoreUnavailable
from memory.scope import Scope
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine import statements, vacuum
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.postgres import postgres, postgres_probe
from memory.stores.sql.engine.postgres.postgres_statements import fetch_sql
from memory.stores.sql.engine.sqlite.fts import TERMS_MARK
from memory.stores.sql.engine.upgrade import upgrade
from memory.stores.sql.engine.write_lock import EVERYTHING, NOTHING, owner_lock
from memory.stores.sql.rows import messages, scopes
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.rows.scopes import ScopeOwner, get_or_create
from memory.stores.sql.turns import turn_statement
from memory.stores.sql.turns.turn_rows import TurnRecord
from tests import stores

ADA, BOB = owner_lock("t", "ada"), owner_lock("t", "bob")
NAMES = select(t.marks.c.name).order_by(t.marks.c.name)


def marking(name):
    return lambda conn: conn.execute(insert(t.marks).values(name=name, upto=1))


def names(conn):
    """Return the names that a test wrote, beside the version of the index."""
    return [name for name in conn.execute(NAMES).scalars() if name != TERMS_MARK]


@contextlib.asynccontextmanager
async def opened(url, **more):
    db = Database(url, **{"secret": stores.SECRET, **more})
    await db.open()
    try:
        yield db
    finally:
        await db.close()


@pytest.fixture
async def db(postgres_url):
    async with opened(postgres_url) as found:
        yield found


async def held_by(db, lock):
    """A write that holds its lock until it is told to end."""
    begun, end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(conn):
        loop.call_soon(begun.set)
        while not end.is_set():
            conn.execute(text("SELECT pg_sleep(0.005)"))
        return "ended"

    task = asyncio.create_task(db.write(work, lock=lock))
    await begun.wait()
    return task, end


async def settled(task):
    """Whether a task ends while another write holds its lock."""
    done, _ = await asyncio.wait({task}, timeout=0.3)
    return bool(done)


@pytest.mark.parametrize(
    ("first", "second", "beside"),
    [
        (ADA, BOB, True),
        (ADA, ADA, False),
        (ADA, EVERYTHING, False),
        (EVERYTHING, ADA, False),
        (EVERYTHING, NOTHING, True),
        (owner_lock("t", None, 1), owner_lock("t", None, 2), True),
        (owner_lock("t", None, 1), owner_lock("t", None, 1), False),
    ],
)
async def test_writes_of_different_owners_run_side_by_side_and_of_one_in_turn(
    db, first, second, beside
):
    holding, end = await held_by(db, first)
    waiting = asyncio.create_task(db.write(marking("b"), lock=second))
    try:
        assert await settled(waiting) is beside
    finally:
        end.set()
    assert await holding == "ended"
    await waiting
    assert await db.read(names) == ["b"]


async def test_a_scopes_row_names_the_same_lock_as_its_owner(db):
    scope = Scope("t", "ada", "a", stores.SECRET)
    scope_id = await db.write(lambda conn: get_or_create(conn, ScopeOwner(scope, 0)))
    holding, end = await held_by(db, ADA)
    waiting = asyncio.create_task(db.write(marking("b"), lock=scope_id))
    try:
        assert not await settled(waiting)
    finally:
        end.set()
    await holding
    await waiting


async def test_a_read_is_one_moment_whatever_is_written_meanwhile(postgres_url, db):
    def twice(conn):
        before = names(conn)
        stores.on_server(postgres_url, "INSERT INTO marks (name, upto) VALUES ('theirs', 1)")
        return before, names(conn)

    assert await db.read(twice) == ([], [])
    assert await db.read(names) == ["theirs"]


async def test_a_write_whose_connection_is_lost_is_made_once(postgres_url, db):
    lost = []

    def work(conn):
        conn.execute(insert(t.marks).values(name="a", upto=1))
        if not lost:
            lost.append(conn.execute(text("SELECT pg_backend_pid()")).scalar())
            stores.on_server(postgres_url, f"SELECT pg_terminate_backend({lost[0]})")
        return "made"

    assert await db.write(work, lock=ADA) == "made"
    assert await db.read(names) == ["a"]


async def lose_commits(db, monkeypatch, most):
    """Lose each connection behind its next commit, until so many were lost."""
    one = await db._connections._take()
    await db._connections._give(one)
    execute, lost = type(one.raw).execute, []

    async def lossy(raw, statement, *args, **options):
        found = await execute(raw, statement, *args, **options)
        if statement == "COMMIT" and len(lost) < most:
            lost.append(raw)
            raw.terminate()
            raise ConnectionResetError
        return found

    monkeypatch.setattr(type(one.raw), "execute", lossy)


async def test_commits_that_are_lost_on_every_connection_are_asked_for(postgres_url, monkeypatch):
    """Who asks has given its own place up, so they do not wait for each other."""
    async with opened(postgres_url, pool=2) as db:
        await lose_commits(db, monkeypatch, 4)
        async with asyncio.timeout(8):
            await asyncio.gather(*(db.write(marking(name), lock=NOTHING) for name in "abcd"))
        assert await db.read(names) == [*"abcd"]


async def test_a_work_that_gets_no_connection_is_told(postgres_url, monkeypatch):
    monkeypatch.setattr("memory.stores.sql.engine.postgres.postgres.TAKE_SECONDS", 0.05)
    async with opened(postgres_url, pool=2) as db:
        held = [await db._connections._take() for _ in range(2)]
        with pytest.raises(StoreUnavailable, match="OperationalError"):
            await db.read(names)
        for one in held:
            await db._connections._give(one)
        assert await db.read(names) == []


async def test_a_commit_that_was_not_answered_is_asked_for(db, monkeypatch):
    """The connection is lost behind the commit: the write happened, and is not repeated."""
    runs = []
    await lose_commits(db, monkeypatch, 1)

    def work(conn):
        runs.append(1)
        conn.execute(insert(t.marks).values(name="a", upto=1))

    await db.write(work, lock=ADA)
    monkeypatch.undo()
    assert runs == [1]
    assert await db.read(names) == ["a"]


async def test_a_commit_of_what_had_failed_is_told(db):
    def work(conn):
        statements.add_row(conn, t.marks, name="a", upto=1)
        with contextlib.suppress(SQLAlchemyError):
            statements.execute_sql(conn, "SELECT no FROM such_table")

    with pytest.raises(StoreUnavailable):
        await db.write(work)
    assert await db.read(names) == []


async def test_a_connection_that_does_not_answer_is_lost_and_the_write_made_on_another(
    db, monkeypatch
):
    asked = []

    def work(conn):
        asked.append(conn.connection.driver_connection)
        conn.execute(insert(t.marks).values(name="a", upto=1))
        if len(asked) == 1:
            raise TimeoutError
        return "made"

    assert await db.write(work, lock=ADA) == "made"
    assert asked[0].is_closed()
    assert await db.read(names) == ["a"]


async def test_a_read_before_the_store_is_open_is_told_at_once(postgres_url):
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(2):
            await Database(postgres_url, secret=stores.SECRET).read(names)


async def test_a_database_of_another_encoding_is_refused(postgres_url):
    name = f"{make_url(postgres_url).database}_latin"
    stores.on_server(
        postgres_url,
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    url = make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    try:
        with pytest.raises(NotUpgraded, match=r"LATIN1.*CREATE DATABASE"):
            await Database(url, secret=stores.SECRET).open()
    finally:
        stores.on_server(postgres_url, f"DROP DATABASE {name}")


async def test_a_caller_that_gives_up_withdraws_what_is_not_committed(db):
    holding, end = await held_by(db, ADA)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await db.write(marking("late"), lock=ADA)
    end.set()
    await holding
    await db.write(marking("b"), lock=ADA)
    assert await db.read(names) == ["b"]


async def test_the_unnamed_of_a_tenant_have_one_scope_whoever_is_first(db):
    scope = Scope("t", None, "a", stores.SECRET)

    def work(conn):
        return get_or_create(conn, ScopeOwner(scope, 0))

    found = await asyncio.gather(*(db.write(work, lock=owner_lock("t", None, i)) for i in range(6)))
    assert len(set(found)) == 1
    assert await db.read(lambda conn: conn.execute(select(func.count(t.scopes.c.id))).scalar()) == 1


async def test_names_are_ordered_by_their_bytes_as_in_sqlite(db):
    told = ["Zoe", "ada", "Émile", "b", "_", "zoe"]
    for name in told:
        await db.write(marking(name), lock=NOTHING)
    assert await db.read(names) == sorted(told, key=str.encode)


async def test_a_nul_costs_itself_and_the_message_keeps_its_own(db):
    scope = Scope("t", "ada", "a", stores.SECRET)
    said = {"role": "user", "content": "a\x00b"}

    def work(conn):
        scope_id = get_or_create(conn, ScopeOwner(scope, 0))
        times = {"created_at": 1.0, "updated_at": 1.0}
        row = {"id": 1, "scope_id": scope_id, "name": "c", "explicit": False, **times}
        conn.execute(insert(t.conversations).values(**row))
        place = messages.MessagePlace(1, None, "import", 1.0)
        messages.add(conn, scope_id, place, [(said, b"d")])
        statements.add_row(conn, t.marks, name="a\x00b", upto=1)
        conn.execute(insert(t.marks), [{"name": "c\x00", "upto": 1}, {"name": "d\x00", "upto": 1}])

    await db.write(work)
    (row,) = await db.read(lambda conn: conn.execute(select(t.messages)).all())
    assert (row.content, messages.parse_message(row.body, row.role, row.content)) == (
        "a\ufffdb",
        said,
    )
    assert await db.read(names) == ["a\ufffdb", "c\ufffd", "d\ufffd"]


async def test_messages_of_a_conversation_stay_in_order_with_a_clock_set_back(db, monkeypatch):
    scope = Scope("t", "ada", "a", stores.SECRET)

    def begin(conn):
        scope_id = get_or_create(conn, ScopeOwner(scope, 0))
        times = {"created_at": 1.0, "updated_at": 1.0}
        row = {"id": 1, "scope_id": scope_id, "name": "c", "explicit": False, **times}
        conn.execute(insert(t.conversations).values(**row))
        return scope_id

    scope_id = await db.write(begin)

    def say(conn, words):
        found = contents_of([({"role": "user", "content": words}, words.encode())])
        place = messages.MessagePlace(1, None, "chat", 1.0)
        messages.append(conn, list(messages.rows_of(scope_id, place, found)))

    for ahead, words in ((900.0, "one"), (10.0, "two"), (11.0, "three")):
        # Of another worker.
        monkeypatch.setattr(ids, "row_keys", ids.RowKeys())
        monkeypatch.setattr(ids.clock, "ahead", ahead)
        await db.write(lambda conn, words=words: say(conn, words))
    said = select(t.messages.c.content, t.messages.c.id).order_by(t.messages.c.id)
    rows = await db.read(lambda conn: conn.execute(said).all())
    assert [row.content for row in rows] == ["one", "two", "three"]
    owner = ScopeOwner(scope, 0)
    found = await db.read(lambda conn: scopes.scope_status(conn, owner, scope_id, 1))
    assert (found.stored, found.indexed) == (rows[-1].id, 0)


async def test_a_value_that_does_not_fit_is_told_apart_from_an_outage(db):
    from sqlalchemy.exc import DataError, IntegrityError, OperationalError

    def failing(**row):
        return lambda conn: statements.add_row(conn, t.marks, **row)

    await db.write(marking("a"))
    for row, kind in (
        ({"name": "b", "upto": "x"}, DataError),
        ({"name": "b" * 65, "upto": 1}, DataError),
        ({"name": "b", "upto": None}, IntegrityError),
    ):

        def work(conn, row=row, kind=kind):
            with pytest.raises(kind):
                statements.add_row(conn, t.marks, **row)
            # The transaction is of no use any more.
            raise KeyError

        with pytest.raises(KeyError):
            await db.write(work)
    with pytest.raises(DataError, match="ProgramLimitExceeded"):
        await db._connections.read(
            lambda conn: statements.execute_sql(conn, "SELECT repeat('x', 2000000000)")
        )
    with pytest.raises(StoreUnavailable, match=OperationalError.__name__):
        await db.read(lambda conn: statements.execute_sql(conn, "SELECT no FROM such_table"))


async def test_a_spilled_record_that_is_refused_is_set_aside_and_the_store_opens(
    postgres_url, tmp_path, monkeypatch
):
    memory = Memory(Database(postgres_url, secret=stores.SECRET), Policy(), stores.SECRET, tmp_path)
    owner = ScopeOwner(Scope("t", "ada", "a", stores.SECRET), 0)
    for conversation in (1, 2, 3):
        await memory.recovery_log.keep(TurnRecord(owner, conversation, [], [], False))

    def replay(conn, r):
        name = {1: "long" * 99, 2: None, 3: "good"}[r.conversation]
        conn.execute(insert(t.marks).values(name=name, upto=1))

    monkeypatch.setattr("memory.session.replay.turn_writer.record", replay)
    await memory.open()
    try:
        assert await memory.db.read(names) == ["good"]
    finally:
        await memory.close()
    assert len((tmp_path / "spill.bad").read_bytes().splitlines()) == 2
    assert not list(memory.recovery_log.load())


async def test_another_secret_and_other_tables_are_refused_with_the_next_step(postgres_url):
    with pytest.raises(NotUpgraded, match=r"storage\.secret is not the secret"):
        await Database(postgres_url, secret=b"\x52" * 32).open()
    stores.on_server(postgres_url, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(NotUpgraded, match=r"is at version 0001.*`mnemogate db upgrade`"):
        await Database(postgres_url, secret=stores.SECRET).open()


async def test_a_database_that_takes_no_writes_is_told(postgres_url):
    name = postgres_url.rsplit("/", 1)[1]
    stores.on_server(postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="is read-only"):
        await Database(postgres_url, secret=stores.SECRET).open()
    with pytest.raises(OSError, match="is read-only"):
        postgres_probe.look(postgres_url)


async def test_a_server_that_is_away_is_told_without_its_password(postgres_url):
    away = make_url(postgres_url).set(port=9).render_as_string(hide_password=False)
    with pytest.raises(StoreUnavailable) as told:
        await Database(away, secret=stores.SECRET).open()
    assert "cannot be opened" in str(told.value)
    assert make_url(postgres_url).password not in str(told.value)
    with pytest.raises(OSError, match=r"refused|Connect"):
        postgres_probe.query(away, "SELECT 1")


async def test_the_probe_reads_before_a_store_is_open(postgres_url):
    assert postgres_probe.query(postgres_url, "SELECT name FROM marks WHERE name = $1", "x") == []
    assert postgres_probe.query(postgres_url, "SELECT 1 FROM no_such_table") == []
    version, revision = postgres_probe.look(postgres_url)
    assert (int(version.partition(".")[0]) >= 15, revision) == (True, t.REVISION)


async def test_the_probe_reads_a_url_as_the_store_does(postgres_url):
    url = f"{postgres_url}?ssl=prefer&prepared_statement_cache_size=100"
    assert postgres_probe.query(url, "SELECT 1") == [(1,)]
    async with opened(url) as db:
        assert await db.read(names) == []


def shape(url):
    """Every column, index and constraint."""
    return [
        postgres_probe.query(
            url,
            f"SELECT {of} WHERE schemaname = 'public' "
            "AND tablename != 'alembic_version' ORDER BY 1, 2, 3",
        )
        for of in (
            "tablename, indexname, indexdef FROM pg_indexes",
            "conrelid::regclass::text, conname, pg_get_constraintdef(c.oid) FROM pg_constraint c "
            "JOIN pg_tables t ON t.tablename = conrelid::regclass::text",
            "table_name::text, column_name::text, data_type::text || is_nullable FROM "
            "information_schema.columns c JOIN pg_tables t ON t.tablename = c.table_name AND "
            "t.schemaname = c.table_schema",
        )
    ]


async def test_a_database_that_lacks_tables_of_the_index_is_refused(postgres_url):
    stores.on_server(postgres_url, "DROP TABLE message_terms")
    with pytest.raises(NotUpgraded, match="lacks message_terms"):
        await Database(postgres_url, secret=stores.SECRET).open()


def test_an_empty_database_gets_its_tables_from_upgrade_too_and_again_nothing(postgres_url):
    made = shape(postgres_url)
    stores.on_server(postgres_url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    for _ in range(2):
        assert upgrade(postgres_url) == t.REVISION
    assert postgres_probe.look(postgres_url)[1] == t.REVISION
    assert shape(postgres_url) == made

    async def opens():
        async with opened(postgres_url) as db:
            return await db.read(scopes.probe)

    assert asyncio.run(opens()) is None
    asyncio.run(vacuum.vacuum(postgres_url))


async def test_a_transaction_is_not_taken_for_another_that_has_its_number_after_a_crash(db):
    from sqlalchemy.exc import OperationalError

    connections = db._connections
    one = await connections._take()
    told = await one.raw.fetchval(postgres.LOCKS["nothing"])
    await connections._give(one)
    assert await connections._was_committed(told)
    number, _, server = told.partition(" ")
    with pytest.raises(OperationalError, match="crashed"):
        await connections._was_committed(f"{number} 1{server}")


async def test_a_connection_knows_every_type_before_its_first_statement(db, monkeypatch):
    """The driver asks for a type that it does not know: seconds where a pooler stands between."""
    await db.read(names)
    asked = []

    async def never(self, types, timeout):
        asked.append(types)
        raise AssertionError

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", never)
    folder = Path(postgres.__file__).parent
    sources = "".join(file.read_text() for file in folder.glob("*.py"))
    arrays = {*re.findall(r"::(\w+)\[\]", sources), *(name for _, name in turn_statement.TYPES)}
    assert len(arrays) > 5
    for name in arrays:
        sql = f"SELECT $1::{name}[]"
        assert await db.read(lambda conn, sql=sql: fetch_sql(conn, sql, None)[0][0]) is None
    assert not asked
    assert await db.read(lambda conn: fetch_sql(conn, "SHOW jit")[0][0], single=True) == "on"


async def test_a_server_that_ends_a_new_connection_is_a_store_that_is_away(db, monkeypatch):
    async def ended(raw):
        raise asyncpg.AdminShutdownError("terminating connection")

    for held in list(db._connections._open_connections):
        held.raw.terminate()
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "learn_arrays", ended)
        # More than there may be connections.
        for _ in range(20):
            with pytest.raises(StoreUnavailable):
                await db.read(names)
    assert await db.read(names) == []
