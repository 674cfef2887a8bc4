"""One contract over every way to a server.

The built-in HTTP/1.1 client, and httpx straight, through
proxies and over TLS.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import httpx
import pytest

from gateway.config.settings import ConfigError, ProviderSettings
from gateway.errors import StreamIncomplete, Unavailable, UpstreamTimeout, UpstreamUnreachable
from gateway.upstream.base import UpstreamRequest
from gateway.upstream.deadlines import Timeouts
from gateway.upstream.factory import ConnectionOptions, connection_options, open_provider_transport
from gateway.upstream.http1 import Http1Client
from gateway.upstream.openai import OpenAIUpstream
from tests.proxies import Proxy, Socks
from tests.sockets import LoopbackServer, RawServer

PEM = str(Path(__file__).parent.parent / "localhost.pem")
BODY = b'{"model":"m"}'
WAYS = (
    "own",
    "httpx",
    "proxy",
    "proxy with a password",
    "socks",
    "socks with a password",
    "tls",
    "tunnel",
    "tls proxy",
    "client certificate",
)


def call(stream=True, **more) -> UpstreamRequest:
    return UpstreamRequest(
        "/chat/completions",
        BODY,
        [(b"content-type", b"application/json")],
        **{"stream": stream, **more},
    )


def context(asks=False) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(PEM)
    if asks:
        found.verify_mode = ssl.CERT_REQUIRED
        found.load_verify_locations(PEM)
    return found


class Line:
    """A server that behaves as told, and a way to it. transport: its connections."""

    def __init__(self, name, server, proxy, max_connections=4):
        self.server, self.proxy = server, proxy
        secure = server.tls is not None
        way = ConnectionOptions(
            proxy.url if proxy else "",
            PEM if secure or name in ("httpx", "tls proxy") else "",
            PEM if name == "client certificate" else "",
        )
        self.way = way
        self.transport = open_provider_transport("up", way, max_connections)
        self.base = (
            server.url.replace("http://127.0.0.1", "https://localhost") if secure else server.url
        )

    def up(self, **timeouts) -> OpenAIUpstream:
        return OpenAIUpstream(self.base, self.transport, Timeouts(**timeouts))


@pytest.fixture(params=WAYS)
async def line(request):
    name = request.param
    async with AsyncExitStack() as stack:
        tls = (
            context(name == "client certificate")
            if name in ("tls", "tunnel", "client certificate")
            else None
        )
        made = []

        async def make(behave, max_connections=4):
            server = await stack.enter_async_context(RawServer(behave, tls))
            kinds = {
                "proxy": Proxy(),
                "proxy with a password": Proxy("me:p%40ss"),
                "socks": Socks(),
                "socks with a password": Socks("me:word"),
                "tunnel": Proxy(),
                "tls proxy": Proxy(tls=context()),
            }
            proxy = kinds.get(name)
            if proxy is not None:
                await stack.enter_async_context(proxy)
                proxy.auth = proxy.auth.replace("%40", "@")
            made.append(found := Line(name, server, proxy, max_connections))
            return found

        yield make
        for found in made:
            await found.transport.aclose()
            assert found.transport.places.free_count in (4, 30)


async def ok(seen, transport):
    await transport.json({"ok": True})


async def events(seen, transport):
    await transport.start_stream()
    await transport.event({"a": 1})
    await asyncio.sleep(30)


async def silent(seen, transport):
    await asyncio.sleep(30)


async def eventually(holds, seconds=3.0):
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def test_the_request_and_the_answer_arrive_as_they_are_and_connections_are_used_again(line):
    async def answers(seen, transport):
        await transport.json(
            {"ok": True}, 201, "X-Two: a", "x-two: b", "Set-Cookie: s=1", "x-odd: \u00e9"
        )

    to = await line(answers)
    headers = [
        (b"content-type", b"application/json"),
        (b"X-Two", b"1"),
        (b"X-Two", b"2"),
        (b"x-odd", b"\xff"),
    ]
    for n in range(3):
        answer = await to.up().send(
            UpstreamRequest("/a%2Fb/../c?x=%20&y=[1]", BODY, headers, method="PATCH")
        )
        assert (answer.status, await answer.read()) == (201, b'{"ok": true}')
        assert [(k, v) for k, v in answer.headers if k.lower() == b"x-two"] == [
            (b"X-Two", b"a"),
            (b"x-two", b"b"),
        ]
        seen = to.server.requests[n]
        assert (seen.method, seen.path, seen.body) == ("PATCH", "/v1/a%2Fb/../c?x=%20&y=[1]", BODY)
        assert [h for h in seen.headers if h[0] not in ("Host", "content-length")] == [
            (k.decode(), v.decode("latin-1")) for k, v in headers
        ]
        assert seen.header("host") == to.base.split("/")[2]
    assert to.server.connections == 1
    if to.proxy:
        host = to.base.split("/")[2]
        assert set(to.proxy.seen) <= {
            f"CONNECT {host}",
            host,
            f"http://{host}/v1/a%2Fb/../c?x=%20&y=[1]",
        }
        assert to.proxy.seen


async def test_a_large_body_goes_out_and_comes_back(line):
    body = os.urandom(1 << 20) * 3

    async def echoes(seen, transport):
        await transport.answer(200, seen.body, content_type="x/y")

    to = await line(echoes)
    for content in (body, [body[:100], memoryview(body)[100:]]):
        assert await (await to.up().send(UpstreamRequest("/x", content))).read() == body


async def test_a_server_that_is_not_there_is_unreachable_and_its_address_stays_here(line):
    to = await line(ok)
    await to.server.__aexit__()
    with pytest.raises((UpstreamUnreachable, StreamIncomplete)) as e:
        answer = await to.up(connect=5, total=5).send(call())
        # A proxy may say so itself.
        assert answer.status == 502
    assert str(to.server.port) not in e.value.message


@pytest.mark.parametrize("how", ["reset", "garbage", "close"])
async def test_a_broken_answer_before_the_status_is_unreachable_and_not_asked_again(line, how):
    async def behave(seen, transport):
        if how == "garbage":
            await transport.raw(b"NOT HTTP AT ALL\r\n\r\n")
        transport.reset() if how == "reset" else transport.writer.close()

    to = await line(behave)
    with pytest.raises(UpstreamUnreachable) as e:
        await to.up().send(call())
    assert "127.0.0.1" not in e.value.message
    what = (
        "sent something that is not HTTP"
        if how == "garbage"
        else "closed the connection before it answered"
    )
    assert e.value.message.startswith(f"The upstream {what}. Check that it runs")
    assert len(to.server.requests) == 1


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_kept_connection_that_dies_before_its_answer_is_replaced_once(line, how):
    async def dies(seen, transport):
        transport.reset() if how == "reset" else transport.writer.close()

    async def once(seen, transport):
        to.server.behave = ok
        await dies(seen, transport)

    to = await line(ok)
    for behave, works in ((ok, True), (once, True), (dies, False)):
        to.server.behave = behave
        before = len(to.server.requests)
        if works:
            assert await (await to.up().send(call())).read() == b'{"ok": true}'
        else:
            with pytest.raises(UpstreamUnreachable):
                await to.up().send(call())
        assert len(to.server.requests) - before == (1 if behave is ok else 2)


async def test_a_body_that_is_cut_is_incomplete(line):
    async def cut(seen, transport):
        await transport.start_stream()
        await transport.event({"a": 1})
        await asyncio.sleep(0.05)
        transport.reset()

    to = await line(cut)
    answer = await to.up().send(call())
    with pytest.raises(StreamIncomplete) as e:
        await answer.read()
    assert "127.0.0.1" not in e.value.message


@pytest.mark.parametrize(
    ("behave", "limits", "code"),
    [
        (silent, {"first_token": 0.4}, "first_token_timeout"),
        (events, {"idle": 0.4}, "stream_idle_timeout"),
        (events, {"total": 0.5}, "total_timeout"),
    ],
)
async def test_each_clock_names_itself_and_closes_the_connection(line, behave, limits, code):
    to = await line(behave)
    with pytest.raises(UpstreamTimeout) as e:
        await (await to.up(**limits).send(call())).read()
    assert e.value.code == code
    await to.server.requests[0].leaves(2)


async def test_what_is_not_streamed_has_its_total_time_alone(line):
    async def slow(seen, transport):
        await asyncio.sleep(0.5)
        await transport.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
        await asyncio.sleep(0.5)
        await transport.raw(b"k")

    to = await line(slow)
    assert await (await to.up(first_token=0.2, idle=0.2).send(call(stream=False))).read() == b"ok"


@pytest.mark.parametrize("behave", [silent, events], ids=["before headers", "mid-stream"])
@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_who_leaves_closes_the_connection_at_once(line, behave, how):
    to = await line(behave)
    left = []

    async def whole():
        answer = await to.up().send(call(on_written=lambda: left.append(1)))
        await (answer.close() if how == "closed" else answer.read())

    task = asyncio.ensure_future(whole())
    await eventually(lambda: to.server.requests)
    await asyncio.sleep(0.1)
    if not task.done():
        task.cancel()
    await asyncio.wait([task])
    await to.server.requests[0].leaves()
    assert left == [1]
    if to.proxy:
        await eventually(lambda: not to.proxy.open)


async def test_a_full_pool_waits_its_budget_and_says_so(line):
    to = await line(silent)
    held = [asyncio.ensure_future(to.up().send(call())) for _ in range(4)]
    await eventually(lambda: len(to.server.requests) == 4)
    with pytest.raises(Unavailable) as e:
        await to.up(connect=0.2).send(call())
    assert (b"retry-after", b"1") in e.value.headers
    for task in held:
        task.cancel()
    await asyncio.wait(held)


async def test_cookies_are_not_kept_and_redirects_not_followed(line):
    async def moved(seen, transport):
        await transport.answer(
            302, b"{}", "set-cookie: a=b", "location: http://127.0.0.1:9/elsewhere"
        )

    to = await line(moved)
    for _ in range(2):
        answer = await to.up().send(call())
        assert (answer.status, await answer.read()) == (302, b"{}")
    assert [s.header("cookie") for s in to.server.requests] == [None, None]


async def test_a_server_that_is_faster_than_its_reader_waits(line):
    sent = [0]

    async def floods(seen, transport):
        await transport.start_stream()
        for _ in range(1000):
            await transport.part(b"x" * 65536)
            sent[0] += 65536

    to = await line(floods)
    answer = await to.up().send(call())
    assert await anext(answer.body)
    last = -1
    async with asyncio.timeout(20):
        while last != sent[0]:
            last = sent[0]
            await asyncio.sleep(0.3)
    assert sent[0] < 40 << 20
    await answer.close()


async def test_no_header_can_begin_another_line(line):
    to = await line(ok)
    with pytest.raises(UpstreamUnreachable, match="line break"):
        await to.up().send(UpstreamRequest("/x", b"{}", [(b"x", b"a\r\nb: c")]))
    assert not to.server.requests


async def test_aborts_of_all_kinds_leave_no_connection_and_no_place(line):
    async def dripping(seen, transport):
        await transport.start_stream()
        for _ in range(50):
            await transport.event({"a": 1})
            await asyncio.sleep(0.01)

    async def abort(i):
        async with asyncio.timeout((0.001, 0.005, 0.02, 0.06)[i % 4]):
            await (await to.up(connect=5).send(call())).read()

    to = await line(dripping, 30)
    for start in range(0, 120, 30):
        await asyncio.gather(*(abort(start + i) for i in range(30)), return_exceptions=True)
    to.server.behave = ok
    answers = await asyncio.gather(*(to.up().send(call()) for _ in range(30)))
    assert [await a.read() for a in answers] == [b'{"ok": true}'] * 30
    await to.transport.aclose()
    await eventually(lambda: not to.server.open, 5)


@pytest.mark.parametrize("trusting", [False, True])
async def test_a_certificate_that_is_not_trusted_is_told_without_an_address(trusting):
    async with RawServer(ok, context()) as server, Proxy() as proxy:
        transport = open_provider_transport(
            "up", ConnectionOptions(proxy.url, PEM) if trusting else ConnectionOptions(), 4
        )
        # The first of which the certificate does not name.
        host = "other.example" if trusting else "localhost"
        with pytest.raises(UpstreamUnreachable, match="its certificate is not trusted here") as e:
            await OpenAIUpstream(f"https://{host}:{server.port}/v1", transport).send(call())
        assert host not in e.value.message
        assert "certificate" in str(e.value.__cause__).lower()
        assert not server.requests
        await transport.aclose()


async def test_a_server_that_asks_for_a_certificate_and_gets_none_is_unreachable():
    transport = open_provider_transport("up", ConnectionOptions(ca_file=PEM), 4)
    async with RawServer(ok, context(asks=True)) as server:
        with pytest.raises((UpstreamUnreachable, StreamIncomplete)):
            await OpenAIUpstream(f"https://localhost:{server.port}/v1", transport).send(call())
        assert not server.requests
    await transport.aclose()


@pytest.mark.parametrize("kind", [Proxy, Socks])
async def test_a_proxy_that_refuses_is_told_without_its_words(kind):
    async with RawServer(ok) as server, kind("me:word") as proxy:
        transport = open_provider_transport(
            "up", ConnectionOptions(proxy.url.replace("word", "wrong")), 4
        )
        answer = None
        with pytest.raises(UpstreamUnreachable) as e:
            answer = await OpenAIUpstream(server.url.replace("http:", "https:"), transport).send(
                call()
            )
        assert answer is None
        assert (
            "The proxy between the gateway and the upstream did not let the request through"
            in e.value.message
        )
        assert "Geheim" not in e.value.message
        assert not server.requests
        await transport.aclose()


@pytest.mark.parametrize("kind", [Proxy, Socks])
async def test_a_silent_proxy_is_a_connect_timeout(kind):
    async with RawServer(ok, context()) as server, kind() as proxy:
        proxy.silent = True
        transport = open_provider_transport("up", ConnectionOptions(proxy.url, PEM), 4)
        with pytest.raises(UpstreamTimeout) as e:
            await OpenAIUpstream(
                f"https://localhost:{server.port}/v1", transport, Timeouts(connect=0.3)
            ).send(call())
        assert e.value.code == "connect_timeout"
        await eventually(lambda: not proxy.open)
        await transport.aclose()


class Http2Server(LoopbackServer):
    """Speaks HTTP/2 over TLS.

    It answers each request with its own body, or begins to and stalls.
    """

    def __init__(self, stalls=False):
        tls = context()
        tls.set_alpn_protocols(["h2", "http/1.1"])
        super().__init__(tls)
        self.stalls, self.seen = stalls, []

    @property
    def url(self):
        return f"https://localhost:{self.port}/v1"

    async def serve(self, reader, writer):
        h2c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        h2c.initiate_connection()
        bodies: dict[int, bytes] = {}
        while True:
            writer.write(h2c.data_to_send())
            if not (data := await reader.read(1 << 16)):
                return
            for event in h2c.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.seen.append(dict(event.headers))
                    bodies[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    h2c.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    h2c.send_headers(
                        event.stream_id, [(":status", "200"), ("content-type", "text/event-stream")]
                    )
                    h2c.send_data(
                        event.stream_id,
                        b"data: " + bodies[event.stream_id],
                        end_stream=not self.stalls,
                    )


async def test_http2_is_spoken_where_it_is_asked_for_and_connections_are_used_again():
    transport = open_provider_transport("up", ConnectionOptions(ca_file=PEM, http2=True), 4)
    async with Http2Server() as server:
        for n in range(1, 4):
            left = []
            answer = await OpenAIUpstream(server.url, transport).send(
                call(on_written=lambda left=left: left.append(1))
            )
            assert (answer.status, await answer.read()) == (200, b"data: " + BODY)
            assert (len(server.seen), server.connections, left) == (n, 1, [1])
            head = {
                k: v for k, v in server.seen[-1].items() if k not in (b":authority", ":authority")
            }
            assert {str(k, "ascii") if isinstance(k, bytes) else k for k in head} == {
                ":method",
                ":scheme",
                ":path",
                "content-type",
                "content-length",
            }
        await transport.aclose()
        await eventually(lambda: not server.open)


@pytest.mark.parametrize("how", ["cancelled", "closed", "timed out"])
async def test_who_leaves_an_answer_over_http2_closes_its_connection_and_nobody_elses(how):
    transport = open_provider_transport("up", ConnectionOptions(ca_file=PEM, http2=True), 4)
    async with Http2Server(stalls=True) as server:
        other = await OpenAIUpstream(server.url, transport).send(call())
        answer = await OpenAIUpstream(
            server.url, transport, Timeouts(idle=0.4 if how == "timed out" else 60)
        ).send(call())
        assert await anext(answer.body) == b"data: " + BODY
        assert server.open == 2
        if how == "closed":
            await answer.close()
        else:
            task = asyncio.ensure_future(answer.read())
            await asyncio.sleep(0.1)
            if how == "cancelled":
                task.cancel()
            await asyncio.wait([task])
        await eventually(lambda: server.open == 1, 2)
        assert await anext(other.body) == b"data: " + BODY
        await other.close()
        await eventually(lambda: not server.open)
        assert transport.places.free_count == 4
        await transport.aclose()


def served(base="https://api.openai.com/v1", environ=None, **members) -> ConnectionOptions:
    return connection_options(ProviderSettings(base_url=base, **members), environ or {})


def test_the_own_client_serves_unless_something_else_is_wanted():
    assert served().own
    assert str(served()) == "built-in HTTP/1.1 client"
    assert isinstance(open_provider_transport("up", served(), 1), Http1Client)
    told = str(served(proxy="http://me:geheim@proxy.lan:3128", http2=True, ca_file="x.pem"))
    assert told == "httpx through proxy proxy.lan:3128 with ca_file with HTTP/2"


PROXIES = {"HTTPS_PROXY": "http://s:1", "http_proxy": "p:2", "ALL_PROXY": "socks5://a:3"}
TABLE = [
    ({}, "https://h/v1"),
    (PROXIES, "https://h/v1"),
    (PROXIES, "http://h/v1"),
    ({"ALL_PROXY": "socks5://a:3"}, "http://h/v1"),
    ({**PROXIES, "https_proxy": "http://lower:1"}, "https://h/v1"),
    ({**PROXIES, "https_proxy": ""}, "https://h/v1"),
    ({**PROXIES, "REQUEST_METHOD": "GET", "HTTP_PROXY": "http://evil"}, "http://h/v1"),
    *[
        ({**PROXIES, "NO_PROXY": entry}, base)
        for entry in (
            "*",
            "h",
            "localhost",
            "127.0.0.1",
            "::1",
            "example.com",
            ".example.com",
            "x,example.com , y",
            "https://example.com",
            "all://example.com",
            "10.0.0.1",
            "example.com:8443",
            "EXAMPLE.COM",
        )
        for base in (
            "https://h/v1",
            "https://api.example.com/v1",
            "https://example.com/v1",
            "https://example.com:8443/v1",
            "https://notexample.com/v1",
            "http://localhost:1/v1",
            "http://a.localhost/v1",
            "http://127.0.0.1:8000/v1",
            "http://[::1]:8000/v1",
            "http://10.0.0.1/v1",
            "http://example.com/v1",
        )
    ],
]


@pytest.mark.parametrize(("environ", "base"), TABLE)
def test_the_environment_is_read_as_httpx_reads_it(environ, base, monkeypatch):
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    client = httpx.AsyncClient()
    found = client._transport_for_url(httpx.URL(base))
    url = getattr(found._pool, "_proxy_url", None)
    theirs = "" if url is None else f"{url.scheme.decode()}://{url.host.decode()}:{url.port}"
    assert served(base, environ).proxy == theirs


def test_a_network_in_no_proxy_spares_its_addresses():
    environ = {"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}
    assert (
        served("http://10.9.8.7/v1", environ).proxy,
        served("http://11.0.0.1/v1", environ).proxy,
    ) == ("", "http://p:1")


def test_a_providers_own_proxy_comes_first_and_none_is_none():
    assert served(environ=PROXIES, proxy="http://mine:1").proxy == "http://mine:1"
    assert served(environ=PROXIES, proxy="none").own


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"proxy": "ftp://me:geheim@p:1"}, "begins with http://"),
        ({"proxy": "http://"}, "begins with http://"),
        ({"proxy": "http://p:x"}, "begins with http://"),
        ({"ca_file": "/no/such.pem"}, "No such file"),
        ({"client_cert": __file__}, "not a readable PEM file"),
    ],
)
def test_what_cannot_be_used_stops_the_start_and_shows_no_password(members, told):
    with pytest.raises(ConfigError, match=told) as e:
        open_provider_transport("up", served(**members), 1)
    assert "providers.up" in str(e.value)
    assert "geheim" not in str(e.value)


@pytest.mark.parametrize(
    ("members", "package", "extra"),
    [({"http2": True}, "h2", "http2"), ({"proxy": "socks5://p:1"}, "socksio", "socks")],
)
def test_a_package_that_is_missing_is_told_with_how_to_install_it(
    members, package, extra, monkeypatch
):
    monkeypatch.setattr("gateway.upstream.factory.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=rf"needs the package {package}: run pip install '\.\[{extra}\]'"
    ):
        open_provider_transport("up", served(**members), 1)
