"""Every `/v1` path that is not ours: relayed as it came, routed by the body's `model` where it has one."""
from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.chat import Gateway
from gateway.forward import Forwarder
from gateway.identity import Principal
from gateway.intake import read_body
from gateway.relay import Passing, Relay
from gateway.routing import Route
from memory.ids import new_id

FORM_MODEL = re.compile(rb'name="model"\r\n\r\n([^\r\n]{1,200})\r\n')


class _Model(msgspec.Struct):
    model: str | None = None


def model_of(body: bytes, content_type: bytes) -> str | None:
    """The model a body names, JSON or form; None where it names none."""
    if b"multipart/form-data" in content_type:
        found = FORM_MODEL.search(body)
        return found[1].decode("utf-8", "replace") if found else None
    try:
        return msgspec.json.decode(body, type=_Model).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


async def pass_on(gateway: Gateway, scope: Any, receive: Any, root: str) -> Relay:
    """The ASGI response that relays this request. Raises GatewayError."""
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    principal = gateway.keys.caller(headers)
    body = await read_body(receive, headers, int(gateway.settings.server.max_body_mib * 1024 * 1024))
    content_type = headers.get(b"content-type", b"application/json")
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw[raw.index(root.encode()) + len(root) :].decode("latin-1").split("?", 1)[0]
    query = scope.get("query_string", b"")
    name = model_of(body, content_type) if body else None
    route = _route(gateway, name, principal)
    total = max(t.settings.timeouts.total for t in route.targets)
    forward = Forwarder(route, headers, principal.authorization, gateway.settings.mode != "own-key", gateway.settings.routing.retries,
                        asyncio.get_running_loop().time() + total)
    alias = route.alias if b"json" in content_type else None
    passing = Passing(scope["method"], path + (f"?{query.decode('latin-1')}" if query else ""), body or None, content_type, alias,
                      base=[(b"x-memgate-request-id", new_id("req").encode())], quiet=gateway.settings.server.keepalive_seconds)
    return Relay(forward, passing, headers)


def _route(gateway: Gateway, name: str | None, principal: Principal) -> Route:
    if name:
        return gateway.router.route(name, principal)
    return Route((gateway.router.default(),), None, None, False)
