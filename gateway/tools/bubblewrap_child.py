"""The first thing that runs inside bubblewrap: it limits itself, then runs a program.

Its source is passed to the interpreter, which has nothing of this project. It reads one line of
JSON, `{source, expression, inputs, functions, secrets, limits, runtime}`, and writes lines of JSON:
`{call, args, kwargs}` for a function of the gateway, whose answer is the next line it reads, and at
the end `{printed, result}` or `{printed, error}`.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import sys
from typing import Any

# Of address space, for the interpreter itself.
BASE_MIB = 96
MAX_PROCESSES = 6
MAX_FILES = 24
FILE_BYTES = 8 << 20
# Of the flags of a code object.
COROUTINE = 0x80


class LimitedOutput:
    """What the program prints, up to a limit."""

    encoding = "utf-8"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        if self.size < self.limit:
            self.parts.append(text[: self.limit - self.size])
        self.size += len(text)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def show(self) -> str:
        text = "".join(self.parts)
        if self.size <= self.limit:
            return text
        return f"{text}\n[{self.size - self.limit:,} more characters were printed]"


def limit_resources(limits: dict[str, Any]) -> None:
    """Lower what this process and its children may use, for good."""
    memory = (limits["memory_mib"] + BASE_MIB) << 20
    cpu = int(limits["seconds"]) + 1
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, MAX_FILES),
        (resource.RLIMIT_NPROC, MAX_PROCESSES),
    ):
        resource.setrlimit(kind, (limit, limit))
    sys.setrecursionlimit(limits["recursion"] + 100)


def take_pipes() -> tuple[Any, Any]:
    """Return the pipes to the gateway, and leave none of them where a program looks."""
    incoming = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
    outgoing = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n", errors="replace")
    null_device = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null_device, number)
    return incoming, outgoing


def make_function(name: str, incoming: Any, outgoing: Any) -> Any:
    """Return a function that the gateway runs."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        outgoing.write(json.dumps({"call": name, "args": args, "kwargs": kwargs}) + "\n")
        outgoing.flush()
        answer = json.loads(incoming.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    return call


def make_secret(secrets: dict[str, str]) -> Any:
    """Return the function `secret`."""

    def secret(name: str) -> str:
        if name not in secrets:
            raise KeyError(f"there is no secret {name!r}")
        return secrets[name]

    return secret


def split_code(source: str, expression: str) -> tuple[ast.Module, ast.Expression | None]:
    """Return what is run, and whose value is the result."""
    module = ast.parse(source, "<source>")
    if expression:
        return module, ast.parse(expression, "<call>", "eval")
    last_statement = module.body[-1] if module.body else None
    if isinstance(last_statement, ast.Expr):
        module.body.pop()
        return module, ast.Expression(last_statement.value)
    return module, None


def run_code(code: Any, names: dict[str, Any]) -> Any:
    """Run compiled code, which may await at its top."""
    value = eval(code, names)  # noqa: S307 - this is the sandbox
    if not code.co_flags & COROUTINE:
        return value
    import asyncio

    return asyncio.run(value)


def run_program(job: dict[str, Any], names: dict[str, Any]) -> Any:
    """Return the rendered result of a program."""
    module, expression = split_code(job["source"], job["expression"])
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    run_code(compile(module, "<source>", "exec", flags), names)
    # Behind the source, so that its names are the ones that count.
    exec(compile(job["runtime"], "<runtime>", "exec"), names)  # noqa: S102 - our own source
    value = None
    if expression is not None:
        name = "<call>" if job["expression"] else "<source>"
        value = run_code(compile(expression, name, "eval", flags), names)
    return names["_mnemogate_render"](value)


def mend(text: str) -> str:
    """Return text with U+FFFD for each half of a surrogate pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def describe(error: BaseException) -> dict[str, Any]:
    """Return type, message and line of an exception."""
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<source>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno or 0
        return {"type": "SyntaxError", "message": mend(error.msg), "line": line}
    try:
        message = str(error)
    except BaseException:
        # The program's own class.
        message = ""
    return {"type": type(error).__name__, "message": mend(message[:1000]), "line": line}


def main() -> None:
    """Run the one program of this process."""
    incoming, outgoing = take_pipes()
    job = json.loads(incoming.readline())
    limits = job["limits"]
    output = LimitedOutput(limits["print_characters"])
    sys.stdout = sys.stderr = output
    limit_resources(limits)
    names: dict[str, Any] = {"__name__": "__main__", **job["inputs"]}
    for name in job["functions"]:
        names[name] = make_function(name, incoming, outgoing)
    if job["secrets"]:
        names["secret"] = make_secret(job["secrets"])
    answer: dict[str, Any] = {}
    try:
        answer["result"] = [mend(part) for part in run_program(job, names)]
    except BaseException as e:
        # Also SystemExit, which is no result.
        answer["error"] = describe(e)
    answer["printed"] = mend(output.show())
    outgoing.write(json.dumps(answer) + "\n")
    outgoing.flush()
    # Threads and children of the program are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
