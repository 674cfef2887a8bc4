"""The laws of streams, over thousands of them: see `tests.odd_streams.play`."""

from __future__ import annotations

import pytest

from gateway.apis.messages.messages_reply import MessagesMask
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from tests.odd_streams.answers import OURS
from tests.odd_streams.play import WIRES, events_of, framed, play

# Of each wire; `make bench BENCH=streams` plays 100,000.
STREAMS = 5_000


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_sees_the_answer_that_was_given_less_our_calls(wire):
    differences = list(play(wire, range(STREAMS)))
    assert not differences, f"{len(differences)} of {STREAMS}; the first: {differences[0]}"


@pytest.mark.parametrize("kind", [None, 5, "", " ", (), {"a": 1}])
def test_a_call_of_ours_is_hidden_whatever_stands_for_its_type(kind):
    call = {"id": "fc_1", "call_id": "c1", "name": OURS[0], "arguments": "{}", "type": kind}
    mask = ResponsesMask(OURS, None, Echo(frozenset(OURS)))
    result = mask.take_whole({"id": "r", "status": "completed", "output": [call]})
    assert [c["name"] for c in result.ours] == [OURS[0]]
    assert OURS[0] not in str(mask.merged())
    block = {"id": "t1", "name": OURS[0], "input": {}, "type": kind}
    blocks = MessagesMask(OURS, None)
    result = blocks.take_whole({"id": "m", "content": [block], "stop_reason": "tool_use"})
    assert [c["type"] for c in result.ours] == ["tool_use"]
    assert OURS[0] not in str(blocks.merged())


def test_an_unknown_event_is_shown_with_its_part_and_begins_none():
    item = {"id": "i0", "type": "message", "role": "assistant", "content": []}
    content = [{"type": "output_text", "text": "So."}]
    shown = b""
    mask = ResponsesMask(OURS, None, Echo(frozenset(OURS)))
    for event in (
        {"type": "response.created", "response": {"id": "r", "output": []}},
        {"type": "odd.before", "output_index": 0},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "odd.among", "item_id": "i0"},
        {"type": "odd.another", "item_id": "nobody's"},
        {"type": "response.output_text.delta", "delta": "So."},
        {"type": "response.output_item.done", "item": {**item, "content": content}},
        {"type": "response.completed", "response": {"id": "r", "output": []}},
    ):
        shown += mask.take(event, framed(event))
    shown += mask.close()[0] + mask.end(None)
    kinds = [e["type"] for e in events_of(shown)]
    assert kinds[1:3] == ["response.output_item.added", "odd.before"]
    assert {"odd.among", "odd.another"} < {*kinds}
    assert [*events_of(shown)][-1]["response"]["output"] == [{**item, "content": content}]
