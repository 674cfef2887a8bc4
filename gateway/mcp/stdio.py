"""The door over standard input and output: a message a line, relayed to a running gateway."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gateway.errors import GatewayError
from gateway.mcp.errors import INTERNAL_ERROR, RequestId, RpcError, error_body
from gateway.mcp.greeting import greet, server_info
from gateway.mcp.protocol import (
    MODERN,
    NAMED,
    SUPPORTED,
    RpcRequest,
    read_line,
    text_of,
    unsupported,
    write_result,
)
from gateway.wire.chat import decode

# Messages at a time; more are read when one is answered.
RUNNING = 64
CANCELLED = "notifications/cancelled"
Headers = dict[str, str]
# Sends a message to a gateway; returns the body of its answer. Raises GatewayError.
Relay = Callable[[bytes, Headers], Awaitable[bytes]]


def routing_headers(request: RpcRequest) -> Headers:
    """Return the headers that the revision of a request asks for."""
    if not request.is_modern:
        return {}
    out = {"mcp-protocol-version": MODERN, "mcp-method": _encode(request.method)}
    name = text_of(request.params, NAMED.get(request.method, ""))
    if name is not None:
        out["mcp-name"] = _encode(name)
    return out


def _encode(text: str) -> str:
    """Return a text as a header has it: in base64, unless it is plain."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    if is_plain and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


class StdioRelay:
    """Answers lines. relay: sends on what this process does not know. write: writes a line."""

    def __init__(self, relay: Relay, write: Callable[[bytes], None]) -> None:
        self._relay = relay
        self._write = write
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(RUNNING)
        self.client: Mapping[str, object] = {}

    async def run(self, read_next: Callable[[], Awaitable[bytes]]) -> None:
        """Answer every line until there is none, then wait for the calls under way."""
        open_calls: set[asyncio.Task[None]] = set()
        while line := await read_next():
            if not line.strip():
                continue
            try:
                request = read_line(line)
            except RpcError as e:
                self._write(error_body(e, None))
                continue
            if request.is_silent:
                self._note(request)
                continue
            await self._slots.acquire()
            task = asyncio.create_task(self._answer(request, line))
            self._tasks[request.id] = task
            open_calls.add(task)
            task.add_done_callback(open_calls.discard)
        if open_calls:
            await asyncio.wait(open_calls)

    def _note(self, request: RpcRequest) -> None:
        """Cancel the call that a client gave up; other notifications change nothing here."""
        if request.method != CANCELLED:
            return
        ident = request.params.get("requestId")
        if isinstance(ident, str | int) and (task := self._tasks.get(ident)) is not None:
            task.cancel()

    async def _answer(self, request: RpcRequest, line: bytes) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._write(await self._ask(request, line))
        finally:
            self._slots.release()
            if self._tasks.get(request.id) is asyncio.current_task():
                del self._tasks[request.id]

    async def _ask(self, request: RpcRequest, line: bytes) -> bytes:
        """Return the answer to a request, errors too."""
        if request.revision not in SUPPORTED:
            return error_body(unsupported(request.revision, request.id), request.id)
        if (result := greet(request)) is not None:
            self.client = request.client or self.client
            return write_result(request, result, server_info())
        try:
            return await self._relay(line, routing_headers(request))
        except GatewayError as e:
            return error_body(RpcError(200, INTERNAL_ERROR, e.message), request.id)


def check_answer(body: bytes) -> bytes:
    """Return the body of an answer on one line. Raises GatewayError for one that is no JSON."""
    try:
        message = decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as e:
        raise GatewayError("What answered is no Mnemogate gateway: it sent no JSON.") from e
    if not isinstance(message, dict) or "jsonrpc" not in message:
        raise GatewayError("What answered is no Mnemogate gateway: it sent no JSON-RPC.")
    if b"\n" not in body:
        return body
    return msgspec.json.encode(message)
