"""The routes of `/v1/conversations`."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request, delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.chat.intake.memory_mode import mode_of
from gateway.chat.intake.relayed_names import check_content
from gateway.chat.stored.conversation_endpoint import ConversationVerb
from gateway.chat.stored.stored_answer import StoredAnswer, stored_answer
from gateway.http.paths import segment
from gateway.http.request_body import read_body
from gateway.relay.endpoint import pass_on
from gateway.state import GatewayState, request_id
from gateway.wire.headers import merge_headers

ALL = "/v1/conversations"
ONE = f"{ALL}/{{name:str}}"
ITEMS = f"{ONE}/items"
ITEM = f"{ITEMS}/{{item:str}}"
OF_A_USER = "/u/{user:str}"
# What records say of each verb's path below `/v1`; of others `/conversations/{id}`.
PATHS = {
    "create": "/conversations",
    "items": "/conversations/{id}/items",
    "add_items": "/conversations/{id}/items",
    "item": "/conversations/{id}/items/{item}",
    "delete_item": "/conversations/{id}/items/{item}",
}


async def _answer(
    request: Request[Any, Any, Any], verb: str, name: str = "", *segments: str
) -> ASGIApp:
    """Return what answers a request on a conversation. segments: what its verb takes."""
    gateway: GatewayState = request.app.state.gateway
    user = request.path_params.get("user")
    headers = merge_headers(request.scope["headers"])
    conversation = ""
    if name:
        conversation = segment(name)
    # The account is the client's own.
    if gateway.keys.own and mode_of(headers) == "off":
        relayed: ASGIApp = await pass_on(gateway, request.scope, request.receive, check_content)
        return relayed
    # Before the body is read.
    principal = gateway.keys.caller(headers)
    limit = int(gateway.settings.server.max_body_mib * 1024 * 1024)
    content = await read_body(request.receive, headers, limit)
    conversation_verb = ConversationVerb(
        gateway, request.scope, conversation, user and segment(user), content
    )
    make = StoredAnswer(partial(getattr(conversation_verb, verb), *map(segment, segments)))
    path = PATHS.get(verb, "/conversations/{id}")
    ident = request_id(request.scope)
    served: ASGIApp = stored_answer(gateway, principal, path, ident, make.ready)
    return served


@post([ALL, f"{OF_A_USER}{ALL}"], status_code=200, summary="Make a conversation")
async def create_conversation(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _answer(request, "create")


@get([ONE, f"{OF_A_USER}{ONE}"], summary="A conversation")
async def one_conversation(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, "get", name)


@post([ONE, f"{OF_A_USER}{ONE}"], status_code=200, summary="Change a conversation's metadata")
async def change_conversation(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, "change", name)


@delete([ONE, f"{OF_A_USER}{ONE}"], status_code=200, summary="Delete a conversation")
async def delete_conversation(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, "delete", name)


@get([ITEMS, f"{OF_A_USER}{ITEMS}"], summary="The items of a conversation")
async def conversation_items(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, "items", name)


@post([ITEMS, f"{OF_A_USER}{ITEMS}"], status_code=200, summary="Add items to a conversation")
async def add_conversation_items(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIApp:
    return await _answer(request, "add_items", name)


@get([ITEM, f"{OF_A_USER}{ITEM}"], summary="One item of a conversation")
async def conversation_item(
    request: Request[Any, Any, Any], name: FromPath[str], item: FromPath[str]
) -> ASGIApp:
    return await _answer(request, "item", name, item)


@delete([ITEM, f"{OF_A_USER}{ITEM}"], status_code=200, summary="Delete an item")
async def delete_conversation_item(
    request: Request[Any, Any, Any], name: FromPath[str], item: FromPath[str]
) -> ASGIApp:
    return await _answer(request, "delete_item", name, item)


HANDLERS = (
    create_conversation,
    one_conversation,
    change_conversation,
    delete_conversation,
    conversation_items,
    add_conversation_items,
    conversation_item,
    delete_conversation_item,
)
