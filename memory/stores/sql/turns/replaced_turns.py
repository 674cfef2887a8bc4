"""Turns that an edit or a regeneration replaced, and who said the messages that a search found.

A conversation whose turn was edited or made anew goes on in a fork; one that its client names goes
on in itself, behind the same answer. What the original says behind the place where the other turn
began is replaced, once that went on and the original did not. Two requests side by side, as of
chats that begin alike, replace nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, case, func, literal_column, select

from memory.ids import time_of
from memory.search.folding import fold_quote, fold_text
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.turns.sibling_turns import find_lost_nodes

# Of a scope, the newest, that are looked at.
MAX_FORKS = 200
# Of a stored message that is read for its name as a whole, and of each end of a longer one, such as
# one with an image. Clients tell the name before or behind the content.
NAMED_CHARACTERS = 20_000
END_CHARACTERS = 600
# Between the ends: no JSON has one.
_CUT = "\x1e"
_MEMBER = r'"\w+":"(?:[^"\\]|\\.){0,300}",'
_NAME_FIRST = re.compile(rf'\{{(?:{_MEMBER}){{0,3}}"name":("(?:[^"\\]|\\.){{0,300}}")')
_NAME_LAST = re.compile(r',"name":("(?:[^"\\]|\\.){0,300}")\}\Z')
MAX_NAME_CHARACTERS = 64
# Messages of a conversation that are compared.
MAX_SAID = 200
m = t.messages.c
n = t.nodes.c
# What `read_name` reads of a message.
NAMED_BODY = case(
    (func.length(m.body) <= NAMED_CHARACTERS, m.body),
    else_=func.substr(m.body, 1, END_CHARACTERS)
    + _CUT
    + func.substr(m.body, func.length(m.body) - END_CHARACTERS + 1),
)
_fork = t.conversations.alias("fork")
_original = t.conversations.alias("original")
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
FIRST_TURNS = TURNS.limit(16)
NEWEST = TURNS.order_by(None).order_by(n.id.desc()).limit(1)

NEWEST_SAID = (
    select(m.public_id, m.conversation, m.node, m.content)
    .where(m.conversation.in_(bindparam("conversations", expanding=True)), m.role == "user")
    .order_by(m.id.desc())
    .limit(MAX_SAID)
)


class _SpeakerName(msgspec.Struct):
    name: Any = None


_decode = msgspec.json.Decoder(_SpeakerName).decode


class ReplacedTurns(NamedTuple):
    """What was replaced in a scope.

    ends: by conversation, the last node that a fork left standing. nodes: by conversation, those
    that another turn of the same conversation replaced.
    """

    ends: Mapping[int, int]
    nodes: Mapping[int, Set[int]]

    def has(self, conversation: int, node: int | None) -> bool:
        """Tell whether a node of a conversation was replaced."""
        if node is None:
            return False
        end = self.ends.get(conversation)
        if end is not None and node > end:
            return True
        return node in self.nodes.get(conversation, ())


NOTHING_REPLACED = ReplacedTurns({}, {})


def find_replaced(conn: Connection, scope_id: int, conversations: Set[int]) -> ReplacedTurns:
    """Return what was replaced in these conversations of a scope."""
    ends: dict[int, int] = {}
    nodes: dict[int, Set[int]] = {}
    for fork, original_key in execute(conn, FORKS, {"scope": scope_id}):
        if original_key not in conversations:
            continue
        if fork == original_key:
            nodes[fork] = find_lost_nodes(conn, fork)
            continue
        first_turns = list(execute(conn, FIRST_TURNS, {"conversation": fork}))
        if len({row.turn for row in first_turns}) < 2:
            # It did not go on.
            continue
        newest_turn = execute(conn, NEWEST, {"conversation": original_key}).first()
        if newest_turn is not None and _ended_before(newest_turn, first_turns[0].id):
            fork_parent = first_turns[0].parent or 0
            ends[original_key] = min(fork_parent, ends.get(original_key, fork_parent))
    return ReplacedTurns(ends, nodes)


def _ended_before(newest_turn: Any, fork: int) -> bool:
    """Tell whether a conversation had ended when a fork began. newest_turn: its last turn.

    A turn that was answered in full while the fork went on was asked beside it: nobody edited it.
    """
    was_answered_later = newest_turn.state == "done" and newest_turn.at > time_of(fork)
    return newest_turn.id < fork and not was_answered_later


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
    facts: list[LostFact] = []
    originals = set(conn.execute(origins).scalars()) if forks else set()
    if not originals:
        return facts
    replaced_turns = find_replaced(conn, scope_id, originals | forks)
    again = _standing_texts(conn, forks, replaced_turns)
    for conversation in originals:
        messages = [
            row.public_id
            for row in conn.execute(NEWEST_SAID, {"conversations": [conversation]})
            if replaced_turns.has(conversation, row.node)
        ]
        if messages:
            facts += _kept_of(conn, scope_id, messages, again)
    return facts


def _standing_texts(
    conn: Connection, conversations: Set[int], replaced_turns: ReplacedTurns
) -> list[str]:
    """Return what users said there last that was not replaced, folded."""
    return [
        fold_text(row.content)
        for row in conn.execute(NEWEST_SAID, {"conversations": list(conversations)})
        if not replaced_turns.has(row.conversation, row.node)
    ]


def _kept_of(
    conn: Connection, scope_id: int, messages: Sequence[str], again: Sequence[str]
) -> Iterator[LostFact]:
    """Yield what was kept of messages. again: texts that may say it still, folded."""
    passages = t.passages.c
    versions = t.block_versions.c
    conditions = (
        passages.scope_id == scope_id,
        passages.deleted_at.is_(None),
        passages.source.in_(messages),
    )
    for row in conn.execute(
        select(passages.public_id, passages.source, passages.quote).where(*conditions)
    ).all():
        if _is_gone(row.quote, again):
            yield LostFact(row.source, row.public_id)
    edits = select(versions.tool_call_id, versions.quote, versions.before, versions.after).where(
        versions.scope_id == scope_id, versions.tool_call_id.in_(messages)
    )
    for edit in conn.execute(edits).all():
        added_lines = set((edit.after or "").split("\n")) - set((edit.before or "").split("\n"))
        if added_lines and _is_gone(edit.quote, again):
            yield LostFact(edit.tool_call_id, lines=frozenset(x.strip() for x in added_lines))


def _is_gone(quote: str | None, again: Sequence[str]) -> bool:
    return bool(quote) and not any(fold_quote(quote or "") in text for text in again)


def complete_hits(
    conn: Connection, scope_id: int, hits: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages that were found, with the speaker's name and whether they were replaced."""
    if hits:
        replaced_turns = find_replaced(conn, scope_id, {hit["place"] for hit in hits})
    else:
        replaced_turns = NOTHING_REPLACED
    for hit in hits:
        name = read_name(hit.pop("body"))
        is_replaced = replaced_turns.has(hit.pop("place"), hit.pop("node"))
        said_by = hit.pop("said_by", None)
        if name:
            hit["speaker"] = name
        if said_by is not None and hit["role"] == "user":
            hit["said_by"] = said_by
        if is_replaced:
            hit["replaced"] = True
    return list(hits)


def read_name(body: str) -> str:
    """Return the name of who said a stored message, "" for none. body: see `NAMED_BODY`."""
    if '"name"' not in body:
        return ""
    beginning, _, end = body.partition(_CUT)
    try:
        if not end:
            name = _decode(body).name
        elif match := _NAME_FIRST.match(beginning) or _NAME_LAST.search(end):
            name = msgspec.json.decode(match[1])
        else:
            return ""
    except msgspec.DecodeError:
        return ""
    if isinstance(name, str):
        return " ".join(name.split())[:MAX_NAME_CHARACTERS]
    return ""
