"""The upstream port on real sockets: the error table, the clocks, and a caller that leaves in each
of three phases.
"""

import asyncio
import os

import httpx
import pytest
import respx

from gateway.errors import StreamIncomplete, Unavailable, UpstreamTimeout, UpstreamUnreachable
from gateway.upstream.base import UpstreamRequest
from gateway.upstream.deadlines import Timeouts
from gateway.upstream.http1 import Http1Client
from gateway.upstream.httpx_transport import HttpxTransport
from gateway.upstream.openai import OpenAIUpstream
from gateway.upstream.scripted import ScriptedUpstream, completion, refusal, stream
from tests.sockets import RawServer

CALL = UpstreamRequest(
    "/chat/completions", b'{"model":"m"}', [(b"content-type", b"application/json")], stream=True
)


@pytest.fixture
async def pool():
    it = Http1Client()
    yield it
    await it.aclose()


def upstream(server, pool, **timeouts):
    return OpenAIUpstream(server.url, pool, Timeouts(**timeouts))


async def ok(seen, transport):
    await transport.json({"ok": True})


async def test_the_body_and_headers_arrive_and_nothing_is_added(pool):
    async with RawServer(ok) as server:
        answer = await upstream(server, pool).send(CALL)
        assert (answer.status, await answer.read()) == (200, b'{"ok": true}')
        seen = server.requests[0]
        assert seen.body == CALL.body
        assert sorted(k.lower() for k, _ in seen.headers) == [
            "content-length",
            "content-type",
            "host",
        ]


async def test_a_refused_connection_is_unreachable(pool):
    with pytest.raises(UpstreamUnreachable):
        await OpenAIUpstream("http://127.0.0.1:9/v1", pool).send(CALL)


async def test_a_cut_body_is_incomplete(pool):
    async def behave(seen, transport):
        await transport.start_stream()
        await transport.event({"a": 1})
        transport.reset()

    async with RawServer(behave) as server:
        answer = await upstream(server, pool).send(CALL)
        with pytest.raises(StreamIncomplete):
            await answer.read()


@pytest.mark.parametrize(
    ("stall", "limits", "code"),
    [
        ("status", {"first_token": 0.2}, "first_token_timeout"),
        ("first byte", {"first_token": 0.2}, "first_token_timeout"),
        ("mid-stream", {"idle": 0.2}, "stream_idle_timeout"),
        ("mid-stream", {"total": 0.3}, "total_timeout"),
    ],
)
async def test_each_clock_names_itself_and_closes_the_upstream(pool, stall, limits, code):
    async def behave(seen, transport):
        if stall != "status":
            await transport.start_stream()
        if stall == "mid-stream":
            await transport.event({"a": 1})
        await asyncio.sleep(30)

    async with RawServer(behave) as server:
        with pytest.raises(UpstreamTimeout) as e:
            answer = await upstream(server, pool, **limits).send(CALL)
            await answer.read()
        assert e.value.code == code
        await server.requests[0].leaves()


