"""Assembles the management API, `/memory/v1`, from its modules."""

from __future__ import annotations

from typing import Any

from litestar import Router
from litestar.di import Provide

from gateway.management import (
    agents,
    block_routes,
    context,
    conversations,
    dropped,
    jobs,
    keys,
    layer_routes,
    merges,
    policies,
    query_params,
    stats,
    turns,
    usage,
    users,
)

HANDLERS: tuple[Any, ...] = (
    *users.ROUTES,
    *merges.ROUTES,
    *agents.ROUTES,
    *block_routes.ROUTES,
    *layer_routes.ROUTES,
    *dropped.ROUTES,
    *policies.ROUTES,
    *conversations.ROUTES,
    *usage.ROUTES,
    *keys.ROUTES,
    *jobs.ROUTES,
    *stats.ROUTES,
    *turns.ROUTES,
)

GIVEN = {
    "caller": Provide(context.caller),
    "desk": Provide(context.desk),
    "span": Provide(query_params.span),
    "search": Provide(query_params.search),
    "whose": Provide(conversations.whose),
    "wanted": Provide(usage.parse_filter),
}


def management() -> Router:
    """Return the router of the management API, with the dependencies of its handlers."""
    importing = users.Importing()
    given = {**GIVEN, "importing": Provide(lambda: importing, sync_to_thread=False)}
    return Router("/memory/v1", route_handlers=HANDLERS, dependencies=given, tags=["memory"])
