"""When an epoch goes on, when a new one begins, and what is told in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from memory.context.epoch import (
    CurrentMemory,
    EpochPolicy,
    PreviousTurn,
    apply_overrides,
    new_epoch,
    new_node,
    plan,
)
from memory.conversation.matching import RequestHistory, TurnNode
from memory.core.blocks import CoreBlock

KEY, TAG, NOW = b"k" * 32, "tag", 1000.0
TEA, COFFEE = CoreBlock("human", "Likes tea."), CoreBlock("human", "Likes coffee.")
HISTORY = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]
RULES = EpochPolicy()


def history(messages=HISTORY):
    return RequestHistory.of(KEY, messages)


def present(*blocks, edits=0, at=NOW, behind=None):
    return CurrentMemory(blocks or [TEA], TAG, edits, at, behind)


def before(turn, **members):
    """The turn before, which answered at message 1 under an epoch of its own."""
    epoch = new_epoch([TEA], TAG, 0)
    node = TurnNode(4, 3, chain=turn.chain.link(1), at=NOW - 1, epoch=epoch.id, **members)
    held = [node] if node.note or node.hidden else []
    return PreviousTurn(node, 1, epoch, held)


def test_the_first_request_begins_an_epoch():
    planned = plan(history(), PreviousTurn(), present(), RULES)
    assert planned.reason == "new conversation"
    assert "Likes tea." in planned.epoch.core
    assert planned.epoch.blocks == {"human": "Likes tea."}
    assert (planned.notes, planned.splices, planned.note) == ({}, {}, "")


def test_an_epoch_goes_on_with_the_very_same_text():
    turn = history()
    past = before(turn)
    planned = plan(turn, past, present(), RULES)
    assert planned.epoch is past.epoch
    assert (planned.reason, planned.note, planned.notes) == ("", "", {})


@pytest.mark.parametrize(
    ("now", "rules", "reason"),
    [
        (present(edits=1), RULES, "edited outside the conversation"),
        (present(at=NOW + 1000), RULES, "idle"),
        (present(), EpochPolicy(live=True), "live placement"),
        (present(TEA, CoreBlock("pets", "A cat.")), RULES, "a block was added"),
        (present(COFFEE), EpochPolicy(note_chars=5), "notes over their budget"),
    ],
)
def test_why_a_new_epoch_begins(now, rules, reason):
    turn = history()
    past = before(turn)
    planned = plan(turn, past, now, rules)
    assert planned.reason == reason
    assert planned.epoch is not past.epoch
    assert planned.notes == {}


def test_a_change_is_told_in_a_note_at_the_newest_user_message():
    turn = history()
    planned = plan(turn, before(turn), present(COFFEE), RULES)
    assert planned.reason == ""
    assert planned.notes == {2: planned.note}
    assert "Likes coffee." in planned.note
    assert planned.told == {"human": "Likes coffee."}


def test_a_removed_block_is_told_as_removed():
    turn = history()
    planned = plan(turn, before(turn), CurrentMemory([], TAG, 0, NOW), RULES)
    assert planned.told == {"human": None}
    assert 'change="removed"' in planned.note


def test_what_was_told_is_not_told_again():
    turn = history()
    past = before(turn, told={"human": "Likes coffee."})
    assert plan(turn, past, present(COFFEE), RULES).note == ""


def test_a_change_waits_while_tools_of_the_client_run():
    turn = history([*HISTORY[:2], {"role": "tool", "tool_call_id": "1", "content": "x"}])
    planned = plan(turn, before(turn), present(COFFEE), RULES)
    assert (planned.reason, planned.note, planned.told) == ("", "", {})


def test_a_note_stands_where_it_stood():
    turn = history()
    planned = plan(turn, before(turn, note="<note>"), present(), RULES)
    assert planned.notes == {0: "<note>"}
    assert planned.places == {4: 1}


def test_a_hidden_exchange_is_spliced_at_its_node():
    hidden = [{"role": "assistant", "content": "x"}]
    turn = history()
    planned = plan(turn, before(turn, hidden=hidden), present(), RULES)
    assert planned.splices == {1: hidden}
    assert planned.places == {4: 1}


def test_a_note_whose_message_is_gone_ends_the_epoch():
    turn = history([HISTORY[1], HISTORY[2]])
    past = structs.replace(before(history(), note="<note>"), at=0)
    assert plan(turn, past, present(), RULES).reason == "a note's carrier is gone"


def test_a_carrier_that_is_nowhere_ends_the_epoch():
    turn = history()
    past = before(turn)
    gone = TurnNode(2, 3, chain=b"elsewhere", digest=b"another", note="<note>")
    past = structs.replace(past, carriers=[gone])
    assert plan(turn, past, present(), RULES).reason == "a note's carrier is gone"


def test_a_history_without_what_was_cut_ends_the_epoch():
    turn = history()
    past = before(turn)
    past = structs.replace(past, epoch=replace(past.epoch, cut=b"a link that is not there"))
    assert plan(turn, past, present(), RULES).reason == "history trimmed"


def test_an_epoch_without_the_summary_of_what_is_left_out_ends():
    turn = history()
    now = structs.replace(present(), behind=(b"link", "a summary"))
    planned = plan(turn, before(turn), now, RULES)
    assert planned.reason == "history trimmed"
    assert "a summary" in planned.epoch.core


def test_places_that_are_known_are_not_looked_for():
    turn = history()
    past = before(turn, note="<note>")
    earlier = TurnNode(2, 3, hidden=[{"role": "assistant", "content": "x"}])
    past = structs.replace(past, carriers=[earlier, past.node], places={2: 0})
    planned = plan(turn, past, present(), RULES)
    assert planned.places == {2: 0, 4: 1}
    assert set(planned.splices) == {0}


def test_a_new_epoch_stands_for_what_was_said_before_the_kept_messages():
    planned = plan(history(), PreviousTurn(), present(behind=(b"link", "They met.")), RULES)
    assert planned.epoch.cut == b"link"
    assert "They met." in planned.epoch.core


def test_overrides_replace_and_remove():
    assert apply_overrides({"a": "1", "b": "2"}, {"a": "3", "b": None, "c": "4"}) == {
        "a": "3",
        "c": "4",
    }


def test_a_node_says_what_was_placed_and_whom_it_follows():
    turn = history()
    past = before(turn, note="<note>", branch=8)
    planned = plan(turn, past, present(COFFEE), RULES)
    node = new_node(9, 3, turn, past, planned)
    assert (node.id, node.parent, node.branch, node.state) == (9, 4, 8, "open")
    assert (node.epoch, node.note, node.told) == (planned.epoch.id, planned.note, planned.told)
    assert (node.asked, node.carriers) == (turn.chain.end, [4])


def test_the_first_node_follows_nobody():
    turn = history()
    node = new_node(9, 3, turn, PreviousTurn(), plan(turn, PreviousTurn(), present(), RULES))
    assert (node.parent, node.branch, node.note) == (None, 0, None)


def test_every_request_with_live_placement_begins_an_epoch():
    turn = history()
    planned = plan(turn, before(turn), present(), replace(RULES, live=True))
    assert planned.reason == "live placement"


def test_two_notes_at_one_message_end_the_epoch():
    turn = history()
    past = before(turn, note="n")
    past = structs.replace(past, carriers=[*past.carriers, structs.replace(past.carriers[0], id=5)])
    assert plan(turn, past, present(), RULES).reason == "a note's carrier is gone"


def test_another_instruction_begins_an_epoch():
    turn = history()
    rules = replace(RULES, instruction="Remember {tag}.")
    assert plan(turn, before(turn), present(), rules).reason == "instruction changed"
