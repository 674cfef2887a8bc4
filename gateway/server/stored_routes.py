"""The routes of stored responses."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request, delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.chat.intake.memory_mode import mode_of
from gateway.chat.intake.relayed_names import check_content
from gateway.chat.stored.compacted_answer import CompactedAnswer
from gateway.chat.stored.stored_endpoint import StoredVerb
from gateway.http.paths import segment
from gateway.relay.endpoint import pass_on
from gateway.state import GatewayState
from gateway.wire.headers import merge_headers

OF_A_USER = "/u/{user:str}"
ONE = "/v1/responses/{name:str}"
CANCEL = f"{ONE}/cancel"
ITEMS = f"{ONE}/input_items"


async def _answer(request: Request[Any, Any, Any], name: str, verb: str) -> ASGIApp:
    gateway: GatewayState = request.app.state.gateway
    user = request.path_params.get("user")
    if gateway.keys.own and mode_of(merge_headers(request.scope["headers"])) == "off":
        relayed: ASGIApp = await pass_on(gateway, request.scope, request.receive, check_content)
        # The account is the client's own.
        return relayed
    served: ASGIApp = StoredVerb(
        gateway, request.scope, segment(name), user and segment(user)
    ).answer(verb)
    return served


@get([ONE, f"{OF_A_USER}{ONE}"], summary="A stored response, as its client was shown it")
async def stored_response(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, name, "get")


@delete(
    [ONE, f"{OF_A_USER}{ONE}"],
    status_code=200,
    summary="Delete a stored response and all its rounds",
)
async def delete_response(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, name, "delete")


@post(
    [CANCEL, f"{OF_A_USER}{CANCEL}"],
    status_code=200,
    summary="Cancel a response in the background",
)
async def cancel_response(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, name, "cancel")


@get([ITEMS, f"{OF_A_USER}{ITEMS}"], summary="What the client had sent for a stored response")
async def response_items(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, name, "input_items")


@post(
    ["/v1/responses/compact", f"{OF_A_USER}/v1/responses/compact"],
    status_code=200,
    summary="Compact a response's input into the user's messages and one item",
)
async def compact_response(request: Request[Any, Any, Any]) -> ASGIApp:
    gateway: GatewayState = request.app.state.gateway
    compacts = partial(CompactedAnswer, gateway)
    answer: ASGIApp = await pass_on(
        gateway, request.scope, request.receive, check_content, compacts
    )
    return answer


HANDLERS = (stored_response, delete_response, cancel_response, response_items, compact_response)
