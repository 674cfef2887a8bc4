"""What a request may be before its key is looked at: bounds of its head, and time to come whole."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib

import pytest

from gateway.server import http_protocol
from tests.conftest import SENTINEL_KEY, running
from tests.models import Model

HOST = b"host: 127.0.0.1\r\n"
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
KEYED = (
    b"authorization: Bearer %s\r\ncontent-type: application/json\r\nx-memory: off\r\n"
    % SENTINEL_KEY.encode()
)
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + KEYED
HEALTH = b"GET /health HTTP/1.1\r\n" + HOST


class Client:
    """A raw connection."""

    def __init__(self, live):
        self.port = int(live.root.rsplit(":", 1)[1])

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=2**24
        )
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self):
        """Status, headers and body of the next answer that tells its length."""
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")[:-2]
            named = dict(line.lower().split(": ", 1) for line in lines)
            return (
                int(first.split()[1]),
                named,
                await self.reader.readexactly(int(named["content-length"])),
            )

    async def closed(self):
        async with asyncio.timeout(20):
            return await self.reader.read()


async def refused(client, status, code):
    found, headers, body = await client.answer()
    assert (found, headers["connection"], headers["content-type"]) == (
        status,
        "close",
        "application/json",
    ), body
    error = json.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == code
    assert await client.closed() == b""
    return error["message"]


@pytest.fixture
async def line(data):
    async with Model("fine") as up, running(up.url, data) as live:
        yield up, live


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"x: " + b"a" * 65_600 + b"\r\n", 431, "headers_too_large"),
        (b"".join(b"x%d: %s\r\n" % (i, b"a" * 1000) for i in range(70)), 431, "headers_too_large"),
        (b"a: b\r\n" * 201, 431, "headers_too_large"),
        (b"cookie: a=b\r\n" * 5000, 431, "headers_too_large"),
    ],
)
async def test_a_head_has_bounds_and_the_refusal_names_them(line, head, status, code):
    _, live = line
    for pieces in (1, 7):
        async with Client(live) as client:
            data = HEALTH + head + b"\r\n"
            step = -(-len(data) // pieces)
            for at in range(0, len(data), step):
                await client.send(data[at : at + step])
                await asyncio.sleep(0.02)
            assert "65536" in (message := await refused(client, status, code)) or "200" in message


async def test_a_url_has_a_bound(line):
    _, live = line
    async with Client(live) as client:
        await client.send(b"GET /health?" + b"a" * 17_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert "16384" in await refused(client, 414, "url_too_long")


async def test_what_has_no_end_is_refused_before_its_end(line):
    _, live = line
    for begun in (b"GET /health HTTP/1.1\r\nx: ", b"GET /"):
        async with Client(live) as client:
            await client.send(begun)
            await asyncio.sleep(0.05)
            sent = 0
            with pytest.raises(ConnectionError):
                while sent < 2**24:
                    await client.send(b"a" * 2**16)
                    sent += 2**16
                    await asyncio.sleep(0.005)
            assert sent < 2**22


async def test_generous_heads_pass(line):
    _, live = line
    async with Client(live) as client:
        head = b"".join(b"x%d: %s\r\n" % (i, b"a" * 300) for i in range(190))
        await client.send(
            b"GET /health?" + b"a" * 16_000 + b" HTTP/1.1\r\n" + HOST + head + b"\r\n"
        )
        assert (await client.answer())[0] == 200


async def test_what_cannot_be_read_is_told_in_our_shape(line):
    _, live = line
    async with Client(live) as client:
        await client.send(b"NONSENSE\r\n\r\n")
        await refused(client, 400, None)


async def test_a_head_comes_whole_in_time_or_the_connection_closes(line, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
    _, live = line
    async with (
        Client(live) as silent,
        Client(live) as half,
        Client(live) as drips,
        Client(live) as blank,
    ):
        await half.send(b"GET /health HT")
        await blank.send(b"\r\n")

        async def dripping():
            for byte in HEALTH + b"x: " + b"a" * 1000:
                drips.writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        task = asyncio.ensure_future(dripping())
        assert await silent.closed() == await blank.closed() == b""
        assert "0.5 s" in await refused(half, 408, "request_timeout")
        # It sends on, so the end may come as a reset.
        with contextlib.suppress(ConnectionError):
            assert b" 408 " in await drips.closed()
        task.cancel()


async def test_a_body_that_stands_still_is_given_up(line, monkeypatch):
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.5)
    up, live = line
    for begun in (b"content-length: 100\r\n\r\n{", b'transfer-encoding: chunked\r\n\r\n5\r\n{"a"'):
        async with Client(live) as client:
            await client.send(POST + begun)
            assert "body" in await refused(client, 408, "request_timeout")
    assert not up.requests
    assert live.gateway.process.busy == 0
    # As long as something comes, it may take its time.
    async with Client(live) as slow:
        await slow.send(POST + b"content-length: %d\r\n\r\n" % len(CHAT))
        for at in range(0, len(CHAT), 8):
            await slow.send(CHAT[at : at + 8])
            await asyncio.sleep(0.1)
        assert (await slow.answer())[0] == 200


async def test_an_answer_under_way_is_never_broken_into(data, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)

    async def late(seen, wire):
        await asyncio.sleep(1)
        return "fine"

    async with Model(late) as up, running(up.url, data) as live:
        for behind in (
            b"GET /health HT",
            b"NONSENSE\r\n\r\n",
            HEALTH + b"a: b\r\n" * 300 + b"\r\n",
        ):
            async with Client(live) as client:
                await client.send(POST + b"content-length: %d\r\n\r\n" % len(CHAT) + CHAT + behind)
                status, _, body = await client.answer()
                assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (
                    200,
                    "fine",
                )
                assert await client.closed() == b""


async def test_connections_are_kept_pipelined_and_idle_as_before(line):
    _, live = line
    chat = POST + b"content-length: %d\r\n\r\n" % len(CHAT) + CHAT
    async with Client(live) as client:
        await client.send(chat + HEALTH + b"\r\n" + chat + HEALTH + b"\r\n")
        assert [(await client.answer())[0] for _ in range(4)] == [200] * 4
        await asyncio.sleep(0.2)
        await client.send(POST + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(CHAT))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(CHAT)
        assert (await client.answer())[0] == 200
        await client.send(HEALTH + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert (await client.answer())[0] == 200


UPGRADE = (
    b"connection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("path", [b"/v1/responses", b"/u/ada/v1/responses"])
async def test_a_websocket_is_refused_with_426_whatever_is_installed(line, path):
    import websockets  # noqa: F401 - uvicorn takes upgrades by itself where it is there

    _, live = line
    async with Client(live) as client:
        await client.send(b"GET %b HTTP/1.1\r\n" % path + HOST + UPGRADE + b"\r\n")
        head, _, body = (await client.closed()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 426 ")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"]["code"] == "websocket_not_supported"


async def test_other_paths_answer_an_upgrade_over_http(line, caplog):
    _, live = line
    async with Client(live) as client:
        await client.send(b"GET /health HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n")
        assert (await client.answer())[0] == 200
        await client.send(HEALTH + b"\r\n")
        assert (await client.answer())[0] == 200
    assert "WebSocket" not in caplog.text


async def test_of_very_many_requests_in_one_piece_the_first_are_answered(line):
    _, live = line
    async with Client(live) as client:
        # It closes on what it did not read.
        with contextlib.suppress(ConnectionError):
            await client.send((HEALTH + b"\r\n") * 20_000)
        answered = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                assert (await client.answer())[0] == 200
                answered += 1
        assert 50 < answered <= http_protocol.WAITING + 1


async def test_a_large_body_comes_whole(line):
    up, live = line
    content = "x" * 2**22
    assert (await live.chat(content, {"x-memory": "off"})).status_code == 200
    assert up.bodies[0]["messages"][0]["content"] == content
    zipped = gzip.compress(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    )
    for parts in ([zipped], [zipped[at : at + 100] for at in range(0, len(zipped), 100)]):
        async with Client(live) as client:
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)
            await client.send(
                POST
                + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
                + chunks
                + b"0\r\n\r\n"
            )
            assert (await client.answer())[0] == 200
        assert up.bodies[-1]["messages"][0]["content"] == content


async def test_a_gzip_body_has_few_members_and_counts_as_it_came_too(data):
    async with Model("fine") as up, running(up.url, data, {"server.max_body_mib": 1}) as live:
        head = {"content-encoding": "gzip", "x-memory": "off", "content-type": "application/json"}
        url = f"{live.url}/chat/completions"
        several = b"".join(gzip.compress(CHAT[at : at + 10]) for at in range(0, len(CHAT), 10))
        assert (await live.http.post(url, content=several, headers=head)).status_code == 200
        many = gzip.compress(b"") * 17 + gzip.compress(CHAT)
        told = await live.http.post(url, content=many, headers=head)
        assert (told.status_code, "16 members" in told.json()["error"]["message"]) == (400, True)
        empty = zlib.compressobj(wbits=31)
        blocks = empty.compress(CHAT) + b"".join(empty.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
        told = await live.http.post(
            url, content=blocks + b"\x00\x00\x00\xff\xff" * 2**18, headers=head
        )
        assert told.status_code == 413, told.text
        assert (
            await live.http.post(url, content=gzip.compress(b" " * 2**24), headers=head)
        ).status_code == 413
        assert len(up.requests) == 1


def chunked(body):
    return POST + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body)


async def test_a_trailer_is_no_header(data):
    """Law: what stands behind a body names nobody and nothing."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    head = POST.replace(b"x-memory: off\r\n", b"x-memory: full\r\n")
    sent = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
    async with Model("Yes.") as up, running(up.url, data) as live, Client(live) as client:
        await client.send(sent + b"X-Memory-User: mallory\r\nX-Memory: off\r\n\r\n")
        status, headers, _ = await client.answer()
        assert (status, headers["x-memory-status"]) == (200, "ok")
        found = await live.gateway.memory.db.read(names_of_users)
        assert "mallory" not in found


