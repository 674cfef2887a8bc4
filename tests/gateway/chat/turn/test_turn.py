"""The turn over an upstream and a session that do what a test says."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.apis.chat.hidden_exchange import HiddenExchange
from gateway.apis.chat.interceptor import RoundResult
from gateway.chat.turn.opening import RequestOpening
from gateway.chat.turn.round_sender import Injection, RoundSender, TargetOptions
from gateway.chat.turn.turn import Turn, TurnLimits
from gateway.errors import UpstreamRefused
from memory.conversation.history import Messages
from memory.errors import StoreUnavailable
from tests.gateway.chat.turns import (
    APPEND,
    TARGET,
    TOO_LONG,
    FakeDispatcher,
    a_session,
    answer,
    call,
    refusal,
)
from tests.memory.session.turns import user

BODY = {"model": "m", "messages": [user("hello")]}


def turn_of(session, forward, limits=None, options=None, **body):
    messages = session.prompt.messages
    return Turn(
        {**BODY, "messages": messages, **body},
        session,
        forward,
        limits or TurnLimits(),
        options or TargetOptions(),
    )


def run(turn):
    async def all_of():
        return b"".join([shown async for shown in turn.run()])

    return asyncio.run(all_of())


def names(body):
    return {t["function"]["name"] for t in json.loads(json.dumps(body, default=raw))["tools"]}


def raw(value):
    return json.loads(bytes(value))


def test_an_answer_that_is_all_of_it_goes_out_as_it_came():
    session, forward = a_session(), FakeDispatcher(answer("hi"))
    turn = turn_of(session, forward)
    run(turn)
    assert json.loads(asyncio.run(turn.completion())) == answer("hi")
    assert session.log == ["calibrate", "finish"]
    assert session.outcome.answers == [{"role": "assistant", "content": "hi"}]
    assert (session.outcome.hidden, session.outcome.explain) == (None, {"status": "ok"})
    assert not turn.degraded
    assert "Likes tea." in forward.asked[0]["messages"][0]["content"]
    assert APPEND in names(forward.asked[0])
    assert (forward.another, forward.frozen) == ([False], [True])
    assert session.sent_to == ["a/m"]


def test_calls_of_ours_run_and_their_results_go_upstream():
    session = a_session()
    forward = FakeDispatcher(answer(None, call(APPEND)), answer("done"))
    turn = turn_of(session, forward)
    run(turn)
    assert session.ran == [[APPEND]]
    assert session.log == ["open", "opened", "calibrate", "finish"]
    *_, asking, result = forward.asked[1]["messages"]
    assert asking["tool_calls"][0]["id"] == result["tool_call_id"] == "call_1"
    assert result["content"] == "Saved call_1."
    assert forward.another == [False, True]
    assert json.loads(asyncio.run(turn.completion()))["choices"][0]["message"]["content"] == "done"
    # What goes with a hidden exchange is not gone on from.
    assert session.sent_to == ["a/m"]
    assert len(turn.usages) == 2


def test_calls_of_the_clients_end_the_turn_and_what_was_hidden_is_recorded():
    session = a_session()
    forward = FakeDispatcher(answer(None, call(APPEND), call("search_web", "call_2")))
    turn = turn_of(session, forward)
    run(turn)
    assert session.ran == [[APPEND]]
    hidden = session.outcome.hidden
    assert [m["role"] for m in hidden] == ["assistant", "tool"]
    assert len(hidden[0]["tool_calls"]) == 2
    (message,) = turn.answers()
    assert [c["function"]["name"] for c in message["tool_calls"]] == ["search_web"]


def test_the_last_round_has_none_of_our_tools():
    session = a_session()
    forward = FakeDispatcher(answer(None, call(APPEND)), answer("done"))
    run(turn_of(session, forward, TurnLimits(rounds=1)))
    assert "tools" not in forward.asked[1]


def test_a_model_that_calls_what_it_was_not_offered_ends_the_turn():
    session = a_session()
    forward = FakeDispatcher(*[answer(None, call(APPEND)) for _ in range(2)])
    run(turn_of(session, forward, TurnLimits(rounds=1)))
    assert len(forward.asked) == 2
    assert session.ran == [[APPEND]]


def test_a_call_that_was_cut_is_not_run_and_asked_for_again_without_tools():
    session = a_session()
    forward = FakeDispatcher(answer(None, call(APPEND), finish="length"), answer("done"))
    run(turn_of(session, forward))
    assert session.ran == []
    assert "tools" not in forward.asked[1]


def test_a_stream_is_opened_at_once_and_ends_with_done():
    session, forward = a_session(), FakeDispatcher(answer("hi"))
    shown = run(turn_of(session, forward, stream=True))
    assert session.log == ["open", "opened", "calibrate", "finish"]
    assert shown.endswith(b"data: [DONE]\n\n")
    assert b"hi" in shown
    assert forward.asked[0]["stream_options"] == {"include_usage": True}


def test_the_usage_of_a_stream_is_not_asked_for_where_it_is_not_taken():
    session, forward = a_session(), FakeDispatcher(answer("hi"))
    run(turn_of(session, forward, options=TargetOptions(ask_usage=False), stream=True))
    assert "stream_options" not in forward.asked[0]


def test_a_retry_shows_the_rounds_of_the_attempt_before():
    first = {"reply": answer(None, call(APPEND)), "results": ["Saved."]}
    session, forward = a_session(rounds=[first]), FakeDispatcher(answer("done"))
    run(turn_of(session, forward))
    assert session.ran == []
    assert forward.asked[0]["messages"][-1]["content"] == "Saved."
    assert forward.another == [True]


def test_a_retry_of_a_turn_that_was_over_asks_nobody():
    calls = answer(None, call(APPEND), call("search_web", "call_2"))
    session = a_session(rounds=[{"reply": calls, "results": ["Saved."]}])
    forward = FakeDispatcher()
    turn = turn_of(session, forward)
    run(turn)
    assert forward.asked == []
    assert turn.answers()[0]["tool_calls"][0]["function"]["name"] == "search_web"


@pytest.mark.parametrize("ways", ["summed", "the last"])
def test_the_usage_is_that_of_all_rounds_or_of_the_last(ways):
    session = a_session()
    forward = FakeDispatcher(answer(None, call(APPEND)), answer("done"))
    turn = turn_of(session, forward, TurnLimits(sum_usage=ways == "summed"))
    run(turn)
    assert turn.usage["prompt_tokens"] == (20 if ways == "summed" else 10)


def test_an_answer_that_is_not_kept_is_degraded():
    session = a_session(keeps=False)
    turn = turn_of(session, FakeDispatcher(answer("hi")))
    run(turn)
    assert turn.degraded


# A target that refuses.


def test_a_prompt_that_is_too_long_is_cut_three_times_and_then_sent_bare():
    session = a_session(shrinks=3)
    forward = FakeDispatcher(*[refusal(400, TOO_LONG)] * 4, answer("hi"))
    turn = turn_of(session, forward)
    run(turn)
    assert session.log[:4] == ["compact 0", "compact 1", "compact 2", "inject nothing"]
    assert "tools" not in forward.asked[4]
    assert list(forward.asked[4]["messages"]) == [user("hello")]
    assert forward.another == [False, True, True, True, True]
    assert forward.frozen == [True, True, True, True, False]
    assert turn.degraded
    assert session.sent_to == []


def test_a_request_that_is_too_long_by_itself_is_refused_as_such():
    session = a_session(asked={"mode": "write"})
    with pytest.raises(UpstreamRefused) as refused:
        run(turn_of(session, FakeDispatcher(refusal(400, TOO_LONG))))
    assert b"context_length_exceeded" in refused.value.content


def test_a_target_that_refuses_our_additions_is_told_of_and_asked_without():
    told, session = [], a_session()
    forward = FakeDispatcher(refusal(400), answer("hi"))
    turn = turn_of(session, forward, options=TargetOptions(reject=told.append))
    run(turn)
    assert told == [TARGET]
    assert session.log[0] == "inject nothing"
    assert turn.degraded


def test_a_target_that_refuses_the_clients_own_body_too_is_not_blamed():
    told, session = [], a_session()
    forward = FakeDispatcher(refusal(400), refusal(400))
    turn = turn_of(session, forward, options=TargetOptions(reject=told.append))
    with pytest.raises(UpstreamRefused):
        run(turn)
    assert told == []
    assert "inject nothing" not in session.log


def test_other_refusals_are_the_clients():
    with pytest.raises(UpstreamRefused):
        run(turn_of(a_session(), FakeDispatcher(refusal(429))))


def test_what_of_ours_is_sent():
    def sender(session):
        return RoundSender(BODY, session, FakeDispatcher(), TargetOptions())

    offering, without = sender(a_session()), sender(a_session(asked={"offer": False}))
    assert (offering.injection, offering.is_last) == (Injection.FULL, False)
    assert (without.injection, without.is_last) == (Injection.WITHOUT_TOOLS, True)
    offering.withdraw_tools()
    assert (offering.injection, offering.is_last) == (Injection.WITHOUT_TOOLS, True)
    offering.injection = Injection.NONE
    offering.withdraw_tools()
    assert offering.injection is Injection.NONE


# A turn that ends early.


def abandoned(session, forward, error, **body):
    async def end():
        turn = turn_of(session, forward, **body)
        await turn.abandon(error)
        await turn.abandon(error)

    asyncio.run(end())
    return session.log


@pytest.mark.parametrize("status", [401, 403])
def test_nothing_is_kept_of_refused_credentials(status):
    assert abandoned(a_session(), FakeDispatcher(), refusal(status)) == ["drop"]


@pytest.mark.parametrize(("proven", "ends"), [(False, "drop"), (True, "fail")])
def test_an_account_that_nobody_ever_served_leaves_nothing(proven, ends):
    forward = FakeDispatcher(served=None, among_many=True)
    assert abandoned(a_session(is_proven=proven), forward, None) == [ends]


def test_a_turn_that_showed_nothing_has_failed():
    assert abandoned(a_session(), FakeDispatcher(), refusal(500), stream=True) == ["fail"]


def test_what_was_shown_of_a_stream_is_kept():
    session = a_session()

    async def leave():
        turn = turn_of(session, FakeDispatcher(answer("hi")), stream=True)
        events = turn.run()
        await anext(events)
        await events.aclose()
        await turn.abandon(None)

    asyncio.run(leave())
    assert session.outcome.aborted
    assert session.outcome.answers == [{"role": "assistant", "content": "hi"}]


# The early opening.


async def failing():
    raise StoreUnavailable("late")


async def never():
    await asyncio.Event().wait()


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_whole_answer_within_moments_needs_no_opening(at_once):
    session = await asyncio.to_thread(a_session)
    opening = RequestOpening(session, streamed=False)
    opening.begin(at_once=at_once)
    assert await opening.wait(1.0)
    await opening.finish()
    assert session.log == (["open", "opened"] if at_once else [])


async def test_an_answer_that_takes_longer_finds_its_request_opened():
    session = await asyncio.to_thread(a_session)
    opening = RequestOpening(session, streamed=False)
    opening.begin()
    await asyncio.sleep(0.1)
    opening.begin()
    assert session.log == ["open", "opened"]


async def test_a_store_that_fails_degrades_the_turn():
    session = await asyncio.to_thread(a_session, opening=failing)
    opening = RequestOpening(session, streamed=True)
    opening.begin()
    assert await opening.wait(1.0)
    assert opening.degraded


async def test_a_store_that_is_late_is_left_in_the_end():
    session = await asyncio.to_thread(a_session, opening=never)
    opening = RequestOpening(session, streamed=True)
    opening.begin()
    assert not await opening.wait(0.01)
    assert opening.degraded
    await opening.finish()
    assert session.log == ["open"]


# The hidden exchange.


def result_of(ours=(), theirs=()):
    return RoundResult({}, list(ours), list(theirs), True, False, False, None)


def test_a_call_whose_id_the_client_used_gets_another():
    ours = call(APPEND, "call_1")
    client = Messages.of([{"role": "assistant", "content": None, "tool_calls": [call("x")]}])
    hidden = HiddenExchange()
    hidden.append({"role": "assistant", "tool_calls": [ours]}, result_of([ours]), ["ok"], client)
    asking, told = hidden.messages
    assert asking["tool_calls"][0]["id"] == told["tool_call_id"] != "call_1"


def test_hidden_calls_make_way_for_the_ids_of_the_clients():
    ours = call(APPEND, "call_1")
    hidden = HiddenExchange()
    hidden.append(
        {"role": "assistant", "tool_calls": [ours]}, result_of([ours]), ["ok"], Messages.of([])
    )
    hidden.reassign_ids_of([call("search_web", "call_1")])
    asking, told = hidden.messages
    assert asking["tool_calls"][0]["id"] == told["tool_call_id"] != "call_1"
    assert ours["id"] == "call_1"
