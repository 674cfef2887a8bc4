"""The routes of `/v1`."""

from __future__ import annotations

from typing import Any

from litestar import Request, post, route
from litestar.enums import HttpMethod
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.apis.base import ApiFormat
from gateway.apis.chat.chat_format import CHAT
from gateway.apis.messages.messages_format import MESSAGES
from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.relayed_names import check_content
from gateway.chat.intake.request import MemoryPath
from gateway.chat.turn import endpoint
from gateway.errors import ResourceNotFound
from gateway.http.paths import UpstreamPath, segment, upstream_path
from gateway.relay.endpoint import pass_on
from gateway.server import model_routes, operation_routes
from gateway.server.front_page import front_page
from gateway.state import GatewayState

METHODS = [
    HttpMethod.GET,
    HttpMethod.HEAD,
    HttpMethod.OPTIONS,
    HttpMethod.POST,
    HttpMethod.PUT,
    HttpMethod.PATCH,
    HttpMethod.DELETE,
]

COUNT_TOKENS = upstream_path("messages", "count_tokens")
INPUT_TOKENS = upstream_path("responses", "input_tokens")
# By any method but POST.
RELAYED = ("responses", "messages", "messages/count_tokens")


def _serve(
    request: Request[Any, Any, Any],
    path_user: str | None,
    api_format: ApiFormat = CHAT,
    count: UpstreamPath | None = None,
) -> ASGIApp:
    path = MemoryPath(api_format, path_user, count)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await endpoint.serve(request.app.state.gateway, scope, receive, send, path)

    return served


@post("/v1/chat/completions", status_code=200, summary="A chat completion with memory")
async def chat_completions(request: Request[Any, Any, Any]) -> ASGIApp:
    return _serve(request, None)


@post("/u/{user:str}/v1/chat/completions", status_code=200, include_in_schema=False)
async def user_chat_completions(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return _serve(request, segment(user))


@post("/v1/responses", status_code=200, summary="A response with memory (OpenAI Responses)")
async def responses(request: Request[Any, Any, Any]) -> ASGIApp:
    return _serve(request, None, RESPONSES)


@post("/u/{user:str}/v1/responses", status_code=200, include_in_schema=False)
async def user_responses(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return _serve(request, segment(user), RESPONSES)


@post("/v1/messages", status_code=200, summary="A message with memory (Anthropic Messages)")
async def messages(request: Request[Any, Any, Any]) -> ASGIApp:
    return _serve(request, None, MESSAGES)


@post("/u/{user:str}/v1/messages", status_code=200, include_in_schema=False)
async def user_messages(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return _serve(request, segment(user), MESSAGES)


@post("/v1/messages/count_tokens", status_code=200, summary="The tokens of a message with memory")
async def count_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    return _serve(request, None, MESSAGES, COUNT_TOKENS)


@post("/u/{user:str}/v1/messages/count_tokens", status_code=200, include_in_schema=False)
async def user_count_tokens(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return _serve(request, segment(user), MESSAGES, COUNT_TOKENS)


@route(
    [f"{user}/v1/{name}" for user in ("", "/u/{user:str}") for name in RELAYED],
    http_method=[m for m in METHODS if m not in (HttpMethod.POST, HttpMethod.OPTIONS)],
    status_code=200,
    include_in_schema=False,
)
async def relay_other_methods(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request)


@post("/v1/responses/input_tokens", status_code=200, summary="The tokens of a response with memory")
async def input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    return _serve(request, None, RESPONSES, INPUT_TOKENS)


@post("/u/{user:str}/v1/responses/input_tokens", status_code=200, include_in_schema=False)
async def user_input_tokens(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return _serve(request, segment(user), RESPONSES, INPUT_TOKENS)


@post("/chat/completions", include_in_schema=False)
async def bare_chat_completions() -> None:
    raise ResourceNotFound(
        "Nothing is served here: the path needs its /v1. Set base_url to end in /v1."
    )


async def _relay(request: Request[Any, Any, Any]) -> ASGIApp:
    gateway: GatewayState = request.app.state.gateway
    relayed: ASGIApp = await pass_on(gateway, request.scope, request.receive, check_content)
    return relayed


@route("/v1/{path:path}", http_method=METHODS, status_code=200, include_in_schema=False)
async def relay(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request)


# Below a path of ours with a parameter in it the router looks no further, so these are named one by
# one.
@route(
    [
        "/u/{user:str}/v1/{path:path}",
        "/u/{user:str}/v1/chat/{path:path}",
        "/u/{user:str}/v1/chat/completions/{path:path}",
        "/u/{user:str}/v1/messages/{path:path}",
    ],
    http_method=METHODS,
    status_code=200,
    include_in_schema=False,
)
async def user_relay(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return await _relay(request)


@route("/v1/models/{path:path}", http_method=METHODS[3:], status_code=200, include_in_schema=False)
async def relay_model_change(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request)


@route(
    "/u/{user:str}/v1/models/{path:path}",
    http_method=METHODS[3:],
    status_code=200,
    include_in_schema=False,
)
async def relay_user_model_change(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request)


HANDLERS = (
    chat_completions,
    user_chat_completions,
    bare_chat_completions,
    responses,
    user_responses,
    messages,
    user_messages,
    count_tokens,
    user_count_tokens,
    relay_other_methods,
    input_tokens,
    user_input_tokens,
    *model_routes.HANDLERS,
    relay,
    user_relay,
    relay_model_change,
    relay_user_model_change,
    *operation_routes.HANDLERS,
    front_page,
)
