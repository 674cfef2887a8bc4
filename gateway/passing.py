"""Every `/v1` path that is not ours: relayed as it came, routed by the body's `model` where it has one."""
from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from gateway.chat import Gateway
from gateway.errors import GatewayError, NotFound
from gateway.forward import Forwarder
from gateway.headers import upstream_headers
from gateway.identity import Principal
from gateway.intake import read_body
from gateway.relay import Passing, Relay
from gateway.routing import Route, allowed
from gateway.upstream.base import Outgoing
from gateway.wire.chat import Json, decode
from memory.ids import new_id

LIST_SECONDS = 2.0
LIST_BYTES = 4 << 20
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


async def pass_on(gateway: Gateway, scope: Any, receive: Any, skip: int) -> Relay:
    """The ASGI response that relays this request. skip: segments of the path that are ours. Raises GatewayError."""
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    principal = gateway.keys.caller(headers)
    body = await read_body(receive, headers, int(gateway.settings.server.max_body_mib * 1024 * 1024))
    content_type = headers.get(b"content-type", b"application/json")
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = re.sub(rb"\A(?:/+[^/]+){%d}" % skip, b"", raw).decode("latin-1").split("?", 1)[0]
    if ".." in unquote(path).split("/"):
        raise NotFound(f"There is nothing at {path[:200]!r}.")
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


async def upstream_models(gateway: Gateway, principal: Principal) -> list[Json]:
    """What the default upstream lists, where a `*` route lets this key call it; nothing when it does not answer in time."""
    if gateway.router.find("*") is None:
        return []
    target = gateway.router.default()
    forward = Forwarder(Route((target,), None, None, False), {}, principal.authorization, gateway.settings.mode != "own-key", 0, float("inf"))
    try:
        async with asyncio.timeout(LIST_SECONDS):
            incoming = await target.upstream.send(Outgoing("/models", None, upstream_headers({}, forward.credential(target)), "GET"))
            data = await incoming.read(LIST_BYTES)
            await incoming.close()
        listed = decode(data)["data"] if incoming.status == 200 else []
        return [m for m in listed if isinstance(m, dict) and isinstance(m.get("id"), str) and allowed(principal, m["id"])]
    except (GatewayError, TimeoutError, msgspec.DecodeError, KeyError, TypeError):
        return []


def _route(gateway: Gateway, name: str | None, principal: Principal) -> Route:
    if name:
        return gateway.router.route(name, principal)
    return Route((gateway.router.default(),), None, None, False)
