"""The management API: `/memory/v1`, put together from its rooms in `gateway.manage`."""

from __future__ import annotations

from litestar import Router
from litestar.di import Provide

from gateway.manage import (
    blocks,
    conversations,
    door,
    jobs,
    keys,
    passages,
    searching,
    usage,
    users,
)

HANDLERS = (
    *users.ROUTES,
    *blocks.ROUTES,
    *passages.ROUTES,
    *conversations.ROUTES,
    *usage.ROUTES,
    *keys.ROUTES,
    *jobs.ROUTES,
)

GIVEN = {
    "caller": Provide(door.caller),
    "desk": Provide(door.desk),
    "span": Provide(searching.span),
    "search": Provide(searching.search),
    "whose": Provide(conversations.whose),
    "wanted": Provide(usage.wanted),
}


def management() -> Router:
    """Its routes, each of which is given who asks, about whom, and what it reads of the query string."""
    importing = users.Importing()
    given = {**GIVEN, "importing": Provide(lambda: importing, sync_to_thread=False)}
    return Router("/memory/v1", route_handlers=HANDLERS, dependencies=given, tags=["memory"])
