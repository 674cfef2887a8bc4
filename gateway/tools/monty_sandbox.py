"""The sandbox of the package pydantic-monty: a Python interpreter in Rust, in worker processes.

It has no files, no network and no packages. The package is imported at the first run, off the
event loop. A worker serves one run at a time, and nothing of a run is there in the next one.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.tools import sandbox_runtime
from gateway.tools.sandbox import (
    PrintedText,
    SandboxLimits,
    SandboxOutcome,
    SandboxProgram,
    fail,
    limit_calls,
    read_result,
    say_exception,
)

MISSING = "the sandbox is not installed: pip install 'mnemogate[tools]'"
# For the source of a tool.
TOP_LEVEL_SECONDS = 1.0
# That any entry may have.
MAX_SECONDS = 30.0
# After which a worker is replaced.
CHECKOUTS = 200
# Of a worker, whatever its heap may be.
ADDRESS_SPACE_KIB = 2 << 20
# An interpreter that exits right after the workers ended was aborted in some runs.
PAUSE_AFTER_CLOSE = 0.3
PARSED_CHARACTERS = 32 << 10
RESULT = "_mnemogate_result"
RENDER = f"_mnemogate_render({RESULT})"
PLACEHOLDERS = """
def secret(name):
    if name not in _mnemogate_secrets:
        raise KeyError(f"there is no secret {name!r}")
    return _mnemogate_secrets[name]
