"""Assembles the management API, `/memory/v1`, from its modules."""

from __future__ import annotations

from typing import Any

from litestar import Router
from litestar.di import Provide

from gateway.management import (
    agents,
    approvals,
    block_routes,
    context,
    conversations,
    dropped,
    files,
    inbox,
    jobs,
    keys,
    layer_routes,
    merges,
    policies,
    python_tools,
    query_params,
    reflections,
    skills,
    stats,
    tool_entries,
    tool_rules,
    tools,
    turns,
    usage,
    users,
)

HANDLERS: tuple[Any, ...] = (
    *users.ROUTES,
    *merges.ROUTES,
    *agents.ROUTES,
    *approvals.ROUTES,
    *inbox.ROUTES,
    *block_routes.ROUTES,
    *layer_routes.ROUTES,
    *dropped.ROUTES,
    *files.ROUTES,
    *policies.ROUTES,
    *python_tools.ROUTES,
    *conversations.ROUTES,
    *usage.ROUTES,
    *keys.ROUTES,
    *jobs.ROUTES,
    *reflections.ROUTES,
    *skills.ROUTES,
    *stats.ROUTES,
    *tool_entries.ROUTES,
    *tool_rules.ROUTES,
    *tools.ROUTES,
    *turns.ROUTES,
)

GIVEN = {
    "caller": Provide(context.caller),
    "context": Provide(context.context),
    "span": Provide(query_params.span),
    "search": Provide(query_params.search),
    "whose": Provide(conversations.whose),
    "wanted": Provide(usage.parse_filter),
    "called": Provide(tools.call_filter, sync_to_thread=False),
    "importing": Provide(context.running_imports, sync_to_thread=False),
}


def management() -> Router:
    """Return the router of the management API, with the dependencies of its handlers."""
    return Router("/memory/v1", route_handlers=HANDLERS, dependencies=GIVEN, tags=["memory"])
