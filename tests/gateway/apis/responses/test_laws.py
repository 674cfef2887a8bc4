"""The laws of the Responses format, whatever a model says and however it is cut."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.responses.response_events import lift
from gateway.apis.responses.response_items import assistant_message, transcript_of
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.wire.own_marks import ORPHANED
from gateway.wire.sse import SseFramer
from memory.conversation.messages import canonical
from memory.core.tool_definitions import OURS
from tests.e2e.responses.asking import check_stream
from tests.wire_models import sse

APPEND = "core_memory_append"
WORDS = st.text(min_size=1, max_size=12)
MESSAGES = st.builds(
    lambda text: {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "odd": 1}],
    },
    WORDS,
)
REASONING = st.builds(lambda text: {"type": "reasoning", "summary": [], "x": text}, WORDS)
OTHERS = st.sampled_from(
    [{"type": "web_search_call", "action": {"q": [1, None]}}, {"type": "no_such_kind", "deep": {}}]
)
CALLS = st.builds(
    lambda name, text: {
        "type": "function_call",
        "status": "completed",
        "name": name,
        "arguments": json.dumps({"a": text}),
    },
    st.sampled_from(["get_weather", APPEND, "archival_memory_search"]),
    WORDS,
)
ITEMS = st.lists(MESSAGES | REASONING | OTHERS | CALLS, max_size=6)


def response(items, ident="resp_1"):
    named = [{"id": f"{ident}_{i}", **item} for i, item in enumerate(items)]
    for item in named:
        if item["type"] == "function_call":
            item["call_id"] = f"call_{item['id']}"
    return {
        "id": ident,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": named,
        "usage": {"total_tokens": 3},
        "unknown": {"member": 1},
    }


def mask(owned=OURS):
    return ResponsesMask(owned, None, Echo(frozenset(owned)))


def stream_of(reply):
    """The bytes of a stream that says a reply."""
    events = [{**e, "sequence_number": i} for i, e in enumerate(lift(reply))]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events
    )


def fed(into, data, sizes=()):
    """What a mask shows of a stream that comes in pieces of these sizes."""

    async def feed():
        framer, shown, at = SseFramer(), [], 0
        for size in [*sizes, len(data)]:
            for event in framer.feed(data[at : at + size]):
                shown.append(await into.show(event))
            at += size
        return b"".join(shown)

    return asyncio.run(feed())


def seen(*replies, owned=OURS):
    """What a client sees of several rounds."""
    into, out = mask(owned), []
    for reply in replies:
        if out:
            into.start_next_round()
        out.append(fed(into, stream_of(reply)))
        into.close()
    return b"".join([*out, into.end(None)]), into


@given(ITEMS)
def test_a_reply_that_is_taken_apart_and_put_together_is_the_same(items):
    reply = response(items)
    into = mask(())
    result = into.take_whole(copy.deepcopy(reply))
    assert result.reply == reply
    assert result.complete


@given(ITEMS, st.lists(st.integers(1, 400), max_size=8))
def test_however_a_stream_is_cut_it_says_the_same(items, sizes):
    data = stream_of(response(items))
    one, other = mask(), mask()
    assert fed(one, data, sizes) == fed(other, data)
    assert one.close()[1].reply == other.close()[1].reply


@given(ITEMS)
def test_one_round_without_calls_of_ours_leaves_as_it_came(items):
    data = stream_of(response(items))
    shown, _ = seen(response(items), owned=())
    assert shown == data


@given(ITEMS, ITEMS, ITEMS)
def test_several_rounds_are_one_response_without_anything_of_ours(first, second, third):
    """But for the mark of stored reasoning that led to a hidden call; see `own_marks`."""
    replies = [response(x, f"resp_{i}") for i, x in enumerate((first, second, third))]
    shown, into = seen(*replies)
    events = sse(shown.decode())
    check_stream(events)
    for name in OURS:
        assert f'"name":"{name}"' not in shown.decode().replace(": ", ":")
    want = [i for r in replies for i in r["output"] if i.get("name") not in OURS]
    output = events[-1]["response"]["output"]
    marked = [i for i in output if i.get("encrypted_content") == ORPHANED]
    assert {i["type"] for i in marked} <= {"reasoning"}
    for item in marked:
        del item["encrypted_content"]
    assert output == want
    assert events[-1]["response"]["id"] == "resp_0"
    # One text, which the client's echo of the items is known by.
    (answer,) = into.answers()
    assert canonical(answer) == canonical(assistant_message(want))


@given(ITEMS)
def test_streamed_and_whole_replies_come_to_the_same(items):
    reply = response(items)
    streamed, whole = mask(), mask()
    fed(streamed, stream_of(reply))
    one, other = streamed.close()[1], whole.take_whole(copy.deepcopy(reply))
    assert (one.reply, one.ours, one.theirs) == (other.reply, other.ours, other.theirs)
    assert streamed.answers() == whole.answers()


@pytest.mark.parametrize("content", [None, "words", 7, {}, [None, "words", 7]])
def test_a_message_whose_content_cannot_be_read_is_shown_as_it_came(content):
    reply = response([{"type": "message", "role": "assistant", "content": content}])
    into = mask(())
    assert into.take_whole(copy.deepcopy(reply)).reply == reply
    assert not into.text_shown
    assert b"".join(mask(()).show_whole(copy.deepcopy(reply)))


def normalised(message):
    """A message as the memory tells it apart: without ids."""
    calls = [c["function"] for c in message.get("tool_calls", ())]
    return message["content"], calls


@given(ITEMS)
def test_what_a_client_does_to_an_echo_leaves_the_message_as_it_is(items):
    output = [i for i in response(items)["output"] if i["type"] != "no_such_kind"]
    dropped = [{k: v for k, v in i.items() if k not in ("id", "status")} for i in output]
    turned = [dict(reversed(i.items())) for i in output]
    want = [normalised(m) for m in transcript_of(output).messages]
    for echo in (dropped, turned):
        assert [normalised(m) for m in transcript_of(echo).messages] == want
