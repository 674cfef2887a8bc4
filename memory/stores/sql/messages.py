"""Recall memory rows: every message once, with its search document beside it."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, select, text

from memory.ids import new_id, new_key
from memory.jobs.queue import Job, enqueue
from memory.messages import Json, is_system, text_of
from memory.ranking import Near
from memory.search import named
from memory.stores.sql import index, vectors
from memory.stores.sql import schema as t
from memory.stores.sql.index import TEXT, Corner, Doc
from memory.stores.sql.rows import add_row, execute

m, n = t.messages.c, t.nodes.c
encode, decode = msgspec.json.encode, msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages belong. source: chat (of a request), answer, evicted, import. at: seconds since 1970.

    before: the words of the message before the first of these, for the search index; looked up where not given. later: they are put
    into the index by `index_new`.
    """

    conversation: int
    node: int | None
    source: str
    at: float
    aborted: bool = False
    before: str = ""
    later: bool = False


def add(conn: Connection, scope_id: int, place: Place, found: Sequence[tuple[Json, bytes]], once: bool = False) -> int:
    """Stores messages, each with its digest, in order (system text is the app's, not the user's: left out). Returns how many.

    once: a message that is in the conversation already is not stored again.
    """
    made = 0
    # What compaction evicts is older than what stands there already.
    before = place.before or ("" if place.later or place.source == "evicted" else words_before(conn, place.conversation, place.node, None))
    there = _there(conn, place.conversation, [digest for _, digest in found]) if once else set()
    for i, (message, digest) in enumerate(found):
        if is_system(message) or digest in there:
            continue
        if once:
            there.add(digest)
        words, key = text_of(message), new_key() + i
        add_row(
            conn, t.messages, id=key, public_id=new_id("msg"), scope_id=scope_id, conversation=place.conversation, node=place.node, role=str(message.get("role") or ""),
            body=encode(message).decode(), content=words, digest=digest, aborted=place.aborted, source=place.source, created_at=place.at)
        if place.later:
            add_row(conn, t.unindexed, scope_id=scope_id, id=key)
        else:
            index.put(conn, "messages_fts", key, Doc(scope_id, words, speaker(message), before, place.at))
        before = words
        made += 1
    return made


def _there(conn: Connection, conversation: int, digests: Sequence[bytes]) -> set[bytes]:
    """Those of the digests that are in the conversation already: asked in a few queries, for a long past is evicted at once."""
    out: set[bytes] = set()
    for i in range(0, len(digests), 500):
        out.update(conn.execute(select(m.digest).where(m.conversation == conversation, m.digest.in_(digests[i : i + 500]))).scalars())
    return out


def speaker(message: Json) -> str:
    """Who said it, as the search index knows them: by name where they have one, and by role."""
    return f"{message.get('name') or ''} {named(text_of(message))} {message.get('role') or ''}"


LAST = 2**63 - 1
BEFORE = text(
    "SELECT content FROM messages WHERE conversation = :conversation AND id < :key AND (node = :node OR node = (SELECT parent FROM nodes WHERE id = :node))"
    " AND role IN ('user', 'assistant') AND content != '' AND source != 'evicted' ORDER BY id DESC LIMIT 1")


def words_before(conn: Connection, conversation: int, node: int | None, key: int | None) -> str:
    """The words before a message (key; None: a new one), of its own turn or of the one that it goes on from: never of
    another branch."""
    if node is None:
        return ""
    row = execute(conn, BEFORE, {"conversation": conversation, "node": node, "key": LAST if key is None else key}).first()
    return str(row[0]) if row else ""


def remove(conn: Connection, which: Any) -> int:
    """Removes messages, their documents and their vectors. Returns how many."""
    keys = list(conn.execute(select(m.id).where(which)).scalars())
    for key in keys:
        index.drop(conn, "messages_fts", key)
    if keys:
        conn.execute(delete(t.unindexed).where(t.unindexed.c.id.in_(keys)))
        if embedded := vectors.drop(conn, vectors.MESSAGES, keys):
            enqueue(conn, Job("erase", {"scopes": [], "messages": {str(scope): found for scope, found in embedded.items()}}))
        conn.execute(delete(t.messages).where(m.id.in_(keys)))
    return len(keys)


def ancestors(node: int) -> Any:
    """The node and all before it, as a query of ids."""
    line = select(n.id, n.parent).where(n.id == node).cte("line", recursive=True)
    older = t.nodes.alias("older")
    line = line.union_all(select(older.c.id, older.c.parent).where(older.c.id == line.c.parent))
    return select(line.c.id)


def line(conn: Connection, scope_id: int, head: int | None) -> list[tuple[int, Json]]:
    """(node, message) along the line that ends in `head`, oldest first."""
    if head is None:
        return []
    # By place in the line, not by time: turns that ran at once were written between each other.
    query = select(m.node, m.body).join(t.nodes, n.id == m.node).where(
        m.scope_id == scope_id, m.node.in_(ancestors(head)), m.source != "evicted").order_by(n.depth, m.id)
    return [(row.node, decode(row.body)) for row in conn.execute(query)]


