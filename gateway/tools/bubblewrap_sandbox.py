"""The sandbox of bubblewrap: a whole CPython in a room of its own, for one run.

Own namespaces of everything, no network, no files but the interpreter's (read-only) and 16 MiB of
/tmp, no privileges, limits of memory, time, processes and file sizes. A gateway that runs as root
gives that up first. Where the room cannot be made nothing runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from gateway.http.json_thread import run_by_weight
from gateway.tools.sandbox import (
    RESULT_CHARACTERS,
    SandboxLimits,
    SandboxOutcome,
    SandboxProgram,
    fail,
    limit_calls,
    read_result,
    say_exception,
)
from gateway.wire.chat import decode

# That are read of a run.
MOST_BYTES = 1 << 20
LINE_BYTES = 1 << 20
READ_BYTES = 1 << 16
TMP_BYTES = 16 << 20
# To start and to end.
SPARE_SECONDS = 1.0
# The last range that systems give to nobody.
FIRST_UNUSED_UID = 61_184
UNUSED_UIDS = 300
OLDEST_VERSION = (0, 8)
PROBE_SECONDS = 10.0
SYSTEM_FOLDERS = ("/lib", "/lib64", "/lib32", "/libx32")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32")
INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
SOURCES = Path(__file__).parent
PROBE = """
import os, socket
_seen = []
for _path in paths:
    try:
        if os.path.exists(_path):
            _seen.append("a file of this machine")
    except OSError:
        pass
if any(canary in _text for _text in [*os.environ, *os.environ.values()]):
    _seen.append("a variable of this process")
_socket = socket.socket()
_socket.settimeout(1)
try:
    _socket.connect(("127.0.0.1", port))
    _seen.append("a server of this machine")
except OSError:
    pass
try:
    open("/mnemogate-probe", "w").close()
    _seen.append("a file that it could write")
except OSError:
    pass
if os.getuid() == 0:
    _seen.append("the user root")
