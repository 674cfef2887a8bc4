"""Whose memory a request over MCP names: the user, the agent, the project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from gateway.auth.authenticator import Principal
from gateway.chat.intake.called_agent import CalledAgent, called_agent
from gateway.chat.intake.memory_mode import MemoryMode, mode_at_most
from gateway.chat.intake.named_project import named_project
from gateway.errors import BadRequest, Forbidden
from gateway.http.paths import segment
from gateway.mcp.errors import NotNamed
from gateway.state import GatewayState, headers_of

# Each in a query says what its header does, for clients that set a URL alone.
PARAMETERS = {"agent": b"x-memory-agent", "project": b"x-memory-project"}


class NamedMemory(NamedTuple):
    """What a request names. owner: of the memory, None where nobody is named. project: "" for none.

    call: the agent, if one is named.
    """

    user: str | None
    call: CalledAgent
    owner: str | None
    project: str


async def name_memory(
    gateway: GatewayState,
    principal: Principal,
    named: tuple[Mapping[bytes, bytes], str],
    mode: MemoryMode,
) -> NamedMemory:
    """Return whose memory a request names. named: its headers and its path.

    Raises NotNamed for what the key or the user may not name, BadRequest, Unavailable.
    """
    headers, path = named
    try:
        user = gateway.names.user(principal, headers, _path_user(path), {})
        call = await called_agent(gateway, principal, "", headers, mode)
        owner = user if call.agent is None else call.agent.owner(user)
        program = gateway.clients.find(headers)
        project = await named_project(gateway, principal, headers, program, (user, owner))
    except Forbidden as e:
        raise NotNamed(e.message, code=e.code) from e
    return NamedMemory(user, call, owner, project)


def check_naming(gateway: GatewayState, scope: Any, principal: Principal) -> None:
    """Check what a request names, also one that needs no memory, such as the handshake.

    Raises NotNamed for a user whom the key may not name, BadRequest.
    """
    headers = with_parameters(headers_of(scope), scope.get("query_string", b""))
    mode_at_most(headers, principal)
    try:
        gateway.names.user(principal, headers, _path_user(scope["path"]), {})
    except Forbidden as e:
        raise NotNamed(e.message, code=e.code) from e


def _path_user(path: str) -> str | None:
    if path.startswith("/u/"):
        return segment(path.split("/")[2])
    return None


def with_parameters(headers: Mapping[bytes, bytes], query: bytes) -> Mapping[bytes, bytes]:
    """Return the headers with what the query names, for clients that set a URL alone.

    Raises BadRequest for a parameter that is unknown, or says something else than a header.
    """
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in PARAMETERS or name in parameters:
            raise BadRequest(
                f"The query parameter `{name[:60]}` is unknown here, or comes twice; known are: "
                f"{', '.join(PARAMETERS)}.",
                param=name[:60],
            )
        parameters[name] = value
    named_headers = dict(headers)
    for name, value in parameters.items():
        header = PARAMETERS[name]
        encoded_name = quote(value, safe="").encode()
        if value and headers.get(header, encoded_name) not in (encoded_name, value.encode()):
            raise BadRequest(
                f"X-Memory-{name.title()} and ?{name}= name two {name}s. Name one.", param=name
            )
        if value:
            named_headers[header] = encoded_name
    return named_headers
