"""Runs the child that reads a file, within limits of time and of what it may say.

Where bubblewrap runs, the child has no network, no files but the interpreter's, and no other
process in sight. Everywhere it has an empty environment and the limits of `child`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.frames import (
    FRAME_BYTES,
    LENGTH_BYTES,
    EndFrame,
    FailedFrame,
    Frame,
    HeadFrame,
    PassagesFrame,
    ReadRequest,
    decode_frame,
    encode_frame,
)
from memory.formats.documents.plain_text import clean_text
from memory.formats.documents.unreadable import Unreadable

log = logging.getLogger("mnemogate")
# For one reading.
SECONDS = 120.0
PROBE_SECONDS = 5.0
# Of what a child prints, for the log.
STDERR_BYTES = 2000
# The package itself stays as it is: its public names would load the store.
CODE = """
import sys, types
folder = sys.argv[1]
package = types.ModuleType("memory")
package.__path__ = [folder + "/memory"]
sys.modules["memory"] = package
sys.path.append(folder)
from memory.formats.documents.child import run
run()
"""
SYSTEM_FOLDERS = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf.d"),
)
TEMPORARY = "/tmp"  # noqa: S108 - of the child's own namespace


class ChildDied(Exception):
    """The child ended early, said what it may not say, or took too long."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file to read. size: in bytes. chunks: its bytes."""

    name: str
    size: int
    chunks: AsyncIterator[bytes]


def child_command(*, isolated: bool) -> list[str]:
    """Return the command of the child. isolated: by bubblewrap."""
    plain_command = [sys.executable, "-I", "-B", "-c", CODE, str(_package_folder().parent)]
    if isolated:
        return [*_isolation(), *plain_command]
    return plain_command


@lru_cache(1)
def _isolation() -> tuple[str, ...]:
    """Return bubblewrap with what a child may see, which it may not change."""
    paths = sysconfig.get_paths()
    visible_paths = dict.fromkeys(
        [
            *SYSTEM_FOLDERS,
            sys.prefix,
            sys.base_prefix,
            paths["stdlib"],
            paths["purelib"],
            paths["platlib"],
            str(Path(sys.executable).resolve().parent),
            str(_package_folder()),
        ]
    )
    binds = [part for path in visible_paths for part in ("--ro-bind-try", path, path)]
    return (
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", TEMPORARY),
        *binds,
        "--chdir",
        TEMPORARY,
    )


def _package_folder() -> Path:
    """Return the folder of the package `memory`."""
    return Path(__file__).resolve().parents[2]


def _environment(temporary: str = TEMPORARY) -> dict[str, str]:
    """Return all that a child knows of its surroundings."""
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "RAYON_NUM_THREADS": "1",
        "TMPDIR": temporary,
    }


class FileReader:
    """Reads files, each in a child of its own. seconds: for one reading, without its caller's."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._isolated: bool | None = None

    @contextlib.asynccontextmanager
    async def open(
        self, source: FileSource, limits: DocumentLimits
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """Start reading a file; the frames end with the last one. The child ends with the block.

        Raises ChildDied if it cannot be started; the iterator raises Unreadable if the file cannot
        be read, ChildDied.
        """
        with tempfile.TemporaryDirectory(prefix="mnemogate-") as folder:
            process = await self._start(folder)
            async with self._run(process, source, limits) as frames:
                yield frames

    @contextlib.asynccontextmanager
    async def _run(
        self, process: Process, source: FileSource, limits: DocumentLimits
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        request = encode_frame(ReadRequest(source.name, source.size, limits))
        feeding = asyncio.create_task(_feed(process, request, source.chunks))
        complaints = asyncio.create_task(_read_complaints(process))
        try:
            yield _Conversation(process, limits, self._seconds).frames()
        finally:
            feeding.cancel()
            await asyncio.shield(_end(process))
            with contextlib.suppress(asyncio.CancelledError):
                await feeding
            if text := await complaints:
                log.info("the reading of a file said: %s", text)

    async def _start(self, folder: str) -> Process:
        """Start the child. folder: for temporary files, where it is not isolated."""
        if self._isolated is None:
            self._isolated = await _can_isolate()
        try:
            return await asyncio.create_subprocess_exec(
                *child_command(isolated=self._isolated),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment() if self._isolated else _environment(folder),
                cwd="/",
                start_new_session=True,
                limit=FRAME_BYTES,
            )
        except OSError as e:
            raise ChildDied(f"no process can be started: {e.strerror}") from e


class _Conversation:
    """What one child says, checked."""

    def __init__(self, process: Process, limits: DocumentLimits, seconds: float) -> None:
        self._process = process
        self._limits = limits
        self._seconds = seconds
        self._characters = 0

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the frames up to the last. Raises Unreadable, ChildDied."""
        while True:
            frame = await self._next_frame()
            if isinstance(frame, FailedFrame):
                raise Unreadable(clean_text(frame.reason))
            if isinstance(frame, EndFrame):
                return
            self._check(frame)
            yield frame

    async def _next_frame(self) -> Frame:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                return decode_frame(await self._read())
        except TimeoutError as e:
            raise ChildDied("the reading took too long") from e
        except (asyncio.IncompleteReadError, msgspec.DecodeError) as e:
            raise ChildDied("the reading ended early") from e
        finally:
            # What the caller does with a frame is not the child's time.
            self._seconds -= time.monotonic() - began

    async def _read(self) -> bytes:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - it is a pipe
        size = int.from_bytes(await stream.readexactly(LENGTH_BYTES), "big")
        if size > FRAME_BYTES:
            raise ChildDied("the reading said too much at once")
        return await stream.readexactly(size)

    def _check(self, frame: Frame) -> None:
        """Bound what all frames hold together. Raises ChildDied."""
        if isinstance(frame, HeadFrame):
            self._characters += frame.characters
        elif isinstance(frame, PassagesFrame):
            self._characters -= sum(len(p.content) for p in frame.passages)
        # Each page ends in a line feed.
        max_entries = self._limits.characters + self._limits.pages
        if not 0 <= self._characters <= max_entries:
            raise ChildDied("the reading said something else than the file's text")


async def _feed(process: Process, request: bytes, chunks: AsyncIterator[bytes]) -> None:
    """Give the child its request and the file. One that ends early is noticed elsewhere."""
    pipe = process.stdin
    assert pipe is not None  # noqa: S101 - it is a pipe
    with contextlib.suppress(ConnectionError):
        pipe.write(request)
        async for chunk in chunks:
            pipe.write(chunk)
            await pipe.drain()
        pipe.close()


async def _read_complaints(process: Process) -> str:
    """Return the beginning of what the child prints; the rest is read and dropped."""
    stream = process.stderr
    assert stream is not None  # noqa: S101 - it is a pipe
    head = b""
    while data := await stream.read(1 << 16):
        head = (head + data)[:STDERR_BYTES]
    return clean_text(head.decode("utf-8", "replace")).strip()


async def _end(process: Process) -> None:
    """Kill the child with its group, and wait for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _can_isolate() -> bool:
    """Tell whether bubblewrap is there and may make namespaces."""
    if shutil.which("bwrap", path=_environment()["PATH"]) is None:
        return False
    probe = await asyncio.create_subprocess_exec(
        *_isolation(),
        sys.executable,
        "-I",
        "-c",
        "",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await probe.wait() == 0
    except TimeoutError:
        return False
    finally:
        await _end(probe)
