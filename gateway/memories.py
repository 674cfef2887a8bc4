"""The management API: `/memory/v1`, put together from its rooms in `gateway.manage`."""
from __future__ import annotations

from litestar import Router
from litestar.di import Provide

from gateway.manage import blocks, conversations, door, jobs, keys, passages, usage, users

HANDLERS = (*users.ROUTES, *blocks.ROUTES, *passages.ROUTES, *conversations.ROUTES, *usage.ROUTES, *keys.ROUTES, *jobs.ROUTES)


def management() -> Router:
    """Its routes, each of which is given who asks and about whom."""
    return Router(
        "/memory/v1", route_handlers=HANDLERS, dependencies={"caller": Provide(door.caller), "desk": Provide(door.desk)}, tags=["memory"])
