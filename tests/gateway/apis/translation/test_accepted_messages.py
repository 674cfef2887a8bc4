"""Messages of a chat completion in the form that every server accepts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.translation.responses_request_to_chat import chat_request
from gateway.wire.losses import DROPPED, Losses
from tests.chat_only_model import ChatOnlyModel


def messages_of(items):
    sent, _ = chat_request({"model": "m", "input": items}, Losses("p", DROPPED))
    return sent["messages"]


def call(ident):
    return {"type": "function_call", "call_id": ident, "name": "weather", "arguments": "{}"}


def output(ident):
    return {"type": "function_call_output", "call_id": ident, "output": f"of {ident}"}


def said(role, text):
    return {"role": role, "content": text}


BETWEEN = [
    said("user", "[system] be quick"),
    said("developer", "New rules."),
    said("assistant", "Wait."),
    {"type": "reasoning", "summary": [], "content": []},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
]


@pytest.mark.parametrize("between", BETWEEN)
def test_what_stands_between_a_call_and_its_output_follows_the_output(between):
    before = [said("user", "Weather?"), call("a"), call("b"), output("a")]
    found = messages_of([*before, between, output("b"), said("user", "Now?")])
    assert list(ChatOnlyModel("x")._check_messages(found)) == []
    results = [m["tool_call_id"] for m in found if m["role"] == "tool"]
    assert results == ["a", "b"]


@given(st.integers(0, 2**32), st.booleans())
def test_every_order_of_items_is_legal_for_a_strict_server(seed, reuses):
    """Calls are all answered, somewhere behind them; anything may stand between."""
    chance = random.Random(seed)
    items, waiting, number = [said("user", "Hi")], [], 0
    for _ in range(12):
        kind = chance.choice(("call", "output", "between", "between"))
        if kind == "call" and not (reuses and waiting):
            number += 1
            waiting.append("call_0" if reuses else f"c{number}")
            items.append(call(waiting[-1]))
        elif kind == "output" and waiting:
            items.append(output(waiting.pop(chance.randrange(len(waiting)))))
        else:
            items.append(chance.choice(BETWEEN))
    items += [output(ident) for ident in waiting]
    found = messages_of(items)
    assert list(ChatOnlyModel("x")._check_messages(found)) == []
    texts = sum(1 for i in items if i.get("type") == "function_call_output")
    assert sum(1 for m in found if m["role"] == "tool") == texts


def test_a_call_that_nobody_answers_holds_nothing_back():
    found = messages_of([call("a"), said("user", "Never mind."), call("a"), output("a")])
    assert [m["role"] for m in found] == ["assistant", "user", "assistant", "tool"]
