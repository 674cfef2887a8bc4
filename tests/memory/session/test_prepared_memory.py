"""What a turn placed holds for the next one, and for no other."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from memory.context.epoch import EpochPolicy, PreviousTurn
from memory.conversation.matching import TurnNode
from memory.ids import clock
from memory.session.composer import Composer
from memory.session.request import Policy
from tests.memory.session.turns import BLOCKS, a_turn, user

POLICY = Policy(blocks=BLOCKS)
HISTORY = [user("hello"), {"role": "assistant", "content": "hi"}, user("and now?")]
WINDOW = {"window": 128_000, "max_output": 512, "body": b"x" * 900}


def compose(turn):
    return asyncio.run(Composer(turn).compose())


def next_turn(prompt, *, prepared, changes=None, node=None, policy=POLICY, **asked):
    """The turn after `prompt`. changes: of what is known of the conversation."""
    parent = TurnNode(1, 1, state="done", epoch=prompt.plan.epoch.id, at=clock.now())
    parent = structs.replace(parent, **(node or {}))
    past = PreviousTurn(parent, 1, prompt.plan.epoch, [], {})
    known = {"past": past, "blocks": prompt.prepared.blocks, "prepared": prepared}
    known |= changes or {}
    return a_turn(HISTORY, snapshot=known, policy=policy, **{**WINDOW, **asked})


def first_prompt():
    """The prompt of a turn that goes on with an epoch, so that the next one may be prepared."""
    begun = compose(a_turn(policy=POLICY, **WINDOW))
    assert begun.prepared is not None
    return compose(next_turn(begun, prepared=None))


def sent(prompt):
    """What of a prompt goes upstream, and what is noted of it."""
    return [
        prompt.core,
        prompt.notes,
        prompt.splices,
        prompt.tools,
        prompt.seen_versions,
        prompt.injected_tokens,
        prompt.tools_tokens,
        prompt.owned,
        prompt.budget.budget,
        prompt.budget.other_tokens,
        prompt.plan.epoch.id,
        prompt.plan.reason,
        prompt.plan.told,
    ]


def test_a_prepared_turn_sends_what_one_composed_anew_sends():
    before = first_prompt()
    anew = compose(next_turn(before, prepared=None))
    goes_on = compose(next_turn(before, prepared=before.prepared))
    # Nothing was looked at again.
    assert goes_on.prepared is before.prepared
    assert sent(goes_on) == sent(anew)


EDITED = replace(BLOCKS["human"], value="Likes coffee.", version=1)
CHANGED = {
    "blocks edited by a model": {"changes": {"blocks": {**BLOCKS, "human": EDITED}}},
    "edited by the API": {"changes": {"edits": 1}},
    "a pause": {"node": {"at": 0.0}},
    "a history that was trimmed": {"lost": True},
    "another window": {"window": 64_000},
    "another limit of output": {"max_output": 1024},
    "another mode": {"mode": "read"},
    "another policy": {"policy": replace(POLICY, rules=EpochPolicy(note_chars=5000))},
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_what_has_changed_is_composed_anew(change):
    before, change = first_prompt(), dict(change)
    if change.pop("lost", False):
        past = PreviousTurn(TurnNode(1, 1, epoch=before.plan.epoch.id), 1, before.plan.epoch, [])
        change["changes"] = {"past": past}
    anew = compose(next_turn(before, prepared=None, **change))
    goes_on = compose(next_turn(before, prepared=before.prepared, **change))
    assert goes_on.prepared is not before.prepared
    # Then each has an epoch of its own.
    is_new = anew.plan.reason != ""
    members = [name for name in range(13) if not (is_new and name == 10)]
    assert [sent(goes_on)[i] for i in members] == [sent(anew)[i] for i in members]


def test_blocks_that_are_left_out_are_named_each_time():
    human = replace(BLOCKS["human"], value="Likes tea, and coffee. " * 250, limit=9000)
    blocks = {**BLOCKS, "human": human}
    turn = a_turn(policy=POLICY, window=2000, body=b"x" * 99, snapshot={"blocks": blocks})
    assert compose(turn).prepared is None
    assert turn.progress.trace.omitted_labels
