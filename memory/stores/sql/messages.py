"""Recall memory rows: every message once, with its search document beside it."""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, select, text
from sqlalchemy.exc import SQLAlchemyError

from memory.ids import new_id, new_key, time_of
from memory.jobs.queue import Job, enqueue
from memory.messages import Json, is_system, text_of
from memory.ranking import Near
from memory.search import named
from memory.stores.sql import index, vectors
from memory.stores.sql import schema as t
from memory.stores.sql.index import TEXT, Corner, Doc
from memory.stores.sql.rows import add_row, add_rows, among, any_of, driver, execute, put_row

log = logging.getLogger("mnemogate")
m, n = t.messages.c, t.nodes.c
encode, decode = msgspec.json.encode, msgspec.json.decode


@dataclass(slots=True)
class Place:
    """Where messages belong. source: chat (of a request), answer, evicted, import. at: seconds since 1970.

    before: the words of the message before the first of these, for the search index; looked up where not given.
    """

    conversation: int
    node: int | None
    source: str
    at: float
    aborted: bool = False
    before: str = ""


def said(body: str, role: str, content: str) -> Json:
    """A message as it was given, from its row."""
    return decode(body) if body else {"role": role, "content": content}


def rows_of(
    scope_id: int, place: Place, found: Sequence[tuple[Json, bytes]]
) -> Iterator[dict[str, Any]]:
    """Messages, each with its digest, as rows without a key; system text is the app's, not the user's: left out."""
    for message, digest in found:
        if is_system(message):
            continue
        words, role = text_of(message), str(message.get("role") or "")
        plain = list(message.items()) == [
            ("role", role),
            ("content", words),
        ]  # as most are: their text is stored once
        yield {
            "public_id": new_id("msg"),
            "scope_id": scope_id,
            "conversation": place.conversation,
            "node": place.node,
            "role": role,
            "body": "" if plain else encode(message).decode(),
            "content": words,
            "digest": digest,
            "aborted": place.aborted,
            "source": place.source,
            "created_at": place.at,
        }


def append(conn: Connection, rows: Sequence[dict[str, Any]], newest: int | None = None) -> None:
    """Stores rows of `rows_of` in their order; `index_new` puts them into the search index. newest: see `newest_key`, asked where not given."""
    if not rows:
        return
    key = max(new_key(), 1 + (newest_key(conn) if newest is None else newest))
    add_rows(conn, t.messages, [{"id": key + i, **row} for i, row in enumerate(rows)])


# Messages are put into the index in the order of their keys, so the key of one to be stored has to be greater than all, even with a clock set back.
GREATEST, INDEXED_TO = (
    select(func.max(m.id)).scalar_subquery(),
    select(t.marks.c.upto).where(t.marks.c.name == "messages").scalar_subquery(),
)
NEWEST = select(GREATEST.label("stored"), INDEXED_TO.label("indexed"))


def newest_key(conn: Connection) -> int:
    """The greatest key that a message has or had."""
    found = execute(conn, NEWEST, {}).one()
    return max(found.stored or 0, found.indexed or 0)


def add(
    conn: Connection,
    scope_id: int,
    place: Place,
    found: Sequence[tuple[Json, bytes]],
    once: bool = False,
) -> int:
    """Stores messages, each with its digest, in order, and puts them into the search index. Returns how many.

    once: a message that is in the conversation already is not stored again.
    """
    # What compaction evicts is older than what stands there already.
    before = place.before or (
        ""
        if place.source == "evicted"
        else words_before(conn, place.conversation, place.node, None)
    )
    there = _there(conn, place.conversation, [digest for _, digest in found]) if once else set()
    new = (
        list(
            {
                digest: (message, digest)
                for message, digest in reversed(found)
                if digest not in there
            }.values()
        )[::-1]
        if once
        else found
    )
    rows, known = list(rows_of(scope_id, place, new)), execute(conn, NEWEST, {}).one()
    greatest = indexed = known.indexed or 0
    for i, row in enumerate(rows):
        key = new_key() + i
        greatest = max(greatest, key)
        add_row(conn, t.messages, id=key, **row)
        index.put(
            conn,
            "messages_fts",
            key,
            Doc(
                scope_id,
                row["content"],
                speaker(said(row["body"], row["role"], row["content"])),
                before,
                place.at,
            ),
        )
        before = row["content"]
    if (
        rows and driver(conn) is not None and (known.stored or 0) <= indexed
    ):  # nothing waits: a search need not look through an import for it
        put_row(conn, t.marks, ("name",), name="messages", upto=greatest)
    return len(rows)


