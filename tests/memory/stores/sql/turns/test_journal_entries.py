"""What is written to a row of the journal is read from it, also what an older version wrote."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation.matching import TurnNode
from memory.ids import new_key
from memory.scope import Scope
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns.journal_entries import (
    ENTRY_BYTES,
    OPENING_OMITS,
    RECORD_OMITS,
    JournalPlace,
    entry_of,
    read_turn,
)
from memory.stores.sql.turns.turn_reader import ConversationState
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

OWNER = ScopeOwner(Scope("t", "ada", "default", b"s" * 32), 3)
PLACE = JournalPlace(7, 8, 0)
digests = st.binary(max_size=16)
texts = st.text(max_size=20)
nodes = st.builds(
    TurnNode,
    st.integers(1, 2**62),
    st.integers(1, 2**62),
    st.none() | st.integers(1, 2**62),
    digests,
    note=st.none() | texts,
    told=st.dictionaries(texts, st.none() | texts, max_size=2),
    hidden=st.none() | st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2),
    recalled=st.lists(st.integers(1, 2**62), max_size=3),
    state=st.sampled_from(["open", "done", "aborted"]),
)
heads = st.none() | st.integers(1, 2**62)
conversations = st.builds(
    ConversationState, st.integers(1, 2**62), texts, st.booleans(), st.booleans(), heads
)


def row_of(words):
    return {"role": "user", "body": "", "content": words, "digest": b"d", "pieces": None}


@st.composite
def openings(draw):
    rows = [row_of(words) for words in draw(st.lists(texts, max_size=2))]
    names = (draw(conversations), draw(st.none() | texts), draw(nodes))
    return PendingTurn(OWNER, *names, rows, draw(st.none() | digests), named=draw(st.booleans()))


@st.composite
def records(draw):
    answer_nodes = draw(st.lists(nodes, min_size=1, max_size=2))
    answers = [{"role": "assistant", "content": draw(texts)} for _ in answer_nodes]
    return TurnRecord(
        OWNER,
        8,
        answer_nodes,
        answers,
        draw(st.booleans()),
        explain=draw(st.none() | st.just(("explain_1", {"model": "m"}))),
        contents=[[row_of(answer["content"])] for answer in answers],
        used=draw(st.lists(st.integers(1, 9), max_size=2)),
        parent_turn=draw(st.none() | st.integers(1, 9)),
    )


def members_of(part, omitted):
    names = [field.name for field in msgspec.structs.fields(part) if field.name not in omitted]
    return {name: getattr(part, name) for name in names if name != "scope_id"}


@given(st.none() | openings(), records())
def test_a_turn_is_read_as_it_was_written(opening, record):
    entry = entry_of(PLACE, 5, opening, record)
    turn = read_turn(4, 7, entry.values["entry"])
    assert (turn.key, turn.scope_id) == (4, 7)
    for written, read, omitted in (
        (opening, turn.opening, OPENING_OMITS),
        (record, turn.record, RECORD_OMITS),
    ):
        if written is None:
            assert read is None
            continue
        assert isinstance(read, type(written))
        assert (read.scope_id, read.owner.generation) == (7, 3)
        assert read.owner.scope.owner == OWNER.scope.owner
        expected = members_of(written, omitted | {"at", "explained"})
        assert members_of(read, omitted | {"at", "explained"}) == expected
        assert read.at is not None
    assert len(turn.record.answers) == len(record.answers)
    assert (turn.record.explain is None) == (record.explain is None)
    assert (turn.record.explained is None) == (record.explain is None)


@given(openings())
def test_a_row_that_says_all_of_a_node_is_read_alike(opening):
    """Until now, what has its usual value was written too."""
    entry = entry_of(PLACE, 5, opening, None).values["entry"]
    older = msgspec.msgpack.decode(entry)
    for name, part in (("node", opening.node), ("conversation", opening.conversation)):
        older["opening"][name] = msgspec.structs.asdict(part)
    read = read_turn(4, 7, msgspec.msgpack.encode(older)).opening
    assert [*read.conversation.same_tasks] == []
    read.conversation.same_tasks = ()
    expected = read_turn(4, 7, entry).opening
    assert members_of(read, OPENING_OMITS) == members_of(expected, OPENING_OMITS)


def test_a_long_turn_has_no_row():
    node = TurnNode(new_key(), 8)
    conversation = ConversationState(8, "c", False, False, None)
    opening = PendingTurn(OWNER, conversation, None, node, [row_of("x" * ENTRY_BYTES)], None)
    assert entry_of(PLACE, 5, opening, None) is None
