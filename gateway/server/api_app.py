"""The web framework's applications: the API beside the chat paths, and the dashboard."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import cast

from litestar import Litestar
from litestar.datastructures import State
from litestar.openapi.config import OpenAPIConfig

from gateway.management.router import management
from gateway.server.exception_handlers import EXCEPTION_HANDLERS
from gateway.server.openapi import SchemaRenderer
from gateway.server.router_caches import RouterCaches
from gateway.server.routes import HANDLERS
from gateway.server.stored_registration import HANDLERS as STORED_HANDLERS
from gateway.state import CurrentState

SCHEMA = SchemaRenderer(path=["/", "/openapi.json"])


def build_api(current_state: CurrentState, caches: RouterCaches) -> Litestar:
    """Return the application of `/v1`, `/memory/v1` and `/schema`."""
    return _serving(copy(shared_api()), current_state, caches)


@cache
def shared_api() -> Litestar:
    """Return the application without a state.

    It is built once in a process, since that takes a quarter of a second and applications differ
    by their state alone.
    """
    return Litestar(
        [*HANDLERS, *STORED_HANDLERS, management()],
        openapi_config=OpenAPIConfig("Mnemogate", "1", path="/schema", render_plugins=[SCHEMA]),
        exception_handlers=EXCEPTION_HANDLERS,
        logging_config=None,
        request_max_body_size=None,
    )


def build_dashboard(current_state: CurrentState, caches: RouterCaches) -> Litestar:
    """Return the application of `/ui`."""
    from gateway.chat.turn.inner_turn import run_inner_turn
    from gateway.ui.router import EXCEPTION_HANDLERS, dashboard, template_config

    gateway = current_state.gateway
    app = Litestar(
        [dashboard(gateway.secret, gateway.memory, run_inner_turn)],
        template_config=template_config(),
        openapi_config=None,
        exception_handlers=EXCEPTION_HANDLERS,
        logging_config=None,
        request_max_body_size=None,
    )
    return _serving(app, current_state, caches)


def _serving(app: Litestar, current_state: CurrentState, caches: RouterCaches) -> Litestar:
    """Let an application see the current state, and bound what it caches."""
    app.state = cast("State", current_state)
    caches.routes.append(app.asgi_router.handle_routing.cache_clear)
    return app