def _there(conn: Connection, conversation: int, digests: Sequence[bytes]) -> set[bytes]:
    """Those of the digests that are in the conversation already: asked in a few queries, for a long past is evicted at once."""
    return {
        row.digest for row in among(conn, _with_digest, {"conversation": conversation}, digests)
    }


@cache
def _with_digest(size: int) -> Any:
    return select(m.digest).where(
        m.conversation == bindparam("conversation"), any_of(m.digest, size)
    )


def speaker(message: Json) -> str:
    """Who said it, as the search index knows them: by name where they have one, and by role."""
    return f"{message.get('name') or ''} {named(text_of(message))} {message.get('role') or ''}"


LAST = 2**63 - 1
BEFORE = text(
    "SELECT content FROM messages WHERE conversation = :conversation AND id < :key AND (node = :node OR node = (SELECT parent FROM nodes WHERE id = :node))"
    " AND role IN ('user', 'assistant') AND content != '' AND source != 'evicted' ORDER BY id DESC LIMIT 1"
)


def words_before(conn: Connection, conversation: int, node: int | None, key: int | None) -> str:
    """The words before a message (key; None: a new one), of its own turn or of the one that it goes on from: never of
    another branch."""
    if node is None:
        return ""
    row = execute(
        conn,
        BEFORE,
        {"conversation": conversation, "node": node, "key": LAST if key is None else key},
    ).first()
    return str(row[0]) if row else ""


def remove(conn: Connection, which: Any) -> int:
    """Removes messages, their documents and their vectors. Returns how many."""
    keys = list(conn.execute(select(m.id).where(which)).scalars())
    for key in keys:
        index.drop(conn, "messages_fts", key)
    if keys:
        if embedded := vectors.drop(conn, vectors.MESSAGES, keys):
            enqueue(
                conn,
                Job(
                    "erase",
                    {
                        "scopes": [],
                        "messages": {str(scope): found for scope, found in embedded.items()},
                    },
                ),
            )
        conn.execute(delete(t.messages).where(m.id.in_(keys)))
    return len(keys)


def ancestors(node: int) -> Any:
    """The node and all before it, as a query of ids."""
    line = select(n.id, n.parent).where(n.id == node).cte("line", recursive=True)
    older = t.nodes.alias("older")
    line = line.union_all(select(older.c.id, older.c.parent).where(older.c.id == line.c.parent))
    return select(line.c.id)


def paired(found: Sequence[Json], asked: Sequence[Json] = ()) -> list[Json]:
    """The messages without calls that have no result and results that have no call: an upstream refuses either.

    asked: what follows them; results at its beginning count.
    """
    following = itertools.takewhile(
        lambda x: x.get("role") in ("tool", "system", "developer"), asked
    )
    answered = {str(x.get("tool_call_id")) for x in [*found, *following] if x.get("role") == "tool"}
    out: list[Json] = []
    open_calls: set[str] = set()
    for message in found:
        if message.get("role") == "tool":
            if str(message.get("tool_call_id")) in open_calls:
                out.append(message)
            continue
        calls = [c for c in message.get("tool_calls") or [] if str(c.get("id")) in answered]
        open_calls = {str(c.get("id")) for c in calls}
        if message.get("tool_calls") and len(calls) != len(message["tool_calls"]):
            message = {k: v for k, v in message.items() if k != "tool_calls"} | (
                {"tool_calls": calls} if calls else {}
            )
            if not calls and not message.get("content"):
                continue
        out.append(message)
    return out


@dataclass(frozen=True, slots=True)
class Query:
    """A search. roles empty: any. within: only nodes on the line that ends here (nobody named). skip: this node's messages
    are left out. Times in seconds since 1970."""

    text: str = ""
    roles: Sequence[str] = ()
    since: float | None = None
    until: float | None = None
    limit: int = 10
    offset: int = 0
    within: int | None = None
    skip: int = 0


