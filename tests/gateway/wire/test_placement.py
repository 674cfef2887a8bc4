"""A hidden exchange is put back so that the client's results answer the calls it knows."""

import pytest

from gateway.wire.placement import Placement, place_memory


def call(ident, name="f"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": "{}"}}


def hidden(*theirs, ours="call_0"):
    calls = [call(ours, "core_memory_append"), *map(call, theirs)]
    return [
        {"role": "assistant", "content": "ok", "tool_calls": calls},
        {"role": "tool", "tool_call_id": ours, "content": "Saved."},
    ]


def sent(client_ids, exchange):
    """The messages that go upstream for a history whose answer is replaced by the exchange."""
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ok", "tool_calls": [call(i) for i in client_ids]},
        *({"role": "tool", "tool_call_id": i, "content": "42"} for i in client_ids),
    ]
    return place_memory({"messages": history}, Placement(splices={1: exchange}))["messages"]


@pytest.mark.parametrize(
    ("client", "kept", "ours"),
    [
        (["a"], ["a"], "call_0"),
        (["b"], ["a"], "call_0"),
        (["b", "c"], ["c", "b"], "call_0"),
        (["call_0"], ["a"], "call_0"),
    ],
)
def test_every_result_answers_a_call_that_was_made_once(client, kept, ours):
    messages = sent(client, hidden(*kept, ours=ours))
    made = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
    answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert sorted(made) == sorted(set(made)) == sorted(answered)
    assert answered[1:] == client


def test_an_exchange_that_fits_is_put_back_as_it_was():
    exchange = hidden("a")
    assert sent(["a"], exchange)[1:3] == exchange
