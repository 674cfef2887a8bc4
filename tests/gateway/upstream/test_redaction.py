"""A provider's key never leaves the upstream port, however it is spelt or cut."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.base import UpstreamResponse
from gateway.upstream.redaction import RedactedBody, RedactedUpstream, Secret, secrets_of
from tests.conftest import running
from tests.sockets import RawServer

KEY = "sk-oper/ator-7f31c2"
SECRET = Secret(KEY.encode())
STATUSES = (200, 201, 302, 400, 401, 404, 429, 500)


def spell(text, choices):
    """The text with some characters as JSON escapes."""
    out = []
    for char, choice in zip(text, choices, strict=True):
        escaped = f"u{ord(char):04x}"
        out.append([char, f"\\{escaped}", f"\\\\{escaped.upper().replace('U', 'u')}"][choice])
    return "".join(out)


async def pieces(*parts):
    for part in parts:
        yield part


async def shown(parts, length=""):
    body = RedactedBody(pieces(*parts), SECRET, length)
    return [part async for part in body]


@given(
    st.lists(st.integers(0, 2), min_size=len(KEY), max_size=len(KEY)),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.lists(st.integers(0, 200), max_size=6),
    st.sampled_from(["", "padded", "trailed"]),
)
@settings(max_examples=600, deadline=None)
def test_a_key_is_taken_out_however_it_is_spelt_and_cut(choices, before, after, cuts, keeps):
    spelt = spell(KEY, choices).encode()
    text = before + spelt + after
    at = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    parts = [text[a:b] for a, b in pairwise(at)]
    found = b"".join(asyncio.run(shown(parts, keeps)))
    assert spelt not in found
    assert b"[key]" in found
    if keeps:
        assert len(found) == len(text)
    else:
        assert found == before + b"[key]" + after or len(before.rstrip(b"\\")) < len(before)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
@settings(max_examples=300, deadline=None)
def test_what_holds_no_key_passes_byte_for_byte(text, cuts):
    at = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    parts = [text[a:b] for a, b in pairwise(at)]
    assert b"".join(asyncio.run(shown(parts))) == text


async def test_an_event_is_never_held_back():
    events = [b'data: {"a": "sk-op"}\n\n', b"data: sk-oper\n\n", b'data: "\\u0073k"\n\n']
    assert await shown(events) == events


def test_an_event_costs_two_searches():
    event = b'data: {"choices":[{"delta":{"content":"hello there"}}]}\n\n'
    begun = time.process_time()
    for _ in range(100_000):
        SECRET.redact(event)
    # 10 us each, on a busy machine.
    assert time.process_time() - begun < 1


def test_dummy_keys_are_words():
    assert secrets_of("", "x", "EMPTY", KEY, KEY) == [KEY.encode()]


async def test_headers_are_redacted():
    class Server:
        async def send(self, request):
            return UpstreamResponse(200, [(b"x-debug", f"Bearer {KEY}".encode())], pieces(b"x"))

    incoming = await RedactedUpstream(Server(), [KEY.encode()]).send(None)
    assert incoming.headers == [(b"x-debug", b"Bearer [key]")]


def config(url):
    return {
        "providers": {"main": {"base_url": url, "api_key": KEY}},
        "keys": [
            {"name": "k", "key": "key-aaaaaaaaaaaaaaaaaaaa", "tenant": "t", "paths": ["/v1/*"]}
        ],
        "routing": {"retries": 0},
    }


ESCAPED = "".join(f"\\u{ord(c):04x}" for c in KEY)
WRITTEN = [KEY, ESCAPED, KEY.replace("s", "\\u0073").replace("/", "\\/")]


def quoting(status, spelt, *, events, cut):
    """A server that quotes the key: in headers, and in a body of chunks."""

    async def answers(seen, wire):
        error = f'{{"error": {{"message": "bad {spelt}", "code": "x"}}}}'
        body = error if status >= 300 else f'{{"id": "x", "object": "y", "note": "{spelt}"}}'
        kind = "text/event-stream" if events else "application/json"
        if events:
            failed = {"type": "response.failed", "response": {"id": "r", "error": {"message": "K"}}}
            body = f"data: {body}\n\ndata: {json.dumps(failed).replace('K', spelt)}\n\n"
        head = [
            f"HTTP/1.1 {status} X",
            f"content-type: {kind}",
            f"location: https://x/?key={KEY}",
            f"x-debug: {KEY}",
            "transfer-encoding: chunked",
        ]
        await wire.raw("\r\n".join(head).encode() + b"\r\n\r\n")
        data = body.encode()
        for at in range(0, len(data), cut):
            await wire.part(data[at : at + cut])
        await wire.end()

    return answers


CALLS = [
    ("POST", "/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}),
    ("POST", "/responses", {"model": "m", "input": "x"}),
    (
        "POST",
        "/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
    ),
    ("POST", "/embeddings", {"model": "m", "input": "x"}),
    ("GET", "/files", None),
    ("POST", "/conversations", {}),
]


@pytest.mark.parametrize("spelt", WRITTEN, ids=["plain", "escaped", "mixed"])
@pytest.mark.parametrize("events", [False, True])
async def test_a_providers_key_never_reaches_a_client(data, spelt, events):
    status_of = {}
    up = RawServer(
        lambda seen, wire: quoting(status_of["now"], spelt, events=events, cut=7)(seen, wire)
    )
    async with up, running("", data, config(up.url), key="key-aaaaaaaaaaaaaaaaaaaa") as live:
        for status in STATUSES:
            status_of["now"] = status
            for method, path, body in CALLS:
                for mode in ("off", "full"):
                    sent = {**body, "stream": True} if events and body else body
                    http = await live.http.request(
                        method, live.url + path, json=sent, headers={"x-memory": mode}
                    )
                    told = http.text + str(http.headers)
                    plain = told.encode().decode("unicode_escape", "replace").replace("\\/", "/")
                    assert KEY not in told, (status, path, mode, told)
                    assert KEY not in plain, (status, path, mode, told)
