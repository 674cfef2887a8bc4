"""Recall memory rows: every message once, with its search document."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, exists, func, literal, select, text

from memory.conversation.long_json import LONG_CHARACTERS
from memory.conversation.messages import Json, text_of, with_image_addresses
from memory.ids import STEP, new_id, new_message_key
from memory.search.query import speaker_name
from memory.search.ranking import SimilarityScores
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.sqlite.fts import TEXT, IndexScope, SearchDocument
from memory.stores.sql.engine.statements import (
    add_row,
    add_rows,
    execute,
    in_clause,
    rows_of_keys,
    select_in_batches,
)
from memory.stores.sql.index import vectors
from memory.stores.sql.index.index_changes import IndexChange, note_change
from memory.stores.sql.rows import message_pieces
from memory.stores.sql.rows.jobs import QueuedJob, enqueue
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.turns.replaced_turns import NAMED_BODY, complete_hits

m = t.messages.c
n = t.nodes.c
encode, decode = msgspec.json.encode, msgspec.json.decode
# What rows of one `MessagePlace` share.
PLACE_COLUMNS = ("scope_id", "conversation", "node", "aborted", "source", "created_at")
NODE_AND_SOURCE = itemgetter("node", "source")


class MessagePlace(msgspec.Struct):
    """Where messages belong.

    source: chat (of a request), answer, evicted, import. at: Unix time. before: words of the
    preceding message, for the search index; looked up if not given. public_id: of one message; a
    new one if not given.
    """

    conversation: int
    node: int | None
    source: str
    at: float
    aborted: bool = False
    before: str = ""
    public_id: str = ""


def message_of(conn: Connection, row: Any) -> Json:
    """Return a message as it was given, from its row."""
    if row.pieces is not None:
        return message_pieces.read(conn, row)
    return parse_message(row.body, row.role, row.content)


def parse_message(body: str, role: str, content: str) -> Json:
    """Return a message whose body is whole as it was given."""
    if not body:
        return {"role": role, "content": content}
    message: Json = decode(body)
    return message if len(body) <= LONG_CHARACTERS else with_image_addresses(message)


def rows_of(
    scope_id: int, place: MessagePlace, contents: Iterable[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield rows, without keys, of what `message_pieces.contents_of` returned."""
    where = (place.conversation, place.node, place.aborted, place.source, place.at)
    shared_columns = dict(zip(PLACE_COLUMNS, (scope_id, *where), strict=True))
    for content in contents:
        yield {"public_id": place.public_id or new_id("msg"), **shared_columns, **content}


def append(conn: Connection, rows: Sequence[dict[str, Any]], newest_key: int | None = None) -> None:
    """Store rows of `rows_of` in order; `index_pending` indexes them later.

    newest_key: the key that theirs have to be above, looked up if not given.
    """
    if not rows:
        return
    index = sql_driver(conn).index
    if newest_key is None:
        newest_key = index.newest_key(conn, rows[0]["conversation"])
    first_key = new_message_key(len(rows), newest_key)
    keys = range(first_key, first_key + STEP * len(rows), STEP)
    for key, row in zip(keys, rows, strict=True):
        row["id"] = key
    # Those of one place follow one another.
    is_one_place = NODE_AND_SOURCE(rows[0]) == NODE_AND_SOURCE(rows[-1])
    add_rows(conn, t.messages, rows, PLACE_COLUMNS if is_one_place else ())
    note_change(conn, IndexChange(fts.MESSAGES_INDEX, rows[0]["scope_id"], rows))
    index.add_waiting(conn, rows[0]["scope_id"], keys)


def add(
    conn: Connection,
    scope_id: int,
    place: MessagePlace,
    digested_messages: Sequence[tuple[Json, bytes]],
    once: bool = False,
) -> int:
    """Store messages with digests, in order, and index them; return how many.

    once: skip messages that the conversation has already.
    """
    # What compaction evicts is older than what is stored already.
    before = place.before
    if not before and place.source != "evicted":
        before = words_before(conn, place.conversation, place.node, None)
    new_messages = (
        _not_there(conn, place.conversation, digested_messages) if once else digested_messages
    )
    rows, index = list(rows_of(scope_id, place, contents_of(new_messages))), sql_driver(conn).index
    previous_newest, greatest = index.read_newest(conn), 0
    for row in rows:
        key = new_message_key()
        greatest = max(greatest, key)
        add_row(conn, t.messages, id=key, **row)
        note_change(conn, IndexChange(fts.MESSAGES_INDEX, scope_id, [{"id": key, **row}]))
        words = row["content"]
        speaker_name = speaker(parse_message(row["body"], row["role"], words))
        document = SearchDocument(scope_id, words, speaker_name, before, place.at)
        fts.put_document(conn, "messages_fts", key, document)
        before = words
    if rows:
        index.note_indexed(conn, greatest, previous_newest)
    return len(rows)


