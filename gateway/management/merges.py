"""Merging over HTTP: one user's memory is added to another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litestar import post

from gateway.errors import BadRequest, Forbidden
from gateway.management.context import EVERY, AtUser, UserContext, check_name
from gateway.management.schemas import Merged, MergePost, describe_body
from memory import OwnerRename

if TYPE_CHECKING:
    from memory.management.merging import Merge, MergePlan


def open_merge(context: UserContext, into: str, tenant: str | None = None) -> Merge:
    """Return the merge of the user's memory into another's. Raises Forbidden, BadRequest.

    tenant: of the other one, for admin keys.
    """
    from memory.management.merging import Merge

    caller = context.caller
    if not caller.runs_it:
        raise Forbidden("Only an admin key, or the local token, merges memories.")
    if context.agent is not None:
        raise BadRequest(
            "A user is always merged with all agents. Leave out ?agent=.", param="agent"
        )
    source = context.scope.tenant, context.user
    if tenant is not None and tenant != source[0] and not caller.principal.admin:
        raise Forbidden("Only an admin key may name another tenant.", param="tenant")
    if tenant == EVERY:
        raise BadRequest("A user belongs to one tenant: name it.", param="tenant")
    target = check_name(tenant or source[0], "tenant"), check_name(into.strip(), "into")
    owners = OwnerRename(caller.gateway.secret, source, target)
    return Merge(owners, context.memory.policy.blocks, context.hand().source.actor)


@post(
    "/users/{user:str}/merge",
    status_code=200,
    summary="Add the user's memory to another user's, and erase it here",
    operation_class=describe_body(MergePost),
)
async def merge_user(context: AtUser) -> Merged:
    """Merge two memories. With `dry_run` only tell what would happen."""
    from memory.management import merging

    merge_post = await context.asked(MergePost)
    merge = open_merge(context, merge_post.into, merge_post.tenant)
    if merge_post.dry_run:
        work = merging.plan_merge(context.memory.db, merge)
    else:
        work = merging.merge_live_users(context.memory, merge)
    return _to_schema(merge, await context.write(work), dry_run=merge_post.dry_run)


def _to_schema(merge: Merge, plan: MergePlan, *, dry_run: bool) -> Merged:
    return Merged(
        merge.owners.target[1],
        merge.owners.source[1],
        plan.counts,
        {agent: labels for agent, labels in plan.joined.items() if labels},
        {agent: names for agent, names in plan.renamed.items() if names},
        dry_run,
    )


ROUTES = (merge_user,)
