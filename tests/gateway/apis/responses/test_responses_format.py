"""What rounds of the Responses API leave of the client's limit of output."""

from __future__ import annotations

import pytest

from gateway.apis.responses import responses_format
from gateway.apis.responses.responses_format import HiddenItems
from gateway.apis.round_result import RoundResult


def round_of(calls, words="", output_tokens=None):
    items = [
        {
            "type": "function_call",
            "call_id": f"c{i}",
            "name": "core_memory_append",
            "arguments": '{"label":"scratchpad","content":"tea"}',
        }
        for i in range(calls)
    ]
    spoken = {"type": "message", "content": [{"type": "output_text", "text": words}]}
    usage = None if output_tokens is None else {"output_tokens": output_tokens}
    # Its provider stores it, and its ids stay.
    reply = {"id": "resp_1", "store": True, "output": [spoken, *items]}
    return RoundResult(reply, items, [], True, False, bool(words), usage)


@pytest.mark.parametrize("calls", [1, 2000])
def test_what_our_calls_cost_is_not_the_clients_and_is_counted_in_one_step(calls, monkeypatch):
    texts = []
    estimate = responses_format.estimate_at_once
    monkeypatch.setattr(
        responses_format, "estimate_at_once", lambda text: texts.append(text) or estimate(text)
    )
    hidden = HiddenItems("input")
    hidden.add_round(round_of(calls, output_tokens=100 * calls), ["OK"] * calls, [], "m")
    assert len(texts) == 2
    assert 0 < hidden.spent < 100 * calls


def test_a_round_costs_the_words_that_it_shows_at_least():
    hidden = HiddenItems("input")
    hidden.add_round(round_of(2000, "green tea " * 10, output_tokens=30), ["OK"] * 2000, [], "m")
    assert hidden.spent >= 20
