"""A session holds one turn together: its prompt, its calls and its record."""

from __future__ import annotations

import asyncio

from memory.session import recorder
from memory.session.session import begin_session
from memory.session.turn_record import TurnOutcome
from memory.tools import ToolCall
from tests.memory.session.turns import a_turn, late

ANSWER = {"role": "assistant", "content": "hi"}


def begin(turn):
    return asyncio.run(begin_session(turn))


def test_a_session_begins_with_a_composed_prompt():
    turn = a_turn()
    session = begin(turn)
    assert "Likes tea." in session.prompt.core
    assert session.injected_tokens == session.prompt.injected_tokens > 0
    assert (session.rounds, session.unsaved, session.is_recording) == ([], False, True)
    assert session.explain_id == turn.identity.explain_id
    assert session.conversation is turn.identity.conversation
    assert session.patience is turn.attempt.patience


def test_a_target_that_refuses_memory_gets_the_clients_own_body():
    session = begin(a_turn())
    session.inject_nothing()
    assert not session.prompt.adds_anything
    assert session.trace.notes == [
        "the target refused the request with memory in it; the client's own was sent"
    ]


def test_nothing_is_compacted_where_nothing_may_be_added():
    session = begin(a_turn(inject=False))
    before = session.prompt
    assert asyncio.run(session.compact_harder(0)) is False
    assert session.prompt is before


def test_calls_of_tools_that_were_not_offered_are_answered_with_an_error():
    session = begin(a_turn(offer=False))
    call = ToolCall("c", "core_memory_append", '{"label": "human", "content": "x"}')
    [result] = asyncio.run(session.run([call], {"choices": []}))
    assert result.startswith("Error:")
    assert len(session.rounds) == 1


def test_a_request_is_opened_and_its_failure_recorded(monkeypatch):
    written = []
    monkeypatch.setattr(recorder.turn_writer, "open_turn", lambda conn, opening: 70)
    monkeypatch.setattr(
        recorder.turn_writer, "attempt_failed", lambda conn, node, holder: written.append(node)
    )

    async def run(session):
        await session.open()
        await session.fail()

    turn = a_turn()
    asyncio.run(run(begin(turn)))
    assert turn.progress.scope_id == 70
    assert written == [turn.identity.node_id]


def test_an_answer_that_the_store_does_not_take_goes_to_the_recovery_log():
    turn = a_turn()
    session = begin(turn)
    turn.progress.opened = True
    turn.services.db.faults = [late()]
    assert asyncio.run(session.finish(TurnOutcome([ANSWER])))
    assert len(turn.services.recovery_log.kept) == 1
