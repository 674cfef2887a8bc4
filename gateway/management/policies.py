"""A user's policy over HTTP: what the memory may do for them."""

from __future__ import annotations

from litestar import get, put

from gateway.management.context import AtDesk
from gateway.management.schemas import PolicyPut, UserPolicy, describe_body
from memory import management


@get("/users/{user:str}/policy", summary="What the memory may do for a user")
async def policy(desk: AtDesk) -> UserPolicy:
    found = await desk.read(
        management.policies.find_policy(desk.memory, desk.scope.tenant, desk.user)
    )
    return UserPolicy(found)


@put(
    "/users/{user:str}/policy",
    summary="Set what the memory may do for a user",
    operation_class=describe_body(PolicyPut),
)
async def put_policy(desk: AtDesk) -> UserPolicy:
    new = await desk.asked(PolicyPut)
    await desk.write(
        management.policies.put_policy(desk.memory, desk.scope.tenant, desk.user, new.memory)
    )
    return UserPolicy(new.memory)


ROUTES = (policy, put_policy)