def search(
    conn: Connection, scope_id: int, q: Query, near: Near | None = None
) -> list[dict[str, Any]]:
    """Hits, best first; without words: the newest. Each with id, role, content, conversation, created_at, score and why. near: the rows
    nearest by meaning."""
    rows = _allowed(
        select(m.id, m.conversation, m.created_at, func.substr(m.content, 1, TEXT)).where(
            m.scope_id + 0 == scope_id
        ),
        q,
    )  # + 0: by row key
    hits = select(
        m.id,
        m.public_id,
        m.role,
        m.content,
        m.created_at,
        m.aborted,
        t.conversations.c.name.label("conversation"),
    ).join(t.conversations, t.conversations.c.id == m.conversation)
    newest = _allowed(hits.where(m.scope_id == scope_id), q)
    return ranked(
        conn,
        Corner("messages_fts", scope_id, rows, m.id, _beside),
        (hits, newest),
        q,
        near or Near(),
    )


def narrowed(scope_id: int, q: Query) -> Any:
    """The rows that the filters leave, as a query of row keys; None where they leave every row that has a vector."""
    if (
        q.since is None
        and q.until is None
        and q.within is None
        and (not q.roles or {"user", "assistant"} <= set(q.roles))
    ):
        return None
    return _allowed(select(m.id).where(m.scope_id == scope_id), q)


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, Doc]]:
    """Row keys and what is indexed of them, in order, after a row key."""
    rows = conn.execute(select(t.messages).where(m.id > after).order_by(m.id).limit(limit))
    return [(r.id, _doc(conn, r)) for r in rows]


class _Named(msgspec.Struct):
    """Of a message as it was given, what the index needs beside its text."""

    name: Any = None


_named = msgspec.json.Decoder(_Named).decode


def _doc(conn: Connection, row: Any) -> Doc:
    before = (
        "" if row.source == "evicted" else words_before(conn, row.conversation, row.node, row.id)
    )
    name = _named(row.body).name if row.body else None
    return Doc(
        row.scope_id,
        row.content,
        speaker({"name": name, "role": row.role, "content": row.content}),
        before,
        row.created_at,
    )


MARK = select(t.marks.c.upto).where(t.marks.c.name == "messages")
THERE = "EXISTS (SELECT 1 FROM messages_fts WHERE rowid = m.id)"  # those that were put in at once, or before a search
AHEAD = "FROM messages WHERE id > :mark ORDER BY id LIMIT :ahead"
NEXT = text(f"SELECT * FROM (SELECT * {AHEAD}) m WHERE NOT {THERE} LIMIT :most")  # noqa: S608 - no input in it
PASSED = text(f"SELECT count(*), max(id) FROM (SELECT id {AHEAD})")  # noqa: S608 - no input in it
NEXT_HERE = text(
    f"SELECT m.* FROM messages m WHERE m.scope_id = :scope AND m.created_at >= :since AND m.id > :mark AND NOT {THERE}"  # noqa: S608 - no input in it
    " ORDER BY m.id DESC LIMIT :most"
)
WINDOW = 512  # messages that one look passes over, where an import put them in
SET_BACK = 60.0  # seconds by which a clock may be set back and a search still find at once what is said then


def index_new(conn: Connection, most: int, scope_id: int | None = None) -> int:
    """Puts the next messages, `most` at most, into the search index. scope_id: what waits of one scope, newest first. Returns how many, or
    `most` where more may wait. One that cannot be put in is passed over where another can; raises what it raised where none can."""
    rows = _waiting(conn, most, scope_id)
    failed = {row.id: e for row in rows if (e := _put(conn, row)) is not None}
    if rows and len(failed) == len(rows):
        raise failed[rows[0].id]
    for key, e in failed.items():
        log.warning(
            "message row %d cannot be put into the search index: %s", key, type(e).__name__
        )  # not what it says: that may be what the user said
    done = len(rows)
    if scope_id is None and driver(conn) is not None:
        passed, upto = (
            (done, rows[-1].id)
            if done == most
            else conn.execute(PASSED, {"mark": _mark(conn), "ahead": WINDOW}).one()
        )
        if upto is not None:
            put_row(conn, t.marks, ("name",), name="messages", upto=upto)
        done = most if passed == WINDOW else done
    return done


