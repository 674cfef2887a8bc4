"""What is shown of a stream does not depend on the pieces in which it came."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.chat.chat_format import CHAT
from gateway.chat.turn.round_stream import stream_round
from gateway.wire.sse import DONE, SseFramer, frame

BODY = {"model": "m", "messages": [], "stream": True}
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