def _not_there(
    conn: Connection, conversation: int, digested_messages: Sequence[tuple[Json, bytes]]
) -> list[tuple[Json, bytes]]:
    """Leave out messages that the conversation has already; of duplicates keep the last."""
    stored_digests = _there(conn, conversation, [digest for _, digest in digested_messages])
    messages_by_digest = {
        digest: (message, digest)
        for message, digest in reversed(digested_messages)
        if digest not in stored_digests
    }
    return list(messages_by_digest.values())[::-1]


def _there(conn: Connection, conversation: int, digests: Sequence[bytes]) -> set[bytes]:
    """Return which digests the conversation has already, in few queries.

    A compaction may evict a long history at once.
    """
    return {
        row.digest
        for row in select_in_batches(conn, _with_digest, {"conversation": conversation}, digests)
    }


@cache
def _with_digest(size: int) -> Any:
    return select(m.digest).where(
        m.conversation == bindparam("conversation"), in_clause(m.digest, size)
    )


def speaker(message: Json) -> str:
    """Return the speaker as indexed: the name, if any, and the role."""
    return (
        f"{message.get('name') or ''} {speaker_name(text_of(message))} {message.get('role') or ''}"
    )


LAST = 2**63 - 1

BEFORE = text(
    "SELECT content FROM messages WHERE conversation = :conversation AND id < :key AND (node = "
    ":node OR node = (SELECT parent FROM nodes WHERE id = :node)) AND role IN ('user', "
    "'assistant') AND content != '' AND source != 'evicted' ORDER BY id DESC LIMIT 1"
)


def words_before(conn: Connection, conversation: int, node: int | None, key: int | None) -> str:
    """Return the words before a message (key; None: a new one), never of another branch.

    They are of its own turn or of the one that it continues.
    """
    if node is None:
        return ""
    row = execute(
        conn,
        BEFORE,
        {"conversation": conversation, "node": node, "key": LAST if key is None else key},
    ).first()
    return str(row[0]) if row else ""


def remove(conn: Connection, condition: Any) -> int:
    """Remove messages, their documents and their vectors. Returns how many."""
    removed_rows = conn.execute(select(m.id, m.pieces).where(condition)).all()
    message_pieces.remove(conn, [row.pieces for row in removed_rows if row.pieces is not None])
    keys = [row.id for row in removed_rows]
    for key in keys:
        fts.drop(conn, "messages_fts", key)
    if keys:
        if embedded := vectors.drop(conn, vectors.MESSAGES, keys):
            enqueue(
                conn,
                QueuedJob(
                    "erase",
                    {
                        "scopes": [],
                        "messages": {
                            str(scope): removed_rows for scope, removed_rows in embedded.items()
                        },
                    },
                ),
            )
        conn.execute(delete(t.messages).where(m.id.in_(keys)))
    return len(keys)


def ancestors(node: int) -> Any:
    """Return the node and all before it, as a query of ids."""
    line = select(n.id, n.parent).where(n.id == node).cte("line", recursive=True)
    older = t.nodes.alias("older")
    line = line.union_all(select(older.c.id, older.c.parent).where(older.c.id == line.c.parent))
    return select(line.c.id)


