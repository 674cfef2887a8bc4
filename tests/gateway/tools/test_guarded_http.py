"""The transport opens only what the guard checked, and reads a bounded answer."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib

import pytest

from gateway.tools.guarded_http import (
    AnswerLimits,
    GuardedHttp,
    GuardedRequest,
    RequestFailed,
)
from gateway.tools.url_guard import UrlGuard, UrlRefused, UrlRules
from tests.gateway.tools.web_servers import CountingListener, reply

LIMITS = AnswerLimits(seconds=5)


def client_of(*hosts: str, resolve=None) -> GuardedHttp:
    return GuardedHttp(UrlGuard(UrlRules(private_hosts=hosts), resolve))


async def test_a_private_host_that_is_named_is_reached():
    async with CountingListener() as server:
        client = client_of(f"127.0.0.1:{server.port}")
        url = f"http://127.0.0.1:{server.port}/a?b=c"
        answer = await client.send(GuardedRequest(url), LIMITS)
    assert (answer.status, answer.body, answer.url) == (200, b"hello", url)
    head = server.heads[0]
    assert head.startswith("GET /a?b=c HTTP/1.1\r\n")
    assert "User-Agent: mnemogate" in head
    assert "ookie" not in head
    assert "uthorization" not in head


async def test_a_changed_answer_of_the_resolver_changes_nothing(monkeypatch):
    """The name is resolved once for a connection, which goes to the address that was checked."""
    async with CountingListener() as server:
        answers = iter([["192.0.2.1"], ["127.0.0.1"], ["127.0.0.1"]])
        opened = []

        async def resolve(name, port):
            return next(answers)

        async def open_streams(address, port, secured):
            opened.append(str(address))
            raise ConnectionRefusedError

        monkeypatch.setattr("gateway.tools.url_guard.is_public", lambda a: str(a) == "192.0.2.1")
        monkeypatch.setattr("gateway.tools.guarded_http._open_streams", open_streams)
        guard = UrlGuard(UrlRules(ports=(server.port,)), resolve)
        url = f"http://rebind.example:{server.port}/"
        with pytest.raises(RequestFailed):
            await GuardedHttp(guard).send(GuardedRequest(url), LIMITS)
        with pytest.raises(UrlRefused):
            await GuardedHttp(guard).send(GuardedRequest(url), LIMITS)
    assert opened == ["192.0.2.1"]
    assert server.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_private_address_is_not_followed(status):
    async with CountingListener() as inner:

        def answer(head: str) -> bytes:
            return reply("", status, Location=f"http://127.0.0.1:{inner.port}/")

        async with CountingListener(answer) as server:
            client = client_of(f"127.0.0.1:{server.port}")
            with pytest.raises(UrlRefused):
                await client.send(GuardedRequest(f"http://127.0.0.1:{server.port}/"), LIMITS)
    assert inner.connections == 0


async def test_redirects_are_bounded_and_drop_headers_for_another_host():
    async with CountingListener() as second:

        def answer(head: str) -> bytes:
            if head.startswith("GET /loop"):
                return reply("", 302, Location="/loop")
            return reply("", 307, Location=f"http://localhost:{second.port}/")

        async with CountingListener(answer) as server:
            client = client_of(f"127.0.0.1:{server.port}", f"localhost:{second.port}")
            url = f"http://127.0.0.1:{server.port}"
            with pytest.raises(RequestFailed, match="more than 5 times"):
                await client.send(GuardedRequest(f"{url}/loop"), LIMITS)
            assert server.connections == 6
            request = GuardedRequest(f"{url}/", headers={"Authorization": "Bearer secret"})
            assert (await client.send(request, LIMITS)).body == b"hello"
            with pytest.raises(UrlRefused, match="another host"):
                await client.send(request, AnswerLimits(seconds=5, same_host=True))
    assert "secret" not in second.heads[0]
    assert second.connections == 1


async def test_a_post_is_sent_whole_and_becomes_a_get_behind_303():
    def answer(head: str) -> bytes:
        if head.startswith("POST /seen"):
            return reply("", 303, Location="/done")
        return reply("ok")

    async with CountingListener(answer) as server:
        client = client_of(f"127.0.0.1:{server.port}")
        request = GuardedRequest(
            f"http://127.0.0.1:{server.port}/seen",
            "POST",
            {"Content-Type": "application/json", "Host": "evil", "Content-Length": "999"},
            b'{"a": 1}',
        )
        await client.send(request, LIMITS)
    assert server.bodies == [b'{"a": 1}', b""]
    assert "evil" not in "".join(server.heads)
    assert server.heads[1].startswith("GET /done")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_packed_bomb_is_cut_at_the_limit(pack):
    body = pack(b"a" * (64 << 20))
    encoding = "gzip" if pack is gzip.compress else "deflate"

    async with CountingListener(lambda head: reply(body, Content_Encoding=encoding)) as server:
        client = client_of(f"127.0.0.1:{server.port}")
        answer = await client.send(
            GuardedRequest(f"http://127.0.0.1:{server.port}/"), AnswerLimits(max_bytes=1 << 20)
        )
    assert answer.is_cut
    assert len(answer.body) == 1 << 20


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 X\r\n" + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
)
async def test_a_broken_answer_is_an_error_in_words(raw):
    async with CountingListener(lambda head: raw) as server:
        client = client_of(f"127.0.0.1:{server.port}")
        with pytest.raises(RequestFailed, match="did not send a whole answer"):
            await client.send(GuardedRequest(f"http://127.0.0.1:{server.port}/"), LIMITS)


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip", b"x"])
async def test_an_answer_packed_in_another_way_is_no_text(encoding):
    raw = b"HTTP/1.1 200 X\r\nContent-Encoding: " + encoding + b"\r\nContent-Length: 3\r\n\r\nabc"
    async with CountingListener(lambda head: raw) as server:
        client = client_of(f"127.0.0.1:{server.port}")
        with pytest.raises(RequestFailed, match="not asked for"):
            await client.send(GuardedRequest(f"http://127.0.0.1:{server.port}/"), LIMITS)


async def test_a_silent_server_a_closed_port_and_a_bad_header_are_errors_in_words():
    async with CountingListener() as server:
        port = server.port
        client = client_of(f"127.0.0.1:{port}")
        bad = GuardedRequest(f"http://127.0.0.1:{port}/", headers={"X": "a\r\nB: c"})
        with pytest.raises(UrlRefused):
            await client.send(bad, LIMITS)
        assert server.connections == 0
    with pytest.raises(RequestFailed, match="cannot be reached"):
        await client.send(GuardedRequest(f"http://127.0.0.1:{port}/"), LIMITS)

    closed = asyncio.Event()

    async def silent(reader, writer):
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        closed.set()

    stuck = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = stuck.sockets[0].getsockname()[1]
    with pytest.raises(RequestFailed, match=r"did not answer within 0\.3 s"):
        await client_of(f"127.0.0.1:{port}").send(
            GuardedRequest(f"http://127.0.0.1:{port}/"), AnswerLimits(seconds=0.3)
        )
    await closed.wait()
    stuck.close()
    await stuck.wait_closed()


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async with CountingListener() as proxy, CountingListener() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        client = client_of(f"127.0.0.1:{server.port}")
        await client.send(GuardedRequest(f"http://127.0.0.1:{server.port}/"), LIMITS)
        with pytest.raises((UrlRefused, RequestFailed)):
            await client.send(GuardedRequest("http://name.invalid/"), LIMITS)
    assert (proxy.connections, server.connections) == (0, 1)
