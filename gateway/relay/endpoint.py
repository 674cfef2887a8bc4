"""Every `/v1` path that is not ours: relayed as it came, routed by the body's `model` where it has
one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.auth.authenticator import Principal
from gateway.errors import GatewayError
from gateway.http.json_thread import run_by_weight
from gateway.http.request_body import read_body
from gateway.http.response import GatewayResponse
from gateway.pipeline import RequestInfo, accounted_response, new_dispatcher
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.relay.path_policy import READING, check_path, model_asked, plain
from gateway.routing.router import Route, is_model_allowed
from gateway.state import MOST_TOLD, GatewayState, request_id
from gateway.upstream.base import UpstreamRequest
from gateway.usage.meter import guess_tokens
from gateway.wire.chat import Json, decode
from gateway.wire.headers import merge_headers, upstream_headers

LIST_SECONDS = 2.0
LIST_BYTES = 4 << 20
PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
BY_TOKENS = frozenset(
    {"/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/moderations"}
)  # whose calls are billed by the tokens of texts
STREAMS = re.compile(rb'"stream"\s*:\s*true')
PRODUCT = re.compile(r"[\w.-]{1,40}", re.ASCII)  # what a User-Agent begins with
WORD = re.compile(r"[a-z_]{0,30}")  # of a path, where an id is none
SEGMENTS = 4

log = logging.getLogger("mnemogate")


async def pass_on(gateway: GatewayState, scope: Any, receive: Any, skip: int) -> GatewayResponse:
    """Return the ASGI response that relays this request.

    skip: segments of the path that are ours. Raises GatewayError.
    """
    started = time.perf_counter()
    headers = merge_headers(scope["headers"])
    principal = gateway.keys.caller(headers)
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = quote(_below(raw.split(b"?", 1)[0], skip), safe=PRINTABLE)
    check_path(principal, scope["method"], known := plain(path))
    limit = int(gateway.settings.server.max_body_mib * 1024 * 1024)
    body = await read_body(receive, headers, limit)
    content_type = headers.get(b"content-type", b"application/json")
    query = quote(scope.get("query_string", b""), safe=PRINTABLE)
    model = await run_by_weight(
        body, model_asked, principal, scope["method"], known, query, (body, content_type)
    )
    forward = new_dispatcher(gateway, _route(gateway, model, principal), headers, principal)
    if known in BY_TOKENS:  # however it is spelt, it costs the same
        forward.meter.guess = guess_tokens(len(body))
    passing = RelayedRequest(
        scope["method"],
        path + (f"?{query}" if query else ""),
        body or None,
        content_type,
        named=[(b"x-memory-status", b"off"), (b"x-memory-reason", b"path")],
        started=started,
    )
    output = 0 if path == "/embeddings" else None
    entry = RequestInfo(request_id(scope), principal, path, started, model or "", output=output)
    streams = b"json" in content_type and STREAMS.search(body[: 1 << 20]) is not None
    _tell_of_no_memory(gateway, scope["method"], headers, known)
    producer = PassthroughProducer(forward, passing, streams)
    return accounted_response(gateway, forward, entry, producer.ready)


async def upstream_models(gateway: GatewayState, principal: Principal) -> list[Json]:
    """Return what the default upstream lists, where a `*` route lets this key call it; nothing when
    it does not answer in time.
    """
    if gateway.router.find("*") is None:
        return []
    target = gateway.router.default()
    forward = new_dispatcher(gateway, Route(((target,),)), {}, principal)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            incoming = await target.upstream.send(
                UpstreamRequest(
                    "/models",
                    None,
                    upstream_headers([], forward.caller.credential(target), None),
                    "GET",
                )
            )
            data = await incoming.read(LIST_BYTES)
            await incoming.close()
        if incoming.status != 200:
            return []
        listed = (await run_by_weight(data, decode, data))["data"]
        return [
            m
            for m in listed
            if isinstance(m, dict)
            and isinstance(m.get("id"), str)
            and is_model_allowed(principal, m["id"])
        ]
    except (
        GatewayError,
        TimeoutError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
        KeyError,
        TypeError,
    ):
        return []


def _tell_of_no_memory(
    gateway: GatewayState, method: str, headers: Mapping[bytes, bytes], path: str
) -> None:
    """Tell the log once a program and path that it goes without memory."""
    told = gateway.process.relayed
    if method in READING or len(told) >= MOST_TOLD:
        return
    agent = headers.get(b"user-agent", b"").decode("ascii", "replace")
    program = PRODUCT.match(agent)
    client = program[0] if program else "a client without a name"
    place = "/".join(
        s if WORD.fullmatch(s) else "..." for s in path.split("/", SEGMENTS)[:SEGMENTS]
    )
    if (client, place) not in told:
        told.add((client, place))
        log.info(
            "%s calls /v1%s, which has no memory: its requests are forwarded unchanged. "
            "/v1/chat/completions, /v1/responses and /v1/messages have memory: use one of these "
            "if you can.",
            client,
            place,
        )


def _below(path: bytes, skip: int) -> bytes:
    """Return the path behind so many segments, as it was sent; several slashes are one."""
    at = 0
    for _ in range(skip):
        while path.startswith(b"/", at):
            at += 1
        found = path.find(b"/", at)
        at = found if found >= 0 else len(path)
    return path[at:]


def _route(gateway: GatewayState, name: str | None, principal: Principal) -> Route:
    return gateway.router.route(name, principal) if name else Route(((gateway.router.default(),),))
