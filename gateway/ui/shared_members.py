"""Who sees a shared block: members added and removed, each with or without the right to write."""

from __future__ import annotations

from typing import Any

from litestar import post
from litestar.params import FromQuery
from litestar.response import Redirect

from gateway.errors import BadRequest
from gateway.management import shared_members as api
from gateway.management.schemas import Page
from gateway.management.shared_schemas import SharedMember
from gateway.ui.form_request import FormRequest, path_segment
from gateway.ui.texts import link
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import AtVisit, Visitor, go_to

# Of a page.
MEMBERS = 100
EVERYONE = "everyone"
# By kind: the routes that add and remove a member.
PUT: dict[str, Any] = {"agent": api.put_agent, "team": api.put_team, "project": api.put_project}
REMOVE: dict[str, Any] = {
    "agent": api.remove_agent,
    "team": api.remove_team,
    "project": api.remove_project,
}


async def list_block_members(visitor: Visitor, ident: str, cursor: str | None) -> Any:
    """Return a page of members. Raises Forbidden."""
    members_page: Page[SharedMember] = await api.members.fn(
        visitor.caller, path_segment(ident), cursor, MEMBERS
    )
    return members_page


@post("/shared/members", status_code=200)
async def put_member(visitor: AtVisit, id: FromQuery[str]) -> Redirect:
    """Add a member, or change whether it may write."""
    kind = visitor.field("kind")
    name = visitor.field("name").strip()
    request = FormRequest(visitor, {"write": "write" in visitor.form})
    block = path_segment(id)
    if kind == EVERYONE:
        await api.put_everyone.fn(request, block)
    elif kind == "user":
        agent = visitor.form.get("agent", "").strip()
        await api.put_user.fn(request, block, _segment_of(name), agent)
    else:
        await _choose(PUT, kind).fn(request, block, _segment_of(name))
    return go_to(link("/shared/block", id=id, tenant=tenant_link(visitor)))


@post("/shared/members/remove", status_code=200)
async def remove_member(visitor: AtVisit, id: FromQuery[str]) -> Redirect:
    kind = visitor.field("kind")
    name = visitor.field("name")
    request = FormRequest(visitor)
    block = path_segment(id)
    if kind == EVERYONE:
        await api.remove_everyone.fn(request, block)
    elif kind == "user":
        agent = visitor.form.get("agent", "")
        await api.remove_user.fn(request, block, _segment_of(name), agent)
    else:
        await _choose(REMOVE, kind).fn(request, block, _segment_of(name))
    return go_to(link("/shared/block", id=id, tenant=tenant_link(visitor)))


def _segment_of(name: str) -> str:
    if not name:
        raise BadRequest("Name the member.", param="name")
    return path_segment(name)


def _choose(routes: dict[str, Any], kind: str) -> Any:
    if kind not in routes:
        kinds = ", ".join(["user", *routes, EVERYONE])
        raise BadRequest(f"`kind` is {kind[:40]!r}: use one of {kinds}.", param="kind")
    return routes[kind]


ROUTES = (put_member, remove_member)