def _put(conn: Connection, row: Any) -> Exception | None:
    """Puts one message into the search index. Returns why it cannot be. Raises what the database raises: that is no fault of the row's."""
    try:
        index.put(conn, "messages_fts", row.id, _doc(conn, row))
    except (sqlite3.Error, SQLAlchemyError):
        raise
    except Exception as e:
        return e
    return None


def waiting_size(conn: Connection, most: int, scope_id: int | None = None) -> int:
    """Characters of the next messages, `most` at most, that are to be put into the index."""
    return sum(len(row.content) + len(row.body) for row in _waiting(conn, most, scope_id))


def index_waits(conn: Connection, scope_id: int) -> bool:
    """Whether any message of the scope waits to be put into the index."""
    return bool(_waiting(conn, 1, scope_id))


def _waiting(conn: Connection, most: int, scope_id: int | None = None) -> Sequence[Any]:
    if driver(conn) is None:
        return []  # see `index.put`
    if scope_id is None:
        return conn.execute(NEXT, {"mark": _mark(conn), "ahead": WINDOW, "most": most}).all()
    mark = _mark(conn)
    return conn.execute(
        NEXT_HERE,
        {"scope": scope_id, "since": time_of(mark) - SET_BACK, "mark": mark, "most": most},
    ).all()


def _mark(conn: Connection) -> int:
    return int(execute(conn, MARK, {}).scalar() or 0)


def _allowed(query: Any, q: Query) -> Any:
    query = query.where(m.content != "")
    if q.roles:
        query = query.where(m.role.in_(q.roles))
    if q.since is not None:
        query = query.where(m.created_at >= q.since)
    if q.until is not None:
        query = query.where(m.created_at <= q.until)
    if q.within is not None:
        query = query.where(m.node.in_(ancestors(q.within)))
    if q.skip:
        query = query.where(m.node.is_distinct_from(q.skip))
    return query


def ranked(
    conn: Connection, corner: Corner, queries: tuple[Any, Any], q: Query, near: Near
) -> list[dict[str, Any]]:
    """Runs a search over an index, or by date when there are no words to look for. queries: for whole rows, and for the newest
    of those that may be shown."""
    hits, newest = queries
    if not q.text.strip():
        rows = conn.execute(newest.order_by(corner.key.desc()).limit(q.limit).offset(q.offset))
        return [{**row._mapping, "score": 0.0, "why": {"newest": True}} for row in rows]
    order = index.found(conn, corner, q.text, near, q.offset + q.limit)
    if not order:
        return []
    wanted = list(order)[q.offset : q.offset + q.limit]
    by_key = {row.id: row for row in conn.execute(hits.where(corner.key.in_(wanted)))}
    return [
        {
            **by_key[k]._mapping,
            "score": round(order[k].score, 4),
            "why": order[k].why | ({"similarity": round(near[k], 4)} if k in near else {}),
        }
        for k in wanted
        if k in by_key
    ]


def _beside(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """What was said before and after each message in its conversation."""
    said = "SELECT n.id FROM messages n WHERE n.conversation = m.conversation AND n.role IN ('user', 'assistant') AND n.content != '' AND n.id"
    rows = conn.exec_driver_sql(
        f"SELECT m.id, ({said} < m.id ORDER BY n.id DESC LIMIT 1), ({said} > m.id ORDER BY n.id LIMIT 1)"  # noqa: S608 - no input in it
        " FROM json_each(?) k JOIN messages m ON m.id = k.value",
        (encode(keys).decode(),),
    )
    return {key: (before, after) for key, before, after in rows}


def page(conn: Connection, conversation: int, after: int, limit: int) -> list[dict[str, Any]]:
    """Messages of a conversation in order, after a row key."""
    rows = conn.execute(
        select(t.messages)
        .where(m.conversation == conversation, m.id > after)
        .order_by(m.id)
        .limit(limit)
    )
    return [dict(r._mapping) for r in rows]


def count(conn: Connection, conversation: int) -> int:
    return int(
        conn.execute(
            select(func.count()).select_from(t.messages).where(m.conversation == conversation)
        ).scalar()
        or 0
    )
