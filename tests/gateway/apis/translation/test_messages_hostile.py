"""The Messages API with anything wrong in it, on either side: a client's fault is told to it, an
upstream's is left out.
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from gateway.apis.chat.interceptor import Interceptor
from gateway.apis.translation.messages_reply_to_chat import StreamedAnswer, answer, refusal
from gateway.apis.translation.messages_request_from_chat import messages_request
from gateway.errors import BadRequest
from gateway.http.upstream_request import UpstreamRequest
from gateway.upstream.anthropic import AnthropicUpstream
from gateway.upstream.base import UpstreamResponse
from gateway.wire.chat import MalformedCompletion, parse_chunk
from gateway.wire.json_weight import is_readable
from gateway.wire.sse import DONE
from tests.contract.messages_server import events_of
from tests.e2e.mutations import wrong

FACTS = [
    {"thinking": "budget", "max_output": 64000},
    {
        "thinking": "adaptive",
        "refuses": ["sampling", "prefill", "forced_tools", "changed_history"],
        "structured_outputs": True,
    },
]
THOUGHTS = [
    {"type": "thinking", "thinking": "t", "signature": "s", "position": 0},
    {"type": "redacted_thinking", "data": "d"},
]
REQUEST = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "https://x"}},
                {
                    "type": "file",
                    "file": {"file_data": "data:text/plain;base64,aGk=", "filename": "f"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": "x",
            "thinking_blocks": THOUGHTS,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
        }
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": {}}},
    "max_tokens": 5000,
    "temperature": 1,
    "top_p": 1,
    "stop": ["a"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 1,
    "reasoning_effort": "high",
    "thinking": None,
    "output_config": {"effort": "low"},
    "modalities": ["text"],
}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "content": [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        *THOUGHTS[1:],
    ],
}
ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}


class Accepting:
    async def send(self, request):
        return UpstreamResponse(200, [(b"content-type", b"text/event-stream")], None)


@pytest.mark.parametrize("facts", FACTS)
async def test_a_request_with_anything_wrong_in_it_is_sent_or_refused(facts):
    upstream = AnthropicUpstream(Accepting(), lambda model: facts)
    for _, body in wrong(REQUEST):
        with contextlib.suppress(BadRequest):
            await upstream.send(
                UpstreamRequest("/chat/completions", json.dumps(body).encode(), frozen=True)
            )


def test_a_stream_with_anything_wrong_in_it_is_a_stream_of_chunks():
    for _, found in wrong([*events_of(MESSAGE, 1), ERROR]):
        into = StreamedAnswer(1, usage=True)
        told = (
            into.feed(
                b"".join(
                    b"data: " + json.dumps(e).encode() + b"\n\n"
                    for e in (found if isinstance(found, list) else [found])
                )
            )
            + into.end()
        )
        icpt = Interceptor({"f"}, True)
        with contextlib.suppress(MalformedCompletion):
            for event in told.split(b"\n\n"):
                if event.startswith(b"data: ") and not event.endswith(DONE):
                    list(icpt.feed(parse_chunk(event[6:])))
            icpt.close()


def test_an_answer_with_anything_wrong_in_it_is_json():
    for whole in (MESSAGE, ERROR):
        for _, found in wrong(whole):
            data = json.dumps(found).encode()
            json.loads(answer(data, 1))
            json.loads(refusal(data))


# Of anything: what is quadratic in it takes far longer than.
LONG = 60_000
# Of CPU; what is linear takes one or two.
SECONDS = 15


@pytest.fixture
def linear():
    began = time.process_time()
    yield
    assert time.process_time() - began < SECONDS


def sse(*told):
    return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in told)


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize("member", ["thinking", "signature"])
def test_a_thought_costs_no_more_a_piece_however_long_it_is(member):
    into = StreamedAnswer(1)
    into.feed(
        sse(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": "<", "signature": "<"},
            }
        )
    )
    piece = sse(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": f"{member}_delta", member: "0123456789" * 10},
        }
    )
    for _ in range(LONG // 100):
        into.feed(piece * 100)
    told = json.loads(into.feed(sse({"type": "content_block_stop", "index": 0}))[6:])
    block = told["choices"][0]["delta"]["thinking_blocks"][0]
    assert block[member] == "<" + "0123456789" * 10 * LONG
    assert block.keys() == {"type", "thinking", "signature", "index", "position"}


@pytest.mark.usefixtures("linear")
def test_a_whole_answer_costs_no_more_a_block_however_many_it_has():
    blocks = [
        {"type": "text", "text": "words " * 20},
        {"type": "thinking", "thinking": "a", "signature": "s"},
    ] * LONG
    said = json.loads(answer(json.dumps({**MESSAGE, "content": blocks}).encode(), 1))["choices"][0][
        "message"
    ]
    assert (said["content"], said["reasoning_content"]) == ("words " * 20 * LONG, "a" * LONG)


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize("ident", ["call", "call_{}"])
async def test_a_request_costs_no_more_a_call_however_many_it_has(ident):
    names = [ident.format(i) for i in range(LONG)]
    messages = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": n, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for n in names
            ],
        },
        *({"role": "tool", "tool_call_id": n, "content": "ok"} for n in reversed(names)),
    ]
    sent = messages_request(
        {"model": "m", "messages": messages, "tools": REQUEST["tools"]}, {}, 100
    )
    uses = [b["id"] for b in sent["messages"][1]["content"]]
    results = [b["tool_use_id"] for b in sent["messages"][2]["content"]]
    assert len(set(uses)) == LONG
    assert results == (uses if ident == "call" else uses[::-1])


async def test_a_request_of_endless_values_is_refused_by_its_number():
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"odd":['
        + b"{}," * 1_000_001
        + b"1]}"
    )
    with pytest.raises(BadRequest, match="500000 JSON values"):
        await AnthropicUpstream(Accepting(), lambda model: {}).send(
            UpstreamRequest("/chat/completions", body)
        )


def test_an_event_of_endless_values_is_not_read():
    into = StreamedAnswer(1, readable=is_readable)
    assert (
        into.feed(
            b'data: {"type":"ping","odd":['
            + b"{}," * 1_000_001
            + b"1]}\n\n"
            + sse({"type": "ping"})
        )
        == b": ping\n\n"
    )
