"""The calls of a round: run, written with their ledger entry, and told."""

from __future__ import annotations

import asyncio

import pytest

from memory.core.tool_definitions import ALL, READ_ONLY
from memory.errors import ErasedMeanwhile
from memory.scope import Scope
from memory.session import tool_runner
from memory.session.tool_runner import UNAVAILABLE, ToolRunner
from memory.session.turn_store import LIGHT_CALLS
from memory.tools import ToolCall
from tests.memory.session.turns import SECRET, a_turn, late

SEARCH = ToolCall("1", "conversation_search", '{"query": "tea"}')
APPEND = ToolCall("2", "core_memory_append", '{"label": "human", "content": "x"}')
REPLY = {"choices": []}


@pytest.fixture
def ledger(monkeypatch):
    """What is written of rounds, without rows."""
    written = []
    monkeypatch.setattr(tool_runner.scopes, "get_or_create", lambda conn, owner: 7)
    monkeypatch.setattr(tool_runner.fact_rows, "record_use", lambda conn, keys: None)
    monkeypatch.setattr(
        tool_runner.turn_writer,
        "round_done",
        lambda conn, node, rounds, holder: written.append((node, list(rounds))),
    )
    monkeypatch.setattr(
        tool_runner.tools,
        "run_edits",
        lambda conn, calls, context: {
            i: f"Saved by {c.id}." for i, c in enumerate(calls) if c.name != SEARCH.name
        },
    )
    return written


def opened(**asked):
    turn = a_turn(**asked)
    turn.progress.opened = True
    return turn


async def test_a_round_is_told_and_written_in_the_order_of_its_calls(ledger):
    turn = opened()
    results = await ToolRunner(turn, {}).run([APPEND, SEARCH], REPLY, ALL)
    assert results[0] == "Saved by 2."
    assert not results[1].startswith("Error")
    entry = {"reply": REPLY, "results": results}
    assert ledger == [(turn.identity.node_id, [entry])]
    assert turn.progress.rounds == [entry]
    assert [(x["name"], x["round"]) for x in turn.progress.trace.tools] == [
        (APPEND.name, 1),
        (SEARCH.name, 1),
    ]


async def test_later_rounds_are_written_with_those_before(ledger):
    turn = opened()
    runner = ToolRunner(turn, {})
    await runner.run([SEARCH], REPLY, ALL)
    await runner.run([SEARCH], REPLY, ALL)
    assert [len(rounds) for _, rounds in ledger] == [1, 2]
    assert [x["round"] for x in turn.progress.trace.tools] == [1, 2]


@pytest.mark.parametrize("fault", [late(), ErasedMeanwhile("gone")])
async def test_what_the_store_did_not_take_is_told_as_not_saved(ledger, fault):
    turn = opened()
    turn.services.db.faults = [fault]
    found, told = await ToolRunner(turn, {}).run([SEARCH, APPEND], REPLY, ALL)
    assert told == UNAVAILABLE
    assert found != UNAVAILABLE
    assert turn.progress.unsaved
    assert ledger == []
    assert turn.progress.rounds[0]["results"] == [found, told]


async def test_a_turn_that_the_store_has_not_taken_saves_and_searches_nothing(ledger):
    turn = a_turn()
    results = await ToolRunner(turn, {}).run([SEARCH, APPEND], REPLY, ALL)
    assert results == [UNAVAILABLE, UNAVAILABLE]
    assert turn.progress.unsaved
    assert not turn.services.retrieval.asked
    assert not turn.services.db.written


async def test_a_turn_that_is_not_recorded_searches_and_changes_nothing(ledger):
    turn = a_turn(mode="read")
    found, refused = await ToolRunner(turn, {}).run([SEARCH, APPEND], REPLY, READ_ONLY)
    assert not found.startswith("Error")
    assert refused == "Error: Memory cannot be changed in this request."
    assert not turn.progress.unsaved
    assert not turn.services.db.written


async def test_a_tool_that_was_not_offered_is_not_run(ledger):
    turn = a_turn(mode="read")
    (refused,) = await ToolRunner(turn, {}).run([SEARCH], REPLY, [])
    assert refused == "Error: Memory cannot be changed in this request."


async def test_calls_that_write_are_made_known_to_other_turns(ledger):
    turn = opened()
    await ToolRunner(turn, {}).run([SEARCH], REPLY, ALL)
    assert (turn.services.lines.forgotten, turn.attempt.edited) == (0, False)
    await ToolRunner(turn, {}).run([APPEND], REPLY, ALL)
    assert (turn.services.lines.forgotten, turn.attempt.edited) == (1, True)
    assert turn.attempt.entries is turn.services.lines.place


@pytest.mark.parametrize("kind", ["not saved", "of nobody"])
async def test_what_is_late_or_a_branchs_own_leaves_nothing_to_the_next_turn(ledger, kind):
    turn = opened(scope=Scope("t", None if kind == "of nobody" else "ada", "default", SECRET))
    turn.services.db.faults = [late() if kind == "not saved" else None]
    await ToolRunner(turn, {}).run([APPEND], REPLY, ALL)
    assert turn.attempt.entries is None


async def test_a_client_that_leaves_while_its_round_is_written_makes_it_known_too(
    ledger, monkeypatch
):
    turn = opened()

    async def left(work, **_):
        raise asyncio.CancelledError

    monkeypatch.setattr(turn.services.db, "write", left)
    with pytest.raises(asyncio.CancelledError):
        await ToolRunner(turn, {}).run([APPEND], REPLY, ALL)
    assert turn.services.lines.forgotten == 1
    assert turn.progress.rounds == []


async def test_the_versions_that_the_prompt_showed_stay_as_they_were(monkeypatch, ledger):
    def edits(conn, calls, context):
        context.seen_versions["human"] = 9
        return {0: "Saved."}

    monkeypatch.setattr(tool_runner.tools, "run_edits", edits)
    shown, turn = {"human": 1}, opened()
    await ToolRunner(turn, shown).run([APPEND], REPLY, ALL)
    assert shown == {"human": 1}


@pytest.mark.parametrize(("many", "is_heavy"), [(LIGHT_CALLS, False), (LIGHT_CALLS + 1, True)])
async def test_many_calls_are_written_off_the_event_loop(ledger, many, is_heavy):
    """Each takes several statements: 500 passages held others for .1 s."""
    turn = opened()
    await ToolRunner(turn, {}).run([APPEND] * many, REPLY, ALL)
    assert turn.store.heavy == is_heavy
