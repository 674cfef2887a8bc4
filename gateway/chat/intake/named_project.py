"""The project that a request names, by a header or that of its program, and whether it may."""

from __future__ import annotations

from gateway.apis.client_profiles import ClientProfile
from gateway.auth.authenticator import Principal
from gateway.auth.project_names import check_project_name, forbidden_project
from gateway.auth.user_resolver import header_text
from gateway.chat.intake.request_headers import Headers
from gateway.state import GatewayState
from memory import Scope, StoreUnavailable, management, memory_name

HEADER = b"x-memory-project"


async def named_project(
    gateway: GatewayState,
    principal: Principal,
    headers: Headers,
    program: ClientProfile,
    owners: tuple[str | None, str | None],
) -> str:
    """Return the project of a request, "" for none, or where nobody is named.

    owners: the user, and the owner of the memory. Raises BadRequest, Forbidden.
    """
    user, owner = owners
    name = check_project_name(header_text(headers, HEADER) or program.project(headers))
    if not name or owner is None:
        return ""
    scope = Scope(principal.tenant, user or owner, memory_name("default", name), gateway.secret)
    try:
        is_allowed = await management.layers.may_name(gateway.memory, scope)
    except StoreUnavailable:
        # The memory is not there either, and the statement that reads it looks again.
        return name
    if not is_allowed:
        raise forbidden_project(name, user)
    return name
