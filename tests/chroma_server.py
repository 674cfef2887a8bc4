"""A real Chroma server on a private port."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.sockets import free_port

START_SECONDS = 30.0


@contextlib.contextmanager
def chroma_server(folder: Path) -> Iterator[str]:
    """Start a server on a folder. Yields its URL; ends it with the context."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    program = Path(sys.executable).with_name("chroma")
    command = [str(program), "run", "--path", str(folder), "--host", "127.0.0.1"]
    with open(folder.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
    try:
        _wait_for(url, process)
        yield url
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/api/v2/heartbeat", trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"Chroma did not start; its process said {process.poll()}")