def names_of_users(conn):
    from sqlalchemy import select

    from memory.stores.sql.engine import schema

    return [row.user for row in conn.execute(select(schema.scopes.c.user))]


async def test_a_key_in_a_trailer_opens_nothing(data):
    config = {"server.single_user": False}
    async with (
        Model("fine") as up,
        running(up.url, data, config) as live,
        Client(live) as client,
    ):
        await client.send(
            POST.replace(KEYED, b"content-type: application/json\r\nx-memory: off\r\n")
            + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(CHAT), CHAT)
            + b"Authorization: Bearer %b\r\n\r\n" % SENTINEL_KEY.encode()
        )
        status, _, _ = await client.answer()
        assert status == 401


@pytest.mark.parametrize(
    "beside",
    [
        b"0\r\n" + b"X-T: t\r\n" * 2000 + b"\r\n",
        b"0\r\n" + b"X-T: " + b"t" * 10_000 + b"\r\n\r\n",
        b"0\r\n" + b"X-T: " + b"t" * (1 << 20) + b"\r\n\r\n",
        b"1;x=" + b"y" * (1 << 20) + b"\r\n \r\n0\r\n\r\n",
        (b"1;x=" + b"y" * 1000 + b"\r\n \r\n") * 1000 + b"0\r\n\r\n",
    ],
)
async def test_trailers_and_extensions_of_chunks_have_a_bound(line, beside):
    _, live = line
    async with Client(live) as client:
        await client.send(chunked(CHAT))
        # So that it comes in a piece of its own.
        await asyncio.sleep(0.05)
        with contextlib.suppress(OSError):
            await client.send(beside)
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (431, "close")
        assert b"8192 bytes of trailers" in body
        # What was sent after it is not read.
        with contextlib.suppress(ConnectionResetError):
            await client.closed()


async def test_a_body_in_very_small_chunks_comes_whole(line):
    _, live = line
    async with Client(live) as client:
        await client.send(POST + b"transfer-encoding: chunked\r\n\r\n")
        body = CHAT + b" " * 50_000
        for at in range(0, len(body), 500):
            part = body[at : at + 500]
            await client.send(b"".join(b"1\r\n%c\r\n" % byte for byte in part))
        await client.send(b"0\r\n\r\n")
        status, _, _ = await client.answer()
        assert status == 200
