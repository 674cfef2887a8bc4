"""A server's process, and its messages over standard input and output. Imported on use.

In place of the package's transport: a message has a limit here, and what the server started ends
with it, also when the server itself ends by its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import anyio
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from gateway.config.mcp_tools import McpToolSettings
from gateway.http.json_thread import run_by_weight
from gateway.tools.mcp_messages import (
    EDGE_BYTES,
    MESSAGE_BYTES,
    AnswerStore,
    lighten_message,
    refuse_answer,
)

log = logging.getLogger("mnemogate")
# Bytes of a line that a server writes on its standard error.
LOGGED_BYTES = 500
# Seconds for a server to end by itself, and then after it was told to.
END_SECONDS = 2.0
# Seconds for what it started.
GROUP_SECONDS = 1.0


async def _start(settings: McpToolSettings) -> asyncio.subprocess.Process:
    """Start the process of an entry. Raises OSError, which does not tell the command."""
    try:
        return await asyncio.create_subprocess_exec(
            settings.command,
            *settings.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**get_default_environment(), **settings.env},
            cwd=settings.cwd or None,
            start_new_session=True,
            limit=MESSAGE_BYTES,
        )
    except OSError as e:
        raise OSError(e.errno, f"its command does not start: {e.strerror}") from None


@contextlib.asynccontextmanager
async def run_server(
    entry: str, settings: McpToolSettings, answers: AnswerStore
) -> AsyncIterator[Any]:
    """Start a server; yield the streams of its messages. Raises OSError."""
    process = await _start(settings)
    incoming, receive_stream = anyio.create_memory_object_stream[Any](0)
    send_stream, outgoing = anyio.create_memory_object_stream[Any](0)
    assert process.stdin is not None  # noqa: S101 - asked for above
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    tasks = [
        asyncio.create_task(_read(process.stdout, incoming, entry, answers)),
        asyncio.create_task(_write(process.stdin, outgoing, incoming)),
        asyncio.create_task(_log(process.stderr, entry)),
    ]
    try:
        yield receive_stream, send_stream
    finally:
        ending = asyncio.ensure_future(_end(process))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for stream in (incoming, receive_stream, send_stream, outgoing):
                stream.close()


async def _read(
    stdout: asyncio.StreamReader, incoming: Any, entry: str, answers: AnswerStore
) -> None:
    """Pass on what the server says, a message a line, until it ends."""
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with incoming:
            while line := await _read_line(stdout, entry):
                text = await run_by_weight(line, lighten_message, line, answers)
                try:
                    message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
                except ValueError as e:
                    await incoming.send(e)
                else:
                    await incoming.send(SessionMessage(message))


async def _read_line(stdout: asyncio.StreamReader, entry: str) -> bytes:
    """Return the next message, nothing at the end. One that is too long becomes an error."""
    try:
        return await stdout.readuntil(b"\n")
    except asyncio.IncompleteReadError as e:
        return e.partial
    except asyncio.LimitOverrunError:
        log.warning("tools.%s: a message of more than %d bytes", entry, MESSAGE_BYTES)
    # The call that it answers is named at its beginning or at its end.
    head, tail = await stdout.read(EDGE_BYTES), b""
    while not tail.endswith(b"\n"):
        try:
            part = await stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as e:
            part = await stdout.read(max(1, e.consumed))
        except asyncio.IncompleteReadError:
            return b""
        tail = (tail + part)[-EDGE_BYTES:]
    why = f"the server's answer has more than {MESSAGE_BYTES >> 20} MiB"
    return refuse_answer(head + tail, why)


async def _write(stdin: asyncio.StreamWriter, outgoing: Any, incoming: Any) -> None:
    try:
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(text.encode() + b"\n")
            await stdin.drain()
    except OSError:
        # So that the session sees the end of the connection.
        await incoming.aclose()


async def _log(stderr: asyncio.StreamReader, entry: str) -> None:
    """Log what the server writes as errors."""
    while True:
        try:
            line = await stderr.readline()
        except ValueError:
            # A line of many MiB.
            continue
        if not line:
            return
        if text := line[:LOGGED_BYTES].decode("utf-8", "replace").strip():
            log.info("tools.%s: %s", entry, text)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a server and what it started: it is asked, told, and then killed."""
    assert process.stdin is not None  # noqa: S101 - asked for at its start
    process.stdin.close()
    await _wait_for(process, END_SECONDS)
    # Its number is that of its group, which lives while anybody in it does.
    if _signal(process.pid, signal.SIGTERM):
        await _wait_for(process, END_SECONDS)
        for _ in range(10):
            if not _signal(process.pid, 0):
                break
            await asyncio.sleep(GROUP_SECONDS / 10)
        _signal(process.pid, signal.SIGKILL)
    await _wait_for(process, END_SECONDS)


def _signal(group: int, number: int) -> bool:
    """Signal a group of processes; tell whether anybody is in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _wait_for(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Wait for a process to end, but not for who inherited its pipes."""
    ends = asyncio.get_running_loop().time() + seconds
    while process.returncode is None and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
