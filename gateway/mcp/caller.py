"""Who asks over MCP: the key, the user, the agent, and what they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.auth.authenticator import Principal
from gateway.chat.intake.called_agent import NO_AGENT, CalledAgent
from gateway.chat.intake.memory_mode import lower, mode_at_most
from gateway.chat.intake.request_headers import zone_of
from gateway.errors import StoreDown, Unauthenticated
from gateway.http.access_log import current_line
from gateway.management.context import translate_errors
from gateway.management.tenant_proof import is_accepted_upstream
from gateway.mcp.errors import CHALLENGE, NotNamed
from gateway.mcp.naming import name_memory, with_parameters
from gateway.mcp.protocol import RpcRequest
from gateway.state import GatewayState, headers_of, request_id
from memory import StoreUnavailable, keyed_hash, management
from memory.management.tool_calls import MemoryCaller

# Of a program's name.
CLIENT_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class DoorCaller:
    """One caller. mode: what the key and the request allow. memory: None where nobody is named."""

    principal: Principal
    mode: str
    memory: MemoryCaller | None


def principal_of(gateway: GatewayState, headers: Mapping[bytes, bytes]) -> Principal:
    """Return the principal of a request. Raises Unauthenticated, Unavailable."""
    try:
        return gateway.keys.manager(headers)
    except Unauthenticated as e:
        raise Unauthenticated(e.message, headers=[CHALLENGE]) from e


async def check_tenant(gateway: GatewayState, principal: Principal) -> None:
    """Raise NotNamed for a tenant that no upstream accepts (own-key mode); StoreDown."""
    settings = gateway.settings
    memory = gateway.memory
    if settings.mode != "own-key" or settings.single_user:
        return
    with translate_errors():
        await memory.wait_until_ready()
        is_proven = await management.users.is_proven(memory, principal.tenant)
    if not (is_proven or await is_accepted_upstream(gateway, principal)):
        raise NotNamed("No upstream has accepted this key yet, so nothing is kept for it.")


async def caller_of(
    gateway: GatewayState, scope: Any, principal: Principal, request: RpcRequest
) -> DoorCaller:
    """Return who asks, and about whose memory.

    Raises NotNamed for what the key may not name, BadRequest, StoreDown, Unavailable.
    """
    headers = with_parameters(headers_of(scope), scope.get("query_string", b""))
    asked_mode = mode_at_most(headers, principal)
    named = await name_memory(gateway, principal, (headers, scope["path"]), asked_mode)
    agent = named.call.agent
    mode = lower(asked_mode, agent.settings.memory) if agent is not None else asked_mode
    user, owner = named.user, named.owner
    if user is None or owner is None:
        return DoorCaller(principal, mode.name, None)
    current_line().user = user
    try:
        mode = lower(mode, await gateway.memory.user_policy(principal.tenant, user))
        zone = zone_of(headers) or await _zone(gateway, principal, user, named.call)
    except StoreUnavailable as e:
        raise StoreDown(
            f"The memory store is down: {e}. Try again shortly.", headers=[(b"retry-after", b"1")]
        ) from e
    caller = MemoryCaller(
        gateway.memory.scope(principal.tenant, owner, named.call.name(headers), named.project),
        gateway.memory.policy if agent is None else gateway.agents.policy_of(agent),
        mode.name,
        request_id(scope),
        _reader(principal, headers, request, owner if owner != user else ""),
        user if owner != user else None,
        zone,
        {"client": _client(headers, request)},
    )
    return DoorCaller(principal, mode.name, caller)


async def _zone(
    gateway: GatewayState, principal: Principal, user: str, named_call: CalledAgent
) -> str:
    """Return the time zone of the user's policy, or of the agent; "" for none."""
    memory = gateway.memory
    zone = await memory.policies.zone((principal.tenant, user), memory.policy.read_deadline)
    return zone or (
        ""
        if named_call is NO_AGENT or named_call.agent is None
        else named_call.agent.settings.timezone
    )


def _client(headers: Mapping[bytes, bytes], request: RpcRequest) -> dict[str, str]:
    """Return the name and version of a client's program, as it tells them."""
    client_info = request.client
    name = client_info.get("name")
    version = client_info.get("version")
    if isinstance(name, str) and name:
        return {
            "name": name[:CLIENT_CHARACTERS],
            "version": version[:CLIENT_CHARACTERS] if isinstance(version, str) else "",
        }
    agent = headers.get(b"user-agent", b"").decode("latin-1").split(" ", 1)[0]
    name, _, version = agent.partition("/")
    return {"name": name[:CLIENT_CHARACTERS], "version": version[:CLIENT_CHARACTERS]}


def _reader(
    principal: Principal, headers: Mapping[bytes, bytes], request: RpcRequest, home: str
) -> bytes:
    """Return a digest of the program that reads the results. home: of an agent's own memory."""
    name = ""
    if request.is_modern:
        name = str(request.client.get("name", ""))
    program = name.encode("utf-8", "surrogatepass")
    parts = [principal.key.encode(), b"\x00", headers.get(b"user-agent", b""), b"\x00", program]
    if home:
        parts += [b"\x00", home.encode()]
    return keyed_hash(b"reader", *parts)[:16]
