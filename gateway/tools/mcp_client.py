"""The package's client for a server of an entry. Loads the package, so it is imported on use."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.config.mcp_tools import McpToolSettings
from gateway.tools.mcp_connection import SessionState
from gateway.tools.mcp_stdio import MESSAGE_BYTES, run_server

CONNECT_SECONDS, READ_SECONDS = 10.0, 610.0  # no run takes longer than 600 s
SESSION_HEADER = "mcp-session-id"
INFO = types.Implementation(name="mnemogate", version="0")


class MessageTooLarge(httpx2.TransportError):
    """A server answered with more than one message may have."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Passes requests on; an answer that is one message has at most `MESSAGE_BYTES`.

    session: is told what the server says of it.
    """

    def __init__(self, session: SessionState) -> None:
        self._transport = httpx2.AsyncHTTPTransport(retries=0)
        self._session = session

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if request.method == "POST" and SESSION_HEADER in request.headers:
            if response.status_code == 404:
                await response.aclose()
                return self._tell_expired(request)
            self._session.is_refused |= response.status_code == 400
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):  # whose events are bounded one by one
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - of this transport
            response.stream = BoundedStream(stream)
        return response

    def _tell_expired(self, request: httpx2.Request) -> httpx2.Response:
        """Return a 404 that its call is known by; the package tells nobody of the status."""
        error = {"code": types.INVALID_REQUEST, "message": self._session.expiry_message}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
        return httpx2.Response(404, json=body, request=request)

    async def aclose(self) -> None:
        await self._transport.aclose()


class BoundedStream(httpx2.AsyncByteStream):
    """A body that ends with MessageTooLarge past its limit."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MESSAGE_BYTES:
                raise MessageTooLarge(f"an answer of more than {MESSAGE_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextlib.asynccontextmanager
async def open_client(
    entry: str,
    settings: McpToolSettings,
    headers: Mapping[str, str],
    on_change: Callable[[], None],
    session: SessionState,
) -> AsyncIterator[Client]:
    """Connect to the server of an entry. on_change: called when it says that its tools changed."""

    async def note(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_change()

    async with contextlib.AsyncExitStack() as stack:
        if settings.url:
            timeout = httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
            http = await stack.enter_async_context(
                httpx2.AsyncClient(
                    headers=headers, timeout=timeout, transport=BoundedTransport(session)
                )
            )
            transport = streamable_http_client(
                settings.url, http_client=http, max_sse_event_size=MESSAGE_BYTES
            )
        else:
            transport = run_server(entry, settings)
        client = Client(transport, cache=None, client_info=INFO, message_handler=note)
        yield await stack.enter_async_context(client)


async def follow_changes(client: Client, on_change: Callable[[], None]) -> None:
    """Tell of changes of a server that speaks the later revision, which are asked for."""
    async with client.listen(tools_list_changed=True) as changes:
        async for _ in changes:
            on_change()