def paired(found: Sequence[Json], asked: Sequence[Json] = ()) -> list[Json]:
    """The messages without calls that have no result and results that have no call: an upstream refuses either.

    asked: what follows them; results at its beginning count.
    """
    following = itertools.takewhile(lambda x: x.get("role") in ("tool", "system", "developer"), asked)
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
            message = {k: v for k, v in message.items() if k != "tool_calls"} | ({"tool_calls": calls} if calls else {})
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


def search(conn: Connection, scope_id: int, q: Query, near: Near | None = None) -> list[dict[str, Any]]:
    """Hits, best first; without words: the newest. Each with id, role, content, conversation, created_at, score and why. near: the rows
    nearest by meaning."""
    rows = _allowed(select(m.id, m.conversation, m.created_at, func.substr(m.content, 1, TEXT)).where(m.scope_id + 0 == scope_id), q)  # + 0: by row key
    hits = select(m.id, m.public_id, m.role, m.content, m.created_at, m.aborted, t.conversations.c.name.label("conversation")).join(
        t.conversations, t.conversations.c.id == m.conversation)
    newest = _allowed(hits.where(m.scope_id == scope_id), q)
    return ranked(conn, Corner("messages_fts", scope_id, rows, m.id, _beside), (hits, newest), q, near or Near())


def narrowed(scope_id: int, q: Query) -> Any:
    """The rows that the filters leave, as a query of row keys; None where they leave every row that has a vector."""
    if q.since is None and q.until is None and q.within is None and (not q.roles or {"user", "assistant"} <= set(q.roles)):
        return None
    return _allowed(select(m.id).where(m.scope_id == scope_id), q)


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, Doc]]:
    """Row keys and what is indexed of them, in order, after a row key."""
    rows = conn.execute(select(t.messages).where(m.id > after).order_by(m.id).limit(limit))
    return [(r.id, _doc(conn, r)) for r in rows]


def _doc(conn: Connection, row: Any) -> Doc:
    before = "" if row.source == "evicted" else words_before(conn, row.conversation, row.node, row.id)
    return Doc(row.scope_id, row.content, speaker(decode(row.body)), before, row.created_at)


u = t.unindexed.c
WAITING = select(u.scope_id.label("whose"), u.id.label("waiting"), t.messages).join_from(t.unindexed, t.messages, u.id == m.id, isouter=True).limit(bindparam("most"))
WAITING_HERE = WAITING.where(u.scope_id == bindparam("scope")).order_by(u.id.desc())
WAITS = select(u.id).where(u.scope_id == bindparam("scope")).limit(1)
INDEXED = delete(t.unindexed).where(u.scope_id == bindparam("whose"), u.id == bindparam("waiting"))


def index_new(conn: Connection, most: int, scope_id: int | None = None) -> int:
    """Puts at most so many messages that wait for it into the search index. scope_id: those of one scope, newest first. Returns how many."""
    rows = list(execute(conn, WAITING, {"most": most}) if scope_id is None else execute(conn, WAITING_HERE, {"most": most, "scope": scope_id}))
    for row in rows:
        if row.public_id is not None:  # else it was removed before it was indexed
            index.put(conn, "messages_fts", row.waiting, _doc(conn, row))
        execute(conn, INDEXED, {"whose": row.whose, "waiting": row.waiting})
    return len(rows)


def index_waits(conn: Connection, scope_id: int) -> bool:
    """Whether any message of the scope waits to be put into the index."""
    return bool(list(execute(conn, WAITS, {"scope": scope_id})))


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


def ranked(conn: Connection, corner: Corner, queries: tuple[Any, Any], q: Query, near: Near) -> list[dict[str, Any]]:
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
    return [{**by_key[k]._mapping, "score": round(order[k].score, 4), "why": order[k].why | ({"similarity": round(near[k], 4)} if k in near else {})} for k in wanted if k in by_key]


def _beside(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """What was said before and after each message in its conversation."""
    said = "SELECT n.id FROM messages n WHERE n.conversation = m.conversation AND n.role IN ('user', 'assistant') AND n.content != '' AND n.id"
    rows = conn.exec_driver_sql(
        f"SELECT m.id, ({said} < m.id ORDER BY n.id DESC LIMIT 1), ({said} > m.id ORDER BY n.id LIMIT 1)"  # noqa: S608 - no input in it
        " FROM json_each(?) k JOIN messages m ON m.id = k.value", (encode(keys).decode(),))
    return {key: (before, after) for key, before, after in rows}


def page(conn: Connection, conversation: int, after: int, limit: int) -> list[dict[str, Any]]:
    """Messages of a conversation in order, after a row key."""
    rows = conn.execute(select(t.messages).where(m.conversation == conversation, m.id > after).order_by(m.id).limit(limit))
    return [dict(r._mapping) for r in rows]


def count(conn: Connection, conversation: int) -> int:
    return int(conn.execute(select(func.count()).select_from(t.messages).where(m.conversation == conversation)).scalar() or 0)
