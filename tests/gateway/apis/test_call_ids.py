"""No hidden call has the id of another call, on any API, with servers that number from zero."""

from __future__ import annotations

import pytest

from gateway.apis.messages.messages_format import MESSAGES
from gateway.apis.responses.responses_format import RESPONSES
from gateway.apis.round_result import RoundResult
from memory import Messages

OURS, THEIRS = "core_memory_append", "weather"
NOTHING = Messages.of([])


def item_of(name, ident):
    return {"type": "function_call", "call_id": ident, "name": name, "arguments": "{}"}


def block_of(name, ident):
    return {"type": "tool_use", "id": ident, "name": name, "input": {}}


def result_of(calls, member, **more):
    ours = [c for c in calls if c["name"] == OURS]
    theirs = [c for c in calls if c["name"] != OURS]
    reply = {member: calls, **more}
    return RoundResult(reply, ours, theirs, complete=True, cut=False, text_shown=False, usage=None)


def pairs_of(parts):
    """Return the ids of calls and of results, in their order."""
    flat = [p for m in parts for p in (m["content"] if "role" in m else [m])]
    calls = [p.get("call_id", p.get("id")) for p in flat if "name" in p]
    results = [p.get("call_id", p.get("tool_use_id")) for p in flat if "name" not in p]
    return calls, results


APIS = [(RESPONSES, item_of, "output"), (MESSAGES, block_of, "content")]


@pytest.mark.parametrize(("api", "call_of", "member"), APIS)
@pytest.mark.parametrize("ident", ["call_0", "", None])
def test_each_hidden_call_has_an_id_of_its_own(api, call_of, member, ident):
    hidden = api.hidden_rounds()
    two = [call_of(OURS, ident), call_of(OURS, ident)]
    hidden.add_round(result_of(two, member), ["ok", "ok"], NOTHING, "t")
    hidden.add_round(result_of([call_of(OURS, ident)], member), ["ok"], NOTHING, "t")
    calls, results = pairs_of(hidden.messages)
    assert calls == results
    assert len({*calls}) == 3
    assert all(calls)


@pytest.mark.parametrize(("api", "call_of", "member"), APIS)
def test_the_client_keeps_its_ids(api, call_of, member):
    hidden = api.hidden_rounds()
    hidden.add_round(result_of([call_of(OURS, "call_0")], member), ["ok"], NOTHING, "t")
    mixed = result_of([call_of(THEIRS, "call_0"), call_of(OURS, "call_0")], member)
    hidden.reassign_ids_of(mixed.theirs)
    hidden.add_round(mixed, ["ok"], NOTHING, "t")
    calls, results = pairs_of(hidden.messages)
    assert len({*calls}) == 3
    assert calls[1] == "call_0"
    assert results == [calls[0], calls[2]]
    # As received.
    assert mixed.ours[0].get("call_id", mixed.ours[0].get("id")) == "call_0"


@pytest.mark.parametrize(("api", "call_of", "member"), APIS)
def test_an_id_of_the_history_is_not_used_again(api, call_of, member):
    call = {"id": "call_0", "type": "function", "function": {"name": THEIRS, "arguments": "{}"}}
    history = Messages.of([{"role": "assistant", "content": None, "tool_calls": [call]}])
    hidden = api.hidden_rounds()
    hidden.add_round(result_of([call_of(OURS, "call_0")], member), ["ok"], history, "t")
    calls, results = pairs_of(hidden.messages)
    assert calls == results != ["call_0"]


def test_a_provider_that_goes_on_from_its_state_is_told_its_own_ids():
    hidden = RESPONSES.hidden_rounds()
    for number in range(2):
        result = result_of([item_of(OURS, "call_0")], "output", store=True, id=f"r{number}")
        hidden.add_round(result, ["ok"], NOTHING, "t")
        hidden.reassign_ids_of([item_of(THEIRS, "call_0")])
        assert [p["call_id"] for p in hidden.last] == ["call_0"]
