"""The routes of Letta clients, below `/letta/v1/`, and what answers them."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from gateway.errors import BadRequest, GatewayError, TooLarge
from gateway.http.access_log import current_line
from gateway.http.asgi import (
    NOSNIFF,
    UNEXPECTED,
    ClientLeft,
    EarlyErrorResponse,
    Receive,
    Send,
    respond,
    respond_error,
)
from gateway.http.paths import segment
from gateway.letta import (
    agent_tools,
    agents,
    block_routes,
    file_import,
    files,
    listed_messages,
    messages,
    models,
    passages,
    server,
    tools,
)
from gateway.letta.call import LettaCall
from gateway.letta.errors import NotSupported, as_unprocessable, error_body, final
from gateway.letta.paths import BASE
from gateway.letta.project import find_project
from gateway.letta.route import Answer, LettaRoute
from gateway.state import GatewayState, request_id
from gateway.wire.chat import encode

log = logging.getLogger("mnemogate")
ROUTES: tuple[LettaRoute, ...] = (
    *server.ROUTES,
    *models.ROUTES,
    *file_import.ROUTES,
    *files.ROUTES,
    *block_routes.ROUTES,
    *passages.ROUTES,
    *agent_tools.ROUTES,
    *messages.ROUTES,
    *listed_messages.ROUTES,
    *agents.ROUTES,
    *tools.ROUTES,
)


class RouteMatch(NamedTuple):
    """The route of a request, and the names in its path."""

    route: LettaRoute
    names: tuple[str, ...]


def find_route(method: str, path: str) -> RouteMatch:
    """Return the route of a request below `/letta/v1/`. Raises NotSupported."""
    parts = [segment(part) for part in path[len(BASE) :].split("/") if part]
    for route in ROUTES:
        if route.method == method and (names := route.match(parts)) is not None:
            return RouteMatch(route, names)
    raise NotSupported(
        f"{method} {path[len('/letta') : 200]!r} is not supported here: docs/letta.md lists the "
        "calls of Letta clients that are answered."
    )


async def serve(gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
    """Answer a Letta client's request over ASGI, also if it fails."""
    base = [(b"x-mnemogate-request-id", request_id(scope).encode())]
    current_line().error_body = error_body
    try:
        await _answer(gateway, scope, receive, send)
    except TooLarge as e:
        await EarlyErrorResponse(e, base)(scope, receive, send)
    except GatewayError as e:
        error = as_unprocessable(e) if isinstance(e, BadRequest) else e
        await respond_error(send, final(error), base)
    except ClientLeft:
        raise
    except Exception:
        # A defect of ours. The client gets an answer with the request's id, the log the rest.
        log.exception("unexpected failure (%s)", request_id(scope))
        await respond_error(send, GatewayError(UNEXPECTED, code="internal_error"), base)


async def _answer(gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
    call = LettaCall(gateway, scope, receive, send)
    match = find_route(scope["method"], scope["path"])
    if match.route.of_tenant:
        await call.check_tenant()
        call.check_policy(writes=scope["method"] != "GET")
        call.project = await find_project(call.gateway, call.principal, call.headers)
    answer: Answer = await match.route.handler(call, *match.names)
    # Else it has answered itself.
    if answer is not None:
        await _respond(call, answer)


async def _respond(call: LettaCall, answer: Answer) -> None:
    if isinstance(answer, bytes):
        body = answer
    else:
        body = encode(answer)
    headers = [
        *call.headers_out(),
        NOSNIFF,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    await respond(call.send, 200, body, headers)
