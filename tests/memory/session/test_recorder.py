"""What becomes of a turn in the store, in each way that it may end."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from memory.context.fitted import SentPrompt
from memory.conversation.matching import TurnNode
from memory.errors import ErasedMeanwhile
from memory.scope import Scope
from memory.session import recorder as recording
from memory.session.composer import Composer
from memory.session.in_flight import InFlight
from memory.session.recorder import TurnRecorder
from memory.session.turn_record import TurnOutcome
from memory.session.turn_store import LIGHT_ANSWERS, log_failed_drop
from memory.stores.sql.turns.turn_reader import ConversationState
from tests.memory.session.turns import BLOCKS, SECRET, FakeSpill, a_turn, late

ANSWER = {"role": "assistant", "content": "hi"}


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """What is written, in order, without rows."""
    out = []

    def record(conn, record, opening):
        out.append(("record", record, opening))
        return record.nodes[0].turn

    def open_turn(conn, opening):
        out.append(("open", opening))
        return 70

    monkeypatch.setattr(recording.turn_writer, "record", record)
    monkeypatch.setattr(recording.turn_writer, "open_turn", open_turn)
    for name in ("attempt_failed", "drop_turn"):
        monkeypatch.setattr(
            recording.turn_writer, name, lambda conn, *a, n=name: out.append((n, *a))
        )
    return out


async def begun(**asked):
    """A turn, its recorder and its prompt."""
    turn = a_turn(**asked)
    return turn, TurnRecorder(turn), await Composer(turn).compose()


def held(turn):
    return turn.attempt.claim.is_open(turn.identity.node_id)


async def test_a_turn_is_opened_once_and_then_recorded(rows):
    turn, recorder, prompt = await begun()
    await recorder.open(prompt)
    await recorder.open(prompt)
    assert turn.progress.scope_id == 70
    assert await recorder.finish(prompt, TurnOutcome([ANSWER]))
    assert [kind for kind, *_ in rows] == ["open", "record"]
    _, opening = rows[0]
    assert (opening.node.state, opening.node.recall) == ("open", "")
    _, record, opened_too = rows[1]
    assert opened_too is None
    assert [n.state for n in record.nodes] == ["done"]
    assert record.answers == [ANSWER]
    assert record.epoch is prompt.plan.epoch
    assert record.explain[1]["epoch"]["began"] == "new conversation"
    assert not held(turn)


async def test_an_answer_that_comes_at_once_is_written_with_its_request(rows):
    _, recorder, prompt = await begun()
    assert recorder.can_defer_opening
    assert await recorder.finish(prompt, TurnOutcome([ANSWER]))
    ((kind, record, opening),) = rows
    assert (kind, opening.node.id) == ("record", record.nodes[0].id)


@pytest.mark.parametrize("why", ["reads", "new scope with vectors", "adopted", "heavy"])
async def test_what_is_not_deferred(why):
    turn = a_turn(mode="read" if why == "reads" else "full")
    if why == "new scope with vectors":
        turn.progress.scope_id, turn.services.retrieval.meaning = None, object()
    if why == "adopted":
        turn = structs.replace(turn, identity=structs.replace(turn.identity, adopted=True))
    if why == "heavy":
        turn.store.heavy = True
    assert not TurnRecorder(turn).can_defer_opening


async def test_the_first_turn_of_a_user_is_deferred_too():
    turn = a_turn()
    turn.progress.scope_id = None
    assert TurnRecorder(turn).can_defer_opening


async def test_a_turn_that_only_reads_writes_nothing(rows):
    turn, recorder, prompt = await begun(mode="read")
    await recorder.open(prompt)
    assert await recorder.finish(prompt, TurnOutcome([ANSWER]))
    await recorder.fail(prompt)
    assert rows == []
    assert not held(turn)


async def test_several_answers_are_siblings_and_the_first_has_what_was_hidden(rows):
    turn, recorder, prompt = await begun()
    hidden = [{"role": "tool", "tool_call_id": "1", "content": "x"}]
    await recorder.finish(prompt, TurnOutcome([ANSWER, ANSWER], hidden))
    one, two = rows[0][1].nodes
    assert one.id == one.turn == two.turn == turn.identity.node_id
    assert two.id != one.id
    assert (one.hidden, two.hidden) == (hidden, None)
    assert turn.services.lines.kept == []


async def test_an_aborted_answer_says_so(rows):
    _, recorder, prompt = await begun()
    await recorder.finish(
        prompt, TurnOutcome([ANSWER], aborted=True, prove=True, explain={"status": "aborted"})
    )
    record = rows[0][1]
    assert (record.nodes[0].state, record.nodes[0].text, record.prove) == ("aborted", "hi", True)
    assert record.explain[1]["status"] == "aborted"


async def test_a_request_without_memory_in_it_leaves_no_epoch(rows):
    _, recorder, prompt = await begun()
    await recorder.finish(prompt.without_memory(), TurnOutcome([ANSWER]))
    record = rows[0][1]
    assert (record.nodes[0].epoch, record.nodes[0].note, record.epoch) == (None, None, None)


async def test_what_nobody_wrote_is_their_branchs(rows):
    turn, recorder, prompt = await begun(scope=Scope("t", None, "default", SECRET))
    turn.progress.trace.tools.append({"name": "core_memory_append"})
    await recorder.finish(prompt, TurnOutcome([ANSWER]))
    assert rows[0][1].nodes[0].branch == turn.identity.node_id


async def test_the_next_turn_finds_what_it_would_read():
    turn, recorder, prompt = await begun()
    await recorder.open(prompt)
    sent = SentPrompt(prompt.messages.after, "a", [], prompt.fitted, {})
    await recorder.finish(prompt, TurnOutcome([ANSWER]), sent)
    ((began, where, line),) = turn.services.lines.kept
    assert began is turn.attempt.entries
    assert where == line.past.node.chain
    assert (line.sent_prompt, line.past.epoch, line.scope_id) == (sent, prompt.plan.epoch, 70)
    assert line.blocks is turn.snapshot.blocks
    assert turn.services.retrieval.added == 1


async def test_a_history_that_is_kept_here_is_found_by_its_name():
    turn, recorder, prompt = await begun(explicit="mine")
    await recorder.finish(prompt, TurnOutcome([ANSWER]))
    ((_, where, line),) = turn.services.lines.kept
    assert where == b"name mine"
    assert line.server_history is not None
    assert b"name mine" in turn.services.lines.taken


async def test_a_request_that_the_store_did_not_take_is_lost_and_said_to_be(rows):
    turn, recorder, prompt = await begun()
    turn.services.db.faults = [late()]
    with pytest.raises(Exception, match="late"):
        await recorder.open(prompt)
    assert not await recorder.finish(prompt, TurnOutcome([ANSWER]))
    await recorder.fail(prompt)
    assert rows == []
    assert not held(turn)


async def test_an_answer_that_the_store_does_not_take_is_spilled(rows):
    turn, recorder, prompt = await begun()
    await recorder.open(prompt)
    turn.services.db.faults = [late()]
    assert await recorder.finish(prompt, TurnOutcome([ANSWER]))
    (record,) = turn.services.recovery_log.kept
    assert record.answers == [ANSWER]
    assert turn.services.lines.kept == []
    assert not held(turn)


async def test_an_answer_that_no_file_takes_either_is_lost():
    turn, recorder, prompt = await begun()
    turn.store.recovery_log = FakeSpill(broken=True)
    await recorder.open(prompt)
    turn.services.db.faults = [late()]
    assert not await recorder.finish(prompt, TurnOutcome([ANSWER]))


async def test_a_whole_turn_that_the_store_does_not_take_is_not_spilled():
    turn, recorder, prompt = await begun()
    turn.services.db.faults = [late()]
    assert not await recorder.finish(prompt, TurnOutcome([ANSWER]))
    assert turn.services.recovery_log.kept == []


async def test_nothing_stays_of_a_user_who_was_erased_meanwhile():
    turn, recorder, prompt = await begun()
    turn.services.db.faults = [ErasedMeanwhile("gone")]
    assert await recorder.finish(prompt, TurnOutcome([ANSWER]))
    assert turn.services.recovery_log.kept == []
    assert not held(turn)


async def test_a_turn_ends_once(rows):
    _, recorder, prompt = await begun()
    await recorder.finish(prompt, TurnOutcome([ANSWER]))
    await recorder.finish(prompt, TurnOutcome([ANSWER]))
    await recorder.fail(prompt)
    assert len(rows) == 1


async def test_an_opened_turn_that_failed_is_noted(rows):
    turn, recorder, prompt = await begun()
    await recorder.open(prompt)
    await recorder.fail(prompt)
    assert rows[1] == ("attempt_failed", turn.identity.node_id, None)
    assert not held(turn)


async def test_a_failed_turn_that_was_not_opened_is_opened_then(rows):
    _, recorder, prompt = await begun()
    await recorder.fail(prompt)
    assert [kind for kind, *_ in rows] == ["open"]


async def test_a_failure_that_cannot_be_noted_is_a_remark():
    turn, recorder, prompt = await begun()
    await recorder.open(prompt)
    turn.services.db.faults = [late()]
    await recorder.fail(prompt)
    assert turn.progress.trace.notes == ["the failed attempt could not be recorded"]
    assert not held(turn)


async def test_a_turn_is_taken_back_where_it_was_opened(rows):
    turn, recorder, prompt = await begun()
    await recorder.drop()
    assert rows == []
    turn, recorder, prompt = await begun()
    await recorder.open(prompt)
    await recorder.drop()
    assert rows[1] == ("drop_turn", 70, turn.identity.node_id)
    await recorder.fail(prompt)
    assert len(rows) == 2
    assert not held(turn)


async def test_the_node_of_an_earlier_attempt_is_not_taken_back(rows):
    turn, _, prompt = await begun()
    turn = structs.replace(turn, identity=structs.replace(turn.identity, adopted=True))
    recorder = TurnRecorder(turn)
    await recorder.open(prompt)
    await recorder.drop()
    assert [kind for kind, *_ in rows] == ["open"]


async def test_a_turn_that_is_left_while_it_is_recorded_is_released(monkeypatch):
    turn, recorder, prompt = await begun()

    async def left(work, **_):
        raise asyncio.CancelledError

    monkeypatch.setattr(turn.services.db, "write", left)
    with pytest.raises(asyncio.CancelledError):
        await recorder.finish(prompt, TurnOutcome([ANSWER]))
    assert not held(turn)


async def test_a_tenant_is_proven_where_the_store_says_so():
    turn, recorder, _ = await begun()
    turn.services.db.answers = [True]
    assert await recorder.proven()
    turn.services.db.faults = [late()]
    assert not await recorder.proven()


# What a turn is recorded as, which is found out when it starts.


def test_an_unanswered_node_for_this_history_is_gone_on_with():
    waiting, line = TurnNode(5, 3), ConversationState(3, "conv_3", False, False, None)
    turn = a_turn(snapshot={"attempt_node": waiting, "attempt_conversation": line})
    assert (turn.identity.node_id, turn.identity.adopted) == (5, True)
    assert turn.identity.conversation is line


def test_a_node_that_a_turn_under_way_has_is_left_to_it():
    turns = InFlight()
    turns.claim(b"other").hold_node(5)
    turn = a_turn(snapshot={"attempt_node": TurnNode(5, 3)}, in_flight=turns)
    assert not turn.identity.adopted
    assert turn.identity.node_id != 5


def test_a_conversation_that_went_on_elsewhere_is_forked():
    found = ConversationState(3, "conv_3", False, False, 99)
    past = structs.replace(a_turn().snapshot.past, node=TurnNode(4, 3))
    turn = a_turn(snapshot={"conversation": found, "past": past, "blocks": dict(BLOCKS)})
    assert turn.identity.forked_from == "conv_3"
    assert turn.identity.conversation.name != "conv_3"
    assert turn.identity.head == 99


def test_a_conversation_that_is_named_is_that_one():
    found = ConversationState(3, "mine", True, False, 99)
    turn = a_turn(snapshot={"conversation": found}, explicit="mine")
    assert turn.identity.conversation is found
    assert turn.services.lines.taken == [b"name mine"]
    # It begins anew in a conversation that has turns: what it replaces there is told by its rows.
    assert turn.identity.forked_from == "mine"


def test_a_named_conversation_without_turns_is_begun_and_not_branched():
    found = ConversationState(3, "mine", True, False, None)
    turn = a_turn(snapshot={"conversation": found}, explicit="mine")
    assert turn.identity.conversation is found
    assert turn.identity.forked_from is None


async def test_rows_that_stay_behind_are_logged_without_what_they_say(caplog):
    async def fail():
        raise ValueError("a user's words")

    task = asyncio.ensure_future(fail())
    task.add_done_callback(log_failed_drop)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert "stay behind: ValueError" in caplog.text
    assert "a user's words" not in caplog.text


@pytest.mark.parametrize(("many", "is_heavy"), [(1, False), (LIGHT_ANSWERS + 1, True)])
async def test_many_choices_are_written_off_the_event_loop(rows, many, is_heavy):
    """Each is a node of its own: 256 of them held others for .1 s."""
    turn, recorder, prompt = await begun()
    assert await recorder.finish(prompt, TurnOutcome([ANSWER] * many))
    assert turn.store.heavy == is_heavy
    assert len(rows[-1][1].nodes) == many