_seen
"""


class BubblewrapMissing(Exception):
    """There is no room to run in. The text says why."""


class BubblewrapSandbox:
    """Runs each program in a room of its own, so many at a time."""

    def __init__(self, workers: int = 2) -> None:
        self._slots = asyncio.Semaphore(workers)
        self._processes: set[asyncio.subprocess.Process] = set()
        self._probing = asyncio.Lock()
        # None: not probed yet.
        self._problem: str | None = None
        self._command: list[str] = []
        self._canary = secrets.token_hex(16)
        self._child = (SOURCES / "bubblewrap_child.py").read_text("utf-8")
        self._runtime = (SOURCES / "sandbox_runtime.py").read_text("utf-8")

    @property
    def problem(self) -> str:
        """Why nothing can run, as the probe found; nothing before it."""
        return self._problem or ""

    async def find_problem(self) -> str:
        """Probe the room once: a child sees no file, variable or server of this machine."""
        async with self._probing:
            if self._problem is None:
                try:
                    await asyncio.to_thread(self._prepare)
                    await self._probe()
                    self._problem = ""
                except BubblewrapMissing as e:
                    self._problem = str(e)
            return self._problem

    async def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """Run one program."""
        if problem := await self.find_problem():
            return fail(f"the sandbox is not available: {problem}")
        return await self._run(program, limits)

    async def close(self) -> None:
        """End what still runs."""
        for process in list(self._processes):
            await _end(process)

    def _prepare(self) -> None:
        """Find bubblewrap, an interpreter and a user. Raises BubblewrapMissing."""
        program = shutil.which("bwrap")
        if program is None:
            raise BubblewrapMissing("bubblewrap (bwrap) is not installed")
        uid = None
        if os.geteuid() == 0:
            uid = _find_unused_uid()
        room = _room_command(program, _find_interpreter(uid))
        if uid is not None:
            # Limits of processes do not bind root.
            dropper = shutil.which("setpriv")
            if dropper is None:
                raise BubblewrapMissing("the gateway runs as root, and setpriv is not installed")
            room = [dropper, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *room]
        self._command = room

    async def _probe(self) -> None:
        """Look from inside for what must not be seen. Raises BubblewrapMissing."""
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        handle, path = tempfile.mkstemp(prefix="mnemogate-canary-")
        os.close(handle)
        paths = [path, "/etc/passwd", "/home"]
        inputs = {"paths": paths, "port": port, "canary": self._canary}
        try:
            outcome = await self._run(
                SandboxProgram(PROBE, inputs=inputs, name="the probe"),
                SandboxLimits(seconds=PROBE_SECONDS),
            )
        finally:
            os.unlink(path)
            server.close()
            await server.wait_closed()
        if outcome.is_error:
            raise BubblewrapMissing(f"a first run failed ({outcome.text.removeprefix('Error: ')})")
        if outcome.text != "[]":
            raise BubblewrapMissing(f"from inside one can reach {outcome.text[:200]}")

    async def _run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                self._child,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # The probe looks for this value: nothing of an environment arrives inside.
                env={"PATH": "/usr/bin:/bin", "CANARY": self._canary},
                cwd="/",
                start_new_session=True,
                limit=LINE_BYTES,
            )
            self._processes.add(process)
            try:
                return await _BubblewrapRun(process, program, limits, self._runtime).finish()
            finally:
                self._processes.discard(process)
                await asyncio.shield(asyncio.ensure_future(_end(process)))


class _BubblewrapRun:
    """The talk with one child."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        program: SandboxProgram,
        limits: SandboxLimits,
        runtime: str,
    ) -> None:
        self._process = process
        self._program = program
        self._limits = limits
        self._runtime = runtime
        self._functions = limit_calls(program.functions, limits.calls)
        self._read_bytes = 0

    async def finish(self) -> SandboxOutcome:
        """Return what the child gave."""
        program = self._program
        limits = self._limits
        loop = asyncio.get_running_loop()
        seconds_left = limits.seconds + SPARE_SECONDS
        try:
            self._write(
                {
                    "source": program.source,
                    "expression": program.expression,
                    "inputs": dict(program.inputs),
                    "functions": list(program.functions),
                    "secrets": dict(program.secrets),
                    "limits": asdict(limits),
                    "runtime": self._runtime,
                }
            )
            while True:
                start_time = loop.time()
                async with asyncio.timeout(max(0.0, seconds_left)):
                    answer = await self._read()
                # Time that functions of the gateway take is not the program's.
                seconds_left -= loop.time() - start_time
                if answer is None:
                    return await self._say_end()
                if "call" not in answer:
                    return self._read_end(answer)
                self._write(await self._call(answer))
        except TimeoutError:
            return fail(f"{program.name} did not end within {limits.seconds:g} s")
        except ConnectionError:
            return await self._say_end()

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> dict[str, Any] | None:
        """Return the child's next line, or None at the end, or for what is none of its lines."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            line = await self._process.stdout.readuntil(b"\n")
            self._read_bytes += len(line)
            if self._read_bytes > MOST_BYTES:
                return None
            answer = await run_by_weight(line, decode, line)
        except asyncio.LimitOverrunError:
            self._read_bytes = MOST_BYTES + 1
            return None
        except (
            asyncio.IncompleteReadError,
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ):
            return None
        if isinstance(answer, dict):
            return answer
        return None

    async def _call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Run a function of the gateway for the child."""
        function = self._functions.get(str(message.get("call")))
        args = message.get("args")
        kwargs = message.get("kwargs")
        if function is None or not isinstance(args, list) or not isinstance(kwargs, dict):
            return {"error": "there is no such function"}
        try:
            return {"value": await function(*args, **kwargs)}
        except (RuntimeError, TypeError, ValueError) as e:
            return {"error": str(e)[:1000]}

    def _read_end(self, answer: Mapping[str, Any]) -> SandboxOutcome:
        output = answer.get("printed")
        output = output[:RESULT_CHARACTERS] if isinstance(output, str) else ""
        error = answer.get("error")
        if not isinstance(error, dict):
            return read_result(answer.get("result"), self._program.name, output)
        kind = str(error.get("type", ""))
        message = str(error.get("message", ""))
        line = error.get("line")
        if kind == "MemoryError":
            return fail(
                f"{self._program.name} needed more than {self._limits.memory_mib} MiB of memory",
                output,
            )
        where = line if isinstance(line, int) else 0
        return fail(say_exception(kind, message, where), output)

    async def _say_end(self) -> SandboxOutcome:
        """Return why there is no answer."""
        name = self._program.name
        limits = self._limits
        with suppress(TimeoutError):
            async with asyncio.timeout(SPARE_SECONDS):
                code = await self._process.wait()
                if code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL) and not self._read_bytes:
                    return fail(f"{name} did not end within {limits.seconds:g} s, or was killed")
        if self._read_bytes > MOST_BYTES:
            return fail(f"{name} gave more than {MOST_BYTES >> 20} MiB")
        return fail(f"{name} ended without a result{await self._read_complaint()}")

    async def _read_complaint(self) -> str:
        """Return what bubblewrap itself said."""
        if self._process.stderr is None or self._read_bytes:
            return ""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                complaint = (await self._process.stderr.read(2000)).decode("utf-8", "replace")
                lines = [line for line in complaint.splitlines() if line.startswith("bwrap:")]
                if lines:
                    return f" ({lines[0][:200]})"
                return ""
        return ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a room: its first process takes all others with it.

    That one is killed, and not its parent, which would leave it to nobody.
    """
    if process.returncode is None:
        for pid in _children_of(process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(SPARE_SECONDS):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    # What is still in the pipes is read, so that they close.
    for pipe in (process.stdout, process.stderr):
        with suppress(TimeoutError):
            async with asyncio.timeout(SPARE_SECONDS):
                while pipe is not None and await pipe.read(READ_BYTES):
                    pass


def _children_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    except OSError:
        return []
    return [int(number) for number in text.split()]


def _find_unused_uid() -> int:
    """Return a user whom nobody is. Raises BubblewrapMissing."""
    # Not on Windows.
    import pwd

    start = secrets.randbelow(UNUSED_UIDS)
    for step in range(UNUSED_UIDS):
        uid = FIRST_UNUSED_UID + (start + step) % UNUSED_UIDS
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise BubblewrapMissing("the gateway runs as root, and there is no unused user to become")


def _find_interpreter(uid: int | None) -> Path:
    """Return an interpreter that this user may run. Raises BubblewrapMissing."""
    own_interpreter = Path(getattr(sys, "_base_executable", "") or sys.executable)
    for candidate in (own_interpreter, *map(Path, INTERPRETERS)):
        if candidate.exists():
            path = candidate.resolve()
            if uid is None or _is_open_to_all(path):
                return path
    raise BubblewrapMissing(
        f"the gateway runs as root, and other users cannot read its interpreter ({own_interpreter})"
    )


def _is_open_to_all(path: Path) -> bool:
    """Tell whether every user may reach and run a file."""
    return path.stat().st_mode & 0o005 == 0o005 and all(
        parent.stat().st_mode & 0o001 for parent in path.parents
    )


def _room_command(program: str, interpreter: Path) -> list[str]:
    """Return the command behind which the child's source stands."""
    prefix = interpreter.parent.parent
    command = [program, "--unshare-all", "--unshare-user", "--disable-userns", "--clearenv"]
    command += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--new-session"]
    command += ["--die-with-parent", "--hostname", "sandbox"]
    # Of /usr only libraries and the interpreter itself.
    folders = [folder for folder in LIBRARIES if os.path.isdir(folder)]
    if str(prefix) == "/usr":
        command += ["--ro-bind", str(interpreter), str(interpreter)]
    else:
        folders.append(str(prefix))
    for folder in folders:
        command += ["--ro-bind", folder, folder]
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        command += ["--dev-bind", device, device]
    command += ["--size", str(TMP_BYTES), "--perms", "0700", "--tmpfs", "/tmp"]  # noqa: S108
    command += ["--chdir", "/tmp", "--remount-ro", "/"]  # noqa: S108
    return [*command, str(interpreter), "-I", "-S", "-c"]
