"""A hidden exchange is put back so that the client's results answer the calls it knows."""

import json

import pytest

from gateway.wire.lone_surrogates import encode_json as encode
from gateway.wire.placement import (
    BY,
    LARGE_PIECE_BYTES,
    PIECES,
    Placement,
    encode_request,
    for_target,
    message_spans,
    place_memory,
    with_text,
    without_tools,
)
from memory.context.window import SummarizedGap
from memory.conversation.history import Messages, PrefixInfo, SourceText


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


def place(messages, **what):
    return place_memory({"messages": messages}, Placement(**what))


USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "Be brief."}


def test_the_core_text_follows_the_clients_own():
    assert place([SYSTEM, USER], core="C")["messages"] == [
        {**SYSTEM, "content": "Be brief.\n\nC"},
        USER,
    ]
    assert place([USER], core="C")["messages"] == [{"role": "system", "content": "C"}, USER]
    assert place([SYSTEM, USER], core="C", since=1)["messages"] == [USER]


def test_our_tools_follow_the_clients():
    body = {"messages": [USER], "tools": [{"a": 1}]}
    assert place_memory(body, Placement(tools=[{"b": 1}]))["tools"] == [{"a": 1}, {"b": 1}]
    assert place_memory({"messages": []}, Placement(tools=[{"b": 1}]))["tools"] == [{"b": 1}]
    assert "tools" not in place([USER])


def test_notes_stubs_and_recall_stand_at_their_places():
    parts = {"role": "user", "content": [{"type": "text", "text": "x"}]}
    told = place([USER, parts, USER], core="C", notes={0: "n"}, recall="r", swap={1: USER})
    assert [m["content"] for m in told["messages"]] == ["C", "hi\n\nn", "hi", "hi\n\nr"]
    told = place([SYSTEM, USER], recall="r", drop=SummarizedGap(0))
    assert told["messages"] == [{**USER, "content": "hi\n\nr"}]
    assert with_text(parts, "y")["content"] == [*parts["content"], {"type": "text", "text": "y"}]


def test_a_hidden_message_without_calls_keeps_its_place():
    exchange = [*hidden("a"), {"role": "assistant", "content": "done"}]
    assert {"role": "assistant", "content": "done"} in sent(["b"], exchange)


def source(*messages):
    """Messages as a client sent them, with their spans."""
    text = b'{"messages": [' + b", ".join(encode(m) for m in messages) + b"]}"
    return Messages(PrefixInfo(), list(messages), source=SourceText(text, 14))


def whole(body, pieces, client):
    return json.loads(b"".join(encode_request(body, pieces, client)))


def test_what_the_client_sent_goes_on_as_the_bytes_that_came():
    client = source(SYSTEM, USER)
    pieces = message_spans([SYSTEM, USER], client, [])
    assert len(pieces) == 1
    assert isinstance(pieces[0], tuple)
    assert whole({"model": "m"}, pieces, client) == {"model": "m", "messages": [SYSTEM, USER]}


def test_what_was_changed_is_written_between_what_was_not():
    client = source(SYSTEM, USER, SYSTEM)
    changed = [client[0], with_text(client[1], "n"), client[2]]
    pieces = message_spans(changed, client, [])
    assert whole({}, pieces, client)["messages"] == changed
    assert message_spans([USER], None, []) == [encode(USER)]
    assert whole({}, [], None) == {"messages": []}


def test_very_many_pieces_of_ours_are_joined():
    client = source(USER)
    messages = [*[dict(USER) for _ in range(PIECES)], client[0]]
    pieces = message_spans(messages, client, [])
    assert len(pieces) == 2
    assert whole({}, pieces, client)["messages"] == messages


def test_a_large_piece_is_not_copied():
    large = {"role": "user", "content": "x" * LARGE_PIECE_BYTES}
    client = source(large, USER)
    parts = encode_request({}, message_spans([client[0], dict(USER)], client, []), client)
    assert [type(p) for p in parts] == [bytes, memoryview, bytes]
    assert json.loads(b"".join(parts))["messages"] == [large, USER]


def test_a_piece_that_is_not_in_the_clients_text_is_refused():
    with pytest.raises(ValueError, match="not there"):
        encode_request({}, [(0, 5)], None)


def test_a_vendors_own_members_go_to_that_vendor_alone():
    message = {"role": "assistant", "content": "x", "signature": "s", BY: "a"}
    call = {"id": "1", "type": "function", "function": {}, "extra": 1}
    assert for_target([message], "a", thoughts=False) == [
        {"role": "assistant", "content": "x", "signature": "s"}
    ]
    assert for_target([{**message, "tool_calls": [call]}, message], "b", thoughts=False) == [
        {"role": "assistant", "content": "x", "tool_calls": [{k: call[k] for k in list(call)[:3]}]},
        {"role": "assistant", "content": "x"},
    ]


def test_thinking_that_our_adapter_told_goes_to_its_kind_alone():
    adapted = {"role": "assistant", "content": "x", "thinking_blocks": [{"position": 0}]}
    foreign = {**adapted, "thinking_blocks": [{"thinking": "t"}]}
    assert for_target([adapted, foreign], "b", thoughts=True) == [adapted, foreign]
    assert for_target([adapted, foreign, USER], "b", thoughts=False) == [
        {"role": "assistant", "content": "x"},
        foreign,
        USER,
    ]


def test_a_request_without_our_tools_has_the_clients_or_none():
    body = {"messages": [], "tools": [1, 2], "tool_choice": "auto", "parallel_tool_calls": True}
    assert without_tools(body, {"tools": [1]}) == {**body, "tools": [1]}
    assert without_tools(body, {}) == {"messages": []}