@pytest.mark.parametrize("phase", ["before headers", "before the body", "mid-stream"])
async def test_a_cancelled_call_closes_the_upstream_within_a_second(pool, phase):
    async def behave(seen, transport):
        if phase != "before headers":
            await transport.start_stream()
        if phase == "mid-stream":
            await transport.event({"a": 1})
        await asyncio.sleep(30)

    async def call(up):
        await (await up.send(CALL)).read()

    async with RawServer(behave) as server:
        task = asyncio.create_task(call(upstream(server, pool)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.requests[0].leaves()


async def test_a_full_pool_waits_its_budget_and_says_so():
    async def slow(seen, transport):
        await asyncio.sleep(30)

    pool = Http1Client(max_connections=1)
    async with RawServer(slow) as server:
        up = upstream(server, pool, connect=0.2)
        first = asyncio.create_task(up.send(CALL))
        await asyncio.sleep(0.1)
        with pytest.raises(Unavailable) as e:
            await up.send(CALL)
        assert (b"retry-after", b"1") in e.value.headers
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    await pool.aclose()


async def test_closing_an_unread_answer_closes_the_connection(pool):
    async def behave(seen, transport):
        await transport.start_stream()
        await asyncio.sleep(30)

    async with RawServer(behave) as server:
        answer = await upstream(server, pool).send(CALL)
        await answer.close()
        await server.requests[0].leaves()


async def test_cookies_are_not_kept_and_redirects_not_followed(pool):
    async def behave(seen, transport):
        await transport.answer(
            302, b"{}", "set-cookie: a=b", "location: http://127.0.0.1:9/elsewhere"
        )

    async with RawServer(behave) as server:
        up = OpenAIUpstream(server.url.replace("127.0.0.1", "localhost"), pool)
        for _ in range(2):
            answer = await up.send(CALL)
            assert answer.status == 302
            await answer.close()
        assert [s.header("cookie") for s in server.requests] == [None, None]


async def test_a_thousand_aborts_leak_neither_sockets_nor_places(pool):
    async def behave(seen, transport):
        await transport.start_stream()
        for _ in range(50):
            await transport.event({"a": 1})
            await asyncio.sleep(0.01)

    async def abort(up, i):
        async with asyncio.timeout(None) as limit:
            limit.reschedule(asyncio.get_running_loop().time() + (0.0, 0.003, 0.02)[i % 3])
            await (await up.send(CALL)).read()

    pool = Http1Client(max_connections=50)
    async with RawServer(behave) as server:
        up = upstream(server, pool, connect=2)
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        for start in range(0, 1000, 50):
            await asyncio.gather(*(abort(up, start + i) for i in range(50)), return_exceptions=True)
        server.behave = ok
        answers = await asyncio.gather(*(up.send(CALL) for _ in range(50)))
        assert [a.status for a in answers] == [200] * 50
        await asyncio.gather(*(a.read() for a in answers))
        await pool.aclose()
        async with asyncio.timeout(3):
            while server.open or (before and len(os.listdir("/proc/self/fd")) > before + 5):
                await asyncio.sleep(0.02)


async def test_an_httpx_transport_does_for_a_wire():
    router = respx.Router()
    route = router.post("http://up.test/v1/chat/completions").respond(json={"ok": 1})
    up = OpenAIUpstream(
        "http://up.test/v1", HttpxTransport(lambda: httpx.MockTransport(router.async_handler))
    )
    answer = await up.send(CALL)
    assert await answer.read() == b'{"ok":1}'
    assert route.calls.last.request.content == CALL.body


@pytest.mark.parametrize(
    ("failure", "error", "code"),
    [
        (httpx.PoolTimeout, Unavailable, "unavailable"),
        (httpx.ConnectTimeout, UpstreamTimeout, "connect_timeout"),
        (httpx.ConnectError, UpstreamUnreachable, "upstream_unreachable"),
        (httpx.RemoteProtocolError, UpstreamUnreachable, "upstream_unreachable"),
    ],
)
async def test_an_httpx_transports_failures_are_told_apart(failure, error, code):
    async def fail(request):
        raise failure("secret.internal:8000")

    with pytest.raises(error) as e:
        await OpenAIUpstream(
            "http://up.test/v1", HttpxTransport(lambda: httpx.MockTransport(fail))
        ).send(CALL)
    assert e.value.code == code
    assert "secret" not in e.value.message


async def test_an_httpx_transports_answer_that_breaks_off_is_incomplete_and_a_silent_one_is_late():
    class Body(httpx.AsyncByteStream):
        def __init__(self, breaks):
            self.breaks, self.closed = breaks, False

        async def __aiter__(self):
            yield b"one"
            if self.breaks:
                raise httpx.ReadError("secret.internal:8000")
            await asyncio.sleep(30)

        async def aclose(self):
            self.closed = True

    for breaks, error in ((True, StreamIncomplete), (False, UpstreamTimeout)):
        body = Body(breaks)
        transport = HttpxTransport(
            lambda body=body: httpx.MockTransport(lambda request: httpx.Response(200, stream=body))
        )
        answer = await OpenAIUpstream("http://up.test/v1", transport, Timeouts(idle=0.1)).send(CALL)
        assert await anext(answer.body) == b"one"
        with pytest.raises(error) as e:
            await anext(answer.body)
        assert "secret" not in e.value.message
        await asyncio.sleep(0.01)
        assert body.closed
        await transport.aclose()


async def test_the_scripted_double_plays_its_answers_and_keeps_the_requests():
    double = ScriptedUpstream(
        [
            completion({"content": "hi"}),
            stream([{"a": 1}, b"data: [DONE]\n\n"]),
            refusal(429, {"error": {"message": "no"}}),
            UpstreamUnreachable("down"),
        ]
    )
    answers = [await double.send(CALL) for _ in range(3)]
    assert [a.status for a in answers] == [200, 200, 429]
    assert b'"content": "hi"' in await answers[0].read()
    assert await answers[1].read() == b'data: {"a": 1}\n\ndata: [DONE]\n\n'
    with pytest.raises(UpstreamUnreachable):
        await double.send(CALL)
    assert double.bodies == [{"model": "m"}] * 4