def pair_tool_results(messages: Sequence[Json], new_messages: Sequence[Json] = ()) -> list[Json]:
    """Return the messages with a result for each call, and without results of no call.

    Upstreams refuse either. A call that its client never answered gets `NO_RESULT`, so that the
    message stays as it was said, and is recognised. new_messages: what follows them; results at its
    beginning count.
    """
    following = itertools.takewhile(
        lambda x: x.get("role") in ("tool", "system", "developer"), new_messages
    )
    coming = {str(x.get("tool_call_id")) for x in following if x.get("role") == "tool"}
    paired_messages: list[Json] = []
    open_calls: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            if (name := str(message.get("tool_call_id"))) in open_calls:
                open_calls.remove(name)
                paired_messages.append(message)
            continue
        paired_messages += _missing_results(open_calls)
        open_calls = [str(c.get("id")) for c in message.get("tool_calls") or []]
        paired_messages.append(message)
    return paired_messages + _missing_results([name for name in open_calls if name not in coming])


def _missing_results(calls: Sequence[str]) -> list[Json]:
    return [{"role": "tool", "tool_call_id": name, "content": NO_RESULT} for name in calls]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search.

    roles: empty for any. within: only nodes on the line that ends here (unnamed users). skip: this
    node's messages are left out. thorough, least: see `fts.IndexQuery`. talk: not what was said in
    tasks (see `conversation.openings`). Times are Unix times.
    """

    text: str = ""
    roles: Sequence[str] = ()
    since: float | None = None
    until: float | None = None
    limit: int = 10
    offset: int = 0
    within: int | None = None
    skip: int | None = None
    thorough: bool = True
    talk: bool = False
    least: float = 0.0


# Of a search, each None for none.
BOUNDS = ("since", "until", "within", "skip")
_here: Any = bindparam("scope")
MORE_THAN_ONE = select(
    exists(select(t.passages.c.id).where(t.passages.c.scope_id == _here))
    | exists(
        select(t.conversations.c.id).where(
            t.conversations.c.scope_id == _here,
            t.conversations.c.id != bindparam("conversation"),
        )
    )
)
NO_RESULT = "[No result: the conversation went on without one.]"
# Messages, or passages.
FEW_ROWS = 500
HAS_FEW = select(
    ~exists(select(m.id).where(m.scope_id == _here).offset(FEW_ROWS).limit(1)),
    ~exists(
        select(t.passages.c.id).where(t.passages.c.scope_id == _here).offset(FEW_ROWS).limit(1)
    ),
)
HITS = select(
    m.id,
    m.public_id,
    m.role,
    m.content,
    m.created_at,
    m.aborted,
    t.conversations.c.name.label("conversation"),
    m.node,
    m.conversation.label("place"),
    m.said_by,
    NAMED_BODY.label("body"),
).join(t.conversations, t.conversations.c.id == m.conversation)


@cache
def listed_hits(driver: SqlDriver) -> Any:
    return HITS.where(driver.is_listed(m.id))


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows that a search shows.

    listed: statement for those of `key_list`. newest: reads the newest visible ones.
    """

    listed: Any
    newest: Callable[[], Iterable[Any]]


def search(
    conn: Connection, scope_id: int, query: SearchQuery, similarity: SimilarityScores | None = None
) -> list[dict[str, Any]]:
    """Return hits, best first; without words, the newest.

    A hit has id, role, content, conversation, created_at, score and why, and where they apply
    speaker and replaced (see `replaced_turns`). similarity: rows by similarity.
    """
    driver = sql_driver(conn)
    bounds = tuple(name for name in BOUNDS if getattr(query, name) is not None)
    rows = _candidates(driver, tuple(query.roles), bounds, talk=query.talk)
    values = {"scope": scope_id, **{name: getattr(query, name) for name in BOUNDS}}

    def newest() -> Any:
        filtered_hits = _apply_filters(HITS.where(m.scope_id == scope_id), query)
        return conn.execute(
            filtered_hits.order_by(m.id.desc()).limit(query.limit).offset(query.offset)
        )

    hits = search_index(
        conn,
        IndexScope("messages_fts", scope_id, rows, values, _neighbours),
        FoundRows(listed_hits(driver), newest),
        query,
        similarity or SimilarityScores(),
    )
    return complete_hits(conn, scope_id, hits)


def is_more_than(conn: Connection, scope_id: int, conversation: int) -> bool:
    """Tell whether a scope has passages, or conversations besides this one."""
    parameters = {"scope": scope_id, "conversation": conversation}
    return bool(execute(conn, MORE_THAN_ONE, parameters).scalar())


