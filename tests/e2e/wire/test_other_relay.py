"""J. Everything else under `/v1` is relayed: bodies, forms, bytes, queries, statuses, headers."""

from __future__ import annotations

import json
import random

import httpx
import pytest

from tests.e2e.wire.rows import row
from tests.e2e.wire.same import exact

pytestmark = pytest.mark.asyncio(loop_scope="session")
BINARY = bytes(range(256)) * 300 + b"\r\n--b\r\n" + random.Random(1).randbytes(70_000)
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="\xc3\xa9.mp3"\r\n'
    b"Content-Type: audio/mpeg\r\n\r\n"
    + BINARY
    + b'\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b\r\n'
    b'Content-Disposition: form-data; name="timestamp_granularities[]"\r\n\r\nword\r\n--b--\r\n'
)
CALLS = [
    ("POST", "/completions", {"model": "m", "prompt": [[1, 2], [3]], "echo": True, "suffix": None}),
    ("POST", "/moderations", {"model": "m", "input": [{"type": "text", "text": "x"}]}),
    ("POST", "/images/generations", {"model": "m", "prompt": "x", "n": 1}),
    ("GET", "/files", None),
    ("GET", "/files?purpose=fine-tune&limit=2&after=a%20b%2Fc", None),
    ("DELETE", "/files/file-1", None),
    ("POST", "/batches", {"input_file_id": "f", "endpoint": "/v1/chat/completions"}),
    ("POST", "/batches/b-1/cancel", None),
    ("GET", "/batches/b-1", None),
    ("GET", "/responses/resp_1?include[]=reasoning.encrypted_content", None),
    ("POST", "/responses/resp_1/cancel", None),
    ("DELETE", "/responses/resp_1", None),
    ("GET", "/chat/completions/c-1", None),
    ("POST", "/chat/completions/c-1", {"metadata": {}}),
    ("GET", "/chat/completions/c-1/messages?limit=1", None),
    ("DELETE", "/chat/completions/c-1", None),
    ("POST", "/threads/t/runs", {"assistant_id": "a"}),
    ("PUT", "/x/y", {"a": 1}),
    ("PATCH", "/x/y", [1, 2]),
    ("POST", "/fine_tuning/jobs", {"model": "m", "training_file": "f"}),
    ("POST", "/rerank", {"model": "m", "query": "q"}),
    ("POST", "/x", "text"),
    ("POST", "/x", None),
    ("GET", "/models-extra", None),
    ("POST", "/vector_stores/a%2Fb/files", {}),
]


@row(153)
@pytest.mark.parametrize(("method", "path", "body"), CALLS)
@pytest.mark.parametrize("prefix", ["/v1", "/u/ada%2F%C3%A9/v1"])
async def test_any_other_path_is_relayed_with_method_query_and_body(
    shared, method, path, body, prefix
):
    sent = None if body is None else json.dumps(body).encode()
    shared.up.script = [
        lambda seen, wire: wire.answer(
            202,
            b'{ "x" : 1.10 }',
            "x-request-id: r-1",
            "x-ratelimit-remaining-requests: 0",
            "retry-after: 3",
            "openai-processing-ms: 5",
            "set-cookie: a=b",
        )
    ]
    response = await shared.live.http.request(
        method,
        httpx.URL(shared.live.root + prefix + path),
        content=sent,
        headers={"x-memory": "off", **({"content-type": "application/json"} if sent else {})},
    )
    seen = shared.up.requests[-1]
    assert (seen.method, seen.path, seen.body) == (method, "/v1" + path, sent or b"")
    assert (response.status_code, response.content, response.headers["content-type"]) == (
        202,
        b'{ "x" : 1.10 }',
        "application/json",
    )
    assert (
        response.headers["x-request-id"],
        response.headers["x-ratelimit-remaining-requests"],
        response.headers["retry-after"],
    ) == ("r-1", "0", "3")
    assert "set-cookie" not in response.headers
    assert seen.header("x-memory-user") is None
    assert seen.header("authorization") == "Bearer sk-sentinel-4f1d"


