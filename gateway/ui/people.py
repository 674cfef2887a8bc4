"""Users: the list, one user's memory at a glance, policy, erasure."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest
from gateway.management import users as api
from gateway.management.context import EVERY
from gateway.management.policies import put_policy
from gateway.management.schemas import cursor_of, place_of
from gateway.ui.form_request import in_form
from gateway.ui.texts import link
from gateway.ui.visitor import AboutUser, AtVisit, Subject, go_to
from memory import LAYER_KINDS, VisibleScopes, management

PAGE = 50
MAX_WORDS = 200


@get(["/", "/users"])
async def users_page(
    visitor: AtVisit,
    q: FromQuery[str] = "",
    sort: FromQuery[str] = "name",
    cursor: FromQuery[str | None] = None,
) -> Template:
    caller = visitor.caller
    if caller.principal.admin and caller.asked_tenant is None:
        caller.tenant = EVERY
    order = next((name for name in management.users.ORDERS if name == sort), None)
    if order is None:
        orders = ", ".join(management.users.ORDERS)
        raise BadRequest(f"`sort` is {sort[:40]!r}: use one of {orders}.", param="sort")
    tenant = None
    if caller.tenant != EVERY:
        tenant = caller.tenant
    reach = VisibleScopes(tenant, caller.principal.only)
    offset = max(place_of(cursor or None, int) or 0, 0)
    user_search = management.users.UserSearch(reach, q[:MAX_WORDS], order, offset, PAGE + 1)
    user_rows = await caller.read(management.users.find_users(caller.memory, user_search))
    policies = await asyncio.gather(
        *(_policy(visitor, u["tenant"], u["id"]) for u in user_rows[:PAGE])
    )
    people = list(zip(user_rows[:PAGE], (p.memory for p in policies), strict=True))
    next_cursor = None
    if len(user_rows) > PAGE:
        next_cursor = cursor_of(offset + PAGE)
    return visitor.page("users.html", people=people, rest=next_cursor, q=q, sort=order)


async def _policy(visitor: AtVisit, tenant: str, user: str) -> management.policies.StoredPolicy:
    return await visitor.caller.read(
        management.policies.find_policy(visitor.caller.memory, tenant, user)
    )


async def summarise_user(subject: Subject) -> dict[str, Any]:
    """Return what every page about a user shows at its head. Raises StoreDown."""
    context = subject.context
    reach = VisibleScopes(context.scope.tenant, [context.user])
    user_rows = await context.read(management.users.list_users(context.memory, reach, None, 1))
    policy = await _policy(subject.visitor, context.scope.tenant, context.user)
    return {
        "counts": user_rows[0] if user_rows else None,
        "policy": policy.memory,
        "timezone": policy.timezone,
        "tools": management.policies.tools_of(policy),
        "layers": policy.layers,
        "modes": management.policies.MODES,
    }


@post("/user/policy")
async def set_policy(subject: AboutUser) -> Redirect:
    """Set what the form says of a user's policy; what it leaves out stays as it is."""
    visitor = subject.visitor
    form = subject.visitor.form
    body: dict[str, Any] = {
        "memory": visitor.field("memory"),
        "timezone": visitor.field("timezone").strip(),
    }
    if "tools" in form:
        body["tools"] = form["tools"].split()
    # The form has a box for each.
    if "layers" in form:
        body["layers"] = [kind for kind in LAYER_KINDS if f"layer-{kind}" in form]
    await put_policy.fn(in_form(subject, body))
    return go_to(link("/user", **subject.where))


@get("/user/erase")
async def erase_form(subject: AboutUser) -> Template:
    return subject.page("erase.html", receipt=None, **await summarise_user(subject))


@post("/user/erase", status_code=200)
async def erase(subject: AboutUser) -> Template:
    if subject.visitor.field("name") != subject.user:
        raise BadRequest("The name does not match, so nothing was erased. Type it as it is shown.")
    receipt = await api.erase_user.fn(of_all_agents(subject))
    return subject.page("erase.html", receipt=receipt, counts=None)


def of_all_agents(subject: Subject) -> Any:
    """Raise BadRequest if an agent is named where all of a user's agents are meant."""
    if subject.where["agent"]:
        raise BadRequest("A user is always erased or moved with all agents. Leave out the agent.")
    return subject.context


ROUTES = (users_page, set_policy, erase_form, erase)
