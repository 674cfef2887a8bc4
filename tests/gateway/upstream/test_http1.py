"""The HTTP/1.1 client on real sockets, with both kinds of loop (see conftest.py), against a server
that does as it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest

from gateway.errors import (
    BadRequest,
    StreamIncomplete,
    Unavailable,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.upstream import dialer, http1
from gateway.upstream.base import (
    Content,
    Origin,
    TransportRequest,
    UpstreamRequest,
    join_body,
    size_of,
)
from gateway.upstream.deadlines import Deadlines, DeadlineTimer, Timeouts
from gateway.upstream.http1 import (
    AT_ONCE,
    STEP_BYTES,
    UNREAD,
    WRITTEN,
    Connection,
    Http1Client,
)
from gateway.upstream.http1_parser import CHUNK_BYTES, ResponseParser
from gateway.upstream.openai import BaseUrl, OpenAIUpstream
from gateway.wire.long_content import encode_json_late
from tests.gateway.upstream.test_http1_parser import CHUNKED, WHOLE
from tests.sockets import LoopbackServer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server(LoopbackServer):
    """Runs `behave(reader, writer, number)` for each connection."""

    def __init__(self, behave, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.behave = behave
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    async def serve(self, reader, writer):
        await self.behave(reader, writer, self.connections)

    async def request(self, reader) -> bytes:
        """The next request, head and body."""
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(
            next(
                (
                    line.split(b":")[1]
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                b"0",
            )
        )
        self.requests.append(head + await reader.readexactly(size))
        return self.requests[-1]


def reset(writer) -> None:
    """Ends a connection without its end: alone, abort() says goodbye where nothing is left
    unread.
    """
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()


async def read_by_now() -> None:
    """What was sent has arrived: after a reset it would be lost."""
    for _ in range(5):
        await asyncio.sleep(0.0005)
        await asyncio.sleep(0)


def answering(*parts: bytes | float, then: str = "go on"):
    """Answers each request with these bytes; a number is a pause in seconds.

    then: go on, close, reset, stay (and answer no more).
    """

    async def serve(reader, writer, number):
        while True:
            await server[0].request(reader)
            for part in parts:
                if isinstance(part, bytes):
                    writer.write(part)
                    await writer.drain()
                else:
                    await asyncio.sleep(part)
            if then == "stay":
                await reader.read()
            if then == "reset":
                await read_by_now()
                reset(writer)
            if then != "go on":
                return

    server: list[Server] = []
    server.append(Server(serve))
    return server[0]


@pytest.fixture
async def pool():
    it = Http1Client(max_connections=4)
    yield it
    await it.aclose()
    assert it.places.free_count == 4
    assert not it.connections


def asked(
    server: Server,
    body: Content | None = b"{}",
    method: str = "POST",
    target: bytes = b"/v1/x",
    headers=(),
) -> TransportRequest:
    address = BaseUrl(server.url)
    length = [] if body is None else [(b"content-length", b"%d" % size_of(body))]
    return TransportRequest(address.origin, address.host, method, target, [*headers, *length], body)


def clock(**limits) -> Deadlines:
    return Deadlines(
        DeadlineTimer(), Timeouts(**{"first_token": 5, "idle": 5, "total": 20, **limits})
    )


async def called(pool, server, **limits):
    return await pool.call(asked(server), clock(**limits))


async def got(pool, server, **limits) -> bytes:
    return await (await called(pool, server, **limits)).read()


async def eventually(holds, seconds=3.0):
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", sorted(WHOLE))
async def test_an_answer_cut_in_two_anywhere_comes_whole(pool, name):
    data = WHOLE[name]
    cut = [0]

    async def serve(reader, writer, number):
        while True:
            await server.request(reader)
            writer.write(data[: cut[0]])
            await asyncio.sleep(0.001)
            writer.write(data[cut[0] :])
            if name == "closed":
                return

    async with Server(serve) as server:
        for at in range(1, len(data)):
            cut[0] = at
            assert await got(pool, server) == b"hello world"
        assert server.connections == (len(data) - 1 if name == "closed" else 1)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("name", sorted(WHOLE))
async def test_a_break_anywhere_is_an_error_and_what_came_is_given(pool, name, how):
    data = WHOLE[name]
    begins = data.index(b"\r\n\r\n") + 4 if name == "chunked" else data.rindex(b"hello world")
    for cut in range(len(data)):
        async with answering(data[:cut], then=how) as server:
            parts = []
            try:
                incoming = await called(pool, server)
                assert cut >= begins
                async for part in incoming.body:
                    parts.append(part)
                assert (name, how) == ("closed", "close")
            except UpstreamUnreachable as e:
                assert cut < begins
                # which error it is depends on the cut
                assert "127.0.0.1" not in str(e)  # noqa: PT017
            except StreamIncomplete:
                assert cut >= begins
                assert (name, how) != ("closed", "close")
            assert b"hello world".startswith(b"".join(parts))
            if name != "chunked" and cut >= begins:
                assert b"".join(parts) == b"hello world"[: cut - begins]
            # Nothing is sent twice.
            assert len(server.requests) == 1
        assert pool.places.free_count == 4


@pytest.mark.parametrize(
    "data",
    [
        b"NOT HTTP AT ALL\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/3.0 200 OK\r\n\r\n",
        b"HTTP/1.1 ABC OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"v" * 200_000,
    ],
)
async def test_garbage_is_unreachable(pool, data):
    async with answering(data, then="stay") as server:
        with pytest.raises(UpstreamUnreachable):
            await got(pool, server)
        await eventually(lambda: not server.open)


@pytest.mark.parametrize(
    "data",
    [b"zz\r\n", b"5\r\nhelloXX", b"5\r\nhello\r\n-1\r\n", b"5\r\nhello\r\n" + b"F" * 40 + b"\r\n"],
)
async def test_garbage_in_a_body_breaks_it_off(pool, data):
    async with answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0.01, data, then="stay"
    ) as server:
        incoming = await called(pool, server)
        with pytest.raises(StreamIncomplete):
            await incoming.read()
        await eventually(lambda: not server.open)


async def test_a_refused_connection_and_an_unknown_host_are_unreachable(pool):
    async with answering(OK) as server:
        pass
    unknown = "'s host name could not be resolved"
    bases = {
        server.url: " refused the connection",
        "http://no.such.host.invalid": unknown,
        "http://a..b": unknown,
    }
    for base, what in bases.items():
        up = OpenAIUpstream(base, pool)
        with pytest.raises(UpstreamUnreachable) as e:
            await up.send(UpstreamRequest("/x", b"{}"))
        assert e.value.message.startswith(f"The upstream{what}. Check that it runs")
        assert "invalid" not in e.value.message
        assert "127.0.0.1" not in e.value.message


async def test_a_server_that_closes_at_once_is_unreachable(pool):
    async def serve(reader, writer, number):
        reset(writer) if number % 2 else writer.close()

    async with Server(serve) as server:
        for _ in range(30):
            with pytest.raises(UpstreamUnreachable):
                await got(pool, server)
    assert pool.places.free_count == 4


async def test_the_request_leaves_byte_for_byte(pool):
    async with answering(OK) as server:
        request = asked(
            server,
            b"body",
            "PATCH",
            b"/v1/a%2Fb/../c?x=%20&y=[1]",
            [(b"X-Two", b" v "), (b"x-one", b"\xff"), (b"X-Two", b"")],
        )
        await (await pool.call(request, clock())).read()
        assert server.requests == [
            b"PATCH /v1/a%%2Fb/../c?x=%%20&y=[1] HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Two:  v \r\n"
            b"x-one: \xff\r\nX-Two: \r\ncontent-length: 4\r\n\r\nbody" % server.port
        ]


@pytest.mark.parametrize(
    "header",
    [(b"x", b"a\r\nb: c"), (b"x", b"a\nb"), (b"x", b"a\r"), (b"x\r\n", b"a"), (b"x", b"a\0")],
)
async def test_no_header_can_begin_another_line(pool, header):
    async with answering(OK) as server:
        with pytest.raises(UpstreamUnreachable, match="line break"):
            await pool.call(asked(server, headers=[header]), clock())
        assert server.connections == 0


@pytest.mark.parametrize("path", ["/a b", "/a\r\nx: y", "/é", "/" + "a" * 70_000])
async def test_a_path_that_is_no_target_is_refused(pool, path):
    with pytest.raises(BadRequest):
        await OpenAIUpstream("http://127.0.0.1:9", pool).send(UpstreamRequest(path, b"{}"))


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("POST", None, b"0"),
        ("DELETE", None, b"0"),
        ("GET", None, None),
        ("HEAD", None, None),
        ("OPTIONS", None, None),
        ("GET", b"ab", b"2"),
    ],
)
async def test_a_request_says_what_body_it_has(pool, method, body, length):
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as server:
        await (
            await OpenAIUpstream(server.url, pool).send(UpstreamRequest("/x", body, method=method))
        ).read()
        assert (
            b"content-length: %b\r\n" % length if length else b"content-length"
        ) in server.requests[0] or length is None
        assert (length is None) == (b"content-length" not in server.requests[0])


@pytest.mark.parametrize(
    ("base", "origin", "host", "path"),
    [
        ("http://h/v1", (False, "h", 80), b"h", "/v1"),
        ("https://h", (True, "h", 443), b"h", ""),
        ("https://H:8443/a/b", (True, "h", 8443), b"h:8443", "/a/b"),
        ("http://[::1]:8000/v1", (False, "::1", 8000), b"[::1]:8000", "/v1"),
        ("http://[::1]", (False, "::1", 80), b"[::1]", ""),
        (
            "http://bücher.example",
            (False, "xn--bcher-kva.example", 80),
            b"xn--bcher-kva.example",
            "",
        ),
        ("http://h:443", (False, "h", 443), b"h:443", ""),
    ],
)
def test_addresses(base, origin, host, path):
    address = BaseUrl(base)
    assert (address.origin, address.host, address.path, address.credentials) == (
        origin,
        host,
        path,
        None,
    )


@pytest.mark.parametrize(
    "base",
    [
        "",
        "x",
        "localhost:8000/v1",
        "ftp://h/v1",
        "http://",
        "http://h:99999",
        "http://h:port",
        "http://[::1",
    ],
)
async def test_what_is_no_address_is_told_when_it_is_called(pool, base):
    with pytest.raises(UpstreamUnreachable, match="base_url"):
        await OpenAIUpstream(base, pool).send(UpstreamRequest("/x", b"{}"))


async def test_credentials_of_an_address_go_where_no_others_do(pool):
    async with answering(OK) as server:
        up = OpenAIUpstream(server.url.replace("http://", "http://me:p%40ss@"), pool)
        for headers in ([], [(b"authorization", b"Bearer k")]):
            await (await up.send(UpstreamRequest("/x", b"{}", headers))).read()
        assert b"authorization: Basic bWU6cEBzcw==\r\n" in server.requests[0]
        assert b"Bearer k" in server.requests[1]
        assert b"Basic" not in server.requests[1]


@pytest.mark.parametrize("name", sorted(WHOLE))
async def test_a_connection_is_used_again_unless_it_ends_with_its_answer(pool, name):
    async with answering(WHOLE[name], then="close" if name == "closed" else "go on") as server:
        for _ in range(3):
            assert await got(pool, server) == b"hello world"
        assert server.connections == (3 if name == "closed" else 1)


@pytest.mark.parametrize(
    "data",
    [
        OK.replace(b"1.1", b"1.0"),
        OK.replace(b"Content", b"Connection: close\r\nContent"),
        OK + b"more",
        OK + OK,
    ],
)
async def test_a_connection_that_cannot_go_on_is_not_used_again(pool, data):
    async with answering(data) as server:
        for n in range(1, 4):
            assert await got(pool, server) == b"ok"
            assert server.connections == n
        await eventually(lambda: not server.open)


async def test_the_connection_used_last_is_used_next_and_the_others_end_in_time(pool, monkeypatch):
    monkeypatch.setattr(http1, "IDLE", 0.3)
    async with answering(0.05, OK) as server:
        assert await asyncio.gather(*(got(pool, server) for _ in range(4))) == [b"ok"] * 4
        assert server.connections == 4
        for _ in range(10):
            await got(pool, server)
        assert server.connections == 4
        assert server.open == 1
        await eventually(lambda: not server.open)
        assert await got(pool, server) == b"ok"


async def test_a_kept_connection_that_the_server_closes_is_not_used_again(pool):
    async with answering(OK, 0.01, then="close") as server:
        for n in range(1, 4):
            assert await got(pool, server) == b"ok"
            await eventually(lambda: not pool.connections)
            assert server.connections == n


async def test_bytes_that_nobody_asked_for_end_a_kept_connection(pool):
    async with answering(OK, 0.02, b"HTTP/1.1 408 Request Timeout\r\n\r\n", then="stay") as server:
        assert await got(pool, server) == b"ok"
        await eventually(lambda: not pool.connections)
        assert await got(pool, server) == b"ok"


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_kept_connection_that_dies_before_its_answer_is_replaced_at_once_and_once(
    pool, how
):
    async def serve(reader, writer, number):
        for _ in range(3 - number):
            await server.request(reader)
            writer.write(OK)
        await server.request(reader)
        reset(writer) if how == "reset" else writer.close()

    async with Server(serve) as server:
        for n in (1, 2):
            assert await got(pool, server) == b"ok"
            assert (len(server.requests), server.connections) == (n, 1)
        # The first died, the second answers.
        assert await got(pool, server) == b"ok"
        assert (len(server.requests), server.connections) == (4, 2)
        with pytest.raises(UpstreamUnreachable):
            # The second died, and so does the third, which was new.
            await got(pool, server)
        assert (len(server.requests), server.connections) == (6, 3)
        with pytest.raises(UpstreamUnreachable):
            await got(pool, server)
        assert (len(server.requests), server.connections) == (7, 4)


async def test_an_answer_that_had_begun_is_not_asked_for_again(pool):
    async def serve(reader, writer, number):
        await server.request(reader)
        writer.write(OK)
        await server.request(reader)
        writer.write(b"HTTP/1.1 2")
        await read_by_now()

    async with Server(serve) as server:
        assert await got(pool, server) == b"ok"
        with pytest.raises(UpstreamUnreachable):
            await got(pool, server)
        assert (len(server.requests), server.connections) == (2, 1)


async def test_nagles_delay_is_off(pool):
    async with answering(OK) as server:
        await got(pool, server)
        sock = next(iter(pool.connections))._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_large_request_waits_for_a_slow_server(pool):
    body = random.Random(2).randbytes(20_000_000)
    go = asyncio.Event()

    async def serve(reader, writer, number):
        await go.wait()
        await server.request(reader)
        writer.write(OK)
        await reader.read()

    async with Server(serve) as server:
        task = asyncio.create_task(pool.call(asked(server, body), clock()))
        await asyncio.sleep(0.2)
        connection = next(iter(pool.connections))
        assert connection._transport.get_write_buffer_size() <= 4 * CHUNK_BYTES
        assert connection._unwritten
        go.set()
        assert await (await task).read() == b"ok"
        assert server.requests[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (0,),
        (5, 0, 7),
        (AT_ONCE - 1, 2),
        (3, WRITTEN - 1, WRITTEN, WRITTEN + 1, 2),
        (5_000_000, 9),
    ],
)
async def test_a_body_in_parts_leaves_as_one_and_is_left_as_it_is(pool, sizes):
    whole = random.Random(3).randbytes(sum(sizes))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [
        memoryview(whole)[end - size : end] if i % 2 else whole[end - size : end]
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]

    async def serve(reader, writer, number):
        for _ in range(2):
            await server.request(reader)
            writer.write(OK)

    async with Server(serve) as server:
        for _ in range(2):
            assert await (await pool.call(asked(server, parts), clock())).read() == b"ok"
        assert server.connections == 1
        assert all(request.endswith(b"\r\n\r\n" + whole) for request in server.requests)
    assert join_body(parts) == whole


class GreedyTransport:
    """Takes all that is written at once. written: bytes since that was last set to 0."""

    written = 0

    def write(self, data):
        self.written += len(data)

    def is_closing(self):
        return False


class SteppedLoop:
    """An event loop whose timers a test lets run."""

    def __init__(self):
        self.timers = []

    def call_later(self, seconds, callback):
        assert seconds > 0
        self.timers.append(callback)
        return callback


@pytest.mark.parametrize("late", [False, True], ids=["bytes", "encoded as they leave"])
async def test_a_long_request_takes_a_bounded_step_in_each_turn_of_the_loop(pool, late):
    text = "a" * (20 * STEP_BYTES)
    body = encode_json_late({"content": text}) if late else text.encode()
    pool.loop, steps = SteppedLoop(), []
    connection, transport = Connection(pool, Origin(False, "localhost", 1)), GreedyTransport()
    connection.connection_made(transport)
    pool.loop.timers.append(lambda: connection.begin(b"HEAD", body, False))
    while pool.loop.timers:
        transport.written = 0
        (step,) = pool.loop.timers
        pool.loop.timers.clear()
        step()
        steps.append(transport.written)
    assert sum(steps) == len(b"HEAD") + size_of(body)
    assert max(steps) <= STEP_BYTES + WRITTEN
    del pool.loop


@pytest.mark.parametrize("then", ["takes the rest", "closes"])
async def test_an_answer_may_come_before_the_request_has_left(pool, then):
    body = b"x" * 20_000_000

    async def serve(reader, writer, number):
        head = await reader.readuntil(b"\r\n\r\n")
        if b"20000000" not in head:
            writer.write(OK)
            return
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"long")
        if then == "takes the rest":
            await reader.readexactly(len(body))
        await asyncio.sleep(0.3)

    async with Server(serve) as server:
        incoming = await pool.call(asked(server, body), clock())
        assert (incoming.status, await incoming.read()) == (413, b"long")
        assert await got(pool, server) == b"ok"
        # What had not left whole is not used again.
        assert server.connections == 2


async def test_an_end_counts_while_the_request_has_not_left(pool):
    async def serve(reader, writer, number):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\n\r\nlong")
        writer.write_eof()
        await asyncio.sleep(30)

    async with Server(serve) as server:
        incoming = await pool.call(asked(server, b"x" * 20_000_000), clock(idle=1))
        assert (incoming.status, await incoming.read()) == (413, b"long")


async def test_a_server_that_is_faster_than_its_reader_waits(pool):
    body = random.Random(3).randbytes(1 << 20) * 48
    sent = [0]

    async def serve(reader, writer, number):
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), CHUNK_BYTES):
            writer.write(body[at : at + CHUNK_BYTES])
            await writer.drain()
            sent[0] = at
        await reader.read()

    async with Server(serve) as server:
        incoming = await called(pool, server)
        response = incoming.body._response
        await asyncio.sleep(0.3)
        stood = sent[0]
        await asyncio.sleep(0.2)
        assert sent[0] == stood < len(body) // 2
        most, parts = 0, []
        async for part in incoming.body:
            parts.append(part)
            most = max(most, response.unread)
        assert b"".join(parts) == body
        # And what one read of the loop brings.
        assert most <= UNREAD + (1 << 18) + CHUNK_BYTES
        assert max(map(len, parts)) <= CHUNK_BYTES
        assert [c.paused for c in pool.connections] == [False]


async def test_no_more_connections_than_places_and_who_waits_longest_is_next(pool):
    most = [0]

    async def serve(reader, writer, number):
        while True:
            await server.request(reader)
            most[0] = max(most[0], server.open)
            await asyncio.sleep(0.01)
            writer.write(OK)

    async with Server(serve) as server:
        ended: list[int] = []

        async def one(n):
            await got(pool, server)
            ended.append(n)

        await asyncio.gather(*(one(n) for n in range(40)))
        assert most[0] == 4
        assert [n // 4 for n in ended] == [n // 4 for n in range(40)]


async def test_who_finds_no_place_in_time_is_told_and_the_place_goes_to_others(pool):
    async with answering(0.3, OK) as server:
        first = [asyncio.create_task(got(pool, server)) for _ in range(4)]
        await asyncio.sleep(0.05)
        late = [asyncio.create_task(got(pool, server, connect=0.1)) for _ in range(3)]
        left = asyncio.create_task(got(pool, server))
        patient = asyncio.create_task(got(pool, server))
        await asyncio.sleep(0.05)
        left.cancel()
        for task in late:
            with pytest.raises(Unavailable) as e:
                await task
            assert (b"retry-after", b"1") in e.value.headers
        assert await patient == b"ok"
        await asyncio.gather(*first)


async def test_a_silent_host_is_a_connect_timeout(pool, monkeypatch):
    async def never(address):
        await asyncio.sleep(30)

    monkeypatch.setattr(dialer, "_connect", never)
    with pytest.raises(UpstreamTimeout) as e:
        await OpenAIUpstream("http://127.0.0.1:9", pool, Timeouts(connect=0.1)).send(
            UpstreamRequest("/x", b"{}")
        )
    assert e.value.code == "connect_timeout"
    assert pool.places.free_count == 4


async def test_the_next_address_is_tried_when_one_fails_and_soon_when_one_is_silent(
    pool, monkeypatch
):
    real, tried, ended = dialer._connect, [], []

    async def connected(address):
        tried.append(address[4][0])
        if address[4][0] == "127.0.0.2":
            raise OSError("no route")
        if address[4][0] == "127.0.0.3":
            try:
                await asyncio.sleep(30)
            finally:
                ended.append(address)
        return await real(address)

    async def addresses(host, port):
        return [(2, 1, 6, "", (f"127.0.0.{n}", port)) for n in (2, 3, 1)]

    monkeypatch.setattr(dialer, "_connect", connected)
    monkeypatch.setattr(dialer, "_addresses", addresses)
    async with answering(OK) as server:
        began = time.monotonic()
        assert await got(pool, server) == b"ok"
        assert 0.2 < time.monotonic() - began < 20
        assert tried == ["127.0.0.2", "127.0.0.3", "127.0.0.1"]
        await eventually(lambda: ended)


async def test_families_take_turns(monkeypatch):
    class Loop:
        async def getaddrinfo(self, host, port, type):
            return [(10, 1, 6, "", ("a", 1)), (10, 1, 6, "", ("b", 1)), (2, 1, 6, "", ("c", 1))]

    monkeypatch.setattr(dialer.asyncio, "get_running_loop", Loop)
    assert [a[4][0] for a in await dialer._addresses("name.example", 1)] == ["a", "c", "b"]


@pytest.mark.parametrize("state", ["never read", "half read", "read out", "twice"])
async def test_closing_an_answer_frees_its_place_once(pool, state):
    data = CHUNKED[:-20] if state != "read out" else CHUNKED
    async with answering(data, then="stay") as server:
        incoming = await called(pool, server)
        if state != "never read":
            assert await anext(incoming.body) == b"hello world"
        if state == "read out":
            assert await incoming.read() == b""
        await incoming.close()
        if state == "twice":
            await incoming.close()
        assert pool.places.free_count == 4
        await eventually(lambda: server.open == (state == "read out"))
        if state != "read out":
            with pytest.raises(StreamIncomplete):
                await incoming.read()


async def test_a_pool_that_closes_tells_who_still_reads(pool):
    async with answering(CHUNKED[:-20], then="stay") as server:
        incoming = await called(pool, server)
        reading = asyncio.create_task(incoming.read())
        await asyncio.sleep(0.05)
        await pool.aclose()
        with pytest.raises(StreamIncomplete):
            await reading
        await eventually(lambda: not server.open)
        assert not pool.connections


async def test_a_thousand_mixed_cancels_leave_no_connection_and_no_place():
    rng = random.Random(4)
    pool = Http1Client(max_connections=30)

    async def serve(reader, writer, number):
        while True:
            await server.request(reader)
            fate = rng.random()
            await asyncio.sleep(rng.random() * 0.01)
            if fate < 0.1:
                return
            if fate < 0.2:
                reset(writer)
                return
            for at in range(0, len(CHUNKED), 9):
                writer.write(CHUNKED[at : at + 9])
                await asyncio.sleep(0)

    async def one(server):
        body = b"x" * rng.choice([2, 300_000])
        with contextlib.suppress(TimeoutError, UpstreamUnreachable, StreamIncomplete, Unavailable):
            async with asyncio.timeout(rng.choice([0, 0.001, 0.005, 0.01, 0.02, 5])):
                incoming = await pool.call(asked(server, body), clock(connect=30))
                if rng.random() < 0.7:
                    assert b"hello world".startswith(await incoming.read())
                await incoming.close()

    async with Server(serve) as server:
        for _ in range(20):
            await asyncio.gather(*(one(server) for _ in range(50)))
        assert (
            pool.places.free_count,
            pool.places.waiting,
            sum(c._response is not None for c in pool.connections),
        ) == (30, 0, 0)
        await pool.aclose()
        await eventually(lambda: not server.open)
        assert not pool.connections


async def test_what_an_answer_held_is_freed_without_the_collector(pool):
    async with answering(OK) as server:
        await got(pool, server)
        gc.collect()
        gc.disable()
        try:
            before = sum(isinstance(o, (ResponseParser, Deadlines)) for o in gc.get_objects())
            for _ in range(50):
                await got(pool, server)
            assert (
                sum(isinstance(o, (ResponseParser, Deadlines)) for o in gc.get_objects())
                <= before + 1
            )
        finally:
            gc.enable()


async def test_one_timer_serves_all_waits_and_silence_counts_from_the_last_piece(pool):
    armed = [0]

    class Counting(DeadlineTimer):
        def _set(self, when):
            armed[0] += 1
            super()._set(when)

    event = b"5\r\nhello\r\n"
    async with answering(
        CHUNKED[: CHUNKED.index(b"5;")], *[x for _ in range(20) for x in (0.03, event)], then="stay"
    ) as server:
        incoming = await pool.call(asked(server), Deadlines(Counting(), Timeouts(idle=0.3)))
        got, began = [], time.monotonic()
        with pytest.raises(UpstreamTimeout) as e:
            async for part in incoming.body:
                got.append(part)
        assert e.value.code == "stream_idle_timeout"
        assert b"".join(got) == b"hello" * 20
        assert time.monotonic() - began >= 0.8
        assert armed[0] <= 10
        await eventually(lambda: not server.open)


async def test_the_time_between_two_waits_is_nobodys_silence(pool):
    async with answering(CHUNKED[:-20], 0.5, CHUNKED[-20:]) as server:
        incoming = await called(pool, server, idle=0.3)
        assert await anext(incoming.body)
        await asyncio.sleep(0.4)
        assert await incoming.read() == b""


async def test_who_is_cancelled_when_the_time_is_up_has_left():
    limits = clock(first_token=0.05)

    async def wait():
        with limits:
            await asyncio.sleep(5)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    limits.ring()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not limits._alarm.open_waits


async def test_who_is_cancelled_when_the_time_of_a_body_is_up_has_left(pool, caplog):
    async with answering(CHUNKED[:-20], then="stay") as server:
        limits = clock(idle=5)
        incoming = await pool.call(asked(server), limits)
        assert await anext(incoming.body)
        task = asyncio.create_task(anext(incoming.body))
        await asyncio.sleep(0.05)
        limits.ring()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not limits._alarm.open_waits
        await eventually(lambda: not server.open)
    gc.collect()
    # An exception that nobody took would be told of.
    assert not caplog.records


async def test_each_wait_ends_at_its_own_time():
    alarm = DeadlineTimer()
    began = time.monotonic()

    async def wait(seconds):
        with pytest.raises(UpstreamTimeout) as e:
            with Deadlines(alarm, Timeouts(first_token=seconds)):
                await asyncio.sleep(5)
        assert e.value.code == "first_token_timeout"
        return time.monotonic() - began

    for limit, took in zip(
        (0.3, 0.1, 0.2), await asyncio.gather(wait(0.3), wait(0.1), wait(0.2)), strict=True
    ):
        assert limit - 0.01 <= took < limit + 0.09


CERTIFICATE = Path(__file__).parents[2] / "localhost.pem"


def tls_server(*parts) -> Server:
    server = answering(*parts)
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(CERTIFICATE)
    server.tls.set_alpn_protocols(["h2", "http/1.1"])
    return server


async def test_a_trusted_certificate_opens_and_the_names_sent_are_right():
    names = []
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    trust.set_alpn_protocols(["http/1.1"])
    pool = Http1Client(tls=trust)
    body = random.Random(5).randbytes(3_000_000)
    async with tls_server(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body
    ) as server:
        server.tls.sni_callback = lambda sock, name, context: names.append(name)
        up = OpenAIUpstream(server.url.replace("127.0.0.1", "localhost"), pool)
        for _ in range(2):
            assert await (await up.send(UpstreamRequest("/x", body))).read() == body
        assert (names, server.connections) == (["localhost"], 1)
        assert server.requests[0].endswith(body)
        assert (
            next(iter(pool.connections))
            ._transport.get_extra_info("ssl_object")
            .selected_alpn_protocol()
            == "http/1.1"
        )
        await pool.aclose()
        await eventually(lambda: not server.open)


@pytest.mark.parametrize("trust", ["the system's", "another name"])
async def test_a_certificate_that_does_not_verify_is_an_error(trust, monkeypatch):
    pool = Http1Client(
        tls=None if trust == "the system's" else ssl.create_default_context(cafile=str(CERTIFICATE))
    )

    async def addresses(host, port):
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(dialer, "_addresses", addresses)
    async with tls_server(OK) as server:
        up = OpenAIUpstream(
            server.url.replace(
                "127.0.0.1", "localhost" if trust == "the system's" else "other.example"
            ),
            pool,
        )
        with pytest.raises(UpstreamUnreachable, match="its certificate is not trusted here"):
            await up.send(UpstreamRequest("/x", b"{}"))
        assert server.requests == []
        assert pool.places.free_count == 1000
    await pool.aclose()


async def test_a_server_without_tls_is_unreachable_over_it():
    pool = Http1Client()

    async def serve(reader, writer, number):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with Server(serve) as server:
        with pytest.raises(UpstreamUnreachable):
            await OpenAIUpstream(
                server.url.replace("http", "https"), pool, Timeouts(connect=2)
            ).send(UpstreamRequest("/x", b"{}"))
    await pool.aclose()
