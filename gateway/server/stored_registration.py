"""Registers the routes of stored objects: without `gateway.chat.stored` there are none."""

from __future__ import annotations

from gateway.server import conversation_routes, stored_routes

HANDLERS = (*stored_routes.HANDLERS, *conversation_routes.HANDLERS)
