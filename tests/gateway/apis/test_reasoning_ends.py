"""Reasoning is marked where a call of ours followed, however late that is known, and only there."""

from __future__ import annotations

import json

import pytest

from gateway.apis.messages.messages_reply import MessagesMask
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.wire.own_marks import ORPHANED, SEALED, has_mark
from memory.core.tool_definitions import OURS
from tests.odd_streams.play import events_of, framed

APPEND, WEATHER = "core_memory_append", "get_weather"
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
TEXT = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
DELTA = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hi"}
OWNED = pytest.mark.parametrize("name", [APPEND, WEATHER])


def call(name):
    named = {"name": name} if name else {}
    return {"type": "function_call", "id": "fc_1", "call_id": "c", "arguments": "{}", **named}


def added(item, index=None):
    at = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.added", **at, "item": item}


def ended(item, index=None):
    at = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.done", **at, "item": item}


def thought(index=None):
    begun = {k: v for k, v in THOUGHT.items() if k != "encrypted_content"}
    return [added(begun, index), ended(THOUGHT, index)]


def played(mask, events):
    """What is shown, event by event, and what of it is reasoning that ended."""
    shown = b""
    for number, event in enumerate(events):
        raw = framed({**event, "sequence_number": number})
        shown += mask.fast_forward(raw) or b"".join(mask.take(e, raw) for e in events_of(raw))
    held, _ = mask.close()
    told = list(events_of(shown + held + mask.end(None)))
    assert [e["sequence_number"] for e in told] == list(range(len(told)))
    items = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    assert items == told[-1]["response"]["output"]
    return told, [has_mark(i, ORPHANED) for i in items if i["type"] == "reasoning"]


def responses(events, items):
    begun = {"id": "resp_1", "status": "in_progress", "output": []}
    done = {"id": "resp_1", "status": "completed", "output": items}
    return played(
        ResponsesMask(OURS, None, Echo(frozenset(OURS))),
        [
            {"type": "response.created", "response": begun},
            *events,
            {"type": "response.completed", "response": done},
        ],
    )


@OWNED
def test_reasoning_waits_for_a_call_whose_name_comes_late(name):
    events = [*thought(0), added(call(""), 1), ended(call(name), 1)]
    _, marks = responses(events, [THOUGHT, call(name)])
    assert marks == [name == APPEND]


def test_reasoning_before_a_call_of_ours_that_only_the_end_lists_is_marked():
    _, marks = responses(thought(0), [THOUGHT, call(APPEND)])
    assert marks == [True]


@OWNED
def test_reasoning_waits_for_what_follows_it_and_not_for_what_grows_beside_it(name):
    grown = {**TEXT, "content": [{"type": "output_text", "text": "Hi"}]}
    events = [
        added(TEXT, 0),
        *thought(1),
        {**DELTA, "output_index": 0},
        ended(grown, 0),
        added(call(name), 2),
        ended(call(name), 2),
    ]
    mask = ResponsesMask(OURS, None, Echo(frozenset(OURS)))
    shown = b""
    for event in events:
        raw = framed(event)
        shown += b"".join(mask.take(e, raw) for e in events_of(raw))
    ends = [e["item"] for e in events_of(shown) if e["type"] == "response.output_item.done"]
    assert [has_mark(i, ORPHANED) for i in ends if i["type"] == "reasoning"] == [name == APPEND]


def test_reasoning_behind_an_undecided_call_comes_with_it():
    late = [added(call(""), 0), *thought(1)]
    ours = {**call(APPEND), "id": "fc_2", "call_id": "d"}
    events = [*late, added(ours, 2), ended(ours, 2), ended(call(WEATHER), 0)]
    told, marks = responses(events, [call(WEATHER), THOUGHT, ours])
    assert marks == [True]
    assert APPEND not in json.dumps(told)


def test_reasoning_that_is_cut_off_is_shown_as_it_came():
    mask = ResponsesMask(OURS, None, Echo(frozenset(OURS)))
    shown = b"".join(mask.take(e, framed(e)) for e in thought(0))
    assert b"opaque" not in shown
    held, _ = mask.close()
    assert [e["item"] for e in events_of(held)] == [THOUGHT]


def test_what_the_client_did_not_ask_for_is_not_marked_but_left_out():
    sealed = {**THOUGHT, "encrypted_content": SEALED + "x", "content": [{"text": "Hm"}]}
    echo = Echo(frozenset(OURS), changed=True, hides_seals=True)
    mask = ResponsesMask(OURS, None, echo)
    events = [added(sealed, 0), ended(sealed, 0), added(call(APPEND), 1), ended(call(APPEND), 1)]
    shown = b"".join(mask.take(e, framed(e)) for e in events)
    mask.close()
    assert b"encrypted_content" not in shown
    assert "encrypted_content" not in mask.shown[0]


def block(index, kind, **more):
    return {"type": f"content_block_{kind}", "index": index, **more}


def piece(**delta):
    return block(0, "delta", delta=delta)


@OWNED
def test_a_signature_in_pieces_is_marked_once(name):
    tool = {"type": "tool_use", "id": "t", "name": name, "input": {}}
    events = [
        block(0, "start", content_block={"type": "thinking", "thinking": "", "signature": ""}),
        piece(type="thinking_delta", thinking="Hm"),
        piece(type="signature_delta", signature="opa"),
        piece(type="signature_delta", signature="que"),
        block(0, "stop"),
        block(1, "start", content_block=tool),
        block(1, "stop"),
    ]
    mask = MessagesMask(OURS, None)
    shown = list(events_of(b"".join(mask.take(e, framed(e)) for e in events)))
    mask.close()
    signed = "".join(e.get("delta", {}).get("signature", "") for e in shown)
    assert signed == (ORPHANED if name == APPEND else "") + "opaque"
    assert mask.shown[0]["signature"] == signed
    assert [e["type"] for e in shown[:5]] == [e["type"] for e in events[:5]]


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
def test_a_block_that_only_carries_is_hidden_or_marked(whole):
    carrier = {"type": "thinking", "thinking": "", "signature": SEALED + "x"}
    tool = {"type": "tool_use", "id": "t", "name": APPEND, "input": {}}
    reply = {"id": "m", "type": "message", "role": "assistant", "content": [carrier, tool]}
    for hides in (True, False):
        mask = MessagesMask(OURS, None, hides_seals=hides)
        shown = b""
        if whole:
            mask.take_whole({**reply, "stop_reason": "tool_use"})
        else:
            shown = b"".join(mask.show_whole({**reply, "stop_reason": "tool_use"}))
            mask.close()
        marked = [] if hides else [{**carrier, "signature": ORPHANED + SEALED + "x"}]
        assert mask.shown == marked
        begun = [e["content_block"] for e in events_of(shown) if "content_block" in e]
        assert begun == ([] if whole else marked)
