"""A user's policy over HTTP: what the memory may do for them, and their time zone."""

from __future__ import annotations

from litestar import get, put
from msgspec import UNSET

from gateway.errors import BadRequest
from gateway.management.context import AtDesk
from gateway.management.policy_schemas import PolicyPut, UserPolicy
from gateway.management.schemas import describe_body
from memory import LAYER_KINDS, management, parse_zone


@get("/users/{user:str}/policy", summary="What the memory may do for a user")
async def policy(desk: AtDesk) -> UserPolicy:
    found = await desk.read(
        management.policies.find_policy(desk.memory, desk.scope.tenant, desk.user)
    )
    return _describe(found)


@put(
    "/users/{user:str}/policy",
    summary="Set what the memory may do for a user",
    operation_class=describe_body(PolicyPut),
)
async def put_policy(desk: AtDesk) -> UserPolicy:
    new = await desk.asked(PolicyPut)
    mode = None if new.memory is UNSET else new.memory
    zone = None if new.timezone is UNSET else new.timezone or ""
    if zone:
        check_timezone(zone)
    change = management.policies.PolicyChange(
        mode,
        zone,
        None if new.tools is UNSET else new.tools,
        None if new.layers is UNSET else tuple(new.layers),
    )
    who = desk.scope.tenant, desk.user
    put = management.policies.put_policy(desk.memory, who, change)
    return _describe(await desk.write(put))


def check_timezone(name: str) -> None:
    """Raise BadRequest unless this is the name of a time zone."""
    try:
        parse_zone(name)
    except ValueError as e:
        raise BadRequest(
            f"`timezone` is {name[:60]!r}: give an IANA name, like Europe/Berlin.",
            param="timezone",
        ) from e


def _describe(policy: management.policies.StoredPolicy) -> UserPolicy:
    tools = management.policies.tools_of(policy) if policy.tools else UNSET
    layers = UNSET if policy.layers == LAYER_KINDS else list(policy.layers)
    return UserPolicy(policy.memory, policy.timezone or UNSET, tools, layers)


ROUTES = (policy, put_policy)
