"""Any httpx transport as a wire: what a test gives `create_app` in place of connections."""
from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from gateway.errors import StreamIncomplete, Unavailable, UpstreamTimeout, UpstreamUnreachable
from gateway.upstream.base import Incoming, Request, joined
from gateway.upstream.clock import Clock


class TransportWire:
    """Sends through `transport`."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def call(self, request: Request, clock: Clock) -> Incoming:
        """See the port."""
        origin, connect = request.origin, clock.timeouts.connect
        url = httpx.URL(scheme="https" if origin.tls else "http", host=origin.host, port=origin.port, raw_path=request.target)
        built = httpx.Request(request.method, url, headers=[(b"host", request.host), *request.headers], stream=httpx.ByteStream(joined(request.content or b"")),
                              extensions={"timeout": {"connect": connect, "read": None, "write": None, "pool": connect}, "target": request.target})
        try:
            with clock:
                response = await self._transport.handle_async_request(built)
        except httpx.PoolTimeout as e:
            raise Unavailable("All connections to the upstream are in use. Try again shortly.", headers=[(b"retry-after", b"1")]) from e
        except httpx.ConnectTimeout as e:
            raise UpstreamTimeout("The upstream could not be reached in time. Try again.", code="connect_timeout") from e
        except httpx.HTTPError as e:
            raise UpstreamUnreachable(f"The upstream could not be reached or answered garbage ({type(e).__name__}). Try again.") from e
        return Incoming(response.status_code, list(response.headers.raw), _Body(response, clock))

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Body:
    """An object, not a generator: closing one that was never iterated must work too."""

    def __init__(self, response: httpx.Response, clock: Clock) -> None:
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - narrows the type; httpx allows sync streams too
        self._stream, self._clock = stream, clock
        self._parts: AsyncIterator[bytes] = aiter(stream)

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            with self._clock:
                part = await anext(self._parts)
            self._clock.heard()
            return part
        except httpx.HTTPError as e:
            await self.aclose()
            raise StreamIncomplete(f"The upstream's answer broke off ({type(e).__name__}). Try again.") from e
        except BaseException:  # its end too
            await self.aclose()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()
