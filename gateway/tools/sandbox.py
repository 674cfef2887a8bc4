"""What a sandbox is: it runs Python source that nobody trusts, and returns text."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

RESULT_CHARACTERS = 2 << 20
CAUSE_CHARACTERS = 300
HostFunction = Callable[..., Awaitable[Any]]
LONE_HALVES = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Of one run. calls: of functions of the gateway."""

    seconds: float = 5.0
    memory_mib: int = 64
    print_characters: int = 8000
    recursion: int = 200
    calls: int = 50


@dataclass(frozen=True, slots=True)
class SandboxProgram:
    """What is run.

    source: run first. expression: its value is the result; empty for that of the last expression of
    the source. inputs: JSON values, bound as global names. functions: those of the gateway that the
    source may await. secrets: the placeholders that `secret(name)` returns. name: in errors.
    """

    source: str
    expression: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, HostFunction] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    name: str = "the code"


@dataclass(frozen=True, slots=True)
class SandboxOutcome:
    """What a run gave. text: the result, or behind `Error: ` what went wrong."""

    text: str
    is_error: bool = False
    output: str = ""

    def show(self) -> str:
        """Return result and printed lines as a model reads them."""
        output = self.output.rstrip("\n")
        if not output:
            return self.text
        if not self.text:
            return f"Printed:\n{output}"
        return f"{self.text}\nPrinted:\n{output}"


class Sandbox(Protocol):
    """Runs programs, each for itself: nothing of a run is there in the next one."""

    async def find_problem(self) -> str:
        """Return why it cannot run here, or nothing."""
        ...

    async def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """Run one program."""
        ...

    async def close(self) -> None:
        """End its processes."""
        ...


class PrintedText:
    """What a program printed, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0

    def add(self, stream: str, text: str) -> None:
        """Take what was printed to a stream."""
        characters_left = self._limit - self._size
        if characters_left > 0:
            self._parts.append(text[:characters_left])
        self._size += len(text)

    @property
    def text(self) -> str:
        output = "".join(self._parts)
        if self._size <= self._limit:
            return output
        return f"{output}\n[{self._size - self._limit:,} more characters were printed]"


def limit_calls(functions: Mapping[str, HostFunction], max_calls: int) -> dict[str, HostFunction]:
    """Return functions of the gateway that can be called so often in all."""
    calls = 0

    def limit(function: HostFunction) -> HostFunction:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > max_calls:
                raise RuntimeError(f"a run may call the gateway {max_calls} times, and did")
            return await function(*args, **kwargs)

        return call

    return {name: limit(function) for name, function in functions.items()}


def read_result(result_parts: Any, name: str, output: str) -> SandboxOutcome:
    """Return what `sandbox_runtime` made of a result."""
    if (
        not isinstance(result_parts, list)
        or len(result_parts) != 2
        or not all(isinstance(part, str) for part in result_parts)
    ):
        return fail(f"{name} gave no result", output)
    form, text = result_parts
    if form == "other":
        article = "an" if text[:1].lower() in "aeiou" else "a"
        return fail(f"{name} returned {article} {text[:80]}, return text or JSON", output)
    if form == "json" and text == "null":
        text = "" if output else "null"
    return SandboxOutcome(mend_text(text[:RESULT_CHARACTERS]), output=mend_text(output))


def fail(cause: str, output: str = "") -> SandboxOutcome:
    """Return the outcome of a run that gave nothing."""
    cause = mend_text(cause[:CAUSE_CHARACTERS]).strip().rstrip(".")
    return SandboxOutcome(f"Error: {cause}.", is_error=True, output=mend_text(output))


def say_exception(kind: str, message: str, line: int) -> str:
    """Return an exception as a model reads it."""
    where = f" (line {line})" if line > 0 else ""
    message_part = f": {message[: CAUSE_CHARACTERS - 80]}" if message else ""
    return f"{kind[:60]}{message_part}{where}"


def mend_text(text: str) -> str:
    """Return text that can be encoded."""
    return LONE_HALVES.sub("\ufffd", text)