def has_few(conn: Connection, scope_id: int) -> bool:
    """Tell whether a scope has so few messages and passages that a quick search is short."""
    return all(execute(conn, HAS_FEW, {"scope": scope_id}).one())


@lru_cache(64)
def _candidates(
    driver: SqlDriver, roles: tuple[str, ...], bounds: tuple[str, ...], *, talk: bool
) -> Any:
    """Return the statement for candidates, kept. bounds: those of BOUNDS that a search sets."""
    bound_values: Any = {name: bindparam(name) for name in bounds}
    filter_query = replace(SearchQuery(roles=roles, talk=talk), **bound_values)
    # + 0: by row key.
    return _apply_filters(
        select(m.id, m.conversation, m.created_at, func.substr(m.content, 1, TEXT)).where(
            m.scope_id + 0 == bindparam("scope"), driver.is_listed(m.id)
        ),
        filter_query,
    )


def filter_keys(scope_id: int, query: SearchQuery) -> Any:
    """Return the rows that pass the filters, as a query of row keys.

    None if every row with a vector passes.
    """
    if (
        query.since is None
        and query.until is None
        and query.within is None
        and (not query.roles or {"user", "assistant"} <= set(query.roles))
    ):
        return None
    return _apply_filters(select(m.id).where(m.scope_id == scope_id), query)


def _apply_filters(query: Any, search_query: SearchQuery) -> Any:
    query = query.where(m.content != "")
    if search_query.roles:
        query = query.where(m.role.in_([literal(role) for role in search_query.roles]))
    if search_query.since is not None:
        query = query.where(m.created_at >= search_query.since)
    if search_query.until is not None:
        query = query.where(m.created_at <= search_query.until)
    if search_query.within is not None:
        query = query.where(m.node.in_(ancestors(search_query.within)))
    if search_query.skip is not None:
        query = query.where(m.node.is_distinct_from(search_query.skip))
    if search_query.talk:
        conversations = t.conversations.c
        query = query.where(
            ~exists(
                select(conversations.id).where(
                    conversations.id == m.conversation, conversations.task
                )
            )
        )
    return query


def search_index(
    conn: Connection,
    corner: IndexScope,
    rows: FoundRows,
    query: SearchQuery,
    similarity: SimilarityScores,
) -> list[dict[str, Any]]:
    """Search an index; by date if there are no words to search."""
    if not query.text.strip():
        return [
            {
                **row._asdict(),
                "score": 0.0,
                "coverage": 0.0,
                "sharing": False,
                "why": {"newest": True},
            }
            for row in rows.newest()
        ]
    wish = fts.IndexQuery(query.text, query.offset + query.limit, query.thorough, query.least)
    order = fts.find_rows(conn, corner, wish, similarity) or {}
    page_of_hits = dict(itertools.islice(order.items(), query.offset, query.offset + query.limit))
    return fts.list_hits(conn, rows.listed, page_of_hits, similarity) if page_of_hits else []


def _neighbours(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return the messages before and after each one in its conversation."""
    spoken_neighbour = (
        "SELECT n.id FROM messages n WHERE n.conversation = m.conversation AND n.role IN ('user', "
        "'assistant') AND n.content != '' AND n.id"
    )
    rows = rows_of_keys(
        conn,
        f"SELECT m.id, ({spoken_neighbour} < m.id ORDER BY n.id DESC LIMIT 1), "
        f"({spoken_neighbour} > m.id ORDER BY n.id "
        "LIMIT 1) FROM {listed} JOIN messages m ON m.id = k.value",
        keys,
    )
    return {key: (previous_key, next_key) for key, previous_key, next_key in rows}


def page(conn: Connection, conversation: int, after: int, limit: int) -> list[dict[str, Any]]:
    """Return messages of a conversation in order, after a row key."""
    rows = conn.execute(
        select(t.messages)
        .where(m.conversation == conversation, m.id > after)
        .order_by(m.id)
        .limit(limit)
    ).all()
    return [
        dict(r._mapping)
        | ({"body": encode(message_of(conn, r)).decode()} if r.pieces is not None else {})
        for r in rows
    ]


def count(conn: Connection, conversation: int) -> int:
    return int(
        conn.execute(
            select(func.count()).select_from(t.messages).where(m.conversation == conversation)
        ).scalar()
        or 0
    )
