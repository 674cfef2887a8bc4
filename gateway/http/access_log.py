"""The access log: one line for each request, written once at its end.

Code that learns something of a request notes it in its line: who called, whose memory, usage. The
line never contains a prompt, a key or a query. The log's own thread formats it
(`gateway.server.log_output`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import msgspec

from gateway.wire.headers import encode_user_header

if TYPE_CHECKING:
    from gateway.errors import GatewayError

log = logging.getLogger("mnemogate.access")
# The usual status in logs for a client that disconnected.
LEFT = 499
BAD_REQUEST = 400
# Polled by monitoring.
QUIET = (b"/health", b"/ready")
# Of a path or a name.
MAX_PATH_CHARACTERS = 300


class UsageSummary(Protocol):
    """The members of a usage record that are asked for here; see `gateway.usage.log`."""

    key: str
    user: str | None
    status: int
    code: str | None
    target: str
    attempts: int
    rounds: int
    input: int
    output: int
    cost: float | None


class AccessLogLine(msgspec.Struct):
    """What the log says of a request.

    started_at: perf_counter. key: its name. memory: `x-memory-status` as it was at the end.

    record: its books, where it has any; their status and user are then the ones that count.
    error_body: how its path writes an error, where that is not OpenAI's way. why_degraded: what
    is missing where `memory` is `degraded`.
    """

    id: str
    method: str
    path: bytes
    started_at: float
    status: int = 0
    key: str = ""
    user: str | None = None
    memory: str = ""
    code: str | None = None
    reason: str | None = None
    why_degraded: str = ""
    record: UsageSummary | None = None
    ms: float = 0.0
    error_body: Callable[[GatewayError, str], bytes] | None = None

    def take_usage(self, record: UsageSummary, memory: str) -> None:
        """Take over the usage record at the end of a request."""
        self.record = record
        self.memory = memory
        self.status = record.status
        self.key = record.key
        self.user = record.user
        self.code = record.code

    def write_error(self, error: GatewayError) -> bytes:
        """Return an error as the clients of its path read it."""
        if self.error_body is not None:
            return self.error_body(error, self.id)
        return error.body()

    def note_error(self, error: GatewayError) -> None:
        """Note why the request was answered with an error.

        Of a malformed request only the parameter is noted, since the message may quote a prompt.
        """
        self.status = error.status
        self.code = self.code or error.code or error.type
        self.reason = error.param if type(error).status == BAD_REQUEST else error.message

    def members(self) -> dict[str, Any]:
        """Return the line as JSON members; null where there is no value."""
        record = self.record
        return {
            "request_id": self.id,
            "method": self.method,
            "path": printable_path(self.path),
            "status": self.status,
            "key": self.key or None,
            "user": self.user,
            "memory": self.memory or None,
            "upstream": record.target or None if record else None,
            "attempts": record.attempts if record else 0,
            "rounds": record.rounds if record else 0,
            "input_tokens": record.input if record else 0,
            "output_tokens": record.output if record else 0,
            "code": self.code,
            "reason": self.reason,
            "ms": round(self.ms, 1),
        }

    def __str__(self) -> str:
        record = self.record
        upstream_part = ""
        if record:
            upstream_part = (
                f" upstream={quote_word(record.target)} attempts={record.attempts} "
                f"rounds={record.rounds} tokens={record.input}+{record.output}"
            )
        code = ""
        if self.code:
            code = f" code={quote_word(self.code)}"
        reason = ""
        if self.reason:
            reason = f" reason={json.dumps(self.reason[:MAX_PATH_CHARACTERS], ensure_ascii=False)}"
        return (
            f"{quote_word(self.method)} {printable_path(self.path)} {self.status} "
            f"key={quote_word(self.key)} user={encode_user_header(self.user).decode()} "
            f"memory={self.memory or '-'}{upstream_part}{code}{reason} ms={self.ms:.1f} {self.id}"
        )


_LINE: ContextVar[AccessLogLine | None] = ContextVar("mnemogate.line", default=None)


def open_line(scope: Any, ident: str) -> AccessLogLine:
    """Start the line of the request that this task serves."""
    line = AccessLogLine(
        ident, scope["method"], scope.get("raw_path") or scope["path"].encode(), time.perf_counter()
    )
    _LINE.set(line)
    return line


def current_line() -> AccessLogLine:
    """Return the line of the current request; outside of one, a line that is never written."""
    return _LINE.get() or AccessLogLine("", "", b"", 0.0)


def write_line(line: AccessLogLine, error: BaseException | None) -> None:
    """Write the line.

    error: the exception that ended the request, if any.
    """
    if not line.status:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            line.status = 500
        else:
            line.status = LEFT
    level = (
        logging.DEBUG
        if line.path in QUIET
        else logging.WARNING
        if line.status >= 500
        else logging.INFO
    )
    if log.isEnabledFor(level):
        line.ms = (time.perf_counter() - line.started_at) * 1000
        # Faster than log.log, which looks up its caller.
        log.handle(logging.LogRecord(log.name, level, "", 0, line, None, None))


def write_unread_line(error: GatewayError, url: bytes) -> None:
    """Write the line of a request that was refused before it could be read.

    url: as far as it is known.
    """
    line = AccessLogLine("-", "-", url or b"-", time.perf_counter())
    line.note_error(error)
    write_line(line, error)


def printable_path(path: bytes) -> str:
    """Return a path as it was sent, in printable characters, without its query."""
    text = path[:MAX_PATH_CHARACTERS].split(b"?", 1)[0].decode("latin-1")
    if text.isprintable():
        return text
    return text.encode("unicode_escape").decode()


def quote_word(text: str) -> str:
    """Return a text as one word of a log line."""
    return (
        text
        if text.isascii() and text.isprintable() and " " not in text
        else quote(text[:MAX_PATH_CHARACTERS])
    ) or "-"
