"""What is shown of a stream does not depend on the pieces in which it came."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.chat.chat_format import CHAT
from gateway.apis.messages.messages_format import MESSAGES
from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.turn.round_stream import close_round, end_stream, stream_round
from gateway.wire.sse import DONE, SseFramer, frame

BODY = {"model": "m", "messages": [], "stream": True}
BODY_HEAD = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
IN_MEMORY = {"injected": True, "view": None}
TEXTS = ["A", "new", " day", "", "{", '"', "\n\n", "海"]


def event(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    told = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return frame(msgspec.json.encode({**told, "choices": [choice]}))


def stream(texts):
    events = [event({"role": "assistant", "content": ""})]
    events += [event({"content": text}) for text in texts]
    return b"".join([*events, event({}, "stop"), frame(DONE)])


async def play(pieces):
    """What a client is shown of these pieces, and the text as the mask has it."""
    mask = CHAT.mask(BODY, frozenset({"memory_search"}), None, injected=True, view=None)
    framer = SseFramer()
    first, *more = pieces

    async def body():
        for piece in more:
            yield piece

    async def nothing(*_):
        return

    incoming = SimpleNamespace(body=body(), wait_for_end=nothing)
    reply = SimpleNamespace(chunk=None, events=framer.feed(first), incoming=incoming, framer=framer)
    forward = SimpleNamespace(report_broken_stream=nothing)
    shown = [part async for part in stream_round(reply, mask, forward)]
    _, result = mask.close()
    return b"".join(shown), result.reply["choices"][0]["message"]["content"], framer.count


@given(
    st.lists(st.sampled_from(TEXTS), min_size=3, max_size=12),
    st.lists(st.integers(1, 2000), max_size=6),
)
def test_any_pieces_of_a_stream_show_the_same(texts, cuts):
    sent = stream(texts)
    begin = sent.index(b"\n\n") + 2
    places = sorted({begin, *(begin + cut for cut in cuts if begin + cut < len(sent))})
    pieces = [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True)]
    whole = asyncio.run(play([sent[:begin], sent[begin:]]))
    assert asyncio.run(play(pieces)) == whole
    assert whole[1] == "".join(texts)


def answer_with_call(wire, arguments):
    """A whole answer in which the model calls a tool of the client's."""
    if wire is RESPONSES:
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": "brew"}
        output = [{**item, "arguments": json.dumps(arguments), "status": "completed"}]
        head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
        return {**head, "status": "completed", "output": output}
    if wire is MESSAGES:
        block = {"type": "tool_use", "id": "toolu_1", "name": "brew", "input": arguments}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        return {**head, "content": [block], "stop_reason": "tool_use", "usage": {}}
    function = {"name": "brew", "arguments": json.dumps(arguments)}
    call = {"id": "c", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {**BODY_HEAD, "choices": [choice]}


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
@pytest.mark.parametrize("size", [100, 4 << 20], ids=["light", "heavy"])
async def test_a_heavy_whole_answer_is_written_off_the_event_loop(wire, size, monkeypatch):
    """12 MB of a client's call held everybody up for 80 ms."""
    threads = []
    plain = msgspec.json.encode(answer_with_call(wire, {"leaves": "green " * (size // 6)}))
    mask = wire.mask({**BODY, "input": ""}, frozenset({"memory_search"}), None, **IN_MEMORY)
    for name in ("show_whole", "close", "end"):

        def note(*args, write=getattr(mask, name), **options):
            threads.append(threading.current_thread() is threading.main_thread())
            return write(*args, **options)

        monkeypatch.setattr(mask, name, note)

    async def nothing(*_):
        return

    async def no_body():
        return
        yield

    incoming = SimpleNamespace(body=no_body(), wait_for_end=nothing)
    chunk, error = wire.read_whole(plain)
    assert error is None
    reply = SimpleNamespace(
        chunk=chunk, plain=plain, events=[], incoming=incoming, framer=SseFramer()
    )
    parts = [part async for part in stream_round(reply, mask, None)]
    last, result = await close_round(mask)
    shown = b"".join([*parts, last, await end_stream(mask, None)])
    assert b"green" in shown
    assert not result.ours
    assert threads == [size < 1000] * 3
