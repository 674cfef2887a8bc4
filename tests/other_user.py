"""Programs that run as another user of this machine, which only root can start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sockets import free_port

NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can run another user's program",
)
# Copies bytes both ways between a port and another, and looks at none: Docker's userland proxy.
FORWARDER = """
import asyncio, os, sys
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    onward = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, onward[1]), copy(onward[0], writer), return_exceptions=True)
async def main():
    if sys.argv[3]:
        os.setuid(int(sys.argv[3]))  # only now: another user may not read the interpreter
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
"""
NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
{user}
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host {target};
      proxy_pass http://{target};
    }}
  }}
}}
"""


@contextlib.asynccontextmanager
async def forwarding(port: int, user: int | None = NOBODY) -> AsyncIterator[str]:
    """The URL of a proxy of a user that forwards bytes as they are."""
    own = free_port()
    named = "" if user is None else str(user)
    command = (sys.executable, "-I", "-S", "-c", FORWARDER, str(own), str(port), named)
    async with _running(command, own):
        yield f"http://127.0.0.1:{own}"


@contextlib.asynccontextmanager
async def nginx(port: int, folder: Path, user: str = "nobody nogroup") -> AsyncIterator[str]:
    """The URL of a real nginx before a port, as newer versions forward by default."""
    own = free_port()
    named = f"user {user};" if user else ""
    text = NGINX.format(folder=folder, user=named, port=own, target=f"127.0.0.1:{port}")
    (folder / "nginx.conf").write_text(text)
    path = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert path, "nginx is not installed"
    async with _running((path, "-c", str(folder / "nginx.conf")), own):
        yield f"http://127.0.0.1:{own}"


@contextlib.asynccontextmanager
async def _running(command: tuple[str, ...], port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(*command)
    try:
        for _ in range(500):
            assert process.returncode is None, "the proxy has ended"
            with contextlib.suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            await asyncio.sleep(0.02)
        yield
    finally:
        process.terminate()
        await process.wait()
