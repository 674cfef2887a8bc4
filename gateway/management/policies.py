"""A user's policy over HTTP: what the memory may do for them, and their time zone."""

from __future__ import annotations

from litestar import get, put
from msgspec import UNSET

from gateway.errors import BadRequest
from gateway.management.context import AtUser
from gateway.management.policy_schemas import PolicyPut, UserPolicy
from gateway.management.schemas import describe_body
from memory import LAYER_KINDS, management, parse_zone


@get("/users/{user:str}/policy", summary="What the memory may do for a user")
async def policy(context: AtUser) -> UserPolicy:
    stored_policy = await context.read(
        management.policies.find_policy(context.memory, context.scope.tenant, context.user)
    )
    return _describe(stored_policy)


@put(
    "/users/{user:str}/policy",
    summary="Set what the memory may do for a user",
    operation_class=describe_body(PolicyPut),
)
async def put_policy(context: AtUser) -> UserPolicy:
    policy_put = await context.asked(PolicyPut)
    mode = None if policy_put.memory is UNSET else policy_put.memory
    zone = None if policy_put.timezone is UNSET else policy_put.timezone or ""
    if zone:
        check_timezone(zone)
    change = management.policies.PolicyChange(
        mode,
        zone,
        None if policy_put.tools is UNSET else policy_put.tools,
        None if policy_put.layers is UNSET else tuple(policy_put.layers),
    )
    user_key = context.scope.tenant, context.user
    policy_work = management.policies.put_policy(context.memory, user_key, change)
    return _describe(await context.write(policy_work))


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
