"""Applications of the web framework, built when they are first asked for.

Chat, responses, messages and the probes are answered before it (see `GatewayMiddleware`). With its
routes, schemas and templates the framework is a third of the start and a sixth of the memory, and
most processes never need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.http.asgi import Receive, Send
from gateway.server.garbage import keep_for_good

Build = Callable[[], Callable[[Any, Receive, Send], Any]]


class LazyApp:
    """An ASGI application that is built once. build: runs in a thread."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._building = asyncio.Lock()
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._app is None:
            async with self._building:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._build)
                    keep_for_good()
        await self._app(scope, receive, send)