"""


def is_installed() -> bool:
    """Tell whether the package is there, without loading it."""
    return importlib.util.find_spec("pydantic_monty") is not None


class MontySandbox:
    """The workers of one process, started at the first run."""

    def __init__(self, workers: int = 2) -> None:
        self._workers = workers
        self._package: Any = None
        self._pool: Any = None
        self._folder: Path | None = None
        self._starting = asyncio.Lock()
        self._runtime = Path(sandbox_runtime.__file__).read_text("utf-8")

    async def find_problem(self) -> str:
        """Return why it cannot run here, or nothing."""
        if is_installed():
            return ""
        return MISSING

    async def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """Run one program in a fresh session."""
        try:
            pool = await self._start()
        except ImportError:
            return fail(MISSING)
        output = PrintedText(limits.print_characters)
        run = _MontyRun(self._package, program, limits, output, self._runtime)
        try:
            async with run.open_session(pool) as session:
                return await run.feed(session)
        except TimeoutError:
            return fail(_say_time(program, limits), output.text)
        except self._package.MontyError as e:
            return fail(self._say_error(e, program, limits), output.text)

    async def check_types(self, source: str) -> str:
        """Return what a type checker says about a source, or nothing."""
        pool = await self._start()
        try:
            async with (
                asyncio.timeout(MAX_SECONDS),
                pool.checkout(limits=_limits_of(SandboxLimits()), type_check=True) as session,
            ):
                await session.feed_run(source, print_callback=lambda stream, text: None)
        except self._package.MontyTypingError as e:
            return str(e)[:4000]
        except (self._package.MontyError, TimeoutError):
            return ""
        return ""

    async def close(self) -> None:
        """End the workers."""
        async with self._starting:
            pool = self._pool
            self._pool = None
            folder = self._folder
            self._folder = None
            if pool is not None:
                await pool.__aexit__(None, None, None)
                await asyncio.sleep(PAUSE_AFTER_CLOSE)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    async def _start(self) -> Any:
        async with self._starting:
            if self._pool is None:
                self._package = await asyncio.to_thread(importlib.import_module, "pydantic_monty")
                self._folder = await asyncio.to_thread(_write_starter)
                pool = self._package.AsyncMonty(
                    binary_path=str(self._folder / "monty"),
                    max_processes=self._workers,
                    request_timeout=MAX_SECONDS + 1,
                    max_checkouts_per_worker=CHECKOUTS,
                )
                await pool.__aenter__()
                self._pool = pool
            return self._pool

    def _say_error(self, error: Any, program: SandboxProgram, limits: SandboxLimits) -> str:
        """Return an error of the package as a model reads it."""
        if isinstance(error, self._package.MontyCrashedError):
            if error.timed_out:
                return _say_time(program, limits)
            return "the sandbox broke off"
        exception = error.exception()
        kind = type(exception).__name__
        if hasattr(error, "traceback"):
            frames = error.traceback()
        else:
            frames = []
        own_file = f"<python-input-{1 if program.secrets else 0}>"
        line = next((f.line for f in reversed(frames) if f.filename == own_file), 0)
        message = str(error).removeprefix(f"{kind}: ")
        if kind == "TimeoutError" and "time limit" in message:
            return _say_time(program, limits)
        if kind == "MemoryError":
            return f"{program.name} needed more than {limits.memory_mib} MiB of memory"
        return say_exception(kind, message, line)


class _MontyRun:
    """One program in one session."""

    def __init__(
        self,
        package: Any,
        program: SandboxProgram,
        limits: SandboxLimits,
        output: PrintedText,
        runtime: str,
    ) -> None:
        self._package = package
        self._program = program
        self._limits = limits
        self._output = output
        self._runtime = runtime
        self._functions = limit_calls(program.functions, limits.calls)

    def open_session(self, pool: Any) -> Any:
        return pool.checkout(
            limits=_limits_of(self._limits),
            os_policy={"sleep_system_max": 1.0},
            script_name="tool.py",
        )

    async def feed(self, session: Any) -> SandboxOutcome:
        """Run source, expression and what makes text of the result."""
        program = self._program
        if program.secrets:
            secrets = {"_mnemogate_secrets": dict(program.secrets)}
            await self._feed(session, PLACEHOLDERS, secrets, TOP_LEVEL_SECONDS)
        if program.expression:
            result = await self._feed_tool(session)
        else:
            result = await self._feed_code(session)
        return read_result(result, program.name, self._output.text)

    async def _feed_tool(self, session: Any) -> Any:
        program = self._program
        await self._feed(session, program.source, {}, TOP_LEVEL_SECONDS)
        await self._feed(session, self._runtime, {}, TOP_LEVEL_SECONDS)
        call = f"{RESULT} = {program.expression}\n{RENDER}"
        # A function of the gateway takes its own time, which the caller bounds.
        seconds = None if program.functions else self._limits.seconds + 1
        return await self._feed(session, call, program.inputs, seconds)

    async def _feed_code(self, session: Any) -> Any:
        program = self._program
        seconds = self._limits.seconds + 1
        source = _name_last_value(program.source)
        value = await self._feed(session, source, program.inputs, seconds)
        if source is program.source:
            # The last value has no name: it is there as the package returns it.
            return _render_here(value)
        await self._feed(session, self._runtime, {}, TOP_LEVEL_SECONDS)
        return await self._feed(session, RENDER, {}, seconds)

    async def _feed(
        self, session: Any, code: str, inputs: Mapping[str, Any], seconds: float | None
    ) -> Any:
        async with asyncio.timeout(seconds):
            return await session.feed_run(
                code,
                inputs=dict(inputs),
                external_lookup=self._functions or None,
                print_callback=self._output.add,
            )


def _limits_of(limits: SandboxLimits) -> dict[str, Any]:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_memory": limits.memory_mib << 20,
        "max_recursion_depth": limits.recursion,
        # A call of the gateway takes up to four: a name, the call, its future, what waits for it.
        "max_suspensions": 4 * limits.calls + 200,
        "max_total_sleep_secs": limits.seconds,
    }


def _say_time(program: SandboxProgram, limits: SandboxLimits) -> str:
    return f"{program.name} did not end within {limits.seconds:g} s"


def _name_last_value(source: str) -> str:
    """Return the source with a name for the value of its last expression, on the same lines.

    The same object is returned where this version of Python cannot read it.
    """
    if len(source) > PARSED_CHARACTERS:
        return source
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    if not body or not isinstance(body[-1], ast.Expr):
        return f"{source}\n{RESULT} = None"
    lines = source.encode().split(b"\n")
    start = sum(len(line) + 1 for line in lines[: body[-1].lineno - 1]) + body[-1].col_offset
    end_line = body[-1].end_lineno or body[-1].lineno
    end = sum(len(line) + 1 for line in lines[: end_line - 1]) + (body[-1].end_col_offset or 0)
    data = source.encode()
    named_source = data[:start] + f"{RESULT} = (".encode() + data[start:end] + b")" + data[end:]
    return named_source.decode()


def _render_here(value: Any) -> Any:
    try:
        return sandbox_runtime._mnemogate_render(value)
    except (ValueError, RecursionError):
        return ["other", "value that is too large"]


def _write_starter() -> Path:
    """Write what starts a worker: without the environment, core files and a voice in the log."""
    binary = importlib.import_module("pydantic_monty._binary").find_monty_binary()
    folder = Path(tempfile.mkdtemp(prefix="mnemogate-monty-"))
    starter = folder / "monty"
    starter.write_text(
        "#!/bin/sh\n"
        "ulimit -c 0\n"
        f"ulimit -v {ADDRESS_SPACE_KIB} 2>/dev/null\n"
        f'exec env -i {shlex.quote(binary)} "$@" 2>/dev/null\n',
        "utf-8",
    )
    os.chmod(starter, 0o700)
    return folder
