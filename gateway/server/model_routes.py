"""The routes of `/v1/models`: what a key may call, models and agents."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.params import FromPath

from gateway.auth.authenticator import Principal
from gateway.chat.intake.called_agent import called_agent
from gateway.chat.intake.memory_mode import MemoryMode
from gateway.config.agents import PREFIX
from gateway.http.paths import segment
from gateway.models.listing import agent_card, model_card, model_list
from gateway.relay.endpoint import upstream_models
from gateway.routing.agents import listed_agent, named_agent
from gateway.routing.router import is_agent_allowed
from gateway.state import GatewayState
from gateway.wire.chat import Json, encode
from gateway.wire.headers import merge_headers


@get("/v1/models", summary="The models this key may call")
async def models(request: Request[Any, Any, Any]) -> Response[bytes]:
    return await _models(request)


async def _models(request: Request[Any, Any, Any]) -> Response[bytes]:
    gateway: GatewayState = request.app.state.gateway
    principal = gateway.keys.caller(merge_headers(request.scope["headers"]))
    agents = await gateway.agents.list_agents(principal)
    upstream_list = await upstream_models(gateway, principal)
    cards = [
        agent_card(agent, principal.tenant)
        for agent in agents
        if agent.glance.model and is_agent_allowed(principal, agent.name, agent.glance.model)
    ]
    return _json(model_list(gateway.router.names(principal), upstream_list, cards))


@get("/u/{user:str}/v1/models", include_in_schema=False)
async def user_models(request: Request[Any, Any, Any], user: FromPath[str]) -> Response[bytes]:
    return await _models(request)


@get(["/v1/models/{name:path}", "/u/{user:str}/v1/models/{name:path}"], include_in_schema=False)
async def one_model(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    gateway: GatewayState = request.app.state.gateway
    principal = gateway.keys.caller(merge_headers(request.scope["headers"]))
    model_name = segment(name.removeprefix("/"))
    if (agent := named_agent(model_name)) is not None:
        return _json(encode(await _agent_card(gateway, principal, agent)))
    gateway.router.route(model_name, principal)
    return _json(model_card(model_name))


async def _agent_card(gateway: GatewayState, principal: Principal, name: str) -> Json:
    """Return an agent as a list of models has it.

    Raises UnknownAgent, Forbidden, BadRequest for one that this key may not call by its name.
    """
    named_call = await called_agent(gateway, principal, PREFIX + name, {}, MemoryMode("off"))
    assert named_call.agent is not None  # noqa: S101 - it raises otherwise
    gateway.router.route_agent(named_call.agent, PREFIX + name, principal)
    return agent_card(listed_agent(named_call.agent), principal.tenant)


def _json(body: bytes) -> Response[bytes]:
    memory_headers = {"x-memory-status": "off", "x-memory-reason": "path"}
    return Response(body, media_type="application/json", headers=memory_headers)


HANDLERS = (models, user_models, one_model)
