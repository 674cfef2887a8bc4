"""A server of the official package, over HTTP in this process or over stdio as a child."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import subprocess
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Image, MCPServer

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def build(seen: Any = None) -> MCPServer:
    """Return a server of some tools. seen: a list that gets the names of what ran."""
    server = MCPServer("probe")
    ran = [] if seen is None else seen

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool()
    async def wait(seconds: float) -> str:
        """Wait."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            ran.append("cancelled")
            raise
        ran.append("waited")
        return "done"

    @server.tool()
    def fail() -> str:
        """Fail."""
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError("no such thing")

    @server.tool()
    def picture() -> Image:
        """Show a picture."""
        return Image(data=PNG, format="png")

    @server.tool()
    def facts() -> dict[str, int]:
        """Return numbers."""
        return {"answer": 42}

    @server.tool()
    def fork() -> str:
        """Start a child that outlives its parent; return its process id."""
        return str(subprocess.Popen(["sleep", "300"]).pid)

    @server.tool()
    def leave() -> str:
        """End the process."""
        os._exit(3)

    return server


class HttpServer:
    """The server on a port of its own. headers: those of its requests, as they came.

    guard: the `Authorization` without which requests are 401; empty for none.
    """

    def __init__(
        self, server: MCPServer, port: int = 0, guard: bytes = b"", **options: Any
    ) -> None:
        self.server, self.headers, self._guard = server, [], guard
        self._app = server.streamable_http_app(**options)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
            if self._guard and dict(scope["headers"]).get(b"authorization") != self._guard:
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b"not you"})
                return
        await self._app(scope, receive, send)

    async def __aenter__(self) -> HttpServer:
        config = uvicorn.Config(self, log_level="error", timeout_graceful_shutdown=0)
        self._uvicorn = uvicorn.Server(config)
        self._uvicorn.install_signal_handlers = lambda: None
        self._serving = asyncio.create_task(self._uvicorn.serve([self._socket]))
        while not self._uvicorn.started:
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        await self._serving
        self._socket.close()


if __name__ == "__main__":
    print("a line for the log", file=sys.stderr, flush=True)
    build().run("stdio")
