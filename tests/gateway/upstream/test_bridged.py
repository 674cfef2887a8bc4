"""Servers that speak chat completions alone: when a request goes to them as one."""

from __future__ import annotations

import json

import pytest

from gateway.errors import BadRequest, StreamIncomplete
from gateway.upstream import bridged
from gateway.upstream.base import UpstreamRequest
from gateway.upstream.bridged import (
    BridgedUpstream,
    BridgeOptions,
    SpokenFormats,
    is_path_missing,
)
from gateway.upstream.scripted import ScriptedUpstream, refusal, stream


def json_response(body, status=200):
    return refusal(status, body)


COMPLETION = {
    "model": "up",
    "choices": [{"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"}],
}
BODY = json.dumps({"model": "m", "input": "Hi", "include": ["x"]}).encode()
NATIVE = {"id": "resp_1", "output": []}
NOT_FOUND = {"detail": "Not Found"}


def request(path="/responses", body=BODY, method="POST", **more):
    headers = [(b"idempotency-key", b"k"), (b"anthropic-beta", b"x")]
    return UpstreamRequest(path, body, headers, method, **more)


def upstream(*answers, declared=(), drop=("include",)):
    server = ScriptedUpstream(answers)
    options = BridgeOptions("local", drop)
    return server, BridgedUpstream(server, SpokenFormats(declared), options)


async def asked(up, *args, **more):
    response = await up.send(request(*args, **more))
    data = await response.read()
    await response.close()
    return response, data


async def test_a_server_that_speaks_the_format_is_asked_as_it_is():
    server, up = upstream(json_response(NATIVE), json_response(NOT_FOUND, 404))
    response, data = await asked(up)
    assert (json.loads(data), response.carriage) == (NATIVE, None)
    # it speaks the format, so what it does not find later is no path
    response, data = await asked(up)
    assert (response.status, json.loads(data)) == (404, NOT_FOUND)
    assert [r.path for r in server.requests] == ["/responses"] * 2


async def test_a_server_without_the_path_is_asked_for_a_completion_at_once():
    server, up = upstream(json_response(NOT_FOUND, 404), json_response(COMPLETION))
    for _ in range(2):
        response, data = await asked(up)
        assert json.loads(data)["output"][0]["content"][0]["text"] == "Yes."
        assert response.carriage == ("chat", ("include",))
    paths = [r.path for r in server.requests]
    assert paths == ["/responses", "/chat/completions", "/chat/completions"]
    sent = dict(server.requests[1].headers)
    assert sent[b"idempotency-key"].startswith(b"k-")
    assert b"anthropic-beta" not in sent


async def test_it_is_asked_again_after_an_hour(monkeypatch):
    server, up = upstream(json_response(NOT_FOUND, 404), json_response(COMPLETION))
    await asked(up)
    monkeypatch.setattr(bridged, "KNOWN_SECONDS", 0.0)
    await asked(up)
    assert server.requests[2].path == "/responses"


async def test_a_server_that_has_neither_path_is_not_remembered():
    server, up = upstream(json_response(NOT_FOUND, 404))
    response, _ = await asked(up)
    assert response.status == 404
    await asked(up)
    paths = [r.path for r in server.requests]
    assert paths == ["/responses", "/chat/completions"] * 2


async def test_a_missing_model_is_no_missing_path():
    error = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}
    server, up = upstream(json_response(error, 404))
    response, data = await asked(up)
    assert (response.status, json.loads(data)) == (404, error)
    assert len(server.requests) == 1


async def test_declared_formats_are_never_asked_about():
    server, up = upstream(json_response(COMPLETION), declared=("chat", "messages"))
    await asked(up)
    assert [r.path for r in server.requests] == ["/chat/completions"]
    server, up = upstream(json_response(NOT_FOUND, 404), declared=("responses",))
    response, _ = await asked(up)
    assert response.status == 404
    assert [r.path for r in server.requests] == ["/responses"]


@pytest.mark.parametrize(("path", "method"), [("/responses/x", "POST"), ("/responses", "GET")])
async def test_other_paths_and_methods_pass(path, method):
    server, up = upstream(json_response(NOT_FOUND, 404), declared=("chat",))
    await asked(up, path=path, method=method)
    assert [r.path for r in server.requests] == [path]


async def test_a_stream():
    chunk = {"model": "up", "choices": [{"index": 0, "delta": {"content": "Yes."}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    server, up = upstream(stream([chunk, end]), declared=("chat",))
    body = json.dumps({"model": "m", "messages": [], "max_tokens": 1, "stream": True}).encode()
    response, data = await asked(up, path="/messages?beta=true", body=body, stream=True)
    assert response.is_events
    assert b"event: message_stop" in data
    sent = server.requests[0]
    assert sent.path == "/chat/completions"
    assert json.loads(sent.body)["stream_options"] == {"include_usage": True}


async def test_a_stream_that_is_malformed_breaks_off():
    _, up = upstream(stream([b"data: {\n\n"]), declared=("chat",))
    with pytest.raises(StreamIncomplete):
        await asked(up)


async def test_a_refusal_has_the_clients_shape():
    _, up = upstream(json_response({"error": {"message": "no"}}, 400), declared=("chat",))
    body = json.dumps({"model": "m", "messages": []}).encode()
    response, data = await asked(up, path="/messages", body=body)
    assert response.status == 400
    assert json.loads(data)["error"]["type"] == "invalid_request_error"
    assert response.header(b"content-type") == b"application/json"


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" + b"[]," * 1_000_001 + b"[]]"])
async def test_a_body_that_cannot_be_read_is_refused(body):
    _, up = upstream(json_response(COMPLETION), declared=("chat",))
    with pytest.raises(BadRequest):
        await asked(up, body=body)


MISSING = [
    (405, b"{}", True),
    (404, b"404 page not found", True),
    (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}', True),
    (404, b'{"error":"Unexpected endpoint or method. (POST /v1/responses)"}', True),
    (404, b'{"error":{"message":"Invalid URL (POST /v1/messages)","code":null}}', True),
    (404, b'{"error":{"message":"No \'/v1/responses\' here; try /v1/models, /v1/chat"}}', True),
    (404, b'{"detail":"https://host/v1/models is all there is"}', True),
    (404, b'{"error":{"message":"unknown_url: see our models","code":"unknown_url"}}', True),
    (404, b'{"error":{"code":"route_not_found","message":"No model route for it"}}', True),
    (404, b"[]", True),
    (404, b'{"error":{"message":"model \\"x\\" not found, try pulling it first"}}', False),
    (404, b'{"error":{"message":"see /v1/models for them","code":"model_not_found"}}', False),
    (404, b'{"error":{"message":"model org/name is not at /v1/models"}}', False),
    (404, b'{"message":"The model `x` does not exist.","code":404}', False),
    (404, b'{"error":{"code":"DeploymentNotFound","message":"None."}}', False),
    (404, b'{"error":{"message":"Item with id \'rs_1\' not found."}}', False),
    (404, b'{"error":{"message":"Previous response with id \'r\' not found."}}', False),
]


@pytest.mark.parametrize(("status", "body", "missing"), MISSING)
def test_which_answers_say_that_a_path_is_missing(status, body, missing):
    assert is_path_missing(status, body) is missing
