"""From a request and what is known of it to its prompt."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from memory.context.compaction import COMPACTION, _surely_below_soft
from memory.context.epoch import PlacementPlan, PreviousTurn, new_epoch
from memory.context.fitted import FittedContext, SampledSize, SentPrompt
from memory.context.tokens import TokenCounter
from memory.conversation.history import Messages
from memory.conversation.matching import TurnNode
from memory.core.blocks import CoreBlock
from memory.errors import StoreUnavailable
from memory.scope import Scope
from memory.session.composer import Composer
from memory.session.request import Policy
from tests.memory.session.turns import BLOCKS, SECRET, a_turn, user

HIT = {"key": 11, "created_at": 0.0, "score": 1.0, "coverage": 1.0, "why": {}}
NOBODY = Scope("t", None, "default", SECRET)


def compose(turn):
    return asyncio.run(Composer(turn).compose())


def names(prompt):
    return [t["function"]["name"] for t in prompt.tools]


def test_a_new_conversation_gets_the_core_text_and_the_tools():
    turn = a_turn()
    prompt = compose(turn)
    assert "Likes tea." in prompt.core
    assert (prompt.notes, prompt.splices, prompt.recall) == ({}, {}, "")
    assert "core_memory_append" in names(prompt)
    assert prompt.plan.reason == "new conversation"
    assert prompt.seen_versions == {"human": 0, "persona": 0}
    assert prompt.messages is prompt.client is turn.ask.messages
    assert prompt.adds_anything


def test_a_prompt_does_not_change():
    with pytest.raises(AttributeError):
        compose(a_turn()).core = ""


def test_what_only_reads_is_offered_no_edits():
    prompt = compose(a_turn(mode="read"))
    assert prompt.core
    assert not any("append" in name or "insert" in name for name in names(prompt))


@pytest.mark.parametrize("asked", [{"mode": "write"}, {"inject": False}])
def test_nothing_is_added_where_nothing_may_be(asked):
    prompt = compose(a_turn(**asked))
    assert not prompt.adds_anything
    assert prompt.injected_tokens == 0


def test_a_target_without_tools_gets_the_core_text_alone():
    prompt = compose(a_turn(offer=False))
    assert prompt.core
    assert prompt.tools == []


def test_nobody_gets_the_blocks_that_say_something_and_no_tools():
    prompt = compose(a_turn(scope=NOBODY))
    assert prompt.tools == []
    assert prompt.seen_versions == {"human": 0}


def test_the_clients_own_messages_are_apart_where_history_is_kept_here():
    prompt = compose(a_turn(explicit="c"))
    assert prompt.client is None
    assert list(prompt.messages) == [user("hello")]


def went_on(**members):
    """A turn whose epoch goes on, and the epoch."""
    turn = a_turn([user("one"), {"role": "assistant", "content": "two"}, user("three")])
    epoch = new_epoch(list(BLOCKS.values()), turn.ask.scope.tag, 0)
    node = TurnNode(4, 3, at=2e9, epoch=epoch.id)
    snapshot = structs.replace(
        turn.snapshot, past=PreviousTurn(node, 1, epoch, places={}), **members
    )
    return structs.replace(turn, snapshot=snapshot), epoch


def test_a_running_epoch_goes_on_from_what_was_sent_before():
    turn, epoch = went_on()
    sent = SentPrompt(
        turn.ask.messages.after, "a", [b"{}"], FittedContext(PlacementPlan(epoch, "")), {}
    )
    turn = structs.replace(turn, snapshot=structs.replace(turn.snapshot, sent_prompt=sent))
    prompt = compose(turn)
    assert prompt.plan.epoch is epoch
    assert prompt.previous_prompt is sent


def test_what_changed_is_told_in_a_note_and_counts_as_seen():
    turn, _ = went_on(blocks={**BLOCKS, "human": CoreBlock("human", "Likes coffee.", version=2)})
    prompt = compose(turn)
    assert "Likes coffee." in prompt.notes[2]
    assert "Likes coffee." not in prompt.core
    assert prompt.seen_versions["human"] == 2


def test_a_retry_tells_what_the_earlier_attempt_told():
    turn, epoch = went_on(
        blocks={**BLOCKS, "human": CoreBlock("human", "Likes coffee.", version=2)}
    )
    waiting = TurnNode(9, 3, epoch=epoch.id, note="<told>", told={"human": "Likes milk."})
    turn = structs.replace(
        turn,
        snapshot=structs.replace(turn.snapshot, attempt_node=waiting),
        identity=structs.replace(turn.identity, adopted=True),
    )
    turn.progress.rounds.append({"reply": {}, "results": []})
    prompt = compose(turn)
    assert (prompt.notes[2], prompt.plan.note) == ("<told>", "<told>")
    assert "human" not in prompt.seen_versions


def test_recall_adds_what_seems_relevant_once():
    turn = a_turn([user("which tea?")], recall=True)
    hit = {**HIT, "content": "Tea is green."}
    turn.services.retrieval.found_passages = [hit]
    prompt = compose(turn)
    assert "Tea is green." in prompt.recall
    assert (prompt.recall_result.keys, prompt.recall_result.passages) == ([11], [11])
    assert turn.services.retrieval.asked[0].text == "which tea?"


def test_recall_leaves_out_what_the_request_says_anyway():
    turn = a_turn([user("Tea is green.")], recall=True)
    hit = {**HIT, "content": "Tea is green."}
    turn.services.retrieval.found_passages = [hit]
    assert compose(turn).recall == ""


def test_a_search_that_fails_adds_nothing(monkeypatch):
    turn = a_turn([user("which tea?")], recall=True)

    async def broken(scope_id, wanted, sent):
        raise StoreUnavailable("late")

    monkeypatch.setattr(turn.services.recall, "find", broken)
    assert compose(turn).recall == ""


def test_a_prompt_without_memory_holds_nothing_and_leaves_the_first_as_it_was():
    turn, _ = went_on(blocks={**BLOCKS, "human": CoreBlock("human", "Likes coffee.", version=2)})
    prompt = compose(turn)
    bare = prompt.without_memory()
    assert not bare.adds_anything
    assert (bare.plan.note, bare.splices, bare.injected_tokens) == ("", {}, 0)
    assert prompt.plan.note
    assert prompt.adds_anything


def test_what_was_sent_is_kept_for_the_next_turn_unless_it_is_not_replayed():
    prompt = compose(a_turn())
    sent = prompt.sent_to("a", [b"{}"], "estimate")
    assert (sent.by, sent.of, sent.fitted) == ("a", prompt.messages.after, prompt.fitted)
    assert structs.replace(prompt, recall="x").sent_to("a", [b"{}"], "estimate") == sent
    assert prompt.without_memory().sent_to("a", [], "estimate") is None


async def test_a_prompt_that_is_too_long_is_cut_into_another():
    said = [
        m
        for i in range(30)
        for m in (user(f"{i} " + "word " * 50), {"role": "assistant", "content": f"answer {i}"})
    ]
    turn = a_turn([*said, user("so?")], snapshot={"scope_id": None}, mode="read")
    composer = Composer(turn)
    prompt = await composer.compose()
    counted = composer.recount(prompt, None)
    assert counted.fitted.tokens > 1000
    smaller = await composer.compact_harder(counted, 0, None)
    assert smaller.fitted.tokens < counted.fitted.tokens
    assert smaller.plan.reason == COMPACTION
    assert smaller.previous_prompt is None
    assert len(smaller.drop) > 0
    assert len(prompt.drop) == 0
    assert turn.progress.trace.evicted[0]["messages"] == len(smaller.drop)


async def test_what_cannot_be_cut_is_not():
    turn = a_turn(snapshot={"scope_id": None}, mode="read")
    composer = Composer(turn)
    counted = composer.recount(await composer.compose(), None)
    assert await composer.compact_harder(counted, 0, None) is None
    assert turn.progress.trace.evicted == []


def test_the_estimate_learns_from_what_the_upstream_counted():
    turn = a_turn(window=8000, body=b"")
    prompt = compose(turn)
    before = turn.services.counter.scale("m", 1000)
    composer = Composer(turn)
    assert asyncio.run(composer.calibrate(prompt, None)) is None
    assert turn.services.counter.scale("m", 1000) == before
    asyncio.run(composer.calibrate(prompt, {"prompt_tokens": 10 * prompt.fitted.held}))
    assert turn.services.counter.scale("m", 1000) > before


def test_a_live_policy_begins_an_epoch_each_turn():
    turn, epoch = went_on()
    rules = replace(turn.policy.rules, live=True)
    prompt = compose(structs.replace(turn, policy=Policy(rules=rules)))
    assert prompt.plan.epoch is not epoch
    assert prompt.plan.reason == "live placement"


def test_messages_are_those_of_the_request():
    assert isinstance(compose(a_turn()).messages, Messages)


# More bytes than the window's soft threshold has tokens.
LONG_BODY = b"word " * 4000


def test_a_body_whose_samples_surely_fit_is_not_counted():
    prompt = compose(a_turn(window=20_000, body=LONG_BODY))
    assert prompt.fitted.tokens == 0
    assert prompt.fitted.sampled.size == len(LONG_BODY)
    assert compose(a_turn(window=6000, body=LONG_BODY)).fitted.tokens > 0


def test_a_body_that_fits_until_it_is_answered_is_sampled_once():
    """Else all of it were counted when the answer is there, in each turn just below the bound."""
    window = int(len(LONG_BODY) / 0.65) + 1000
    turn = a_turn(window=window, max_output=1000, body=LONG_BODY, offer=False)
    prompt = compose(turn)
    assert prompt.fitted.sampled.size == len(LONG_BODY)
    assert not prompt.fitted.tokens
    answers = [{"role": "assistant", "content": "word " * (window // 50)}]
    assert _surely_below_soft(prompt.fitted, prompt.budget, answers)


def test_samples_of_the_turn_before_hold_for_what_continues_it(monkeypatch):
    turn, epoch = went_on()
    fitted = FittedContext(PlacementPlan(epoch, ""), sampled=SampledSize(19_000, 5000))
    sent = SentPrompt(turn.ask.messages.after, "a", [b"{}"], fitted, {})
    ask = structs.replace(turn.ask, window=20_000, body=LONG_BODY)
    turn = structs.replace(turn, ask=ask, snapshot=structs.replace(turn.snapshot, sent_prompt=sent))
    monkeypatch.setattr(TokenCounter, "sample", None)
    assert compose(turn).fitted.sampled == SampledSize(20_000, 6000)
