"""Runs commands in processes forked from one that has imported them already.

Each is a process of its own, as a user's is. Only its imports, most of what a short command costs,
are made once for a whole test run.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.gateway.cli.preloaded"])


def run_forked(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `mnemogate` with these arguments to its end. Raises TimeoutExpired.

    timeout: in seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("in", "out", "err")]
        files[0].write_text(stdin, encoding="utf-8")
        process = _context.Process(
            target=_run, args=(list(arguments), str(cwd), dict(env), [str(f) for f in files])
        )
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), timeout)
        out, err = (f.read_text(encoding="utf-8") if f.exists() else "" for f in files[1:])
        assert process.exitcode is not None
        return subprocess.CompletedProcess(list(arguments), process.exitcode, out, err)


def _run(arguments: list[str], cwd: str, env: dict[str, str], files: list[str]) -> None:
    from gateway.cli.main import main

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, (path, flags) in enumerate(
        zip(files, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT] * 2), strict=True)
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
    sys.argv = ["mnemogate", *arguments]
    main()
