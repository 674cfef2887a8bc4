"""What a row of the journal holds: a turn's request, its answers, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from memory.ids import clock, new_key
from memory.scope import Scope
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns import turn_writer
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

# Of one row; a longer turn is written at once, since in the journal its pages are written twice.
ENTRY_BYTES = 1 << 15
# The end of a conversation that is not there yet.
NO_CONVERSATION = -1
# What the store, or whoever files, knows by itself; `answers`: their rows are in `contents`.
OPENING_OMITS = {"owner", "status", "large_bodies", "holder", "once", "beside"}
# Who asked stands in the contents.
RECORD_OMITS = {"owner", "key", "large_bodies", "versions", "holder", "aside", "answers"} | {
    "explain",
    "said_by",
}


def _stored_form(of: type[msgspec.Struct], omitted: set[str]) -> tuple[Any, Callable[[Any], Any]]:
    """Return the form in which a struct is stored, without some members, and what fills it."""
    members = [field for field in msgspec.structs.fields(of) if field.name not in omitted]
    form = msgspec.defstruct(
        f"Stored{of.__name__}",
        [(m.name, m.type) if m.required else (m.name, m.type, _default_of(m)) for m in members],
        omit_defaults=True,
    )
    return form, attrgetter(*[m.name for m in members])


def _read_form(of: type[msgspec.Struct], omitted: set[str]) -> Any:
    """Return a kind of a struct that is read from its stored form. (What waits is not large.)"""
    members = [
        (m.name, Any, None if m.required else _default_of(m))
        for m in msgspec.structs.fields(of)
        if m.name in omitted
    ]
    namespace = {"__post_init__": _add_nothing}
    name = f"Read{of.__name__}"
    return msgspec.defstruct(name, members, bases=(of,), kw_only=True, namespace=namespace)


def _add_nothing(_: msgspec.Struct) -> None:
    """Leave a struct as it was read."""


def _default_of(member: msgspec.structs.FieldInfo) -> Any:
    if member.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=member.default_factory)
    return member.default


_Opening, _members_of_opening = _stored_form(PendingTurn, OPENING_OMITS)
_Record, _members_of_record = _stored_form(TurnRecord, RECORD_OMITS)
# What a row holds, as it is read; a request and answers are put there in the form they are stored
# in. owner: key of the owner in the erasure table.
_StoredTurn: Any = msgspec.defstruct(
    "_StoredTurn",
    [
        ("tenant", str),
        ("user", str | None),
        ("agent", str),
        ("owner", bytes),
        ("generation", int),
        ("opening", _read_form(PendingTurn, OPENING_OMITS) | None, None),
        ("record", _read_form(TurnRecord, RECORD_OMITS) | None, None),
        ("explain_id", str | None, None),
    ],
    omit_defaults=True,
)
_encode = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(_StoredTurn).decode


class JournalPlace(msgspec.Struct, frozen=True):
    """Where a turn is appended. ends: the conversation's head as the turn knows it.

    A head of 0 is none yet, one of `NO_CONVERSATION` is of a conversation that is not there.
    scope_id: None of a scope that is not there either.
    """

    scope_id: int | None
    conversation: int
    ends: int


class JournalEntry(msgspec.Struct):
    """One row to append.

    owner: of its scope, under whose key readers wait for it. values: of `APPEND`. is_urgent: it has
    jobs.
    """

    owner: ScopeOwner
    conversation: int
    values: dict[str, Any]
    is_urgent: bool = False


def entry_of(
    place: JournalPlace, head: int, opening: PendingTurn | None, record: TurnRecord | None
) -> JournalEntry | None:
    """Return the row of a turn; None if it is too long, or cannot be encoded.

    head: of the conversation behind it. opening, record: its request, its answers, or both.
    """
    turn = record or opening
    assert turn is not None  # noqa: S101 - of a turn there is one at least
    owner, now = turn.owner, clock.now()
    scope = owner.scope
    stored_turn = _StoredTurn(scope.tenant, scope.user, scope.agent, scope.owner, owner.generation)
    if opening is not None:
        stored_turn.opening = _Opening(*_members_of_opening(opening))
        stored_turn.opening.at = now
    if record is not None:
        for node in record.nodes:
            node.at = now
        stored_turn.record = _Record(*_members_of_record(record))
        stored_turn.record.at = now
        if record.explain is not None:
            stored_turn.explain_id = record.explain[0]
            stored_turn.record.explained = turn_writer.explain_text(record.explain[1], now)
    try:
        entry = _encode(stored_turn)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return None
    if len(entry) > ENTRY_BYTES:
        return None
    values = {
        "id": new_key(),
        "scope": place.scope_id,
        "conversation": place.conversation,
        "head": head,
        "expected": place.ends,
        "owner": scope.owner,
        "generation": owner.generation,
        "entry": entry,
    }
    return JournalEntry(owner, place.conversation, values, bool(record and record.jobs))


class FiledTurn(NamedTuple):
    """A turn to be filed: its request, its answers, or both.

    key: of the row, of the answers where both have one. scope_id: the scope's row.
    """

    key: int
    scope_id: int
    opening: PendingTurn | None
    record: TurnRecord | None

    @property
    def first(self) -> PendingTurn | TurnRecord:
        """What is written first."""
        part = self.opening or self.record
        assert part is not None  # noqa: S101 - a row has one of them
        return part


def read_turn(key: int, scope_id: int, entry: bytes) -> FiledTurn:
    """Return what a row holds."""
    stored_turn = decode_entry(entry)
    scope = Scope.stored(stored_turn.tenant, stored_turn.user, stored_turn.agent, stored_turn.owner)
    owner = ScopeOwner(scope, stored_turn.generation)
    opening: PendingTurn | None = stored_turn.opening
    if opening is not None:
        opening.owner = owner
        opening.scope_id = scope_id
    record: TurnRecord | None = stored_turn.record
    if record is not None:
        record.owner = owner
        record.scope_id = scope_id
        record.answers = [{} for _ in record.nodes]
        if stored_turn.explain_id is not None:
            record.explain = (stored_turn.explain_id, {})
    return FiledTurn(key, scope_id, opening, record)


def join_openings(turns: Iterable[FiledTurn]) -> list[FiledTurn]:
    """Put the request of a turn to its answer, where both are filed together."""
    turns_by_node: dict[int, FiledTurn] = {}
    for turn in turns:
        if turn.record is None:
            assert turn.opening is not None  # noqa: S101 - a row has one of them
            turns_by_node[turn.opening.node.id] = turn
            continue
        node = turn.record.nodes[0].id
        opened_turn = turns_by_node.pop(node, None)
        if opened_turn is not None and opened_turn.record is None:
            turn = turn._replace(opening=opened_turn.opening)
        turns_by_node[node] = turn
    return list(turns_by_node.values())
