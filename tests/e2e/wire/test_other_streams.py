"""J. Streams of other formats pass with their event lines, numbers and last events."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.wire.rows import row

pytestmark = pytest.mark.asyncio(loop_scope="session")


def told(*events, comment=b""):
    """Events as a server writes them: `event:` shared, then data."""
    return b"".join(
        b"event: "
        + e["type"].encode()
        + b"\ndata: "
        + json.dumps(e, ensure_ascii=False).encode()
        + b"\n\n"
        + comment
        for e in events
    )


def numbered(*events):
    return [{**e, "sequence_number": i} for i, e in enumerate(events)]


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "real-v2",
    "output": [],
    "x": {"z": 1, "a": 1.0},
}
USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}
START = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "reasoning", "encrypted_content": "AA=="},
    },
    {
        "type": "response.output_text.delta",
        "item_id": "i",
        "delta": "Hé \u2028 \u0085",
        "logprobs": [],
        "obfuscation": "x",
    },
]
ENDS = {
    "completed": {
        "type": "response.completed",
        "response": {**RESPONSE, "status": "completed", "usage": USAGE},
    },
    "incomplete": {
        "type": "response.incomplete",
        "response": {
            **RESPONSE,
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "usage": USAGE,
        },
    },
    "failed": {
        "type": "response.failed",
        "response": {
            **RESPONSE,
            "status": "failed",
            "error": {"code": "server_error", "message": "no"},
        },
    },
    "error": {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None},
}
MESSAGE = told(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "role": "assistant",
            "model": "real-v2",
            "content": [],
            "usage": {"input_tokens": 9, "cache_read_input_tokens": 0, "output_tokens": 1},
        },
    },
    {"type": "ping"},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "hm"},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "Eo=="},
    },
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 15},
    },
    {"type": "message_stop"},
)
COMPLETION = (
    b"".join(
        b"data: "
        + json.dumps(
            {
                "id": "cmpl-1",
                "object": "text_completion",
                "model": "real-v2",
                "choices": [{"index": i, "text": "é", "logprobs": None, "finish_reason": f}],
            }
        ).encode()
        + b"\n\n"
        for i, f in ((0, None), (1, None), (0, "stop"), (1, "length"))
    )
    + b"data: [DONE]\n\n"
)


def sending(raw, size=0, cut=False):
    async def answer(seen, wire):
        await wire.start_stream("x-request-id: r-1")
        for at in range(0, len(raw), size or len(raw)):
            await wire.part(raw[at : at + (size or len(raw))])
        if not cut:
            await wire.end()
        else:
            wire.reset() if cut == "reset" else wire.writer.close()

    return answer


async def asked(shared, path, model="m", **body):
    return await shared.post(
        json.dumps({"model": model, "input": "x", "stream": True, **body}).encode(), path=path
    )


def parsed(text):
    """(event name, data) of each event."""
    blocks = [b for b in re.split(r"\n\n", text) if b and not b.startswith(":")]
    return [
        (
            next((x[7:] for x in b.split("\n") if x.startswith("event: ")), None),
            json.loads(next(x[6:] for x in b.split("\n") if x.startswith("data: "))),
        )
        for b in blocks
    ]


@row(151)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
async def test_events_of_a_response_pass_byte_for_byte(shared, end, size):
    raw = told(*numbered(*START, ENDS[end]))
    for framed in (
        raw,
        raw.replace(b"\n", b"\r\n"),
        b": hello\n\n" + raw,
        raw.replace(b"event: ", b"id: 7\nevent: "),
        raw + b"data: [DONE]\n\n",
    ):
        shared.up.script = [sending(framed, size)]
        response = await asked(shared, "/responses")
        assert response.content == framed
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"] == "r-1"
        if size == 1:
            break


@row(152)
@pytest.mark.parametrize("size", [0, 1, 11])
@pytest.mark.parametrize("path", ["/messages", "/messages?beta=true"])
async def test_a_message_stream_passes_with_pings_and_signatures(shared, path, size):
    shared.up.script = [sending(MESSAGE, size)]
    response = await shared.post(
        b'{"model":"m","max_tokens":5,"messages":[],"stream":true}',
        path=path,
        **{"anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-api-key": "k"},
    )
    assert response.content == MESSAGE
    seen = shared.up.requests[-1]
    assert (seen.path, seen.header("anthropic-version"), seen.header("anthropic-beta")) == (
        "/v1" + path,
        "2023-06-01",
        "a,b",
    )


@row(153)
@pytest.mark.parametrize("size", [0, 1, 13])
async def test_a_completion_stream_passes(shared, size):
    shared.up.script = [sending(COMPLETION, size)]
    assert (await asked(shared, "/completions", prompt="x")).content == COMPLETION


@row(26)
async def test_an_alias_is_the_model_of_a_completion_stream(shared):
    shared.up.script = [sending(COMPLETION, 9)]
    response = await asked(shared, "/completions", "alias", prompt="x")
    assert response.content.count(b'"model":"alias"') == 4
    assert b"real-v2" not in response.content


@row(151)
async def test_a_whole_response_passes(shared):
    body = json.dumps({**RESPONSE, "usage": USAGE}).encode()
    shared.up.script = [lambda seen, wire: wire.answer(200, body)]
    assert (await shared.post(b'{"model":"m","input":"x"}', path="/responses")).content == body
    assert json.loads(
        (await shared.post(b'{"model":"alias","input":"x"}', path="/responses")).content
    ) == {**RESPONSE, "usage": USAGE, "model": "alias"}
