"""Who may do what with teams, projects and what the tenant holds, over HTTP.

Trusted and admin keys do everything. Another key sees what its users read, and writes passages in
their names where one of them may; anything else is not found, or refused.
"""

from __future__ import annotations

from litestar.params import FromPath

from gateway.config.agents import NAME
from gateway.errors import BadRequest, Forbidden, ResourceNotFound
from gateway.http.paths import segment
from gateway.management.context import EVERY, AtDoor, ManagementRequest, UserContext
from memory import Scope, management

# Codes.
NOT_FOUND = {"team": "team_not_found", "project": "project_not_found"}


def is_operator(caller: ManagementRequest) -> bool:
    """Tell whether a key may do everything with the teams and projects of its tenant."""
    return caller.principal.trusted or caller.principal.admin


def check_operator(caller: ManagementRequest) -> None:
    """Raise Forbidden for a key that is neither trusted nor an admin's."""
    if not is_operator(caller):
        raise Forbidden(
            "Only trusted and admin keys do this with teams, projects and the passages of the "
            "tenant. Others add passages where one of their users may write.",
            code="trusted_key_needed",
        )


def tenant_of(caller: ManagementRequest) -> str:
    """Return the tenant of a request. Raises BadRequest for all of them."""
    if caller.tenant == EVERY:
        raise BadRequest(
            "`tenant` is '*', but a team or a project belongs to one tenant: name it.",
            param="tenant",
        )
    return caller.tenant


def check_layer_name(name: str, kind: str) -> str:
    """Return the name of a new team or project. Raises BadRequest."""
    if not NAME.fullmatch(name):
        raise BadRequest(
            f"The name of a {kind} has 1 to 64 characters of a-z, 0-9, '.', '_' and '-', and "
            f"begins with a letter or a digit. This is {name[:80]!r}.",
            param=kind,
        )
    return name


def visible_users(caller: ManagementRequest) -> list[str] | None:
    """Return the users whose teams and projects a key sees; None for all."""
    if is_operator(caller):
        return None
    return list(caller.principal.only or ())


class LayerContext(UserContext):
    """A request about what a layer holds. writer: in whose name it is written, None of nobody."""

    def __init__(self, caller: ManagementRequest, scope: Scope, writer: str | None) -> None:
        super().__init__(caller, scope)
        self.writer = writer


async def _open(caller: ManagementRequest, kind: str, name: str) -> LayerContext:
    """Return the context of a layer. Raises ResourceNotFound, Forbidden."""
    tenant = tenant_of(caller)
    layer = management.layers.layer_scope(tenant, kind, name, caller.gateway.secret)
    if is_operator(caller):
        if kind == "team":
            await caller.read(management.layers.find_team(caller.memory, (tenant, name)))
        elif kind == "project":
            await caller.read(management.layers.find_project(caller.memory, (tenant, name)))
        return LayerContext(caller, layer, None)
    users = visible_users(caller) or []
    access = await caller.read(management.layers.writers_of(caller.memory, layer, users))
    if not access:
        raise not_found(kind, name)
    if caller.request.method == "GET":
        return LayerContext(caller, layer, None)
    writers = sorted(user for user, may_write in access.items() if may_write)
    if not writers:
        place = f"the {kind} {name[:64]!r}" if name else f"the {kind}"
        raise Forbidden(
            f"No user of this key may write in {place}. Ask for a membership with "
            "`write`, or use a trusted key.",
            code="layer_read_only",
        )
    return LayerContext(caller, layer, writers[0])


def not_found(kind: str, name: str) -> ResourceNotFound:
    code = NOT_FOUND.get(kind, "not_found")
    return ResourceNotFound(f"There is no {kind} {name[:80]!r}.", code=code)


async def team_memory(caller: AtDoor, team: FromPath[str]) -> LayerContext:
    """Return the context of what a team holds."""
    return await _open(caller, "team", segment(team))


async def project_memory(caller: AtDoor, project: FromPath[str]) -> LayerContext:
    """Return the context of what a project holds for all who may name it."""
    return await _open(caller, "project", segment(project))


async def tenant_memory(caller: AtDoor) -> LayerContext:
    """Return the context of what the tenant holds for all named users."""
    return await _open(caller, "tenant", "")
