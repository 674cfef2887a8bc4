"""One connection to an MCP server, owned by one task.

The package's client is entered and left by the same task: a connection that is refused cancels the
task that entered it, and its exit raises an ExceptionGroup. So a task of its own owns it; callers
await results, and a connection that ended is opened anew by the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec

from gateway.tools.mcp_definitions import (
    MAX_PAGES,
    MAX_TOOLS,
    PAGES_BYTES,
    TooManyDefinitions,
)
from gateway.tools.mcp_messages import AnswerStore, is_named

log = logging.getLogger("mnemogate")
FAILURES = 3
WITHIN_SECONDS = 30.0
CLOSED_SECONDS = 30.0
CONNECT_SECONDS = 30.0
CLOSE_SECONDS = 5.0
# Of the package itself.
CONNECTION_CLOSED, CLOSED_MESSAGE = -32000, "Connection closed"


class SessionState:
    """What HTTP said of the session of one connection, which the package does not tell apart.

    expiry_message: the message that stands for 404, which no server knows: nothing of that request
    was done, and a new session is to be opened. is_refused: 400 was said, as by servers that know
    no such session either. answers: what the server listed and answered.
    """

    def __init__(self) -> None:
        self.answers = AnswerStore()
        self.expiry_message = f"the session has ended ({secrets.token_hex(8)})"
        self.is_refused = False


# Opens the package's client, entered by the task that owns it.
OpenClient = Callable[[SessionState], AbstractAsyncContextManager[Any]]


class ServerUnreachable(Exception):
    """The server cannot be reached, or ended the connection; the message says why."""


class SessionExpired(ServerUnreachable):
    """The server knows the session no longer, and did nothing."""


class ServerRefused(Exception):
    """The server answered a call with an error of the protocol; the message is the server's."""


class McpConnection:
    """See the module. open_client: called in the owner's task. used_at: monotonic."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client
        self._owner: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Any] | None = None
        self._session = SessionState()
        self._closing = asyncio.Event()
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self._closed_until = 0.0
        self.used_at = time.monotonic()
        self.call_count = 0

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool; return its result. Raises ServerUnreachable, ServerRefused."""
        self.call_count += 1
        try:
            try:
                return await self._call(name, arguments)
            except SessionExpired:
                # As after a restart of the server: a new one is opened.
                return await self._call(name, arguments)
        finally:
            self.call_count -= 1
            self.used_at = time.monotonic()

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        client = await self._connect()
        answers = self._session.answers
        call = partial(client.call_tool, name, dict(arguments))
        result = await self._ask(call, self._owner)
        return _take(answers, result)

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the definitions of all tools. Raises ServerUnreachable, TooManyDefinitions."""
        client = await self._connect()
        answers = self._session.answers
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        size = 0
        for _ in range(MAX_PAGES):
            page = await self._ask(partial(client.list_tools, cursor=cursor), self._owner)
            definitions = _take(answers, page)["tools"]
            named_tools = list(filter(is_named, definitions))
            tools += named_tools
            if len(named_tools) < len(definitions):
                nameless = len(definitions) - len(named_tools)
                log.warning("an MCP server lists %d tools without a name", nameless)
            size += len(msgspec.json.encode(definitions))
            if len(tools) > MAX_TOOLS or size > PAGES_BYTES:
                raise TooManyDefinitions(
                    f"it lists more than {MAX_TOOLS} tools, or {PAGES_BYTES} bytes on its pages"
                )
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise TooManyDefinitions(f"it lists its tools on more than {MAX_PAGES} pages")

    async def close(self) -> None:
        """End the connection, and the server's process if it has one."""
        self._closing.set()
        if (owner := self._owner) is not None:
            await asyncio.wait([owner], timeout=CLOSE_SECONDS)
            if not owner.done():
                owner.cancel()
                await asyncio.wait([owner], timeout=CLOSE_SECONDS)

    async def _ask(
        self, work: Callable[[], Awaitable[Any]], owner: asyncio.Task[None] | None
    ) -> Any:
        """Await an answer. owner: of the connection that it comes on, dropped if it is broken."""
        from mcp.shared.exceptions import MCPError

        session = self._session
        try:
            return await work()
        except MCPError as e:
            is_expired = e.message == session.expiry_message
            is_closed = e.code == CONNECTION_CLOSED and e.message == CLOSED_MESSAGE
            names_session = session.is_refused and "session" in e.message.lower()
            if not (is_expired or is_closed or names_session):
                raise ServerRefused(e.message) from e
            error: Exception = SessionExpired("it knows the session no longer") if is_expired else e
        except (OSError, EOFError) as e:
            error = e
        # What the package's models raise.
        except (ValueError, RuntimeError) as e:
            raise ServerRefused(f"what the server answered is not MCP ({type(e).__name__})") from e
        if self._owner is owner:
            if not isinstance(error, SessionExpired):
                self._note_failure()
            await self._drop()
        if isinstance(error, SessionExpired):
            raise error
        raise ServerUnreachable(_first_cause(error)) from error

    async def _connect(self) -> Any:
        """Return the client, once it is connected. Raises ServerUnreachable."""
        if self._closing.is_set():
            raise ServerUnreachable("the connection is closed")
        if time.monotonic() < self._closed_until:
            raise ServerUnreachable("it failed repeatedly and is tried again shortly")
        owner = self._owner
        if owner is None or owner.done() or self._client is None:
            self._client = asyncio.get_running_loop().create_future()
            self._session = SessionState()
            owning = self._own(self._client, self._session)
            self._owner = asyncio.create_task(owning, name="mcp-connection")
        client = self._client
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.shield(client)
        except TimeoutError as e:
            self._note_failure()
            await self._drop()
            raise ServerUnreachable(f"it did not answer within {CONNECT_SECONDS:g} s") from e

    async def _own(self, connection: asyncio.Future[Any], session: SessionState) -> None:
        """Hold the connection until it is closed or breaks."""
        why = "the connection ended"
        try:
            async with self._open_client(session) as client:
                if not connection.done():
                    connection.set_result(client)
                self._failures.clear()
                await self._closing.wait()
        except asyncio.CancelledError:
            # By whoever drops the connection, or by the package for one that was refused: then
            # nobody waits for this task, and it ends in either case.
            why = "the connection was refused"
        except BaseException as e:
            # The package raises groups of whatever failed.
            why = _first_cause(e)
        finally:
            if not connection.done():
                self._note_failure()
                connection.set_exception(ServerUnreachable(why))
                # Nobody may be waiting any more.
                connection.exception()

    async def _drop(self) -> None:
        """Give up a connection, so that the next call opens another."""
        owner = self._owner
        self._owner = None
        self._client = None
        if owner is not None and not owner.done():
            owner.cancel()
            with contextlib.suppress(Exception):
                await asyncio.wait([owner], timeout=CLOSE_SECONDS)

    def _note_failure(self) -> None:
        now = time.monotonic()
        self._failures.append(now)
        if len(self._failures) == FAILURES and now - self._failures[0] <= WITHIN_SECONDS:
            self._closed_until = now + CLOSED_SECONDS
            self._failures.clear()


def _take(answers: AnswerStore, message: Any) -> dict[str, Any]:
    """Return what the server answered. message: what the package was given in its place."""
    answer = answers.take(message.meta)
    if answer is None:
        raise ServerRefused("what the server answered is not MCP")
    return answer


def _first_cause(error: BaseException) -> str:
    """Return what a group of errors is about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
