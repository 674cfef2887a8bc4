"""A.

What cannot be served is refused as the client's fault, by name, before any upstream is asked.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from tests.conftest import running
from tests.e2e.wire.conftest import ANY
from tests.e2e.wire.rows import row
from tests.models import Model
from tests.sockets import RawServer

pytestmark = pytest.mark.asyncio(loop_scope="session")
GOOD = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
MIB = 1 << 20


def refused(response, status=400):
    """The error, which has the one shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    error = response.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert isinstance(error["message"], str)
    assert "None" not in (error["type"], error["param"], error["code"])
    return error


@row(16)
@pytest.mark.parametrize(
    ("raw", "at"),
    [
        (b"{", 1),
        (b"", 0),
        (GOOD[:-1], len(GOOD) - 1),
        (GOOD + b"x", None),
        (b'{"model":"m",}', 13),
        (b'{"model":"m" "messages":[]}', 13),
        (b"{'model':1}", 1),
        (b'{"a":NaN}', 5),
        (b'{"a":-Infinity}', None),
        (b'{"a":01}', None),
        (b'{"a":"\n"}', None),
        (b'{"a":"\xff\xfe"}', None),
        (b'{"a":"\\x"}', None),
        (b'{"a":"\\ud83"}', None),
        (b"\xef\xbb\xbf" + GOOD, 0),
        (b"\xff\xfe{\x00}\x00", 0),
        (b"<html>", 0),
        (b"model=m", 0),
        (b"[" * 100_000, None),
        (b'{"a":' * 100_000, None),
        (b'{"a":1e400}', None),
        (b'{"a":' + b"9" * 10_000 + b"}", None),
    ],
)
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_what_is_no_json_is_a_400_that_says_where(shared, raw, at, mode):
    error = refused(await shared.post(raw, mode))
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")
    if at is not None:
        assert f"at byte {at}" in error["message"]
    assert not shared.up.requests


@row(16)
@pytest.mark.parametrize(
    "raw", [b"[]", b'"x"', b"1", b"null", b"true", b"[" + GOOD + b"]", b"1.5", b"-0"]
)
async def test_json_that_is_no_object_is_a_400(shared, raw):
    assert refused(await shared.post(raw))["type"] == "invalid_request_error"
    assert not shared.up.requests


@row(16)
@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"messages":[{"role":"user","content":"x"}]}', "model"),
        (b'{"model":null,"messages":[{"role":"user"}]}', "model"),
        (b'{"model":["m"],"messages":[{"role":"user"}]}', "model"),
        (b'{"model":""}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":{"role":"user"}}', "messages"),
        (b'{"model":"m","messages":["hi"]}', "messages[0]"),
        (b'{"model":"m","messages":[{"role":"user"},{"content":"x"}]}', "messages[1]"),
        (b'{"model":"m","messages":[{"role":null}]}', "messages[0]"),
        (b'{"model":"m","messages":[null]}', "messages[0]"),
    ],
)
async def test_a_member_that_is_missing_is_named(shared, raw, param):
    assert refused(await shared.post(raw))["param"] == param


@row(5, 16)
async def test_half_a_surrogate_pair_does_not_cost_the_request(shared):
    raw = (
        b'{"model":"m","messages":[{"role":"user","content":"cut \\ud83d, \\\\ud83d, '
        b'\\ud83d\\ude00"}],"x":"\\udfff\\ud800"}'
    )
    response = await shared.post(raw)
    assert (response.status_code, response.headers["x-memory-status"]) == (200, "ok")
    # In bytes: no text of halves is to be shown by whoever runs tests.
    sent = shared.up.requests[-1].body
    assert b'"cut \\ud83d, \\\\ud83d, ' in sent
    assert b'"x":"\\udfff\\ud800"' in sent
    assert sent.count(b"\\ud83d") == 2 + sent.count(b"\\ud83d\\ude00")


@row(17)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_an_unknown_model_is_a_404_with_its_code(data, mode, stream):
    config = {
        "models": {
            "known": ANY,
            "vendor/*": ANY,
            "a": {"targets": [{"provider": "openai", "model": "b"}]},
        }
    }
    async with Model("ok") as up, running(up.url, data, config) as live:
        for name in ("m", "Known", "known ", "vendor", "b", "*", "knownx"):
            error = refused(
                await live.chat("hi", {"x-memory": mode}, stream=stream, model=name), 404
            )
            assert (error["code"], error["type"], error["param"]) == (
                "model_not_found",
                "invalid_request_error",
                "model",
            )
        for path in ("embeddings", "responses", "audio/speech", "u/ada/v1/embeddings"):
            response = await live.http.post(
                f"{live.root if path.startswith('u/') else live.url}/{path}",
                json={"model": "m", "input": "x"},
            )
            assert refused(response, 404)["code"] == "model_not_found"
        assert (
            refused(await live.http.get(f"{live.url}/models/m"), 404)["code"] == "model_not_found"
        )
        assert not up.requests
        for name, served in (("known", "known"), ("vendor/x:y", "vendor/x:y"), ("a", "b")):
            assert (
                await live.chat("hi", {"x-memory": mode}, stream=stream, model=name)
            ).status_code == 200
            assert up.bodies[-1]["model"] == served


