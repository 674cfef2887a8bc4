"""The bundled model's server on a real socket: through the openai SDK, and byte by byte where
shapes matter.
"""

import asyncio
import base64
import json
import math
import struct
import urllib.error
import urllib.request

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from gateway.demo_model.responses import vector
from gateway.demo_model.server import start
from tests.gateway.demo_model.test_engine import asked
from tests.gateway.demo_model.test_validation import USER


@pytest.fixture(scope="module")
def server():
    with start() as running:
        yield running


@pytest.fixture
async def client(server):
    async with AsyncOpenAI(base_url=server.url, api_key="any", max_retries=0) as it:
        yield it


async def folded(stream):
    """(text, [(id, name, arguments)], finish, [usage], roles) of a stream."""
    text, calls, finish, usages, roles, ids = "", {}, None, [], [], set()
    async for chunk in stream:
        ids.add(chunk.id)
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            text += choice.delta.content or ""
            roles += [choice.delta.role] if choice.delta.role else []
            finish = choice.finish_reason or finish
            for c in choice.delta.tool_calls or []:
                old = calls.get(c.index, ("", "", ""))
                calls[c.index] = (
                    c.id or old[0],
                    c.function.name or old[1],
                    old[2] + c.function.arguments,
                )
    assert len(ids) == 1
    return text, [calls[i] for i in sorted(calls)], finish, usages, roles


async def test_the_sdk_gets_the_same_answer_streamed_and_whole(client):
    body = asked("What is my name?", "Name: Ada")
    whole = await client.chat.completions.create(**body)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason, whole.model) == (
        "Your name is Ada.",
        "stop",
        "mnemogate-demo",
    )
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    text, calls, finish, usages, roles = await folded(
        await client.chat.completions.create(
            **body, stream=True, stream_options={"include_usage": True}
        )
    )
    assert (text, calls, finish, roles) == ("Your name is Ada.", [], "stop", ["assistant"])
    assert usages == [whole.usage]


async def test_the_sdk_gets_the_same_calls_streamed_and_whole(client):
    body = asked("My name is Ada. I like tea.")
    whole = (await client.chat.completions.create(**body)).choices[0]
    text, calls, finish, usages, _ = await folded(
        await client.chat.completions.create(**body, stream=True)
    )
    assert (text, finish, whole.finish_reason, usages) == ("", "tool_calls", "tool_calls", [])
    assert [(n, a) for _, n, a in calls] == [
        (c.function.name, c.function.arguments) for c in whole.message.tool_calls
    ]
    assert len({i for i, _, _ in calls} | {c.id for c in whole.message.tool_calls}) == 4


def raw(url, data=None, method=None):
    request = urllib.request.Request(
        url, data=data, method=method, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read()


async def test_chunks_are_exactly_as_openai_sends_them(server):
    body = {
        **asked("What is my name?", "Name: Ada"),
        "stream": True,
        "n": 2,
        "stream_options": {"include_usage": True},
    }
    _, data = await asyncio.to_thread(
        raw, server.url + "/chat/completions", json.dumps(body).encode()
    )
    events = data.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(e.removeprefix("data: ")) for e in events[:-2]]
    assert {tuple(c) for c in chunks} == {
        ("id", "object", "created", "model", "system_fingerprint", "choices", "usage")
    }
    assert [c["usage"] is None for c in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1]["choices"] == []
    ones = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == 1]
    assert ones[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert ones[-1] == {"index": 1, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert [c["delta"] for c in ones[1:-1]] == [
        {"content": w} for w in ("Your", " name", " is", " Ada.")
    ]


@pytest.mark.parametrize(
    ("path", "data", "method", "status", "code"),
    [
        ("/chat/completions", b"{", "POST", 400, None),
        ("/chat/completions", b"[]", "POST", 400, None),
        ("/chat/completions", b"\xff", "POST", 400, None),
        ("/chat/completions", b"[" * 100_000, "POST", 400, None),
        ("/chat/completions", b'{"messages": []}', "POST", 400, None),
        ("/chat/completions", b'{"model": "m"}', "POST", 400, None),
        ("/chat/completions", None, "GET", 405, "method_not_allowed"),
        ("/images", None, "GET", 404, "not_found"),
        ("/models/gpt-4o", None, "GET", 404, "model_not_found"),
        ("/embeddings", b'{"model": "m", "input": ""}', "POST", 400, None),
        ("/embeddings", b'{"model": "m", "input": [""]}', "POST", 400, None),
        ("/embeddings", b'{"model": "m", "input": "x", "dimensions": 0}', "POST", 400, None),
        ("/embeddings", b'{"model": "m", "input": "x", "encoding_format": "?"}', "POST", 400, None),
    ],
)
async def test_a_refusal_has_openais_shape(server, path, data, method, status, code):
    got, content = await asyncio.to_thread(raw, server.url + path, data, method)
    error = json.loads(content)["error"]
    assert (got, error["code"], set(error)) == (status, code, {"message", "type", "param", "code"})


async def test_the_sdk_raises_its_own_errors(client):
    with pytest.raises(BadRequestError):
        await client.chat.completions.create(model="m", messages=[])
    with pytest.raises(NotFoundError):
        await client.models.retrieve("gpt-4o")


async def test_the_models_are_listed_and_labelled(client):
    found = [m async for m in client.models.list()]
    assert [(m.id, m.owned_by) for m in found] == [("mnemogate-demo", "mnemogate")]
    assert await client.models.retrieve("mnemogate-demo") == found[0]


async def test_embeddings_come_as_floats_and_as_base64(client):
    texts = ["I like tea", "green tea"]
    floats = await client.embeddings.create(model="m", input=texts, encoding_format="float")
    packed = await client.embeddings.create(
        model="m", input=texts, encoding_format="base64", dimensions=256
    )
    for a, b in zip(floats.data, packed.data, strict=True):
        assert struct.unpack("<256f", base64.b64decode(b.embedding)) == pytest.approx(
            a.embedding, abs=1e-6
        )
    assert (
        len(
            (await client.embeddings.create(model="m", input=[1, 2], dimensions=8))
            .data[0]
            .embedding
        )
        == 8
    )


def near(a, b):
    return sum(x * y for x, y in zip(vector(a), vector(b), strict=True))


def test_similar_texts_lie_near():
    assert math.isclose(near("tea", "tea"), 1)
    assert (
        near("Ada likes green tea", "Does Ada like tea?")
        > near("Ada likes green tea", "The train to Oslo is late") + 0.2
    )
    assert near("...", "...") > 0.99


async def test_a_stopped_server_lets_go_of_its_port_even_mid_stream():
    running = start(pace=0.2)
    async with AsyncOpenAI(base_url=running.url, api_key="any", max_retries=0) as client:
        stream = await client.chat.completions.create(model="m", messages=[USER], stream=True)
        await anext(stream)
        await asyncio.to_thread(running.stop)
        await stream.close()
    running.stop()
    port = int(running.url.split(":")[2].split("/")[0])
    with start(port) as again:
        assert (await asyncio.to_thread(raw, again.url + "/models"))[0] == 200
