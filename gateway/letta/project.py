"""The project that a Letta client names: `X-Project` is `X-Memory-Project`."""

from __future__ import annotations

from gateway.apis.client_profiles import ANYONE
from gateway.auth.authenticator import Principal
from gateway.chat.intake.named_project import HEADER as PROJECT
from gateway.chat.intake.named_project import named_project
from gateway.chat.intake.request_headers import Headers
from gateway.state import GatewayState
from gateway.wire.headers import Pairs, encode_user_header
from memory import home_of

__all__ = ["PROJECT", "find_project", "project_headers", "with_project"]
LETTA_PROJECT = b"x-project"


def with_project(headers: Headers) -> Headers:
    """Return the headers of a request with the client's own word for a project as ours."""
    if LETTA_PROJECT in headers and PROJECT not in headers:
        return {**headers, PROJECT: headers[LETTA_PROJECT]}
    return headers


async def find_project(gateway: GatewayState, principal: Principal, headers: Headers) -> str:
    """Return the project of a request, "" for none. Raises BadRequest, Forbidden."""
    if PROJECT not in headers:
        return ""
    user = gateway.names.user(principal, headers, None, {})
    # An agent is listed in no project: a declared one takes a request that names one of its users.
    return await named_project(gateway, principal, headers, ANYONE, (user, home_of("")))


def project_headers(project: str) -> Pairs:
    """Return the header that names the project of a request, if it is in one."""
    if not project:
        return []
    return [(PROJECT, encode_user_header(project))]
