"""The package's client for a server of an entry. Loads the package, so it is imported on use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.config.mcp_tools import McpToolSettings
from gateway.http.json_thread import run_by_weight
from gateway.tools.mcp_connection import SessionState
from gateway.tools.mcp_messages import MESSAGE_BYTES, AnswerStore, lighten_message
from gateway.tools.mcp_stdio import run_server

# No run takes longer than 600 s
CONNECT_SECONDS, READ_SECONDS = 10.0, 610.0
SESSION_HEADER = "mcp-session-id"
INFO = types.Implementation(name="mnemogate", version="0")
EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
LINE_END = re.compile(rb"\r\n|\n|\r")
# What is unpacked has no bound, so nothing packed is asked for.
PLAIN = "identity"


class MessageTooLarge(httpx2.TransportError):
    """A server answered with more than one message may have."""


class PackedAnswer(httpx2.TransportError):
    """A server packed its answer, which nobody asked for."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Passes requests on, and answers as `lighten_message` leaves them.

    A message has at most `MESSAGE_BYTES`. session: is told what the server says of it.
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
        if response.headers.get("content-encoding", PLAIN) != PLAIN:
            await response.aclose()
            raise PackedAnswer("it packs its answers, which was not asked for")
        kind = response.headers.get("content-type", "").lower()
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - of this transport
        if kind.startswith("text/event-stream"):
            response.stream = EventStream(stream, self._session.answers)
        else:
            response.stream = MessageStream(stream, self._session.answers)
        return response

    def _tell_expired(self, request: httpx2.Request) -> httpx2.Response:
        """Return a 404 that its call is known by; the package tells nobody of the status."""
        error = {"code": types.INVALID_REQUEST, "message": self._session.expiry_message}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
        return httpx2.Response(404, json=body, request=request)

    async def aclose(self) -> None:
        await self._transport.aclose()


class MessageStream(httpx2.AsyncByteStream):
    """A body that is one message, of at most `MESSAGE_BYTES`."""

    def __init__(self, stream: httpx2.AsyncByteStream, answers: AnswerStore) -> None:
        self._stream, self._answers = stream, answers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MESSAGE_BYTES:
                raise MessageTooLarge(f"an answer of more than {MESSAGE_BYTES} bytes")
            chunks.append(chunk)
        text = b"".join(chunks)
        if text.strip():
            text = await run_by_weight(text, lighten_message, text, self._answers)
        yield text

    async def aclose(self) -> None:
        await self._stream.aclose()


class EventStream(httpx2.AsyncByteStream):
    """Server-sent events, each of at most `MESSAGE_BYTES`."""

    def __init__(self, stream: httpx2.AsyncByteStream, answers: AnswerStore) -> None:
        self._stream, self._answers = stream, answers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        buffer, searched = bytearray(), 0
        async for chunk in self._stream:
            buffer += chunk
            while match := EVENT_END.search(buffer, searched):
                event = bytes(buffer[: match.start()])
                del buffer[: match.end()]
                searched = 0
                yield await self._lighten(event)
            searched = max(0, len(buffer) - 3)
            if len(buffer) > MESSAGE_BYTES:
                raise MessageTooLarge(f"an event of more than {MESSAGE_BYTES} bytes")
        yield bytes(buffer)

    async def _lighten(self, event: bytes) -> bytes:
        """Return an event with its message as the package is given it."""
        lines = LINE_END.split(event)
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        text = b"\n".join(data)
        if text.strip():
            lines = [line for line in lines if not line.startswith(b"data:")]
            text = await run_by_weight(text, lighten_message, text, self._answers)
            lines += [b"data: " + line for line in text.split(b"\n")]
        return b"\n".join(lines) + b"\n\n"

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
                    headers={**headers, "accept-encoding": PLAIN},
                    timeout=timeout,
                    transport=BoundedTransport(session),
                )
            )
            transport = streamable_http_client(
                settings.url, http_client=http, max_sse_event_size=MESSAGE_BYTES
            )
        else:
            transport = run_server(entry, settings, session.answers)
        client = Client(transport, cache=None, client_info=INFO, message_handler=note)
        yield await stack.enter_async_context(client)


async def follow_changes(client: Client, on_change: Callable[[], None]) -> None:
    """Tell of changes of a server that speaks the later revision, which are asked for."""
    async with client.listen(tools_list_changed=True) as changes:
        async for _ in changes:
            on_change()
