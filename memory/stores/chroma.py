"""Chroma as the index of large scopes: one collection for each scope and kind, explicit vectors.

SQL is the record, from which this index can be rebuilt. Chroma runs in a child process
(`chroma_child`): embedded, it was seen to hold the interpreter lock for seconds, and for ever once
its folder was removed. Each call has a deadline. After a failure the child is ended and the index
is not used for a while: keyword search continues, and the log says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from memory.embed.telemetry import SWITCHES
from memory.errors import StoreUnavailable

log = logging.getLogger("mnemogate")
CHILD = Path(__file__).with_name("chroma_child.py")
# A cold start imports many modules.
OPEN_SECONDS = 60.0
CALL_SECONDS = 15.0
# A search then continues without it; the call may continue, to load an index.
SEARCH_SECONDS = 2.0
# Pause after a failure.
REST_SECONDS = 300.0
# How long the child may take to end.
END_SECONDS = 1.0


class ChromaIndex:
    """Vectors in Chroma.

    where: `chroma:embedded` or `chroma:http://host:port`. folder: of the embedded one. Opens on
    first use.
    """

    def __init__(self, where: str, folder: Path) -> None:
        self._where = where.removeprefix("chroma:")
        self._folder = folder
        self._child: Process | None = None
        # One call at a time.
        self._turn = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()
        self._rests_until = 0.0
        self._failed = False
        self._closed = False

    async def upsert(self, name: str, items: Sequence[tuple[int, list[float]]]) -> None:
        """Add or replace vectors by row key. Raises StoreUnavailable."""
        await self._call("upsert", [name, items])

    async def nearest(self, name: str, vector: list[float], limit: int) -> dict[int, float]:
        """Return the similarity of the `limit` nearest by row key. Raises StoreUnavailable."""
        return msgspec.convert(
            await self._call("nearest", [name, vector, limit], SEARCH_SECONDS), dict[int, float]
        )

    async def forget(self, prefix: str, keys: Sequence[int] | None) -> None:
        """Remove vectors by row key, None for all, in every collection with this prefix.

        Missing ones are not an error. Raises StoreUnavailable.
        """
        await self._call("forget", [prefix, keys])

    async def close(self) -> None:
        """Release the folder, even if a call is running."""
        self._closed = True
        for call in self._calls:
            call.cancel()
        await self._end()

    async def _call(self, name: str, arguments: list[Any], patience: float | None = None) -> Any:
        """Make one call.

        patience: seconds to wait; a late call continues by itself. Raises StoreUnavailable.
        """
        call = asyncio.ensure_future(self._call_child(name, arguments))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        call.add_done_callback(lambda c: c.cancelled() or c.exception())
        await asyncio.wait({call}, timeout=patience)
        if not call.done():
            raise StoreUnavailable(f"Chroma did not answer within {patience} s")
        if call.cancelled():
            raise StoreUnavailable("Chroma is closed")
        return call.result()

    async def _call_child(self, name: str, arguments: list[Any]) -> Any:
        async with self._turn:
            if self._closed or time.monotonic() < self._rests_until:
                raise StoreUnavailable("Chroma is left alone: it failed lately, or is closed")
            try:
                if self._child is None:
                    self._child = await self._start_child()
                    await self._exchange(self._child, OPEN_SECONDS, "open", [])
                found = await self._exchange(self._child, CALL_SECONDS, name, arguments)
            except StoreUnavailable as e:
                await self._leave_alone(e)
                raise
            self._failed = False
            return found

    async def _start_child(self) -> Process:
        """Start the child. Its own deadline is later than ours."""
        seconds = OPEN_SECONDS + CALL_SECONDS
        command = (sys.executable, "-P", str(CHILD), self._where, str(self._folder), str(seconds))
        env = {**os.environ, **SWITCHES}
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env
        )

    async def _exchange(
        self, child: Process, seconds: float, name: str, arguments: list[Any]
    ) -> Any:
        """Send a call and return its result. Raises StoreUnavailable, also past the deadline."""
        assert child.stdin is not None  # noqa: S101 - both are pipes
        assert child.stdout is not None  # noqa: S101
        frame = msgspec.msgpack.encode([name, arguments])
        try:
            async with asyncio.timeout(seconds):
                child.stdin.write(len(frame).to_bytes(4, "big") + frame)
                await child.stdin.drain()
                size = int.from_bytes(await child.stdout.readexactly(4), "big")
                answer = msgspec.msgpack.decode(await child.stdout.readexactly(size))
        except TimeoutError as e:
            raise StoreUnavailable(f"Chroma did not answer within {seconds:.0f} s") from e
        except (OSError, asyncio.IncompleteReadError) as e:
            raise StoreUnavailable("Chroma's process has ended") from e
        if "error" in answer:
            raise StoreUnavailable(answer["error"])
        return answer["value"]

    async def _leave_alone(self, why: StoreUnavailable) -> None:
        self._rests_until = time.monotonic() + REST_SECONDS
        if not self._failed:
            log.warning(
                "the vector index is left alone, and tried again every %.0f s; words find what "
                "they find: %s",
                REST_SECONDS,
                why,
            )
        self._failed = True
        await self._end()

    async def _end(self) -> None:
        """End the child, by force if necessary."""
        child = self._child
        self._child = None
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await child.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