def chunked(raw, size=65_536):
    async def parts():
        for at in range(0, len(raw), size):
            yield raw[at : at + size]

    return parts()


@row(18)
@pytest.mark.parametrize(
    "sent", ["declared", "chunked", "gzip", "gzip chunked", "bomb", "deflate", "zstd", "zstd bomb"]
)
async def test_a_body_over_the_limit_is_413_in_shape(data, sent):
    big = b'{"model":"m","x":"' + b"y" * (2 * MIB) + b'"}'
    packed = {
        "gzip": gzip.compress(big, 1),
        "gzip chunked": gzip.compress(big, 1),
        "deflate": zlib.compress(big, 1),
        "bomb": gzip.compress(bytes(64 * MIB), 1),
        "zstd": zstd.compress(big),
        "zstd bomb": zstd.compress(bytes(64 * MIB)),
    }.get(sent, big)
    headers = (
        {"content-encoding": sent.split()[0].replace("bomb", "gzip")} if packed is not big else {}
    )
    async with Model("ok") as up, running(up.url, data, {"server.max_body_mib": 1}) as live:
        for method, path in (
            ("POST", "chat/completions"),
            ("POST", "embeddings"),
            ("PUT", "files/x"),
            ("DELETE", "files/x"),
        ):
            response = await live.http.request(
                method,
                f"{live.url}/{path}",
                content=chunked(packed, 4096) if "chunked" in sent else packed,
                headers=headers,
            )
            assert refused(response, 413)["code"] == "request_too_large"
            assert str(MIB) in response.json()["error"]["message"]
        assert not up.requests


@row(18)
# The HTTP client's advice, not a fault.
@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_32_mib_are_within_the_default_limit(data):
    async def takes(seen, wire):
        await wire.json({"length": len(seen.body)})

    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "x" * (32 * MIB - 80)}]}
    ).encode()
    async with RawServer(takes) as up, running(up.url, data) as live:
        response = await live.http.post(
            f"{live.url}/chat/completions", content=body, headers={"x-memory": "off"}
        )
        assert response.json()["length"] == len(body)


@row(19)
@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_compressed_bodies_are_read_and_sent_on_plain(shared, mode, path):
    shared.up.script = [
        lambda seen, wire: wire.json(
            {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}
        )
    ]
    half = len(GOOD) // 2
    for name, packed in (
        ("gzip", gzip.compress(GOOD)),
        ("GZIP", gzip.compress(GOOD)),
        ("deflate", zlib.compress(GOOD)),
        ("identity", GOOD),
        ("gzip", gzip.compress(GOOD[:half]) + gzip.compress(GOOD[half:])),
        ("zstd", zstd.compress(GOOD)),
        ("zstd", zstd.compress(GOOD[:half]) + zstd.compress(GOOD[half:])),
    ):
        response = await shared.post(packed, mode, path, **{"content-encoding": name})
        assert response.status_code == 200, name
        seen = shared.up.requests[-1]
        assert seen.header("content-encoding") is None
        assert seen.json["messages"][-1] == {"role": "user", "content": "hi"}
        assert seen.header("content-length") == str(len(seen.body))


@row(19)
@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings", "/files"])
async def test_what_cannot_be_unpacked_is_a_refusal(shared, path):
    packed = gzip.compress(GOOD)
    unknown = [(name, GOOD, 415) for name in ("br", "gzip, gzip", "x" * 2000)]
    broken = [
        ("gzip", body, 400)
        for body in (GOOD, packed[:-12], packed[:-1], packed[:5], packed + b"trailing")
    ] + [("deflate", b"\x00\x01", 400)]
    packed = zstd.compress(GOOD)
    broken += [
        ("zstd", body, 400) for body in (GOOD, packed[:-1], packed[:5], packed + b"trailing")
    ]
    for name, body, status in [*unknown, *broken]:
        refused(await shared.post(body, path=path, **{"content-encoding": name}), status)
    assert not shared.up.requests