@row(148)
@pytest.mark.parametrize(
    "body",
    [
        {"input": "x"},
        {"input": ["x", ""], "encoding_format": "base64"},
        {"input": [1, 2], "encoding_format": "float"},
        {"input": [[1, 2], [3]], "dimensions": 256},
        {"input": "x", "encoding_format": None},
        {"input": "x", "x": {"z": 1, "a": 1.0}},
    ],
)
@pytest.mark.parametrize("model", ["m", "alias"])
async def test_embeddings_pass_untouched_both_ways(shared, body, model):
    raw = (
        b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":%s}], '
        b'"model":"%s","usage":{"prompt_tokens":0,"total_tokens":0}}'
    )
    for vector in (b'"AAAAgD8="', b"[1.0,-0.0,1e-7,0.1,-1]"):
        shared.up.script = [
            lambda seen, wire, vector=vector: wire.answer(200, raw % (vector, b"real-v2"))
        ]
        sent = json.dumps({**body, "model": model}).encode()
        response = await shared.post(sent, path="/embeddings")
        assert exact(shared.up.requests[-1].body) == exact(sent.replace(b'"alias"', b'"real"'))
        assert exact(response.content) == exact(
            raw % (vector, b"alias" if model == "alias" else b"real-v2")
        )
        assert vector in response.content


@row(150)
@pytest.mark.parametrize(
    "path",
    [
        "/audio/transcriptions",
        "/audio/translations",
        "/images/edits",
        "/files",
        "/images/variations",
        "/uploads/u/parts",
    ],
)
@pytest.mark.parametrize("boundary", ["b", '"b"', "b; charset=utf-8"])
async def test_a_form_keeps_its_boundary_and_its_bytes(shared, path, boundary):
    shared.up.script = [
        lambda seen, wire: wire.answer(
            200, b"1\n00:00 --> 00:01\nh\xc3\xa9\n", content_type="application/x-subrip"
        )
    ]
    kind = f"multipart/form-data; boundary={boundary}"
    response = await shared.live.http.post(
        f"{shared.live.url}{path}", content=FORM, headers={"content-type": kind}
    )
    assert (shared.up.requests[-1].body, shared.up.requests[-1].header("content-type")) == (
        FORM,
        kind,
    )
    assert (response.content, response.headers["content-type"]) == (
        b"1\n00:00 --> 00:01\nh\xc3\xa9\n",
        "application/x-subrip",
    )


@row(150)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/audio/speech"),
        ("GET", "/files/f/content"),
        ("GET", "/containers/c/files/f/content"),
    ],
)
@pytest.mark.parametrize(
    "kind",
    [
        "audio/mpeg",
        "application/octet-stream",
        "text/plain; charset=latin-1",
        "image/png",
        "application/json",
        "application/jsonl",
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_binary_answers_are_untouched(shared, method, path, kind, chunked):
    async def answer(seen, wire):
        if not chunked:
            return await wire.answer(
                200,
                BINARY,
                "content-disposition: attachment; filename=a.mp3",
                "accept-ranges: bytes",
                content_type=kind,
            )
        await wire.raw(
            f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        for at in range(0, len(BINARY), 30_011):
            await wire.part(BINARY[at : at + 30_011])
        return await wire.end()

    shared.up.script = [answer]
    response = await shared.live.http.request(
        method,
        f"{shared.live.url}{path}",
        json={"model": "m", "input": "x"} if method == "POST" else None,
    )
    assert (response.status_code, response.content, response.headers["content-type"]) == (
        200,
        BINARY,
        kind,
    )
    if not chunked:
        assert int(response.headers["content-length"]) == len(BINARY)
        assert response.headers["content-disposition"] == "attachment; filename=a.mp3"


@row(153)
@pytest.mark.parametrize("status", [200, 201, 202, 204, 206])
@pytest.mark.parametrize("method", ["POST", "DELETE", "GET"])
async def test_an_empty_answer_stays_empty(shared, status, method):
    async def answer(seen, wire):
        length = b"" if status == 204 else b"content-length: 0\r\n"
        await wire.raw(b"HTTP/1.1 %d X\r\nx-a: 1\r\n%s\r\n" % (status, length))

    shared.up.script = [answer]
    # The connection stays in step.
    for _ in range(2):
        response = await shared.live.http.request(method, f"{shared.live.url}/files/f")
        assert (response.status_code, response.content, response.headers["x-a"]) == (
            status,
            b"",
            "1",
        )


@row(153)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 418, 422, 429, 500, 503])
async def test_a_refusal_of_the_relay_is_the_upstreams(shared, status):
    body = b'{ "error": {"message":"no","x":1.10} }'
    shared.up.script = [
        lambda seen, wire: wire.answer(status, body, "retry-after: 9", "x-should-retry: false")
    ]
    response = await shared.live.http.get(f"{shared.live.url}/files/f")
    assert (
        response.status_code,
        response.content,
        response.headers["retry-after"],
        response.headers["x-should-retry"],
    ) == (status, body, "9", "false")
