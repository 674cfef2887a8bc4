"""The Messages API with anything wrong in it, on either side: a client's fault is told to it, an upstream's is left out."""
from __future__ import annotations

import contextlib
import json

import pytest

from gateway.errors import BadRequest
from gateway.intercept import Interceptor
from gateway.sse import DONE
from gateway.upstream.anthropic import AnthropicUpstream
from gateway.upstream.base import Incoming, Outgoing
from gateway.wire.chat import Malformed, read
from gateway.wire.messages_answer import StreamedAnswer, answer, refusal
from tests.contract.messages_server import events_of
from tests.e2e.mutations import wrong

FACTS = [{"thinking": "budget", "max_output": 64000}, {"thinking": "adaptive", "refuses": ["sampling", "prefill", "forced_tools", "changed_history"], "structured_outputs": True}]
THOUGHTS = [{"type": "thinking", "thinking": "t", "signature": "s", "position": 0}, {"type": "redacted_thinking", "data": "d"}]
REQUEST = {
    "model": "m", "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://x"}},
                                                                        {"type": "file", "file": {"file_data": "data:text/plain;base64,aGk=", "filename": "f"}}]},
        {"role": "assistant", "content": "x", "thinking_blocks": THOUGHTS, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}], "tool_choice": "auto", "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": {}}}, "max_tokens": 5000, "temperature": 1, "top_p": 1, "stop": ["a"], "stream": True,
    "stream_options": {"include_usage": True}, "n": 1, "reasoning_effort": "high", "thinking": None, "output_config": {"effort": "low"}, "modalities": ["text"]}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}, "content": [
    {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "ab"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}, *THOUGHTS[1:]]}
ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}


class Accepting:
    async def send(self, request):
        return Incoming(200, [(b"content-type", b"text/event-stream")], None)


@pytest.mark.parametrize("facts", FACTS)
async def test_a_request_with_anything_wrong_in_it_is_sent_or_refused(facts):
    upstream = AnthropicUpstream(Accepting(), lambda model: facts)
    for _, body in wrong(REQUEST):
        with contextlib.suppress(BadRequest):
            await upstream.send(Outgoing("/chat/completions", json.dumps(body).encode(), frozen=True))


def test_a_stream_with_anything_wrong_in_it_is_a_stream_of_chunks():
    for _, found in wrong([*events_of(MESSAGE, 1), ERROR]):
        into = StreamedAnswer(1, usage=True)
        told = into.feed(b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in (found if isinstance(found, list) else [found]))) + into.end()
        icpt = Interceptor({"f"}, True)
        with contextlib.suppress(Malformed):
            for event in told.split(b"\n\n"):
                if event.startswith(b"data: ") and not event.endswith(DONE):
                    list(icpt.feed(read(event[6:])))
            icpt.close()


def test_an_answer_with_anything_wrong_in_it_is_json():
    for whole in (MESSAGE, ERROR):
        for _, found in wrong(whole):
            data = json.dumps(found).encode()
            json.loads(answer(data, 1))
            json.loads(refusal(data))
