"""A long event of a chat stream is shown off the event loop, and so is what is made of it."""

import threading

import msgspec

from gateway.apis.chat import chat_format
from gateway.apis.chat.chat_format import ChatMask
from gateway.apis.chat.interceptor import Interceptor
from gateway.wire.sse import LONG_BYTES, SseEvent


def event_of(content):
    delta = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [delta]}
    data = msgspec.json.encode(chunk)
    return SseEvent(b"data: " + data + b"\n\n", data)


async def test_what_the_event_loop_puts_together_of_a_stream_is_short(monkeypatch):
    loop_thread, framed = threading.current_thread(), []
    frame = chat_format.frame

    def watched(data):
        if threading.current_thread() is loop_thread:
            framed.append(len(data))
        return frame(data)

    monkeypatch.setattr(chat_format, "frame", watched)
    mask = ChatMask(Interceptor((), True, "alias", lean=False))
    text = "x" * (2 * LONG_BYTES)
    for content in ("a", text, "b"):
        shown = await mask.show(event_of(content))
        assert content.encode() in shown
    # So that it is closed in a thread.
    assert mask.is_long
    assert framed
    assert max(framed) <= LONG_BYTES
    assert mask.answers()[0]["content"] == f"a{text}b"
