"""What happened lately, for monitors: turns by their explain records, growth, edits of blocks.

Row keys grow with time, so recent rows are a range of keys. Every query reads a bounded number of
rows, whatever the tables hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Subquery,
    case,
    cast,
    func,
    select,
)

from memory.ids import key_at, time_of
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.scopes import VisibleScopes

# Newest turns that are looked at, of whomever they are.
MAX_SCANNED_TURNS = 5_000
# Newest turns of whom one may see, among which the last to end are sought.
MAX_ENDED_TURNS = 300
# Of a turn's records; longer ones are not read.
MAX_RECORD_CHARACTERS = 1 << 18
# Newest rows that a growth curve counts.
MAX_COUNTED_ROWS = 50_000
# To which totals are counted.
MAX_TOTAL = 100_000
MAX_TURN_MESSAGES = 50
MAX_SUMMARIES = 5
MAX_FORKS = 20
EXPLAIN_ID = re.compile(r"explain_[0-9a-f]{48}")
# Of a record, which begins with its id.
EXPLAIN_ID_CHARACTERS = 100
DAY_SECONDS = 86_400
# Row keys of a day.
DAY_KEYS = DAY_SECONDS * 1_000_000 << 12


@dataclass(frozen=True, slots=True)
class RecordedActivity:
    """A turn as it was recorded.

    key: grows with the time at which the turn began. record: the explain records of its attempts,
    a line of JSON each; empty where they are too long to read. Times are Unix times.
    """

    key: int
    tenant: str
    user: str | None
    agent: str
    record: str
    began_at: float
    ended_at: float


def turns(
    conn: Connection, reach: VisibleScopes, since: float, limit: int, user: str | None = None
) -> list[RecordedActivity]:
    """Return turns that began after a Unix time, newest first.

    Of a busy gateway the newest `MAX_SCANNED_TURNS` are looked at.
    """
    newest_turns = _newest_turns(reach, since, limit, user)
    query = _with_records(newest_turns).order_by(newest_turns.c.id.desc())
    return [_activity(row) for row in conn.execute(query)]


def ended_turns(
    conn: Connection, reach: VisibleScopes, since: float, limit: int
) -> list[RecordedActivity]:
    """Return turns that began after a Unix time, the last to end first.

    They are sought among the newest `MAX_ENDED_TURNS`.
    """
    newest_turns = _newest_turns(reach, since, MAX_ENDED_TURNS, None)
    by_end = t.explains.c.created_at.desc(), newest_turns.c.id.desc()
    query = _with_records(newest_turns).order_by(*by_end).limit(limit)
    return [_activity(row) for row in conn.execute(query)]


def _newest_turns(reach: VisibleScopes, since: float, limit: int, user: str | None) -> Subquery:
    explains = t.explains.c
    scopes = t.scopes.c
    newest_keys = (
        select(explains.id, explains.scope_id)
        .where(explains.id > key_at(since))
        .order_by(explains.id.desc())
        .limit(MAX_SCANNED_TURNS)
        .subquery()
    )
    return (
        select(newest_keys.c.id, scopes.tenant, scopes.user, scopes.agent)
        .join(t.scopes, scopes.id == newest_keys.c.scope_id)
        .where(*reach.conditions(), *_owned(user))
        .order_by(newest_keys.c.id.desc())
        .limit(limit)
        .subquery()
    )


def _with_records(turn_keys: Subquery) -> Select[Any]:
    explains = t.explains.c
    record = case(
        (func.length(explains.record) <= MAX_RECORD_CHARACTERS, explains.record), else_=""
    )
    return select(*turn_keys.c, record, explains.created_at).join(
        t.explains, explains.id == turn_keys.c.id
    )


def _activity(row: Sequence[Any]) -> RecordedActivity:
    key, tenant, user, agent, record, ended_at = row
    return RecordedActivity(key, tenant, user, agent, record, time_of(key), ended_at)


def _owned(user: str | None) -> list[ColumnElement[bool]]:
    if user is not None:
        return [t.scopes.c.user == user]
    return []


def count_passages(conn: Connection, reach: VisibleScopes, user: str | None = None) -> int:
    """Count the passages that a search may find, up to `MAX_TOTAL`."""
    passages = t.passages.c
    scopes = t.scopes.c
    visible_keys = (
        select(passages.id)
        .join(t.scopes, scopes.id == passages.scope_id)
        .where(passages.deleted_at.is_(None), *reach.conditions(), *_owned(user))
        .limit(MAX_TOTAL)
        .subquery()
    )
    return int(conn.execute(select(func.count()).select_from(visible_keys)).scalar() or 0)


def passages_by_day(
    conn: Connection, reach: VisibleScopes, since: float, user: str | None = None
) -> dict[str, int]:
    """Count the passages added on each UTC day since a Unix time."""
    passages = t.passages.c
    scopes = t.scopes.c
    added_days = (
        select((passages.id // DAY_KEYS).label("day"))
        .join(t.scopes, scopes.id == passages.scope_id)
        .where(passages.id >= key_at(since), *reach.conditions(), *_owned(user))
        .limit(MAX_COUNTED_ROWS)
        .subquery()
    )
    query = (
        select(added_days.c.day, func.count()).group_by(added_days.c.day).order_by(added_days.c.day)
    )
    return {_date(int(day)): n for day, n in conn.execute(query)}


def edits_by_day(
    conn: Connection, reach: VisibleScopes, since: float, user: str | None = None
) -> dict[str, dict[str, int]]:
    """Count the edits of blocks on each UTC day since a Unix time, by who made them.

    The newest `MAX_COUNTED_ROWS` edits are looked at, whosever they are.
    """
    block_versions = t.block_versions.c
    scopes = t.scopes.c
    newest_edits = (
        select(block_versions.scope_id, block_versions.created_at, block_versions.actor)
        .order_by(block_versions.id.desc())
        .limit(MAX_COUNTED_ROWS)
        .subquery()
    )
    days = newest_edits.c.created_at / DAY_SECONDS
    # Some databases round a cast, others truncate.
    day = cast(days, Integer)
    edits = (
        select((day - case((day > days, 1), else_=0)).label("day"), newest_edits.c.actor)
        .join(t.scopes, scopes.id == newest_edits.c.scope_id)
        .where(newest_edits.c.created_at >= since, *reach.conditions(), *_owned(user))
        .subquery()
    )
    query = select(edits.c.day, edits.c.actor, func.count()).group_by(edits.c.day, edits.c.actor)
    counts_by_day: dict[str, dict[str, int]] = {}
    for day, actor, n in conn.execute(query.order_by(edits.c.day)):
        counts_by_day.setdefault(_date(day), {})[actor] = n
    return counts_by_day


def newest_edit(conn: Connection, scope_id: int) -> tuple[int, int]:
    """Return what changes with any edit of a scope from outside, and with any of its blocks."""
    block_versions = t.block_versions.c
    edits = conn.execute(select(t.scopes.c.edits).where(t.scopes.c.id == scope_id)).scalar()
    newest_key = conn.execute(
        select(func.max(block_versions.id)).where(block_versions.scope_id == scope_id)
    ).scalar()
    return int(edits or 0), int(newest_key or 0)


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """What was said in a turn, as text. Times are Unix times."""

    role: str
    content: str
    aborted: bool
    created_at: float


def turn_messages(conn: Connection, reach: VisibleScopes, key: int) -> list[RecordedMessage]:
    """Return the first messages of a turn, by its key: the client's new ones, then the answer."""
    messages = t.messages.c
    scopes = t.scopes.c
    content = func.substr(messages.content, 1, MAX_RECORD_CHARACTERS)
    query = (
        select(messages.role, content, messages.aborted, messages.created_at)
        .join(t.scopes, scopes.id == messages.scope_id)
        .where(messages.node == key, *reach.conditions())
        .order_by(messages.id)
        .limit(MAX_TURN_MESSAGES)
    )
    return [RecordedMessage(*row) for row in conn.execute(query)]


