"""How long a search takes, in process, as stores grow; and whether insertion slows with them."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from memory.conversation.messages import keyed_hash
from memory.retrieval.retriever import Retriever, SemanticSearch
from memory.scope import Scope
from memory.search.query import index_text, spoken_day
from memory.search.similarity import pack_vector
from memory.stores.sql.engine.schema import marks
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import put_row
from memory.stores.sql.rows import passage_lifecycle, passages
from memory.stores.sql.rows import scopes as owners
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.passages import PassageFilter
from tests.bench.retrieval.stored import SECRET, Store

USERS = 1000
# Users whose messages have vectors.
SAMPLE = 50
WORDS = [
    f"{a}{b}{c}"
    for a in ("ba", "ko", "mi", "tu", "re", "sha", "lo", "ne")
    for b in ("lin", "ter", "gor", "pam", "vik", "dun", "sel", "rok")
    for c in (*"abcdefghijklmnopqrstuvwxyz", *map(str, range(100)))
]
WEIGHTS = list(itertools.accumulate(1 / (i + 10) for i in range(len(WORDS))))
DIMENSIONS = 384
SEARCHES = 400
BEGIN = 1_700_000_000.0


class Random:
    """An embedder of random directions: what a query costs does not depend on what they mean."""

    model = "random"

    async def __call__(self, tenant: str, texts: Any) -> list[list[float]]:
        return [[random.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in texts]


def said(chosen: random.Random, count: int = 16) -> str:
    return " ".join(chosen.choices(WORDS, cum_weights=WEIGHTS, k=count))


def asked(chosen: random.Random) -> str:
    """Common words, rare ones, and a month."""
    return f"{said(chosen, 5)} {chosen.choice(WORDS)} in May 2023"


async def timed(search: Callable[[], Awaitable[Any]], times: int = SEARCHES) -> str:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        await search()
        taken.append((time.perf_counter() - begun) * 1e3)
    taken.sort()
    return f"p50 {statistics.median(taken):6.2f} ms   p95 {taken[int(times * 0.95)]:6.2f} ms"


async def scopes(store: Store, count: int) -> list[int]:
    def work(conn: Any) -> list[int]:
        return [
            owners.get_or_create(
                conn, owners.current_owner(conn, Scope("bench", f"u{i}", "default", SECRET))
            )
            for i in range(count)
        ]

    return await store.memory.db.write(work)


async def in_bulk(
    store: Store, table: str, rows: Iterator[tuple[tuple[Any, ...], tuple[int, int, str, str]]]
) -> None:
    """rows: (values of the table, (key, scope, text, words before)), interleaved over the scopes as
    time would.
    """
    columns = {
        "passages": "id, public_id, scope_id, content, digest, created_at",
        "messages": "id, public_id, scope_id, conversation, node, role, body, content, source, "
        "created_at",
    }[table]

    def work(conn: Any) -> bool:
        some = list(itertools.islice(rows, 20_000))
        if not some:
            return False
        marks = ", ".join("?" * len(some[0][0]))
        conn.exec_driver_sql(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})", [values for values, _ in some]
        )
        conn.exec_driver_sql(
            f"INSERT INTO {table}_fts (rowid, scope, body, speaker, prev, day) VALUES (?, ?, ?, "
            "?, ?, ?)",
            [
                (
                    key,
                    f"s{s}",
                    index_text(s, body),
                    index_text(s, "user"),
                    index_text(s, before),
                    index_text(s, spoken_day(BEGIN + key)),
                )
                for _, (key, s, body, before) in some
            ],
        )
        return True

    while await store.memory.db.write(work):
        pass
    # As an import leaves it, see `messages.add`.
    if table == "messages":

        def mark(conn: Any) -> None:
            newest = sql_driver(conn).index.newest_key(conn, 0)
            put_row(conn, marks, ("name",), name=table, upto=newest)

        await store.memory.db.write(mark)


async def of_passages(count: int) -> None:
    chosen = random.Random(1)
    async with Store() as store:
        found = await scopes(store, USERS)

        def rows() -> Iterator[Any]:
            for i in range(1, count + 1):
                scope, text = found[i % USERS], said(chosen)
                yield (
                    (
                        i,
                        f"passage_{i}",
                        scope,
                        text,
                        keyed_hash(b"bench", str(i).encode()),
                        BEGIN + i,
                    ),
                    (i, scope, text, ""),
                )

        await in_bulk(store, "passages", rows())
        retrieval = store.memory.retrieval
        took = await timed(
            lambda: retrieval.passages(
                chosen.choice(found), PassageFilter(SearchQuery(asked(chosen)))
            )
        )
        print(f"{count} passages of {USERS} users, keyword   {took}")

        def vectors(conn: Any) -> None:
            made = [
                (
                    i,
                    found[i % USERS],
                    "random",
                    pack_vector([chosen.gauss(0, 1) for _ in range(DIMENSIONS)]),
                )
                for i in range(1, 1001)
            ]
            conn.exec_driver_sql(
                "INSERT INTO vectors (passage, scope_id, model, vector) VALUES (?, ?, ?, ?)",
                [(i, found[i % USERS], "random", made[i % 1000][3]) for i in range(1, count + 1)],
            )

        await store.memory.db.write(vectors)
        meaning = Retriever(store.memory.db, SemanticSearch(Random()))
        took = await timed(
            lambda: meaning.passages(
                chosen.choice(found), PassageFilter(SearchQuery(asked(chosen)))
            )
        )
        print(f"{count} passages of {USERS} users, vectors   {took}")
        print(
            "one passage more, there                    p50 "
            f"{await one_more(store, found[3], chosen):6.2f} ms"
        )
    async with Store() as store:
        found = await scopes(store, 1)
        print(
            "one passage more, in an empty store        p50 "
            f"{await one_more(store, found[0], chosen):6.2f} ms"
        )


async def one_more(store: Store, scope: int, chosen: random.Random) -> float:
    """The median of a hundred inserts, in ms."""
    taken = []
    for _ in range(100):
        begun = time.perf_counter()
        await store.memory.db.write(
            lambda conn: passage_lifecycle.keep(conn, scope, passages.NewPassage(said(chosen)))
        )
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e3


async def of_messages(count: int) -> None:
    chosen = random.Random(2)
    async with Store() as store:
        found = await scopes(store, USERS)
        await store.memory.db.write(
            lambda conn: conn.exec_driver_sql(
                "INSERT INTO conversations (id, scope_id, name, explicit, resent, created_at, "
                "updated_at) VALUES (?, ?, ?, 1, 0, 0, 0)",
                [(i + 1, scope, f"c{i}") for i, scope in enumerate(found)],
            )
        )

        def rows() -> Iterator[Any]:
            before = [""] * USERS
            for i in range(1, count + 1):
                u, text = i % USERS, said(chosen)
                yield (
                    (
                        i,
                        f"msg_{i}",
                        found[u],
                        u + 1,
                        None,
                        ("user", "assistant")[i // USERS % 2],
                        "{}",
                        text,
                        "chat",
                        BEGIN + i,
                    ),
                    (i, found[u], text, before[u]),
                )
                before[u] = text

        await in_bulk(store, "messages", rows())
        wanted = ("user", "assistant")
        search = store.memory.retrieval.messages
        took = await timed(lambda: search(chosen.choice(found), SearchQuery(asked(chosen), wanted)))
        print(f"{count} messages of one tenant, {USERS} users    {took}")
        sample = found[:SAMPLE]

        def vectors(conn: Any) -> None:
            made = [
                pack_vector([chosen.gauss(0, 1) for _ in range(DIMENSIONS)]) for _ in range(1000)
            ]
            conn.exec_driver_sql(
                "INSERT INTO message_vectors (message, scope_id, model, vector) VALUES (?, ?, "
                "?, ?)",
                [
                    (i, found[i % USERS], "random", made[i % 1000])
                    for i in range(1, count + 1)
                    if i % USERS < SAMPLE
                ],
            )

        await store.memory.db.write(vectors)
        meaning = Retriever(store.memory.db, SemanticSearch(Random()))
        took = await timed(
            lambda: meaning.messages(chosen.choice(sample), SearchQuery(asked(chosen), wanted))
        )
        print(f"the same, {SAMPLE} of them with vectors     {took}")


async def report(messages: int) -> None:
    await of_passages(100_000)
    await of_messages(messages)
