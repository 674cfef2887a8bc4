"""Answers to requests on stored objects, limited and booked as any other request is.

They ask no model, so they count as requests and for concurrency, and cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from gateway.auth.authenticator import Principal
from gateway.errors import GatewayError
from gateway.http.response import GatewayResponse, ResponseHead, ResponseProducer
from gateway.pipeline import RequestInfo, accounted_response, new_dispatcher
from gateway.routing.router import Route
from gateway.state import GatewayState
from gateway.wire.headers import Pairs

JSON: Pairs = [(b"content-type", b"application/json")]
NO_MEMORY: Pairs = [(b"x-memory-status", b"off"), (b"x-memory-reason", b"path")]


class StoredAnswer:
    """A JSON body that is made once the request is admitted."""

    stream = False
    memory = "off"

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._size = 0

    async def ready(self) -> StoredAnswer:
        return self

    async def body(self) -> AsyncGenerator[bytes, None]:
        content = await self._make()
        self._size = len(content)
        yield content

    def build_head(self, *, committed: bool) -> ResponseHead:
        return ResponseHead([*JSON, (b"content-length", b"%d" % self._size)])

    def extra_headers(self) -> Pairs:
        return NO_MEMORY

    def error_event(self, error: GatewayError) -> bytes:
        return error.event()

    def keepalive(self) -> bytes:
        return b""

    def instead_of(self, error: Exception) -> None:
        return

    def on_finish(self, error: BaseException | None) -> None:
        return None


def stored_answer(
    gateway: GatewayState,
    principal: Principal,
    path: str,
    name: str,
    begin: Callable[[], Awaitable[ResponseProducer]],
) -> GatewayResponse:
    """Return the ASGI response of a request on a stored object.

    path: below `/v1`, without ids. name: the request's.
    """
    route = Route(((gateway.router.default(),),))
    entry = RequestInfo(name, principal, path, time.perf_counter(), output=0)
    return accounted_response(gateway, new_dispatcher(gateway, route, {}, principal), entry, begin)
