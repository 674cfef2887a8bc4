"""Turns that an edit or a regeneration replaced, and who said the messages that a search found.

A conversation whose turn was edited or made anew goes on in a fork. What the original says behind
the place where the fork left it is replaced, once the fork went on and the original did not. Two
requests side by side, as of chats that begin alike, replace nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, literal_column, select

from memory.ids import time_of
from memory.search.folding import fold_quote, fold_text
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute

MAX_FORKS = 200  # of a scope, the newest, that are looked at
NAMED_CHARACTERS = 20_000  # of a stored message that is read for its name
MAX_NAME_CHARACTERS = 64
MAX_SAID = 200  # messages of a conversation that are compared
m, n = t.messages.c, t.nodes.c
_fork, _original = t.conversations.alias("fork"), t.conversations.alias("original")
# Spelled as in the partial index, without a parameter.
FORKS = (
    select(_fork.c.id, _original.c.id)
    .join(
        _original,
        (_original.c.scope_id == _fork.c.scope_id) & (_original.c.name == _fork.c.forked_from),
    )
    .where(_fork.c.scope_id == bindparam("scope"), literal_column("fork.forked_from IS NOT NULL"))
    .order_by(_fork.c.id.desc())
    .limit(MAX_FORKS)
)
TURNS = (
    select(n.id, n.parent, n.turn, n.state, n.at)
    .where(n.conversation == bindparam("conversation"))
    .order_by(n.id)
)
FIRST_TURNS, NEWEST = TURNS.limit(16), TURNS.order_by(None).order_by(n.id.desc()).limit(1)


class _SpeakerName(msgspec.Struct):
    name: Any = None


_decode = msgspec.json.Decoder(_SpeakerName).decode


def find_replaced(conn: Connection, scope_id: int) -> Mapping[int, int]:
    """Return the conversations that were replaced in part, each with its last node that was not."""
    replaced: dict[int, int] = {}
    for fork, original in execute(conn, FORKS, {"scope": scope_id}):
        began = list(execute(conn, FIRST_TURNS, {"conversation": fork}))
        if len({row.turn for row in began}) < 2:
            continue  # it did not go on
        newest = execute(conn, NEWEST, {"conversation": original}).first()
        if newest is not None and _ended_before(newest, began[0].id):
            kept = began[0].parent or 0
            replaced[original] = min(kept, replaced.get(original, kept))
    return replaced


def _ended_before(newest: Any, fork: int) -> bool:
    """Tell whether a conversation had ended when a fork began. newest: its last turn.

    A turn that was answered in full while the fork went on was asked beside it: nobody edited it.
    """
    was_answered_later = newest.state == "done" and newest.at > time_of(fork)
    return newest.id < fork and not was_answered_later


class LostFact(NamedTuple):
    """What was kept of a message that was replaced: a passage by its id, or lines of a block."""

    message: str
    passage: str | None = None
    lines: Set[str] = frozenset()


def lost_facts(conn: Connection, scope_id: int, forks: Set[int]) -> list[LostFact]:
    """Return what was kept of messages that these forks replaced, and that no fork says again.

    forks: conversations that were read. Only what is stored with its quote is looked at.
    """
    names = select(t.conversations.c.forked_from).where(t.conversations.c.id.in_(forks))
    origins = select(t.conversations.c.id).where(
        t.conversations.c.scope_id == scope_id, t.conversations.c.name.in_(names)
    )
    replaced = find_replaced(conn, scope_id) if forks else {}
    originals = set(conn.execute(origins).scalars()) & replaced.keys() if replaced else ()
    lost: list[LostFact] = []
    if not originals:
        return lost
    said = select(m.content).where(m.conversation.in_(forks), m.role == "user").limit(MAX_SAID)
    again = [fold_text(text) for text in conn.execute(said).scalars()]
    for original in originals:
        gone = select(m.public_id).where(
            m.conversation == original, m.node > replaced[original], m.role == "user"
        )
        messages = list(conn.execute(gone.limit(MAX_SAID)).scalars())
        lost += _kept_of(conn, scope_id, messages, again)
    return lost


def _kept_of(
    conn: Connection, scope_id: int, messages: Sequence[str], again: Sequence[str]
) -> Iterator[LostFact]:
    """Yield what was kept of messages. again: texts that may say it still, folded."""
    p, v = t.passages.c, t.block_versions.c
    here = (p.scope_id == scope_id, p.deleted_at.is_(None), p.source.in_(messages))
    for row in conn.execute(select(p.public_id, p.source, p.quote).where(*here)).all():
        if _is_gone(row.quote, again):
            yield LostFact(row.source, row.public_id)
    edits = select(v.tool_call_id, v.quote, v.before, v.after).where(
        v.scope_id == scope_id, v.tool_call_id.in_(messages)
    )
    for edit in conn.execute(edits).all():
        added = set((edit.after or "").split("\n")) - set((edit.before or "").split("\n"))
        if added and _is_gone(edit.quote, again):
            yield LostFact(edit.tool_call_id, lines=frozenset(x.strip() for x in added))


def _is_gone(quote: str | None, again: Sequence[str]) -> bool:
    return bool(quote) and not any(fold_quote(quote or "") in text for text in again)


def complete_hits(
    conn: Connection, scope_id: int, hits: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages that were found, with the speaker's name and whether they were replaced."""
    replaced = find_replaced(conn, scope_id) if hits else {}
    for hit in hits:
        name, last = read_name(hit.pop("body")), replaced.get(hit.pop("place"))
        node, said_by = hit.pop("node"), hit.pop("said_by", None)
        if name:
            hit["speaker"] = name
        if said_by is not None and hit["role"] == "user":
            hit["said_by"] = said_by
        if last is not None and node is not None and node > last:
            hit["replaced"] = True
    return list(hits)


def read_name(body: str) -> str:
    """Return the name of who said a stored message, "" for none."""
    if '"name"' not in body:
        return ""
    try:
        name = _decode(body).name
    except msgspec.DecodeError:
        return ""
    return " ".join(name.split())[:MAX_NAME_CHARACTERS] if isinstance(name, str) else ""