def explain_ids(conn: Connection, keys: Sequence[int]) -> dict[int, str]:
    """Return the ids of the newest explain records of turns, by the turns' keys."""
    explains = t.explains.c
    tail = func.substr(explains.record, 1, EXPLAIN_ID_CHARACTERS)
    rows = conn.execute(select(explains.id, tail).where(explains.id.in_(keys)))
    return {key: match[0] for key, text in rows if (match := EXPLAIN_ID.search(text))}


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary of a conversation's first messages. count: how many it covers."""

    content: str
    count: int
    created_at: float


def summaries(conn: Connection, scope_id: int, conversation: int) -> list[StoredSummary]:
    """Return the newest summaries of a conversation, newest first."""
    summaries = t.summaries.c
    query = (
        select(summaries.content, summaries.count, summaries.created_at)
        .where(summaries.scope_id == scope_id, summaries.conversation == conversation)
        .order_by(summaries.id.desc())
        .limit(MAX_SUMMARIES)
    )
    return [StoredSummary(*row) for row in conn.execute(query)]


def forks(conn: Connection, scope_id: int, name: str) -> list[str]:
    """Return the names of conversations that forked from this one, newest first."""
    conversations = t.conversations.c
    query = select(conversations.name).where(
        conversations.scope_id == scope_id,
        conversations.forked_from == name,
        conversations.name != name,
    )
    return list(conn.execute(query.order_by(conversations.id.desc()).limit(MAX_FORKS)).scalars())


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date().isoformat()
