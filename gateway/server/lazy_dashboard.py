"""The dashboard, `/ui`: an application of its own, built when it is first asked for.

Its routes and templates are a third of what the gateway would build at its start, and most
processes never show it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Litestar
from litestar.datastructures import State

from gateway.http.asgi import Receive, Send


class LazyDashboard:
    """The ASGI application of the dashboard.

    state: of the gateway's own application, whose `gateway` is the current state.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._building = asyncio.Lock()
        self._app: Litestar | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._building:
            if self._app is None:
                self._app = await asyncio.to_thread(self._build)
        await self._app(scope, receive, send)

    def _build(self) -> Litestar:
        from gateway.chat.inner_turn import run_inner_turn
        from gateway.ui.router import EXCEPTION_HANDLERS, dashboard, template_config

        gateway = self._state.gateway
        app = Litestar(
            [dashboard(gateway.secret, gateway.memory, run_inner_turn)],
            template_config=template_config(),
            openapi_config=None,
            exception_handlers=EXCEPTION_HANDLERS,
            logging_config=None,
            request_max_body_size=None,
        )
        app.state = self._state
        return app
