"""Any OpenAI-compatible server: one request in, one answer out, with the provider's key and clocks."""
from __future__ import annotations

import asyncio
import zlib

import httpx

from gateway.errors import BadRequest, StreamIncomplete, Unavailable, UpstreamTimeout, UpstreamUnreachable
from gateway.packing import Unpacker
from gateway.upstream.base import Incoming, Outgoing, Timeouts

PACKED = ("gzip", "x-gzip", "deflate")


class OpenAIUpstream:
    """A server that speaks OpenAI's HTTP API.

    base_url: up to and including `/v1`. transport: an httpx transport, shared by all upstreams or a test's own.
    """

    def __init__(self, base_url: str, transport: httpx.AsyncBaseTransport, timeouts: Timeouts | None = None) -> None:
        self._base = base_url.rstrip("/")
        self._transport = transport
        self._timeouts = timeouts or Timeouts()
        self._urls: dict[str, httpx.URL] = {}

    def _url(self, path: str) -> httpx.URL:
        # Parsing a URL costs more than sending a small request; the fixed paths are parsed once.
        if (url := self._urls.get(path)) is None:
            try:
                url = httpx.URL(self._base + path)
            except httpx.InvalidURL as e:
                raise BadRequest(f"The path and query cannot be sent on: {str(e)[:200]}.") from e
            if len(self._urls) < 64:
                self._urls[path] = url
        return url

    async def send(self, request: Outgoing) -> Incoming:
        """See the port. The clocks: connect, then first_token until the first body byte, idle between bytes, total."""
        url = self._url(request.path)
        headers = [(b"host", url.netloc), *request.headers]
        if request.body is not None:
            headers.append((b"content-length", b"%d" % len(request.body)))
        extensions = {"timeout": {"connect": self._timeouts.connect, "read": None}, "target": self._base + request.path}
        built = httpx.Request(request.method, url, headers=httpx.Headers(headers), stream=httpx.ByteStream(request.body or b""), extensions=extensions)
        clock = Clock(self._timeouts, request.until)
        async with clock.running("first_token"):
            response = await _answered(self._transport, built)
        received = list(response.headers.raw)
        packed = request.method != "HEAD" and response.headers.get("content-encoding", "").strip().lower() in PACKED
        if packed:  # plain was asked for; who sends packed all the same is unpacked here, once, and the headers say so
            received = [(k, v) for k, v in received if k.lower() not in (b"content-encoding", b"content-length")]
        return Incoming(response.status_code, received, _Body(response, clock, packed))


class Clock:
    """The timers of one call: whichever runs out first names the error."""

    def __init__(self, timeouts: Timeouts, until: float = float("inf")) -> None:
        self._timeouts = timeouts
        self._start = asyncio.get_running_loop().time()
        self._until = until

    def running(self, phase: str) -> _Phase:
        now = asyncio.get_running_loop().time()
        ends = min(self._start + self._timeouts.total, self._until)
        own = (self._start if phase == "first_token" else now) + getattr(self._timeouts, phase)
        return _Phase(phase, own, getattr(self._timeouts, phase)) if own <= ends else _Phase("total", ends, self._timeouts.total)


class _Phase:
    def __init__(self, phase: str, until: float, limit: float) -> None:
        self._phase, self._limit = phase, limit
        self._timeout = asyncio.timeout_at(until)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._timeout.__aexit__(*exc)  # type: ignore[arg-type]
        except TimeoutError as e:
            code = "stream_idle_timeout" if self._phase == "idle" else f"{self._phase}_timeout"
            raise UpstreamTimeout(
                f"The upstream was silent past its {self._phase} limit of {self._limit:g} s. Try again, or raise "
                f"`timeouts.{self._phase}` of its provider.", code=code) from e


async def _answered(transport: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    try:
        return await transport.handle_async_request(request)
    except httpx.PoolTimeout as e:
        raise Unavailable(f"{e}. Try again shortly.", headers=[(b"retry-after", b"1")]) from e
    except httpx.ConnectTimeout as e:
        raise UpstreamTimeout("The upstream could not be reached in time. Try again.", code="connect_timeout") from e
    except httpx.ReadTimeout as e:
        raise UpstreamTimeout("The upstream did not answer in time. Try again.", code="first_token_timeout") from e
    except httpx.HTTPError as e:
        raise UpstreamUnreachable(f"The upstream could not be reached or answered garbage ({e}). Try again.") from e


class _Body:
    """Body bytes as they arrive. An object, not a generator: closing one that was never iterated must work too."""

    def __init__(self, response: httpx.Response, clock: Clock, packed: bool = False) -> None:
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - narrows the type; httpx allows sync streams too
        self._stream = stream
        self._parts = stream.__aiter__()
        self._clock = clock
        self._phase = "first_token"
        self._unpack = Unpacker() if packed else None

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            part = b""
            while not part:
                async with self._clock.running(self._phase):
                    part = await anext(self._parts)
                if self._unpack is not None:
                    part = self._unpack.feed(part)
            self._phase = "idle"
            return part
        except (httpx.HTTPError, zlib.error) as e:
            await self.aclose()
            raise StreamIncomplete(f"The upstream's answer broke off ({e}). Try again.") from e
        except StopAsyncIteration:
            await self.aclose()
            if self._unpack is not None and not self._unpack.whole:
                raise StreamIncomplete("The upstream's compressed answer broke off. Try again.") from None
            raise
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()
