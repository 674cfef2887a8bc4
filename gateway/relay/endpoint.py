"""Every `/v1` path that is not ours: relayed as it came, routed by the body's `model` where it has
one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from gateway.auth.authenticator import Principal
from gateway.errors import GatewayError
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import relayed_path, tail_of, upstream_path, user_in
from gateway.http.request_body import read_body
from gateway.http.response import GatewayResponse
from gateway.pipeline import RequestInfo, accounted_response, new_dispatcher
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.relay.path_policy import READING, check_path, folded_path, model_asked
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Route, is_model_allowed
from gateway.state import MOST_TOLD, GatewayState, request_id
from gateway.upstream.base import UpstreamRequest
from gateway.usage.meter import guess_tokens
from gateway.wire.chat import Json, decode
from gateway.wire.headers import merge_headers, upstream_headers
from gateway.wire.json_members import UnreadableMembers, find_members, read_string

# Of a body that may name its user.
USER_MEMBERS = (b"user", b"safety_identifier")
LIST_SECONDS = 2.0
LIST_BYTES = 4 << 20
# Whose calls are billed by the tokens of texts, however the path is spelt.
BY_TOKENS = frozenset(
    {
        "/chat/completions",
        "/completions",
        "/responses",
        "/responses/compact",
        "/messages",
        "/embeddings",
        "/moderations",
    }
)
STREAMS = re.compile(rb'"stream"\s*:\s*true')
# What a User-Agent begins with.
PRODUCT = re.compile(r"[\w.-]{1,40}", re.ASCII)
# Of a path, where an id is none.
WORD = re.compile(r"[a-z_]{0,30}")
SEGMENTS = 4

log = logging.getLogger("mnemogate")


class RelayedContent(NamedTuple):
    """A request to relay. path: canonical, below `/v1`. user: from `/u/{user}`."""

    principal: Principal
    method: str
    path: str
    headers: Mapping[bytes, bytes]
    user: str | None
    data: bytes

    @property
    def content_type(self) -> bytes:
        return self.headers.get(b"content-type", b"application/json")

    @property
    def wants_events(self) -> bool:
        return b"json" in self.content_type and STREAMS.search(self.data[: 1 << 20]) is not None


# Checks what the body of a request names. Raises GatewayError.
ContentCheck = Callable[[GatewayState, RelayedContent], Awaitable[None]]

# Makes what answers a relayed request.
Answering = Callable[[RelayedContent, Dispatcher, RelayedRequest], PassthroughProducer]


def _relay(
    content: RelayedContent, forward: Dispatcher, passing: RelayedRequest
) -> PassthroughProducer:
    return PassthroughProducer(forward, passing, content.wants_events)


async def pass_on(
    gateway: GatewayState,
    scope: Any,
    receive: Any,
    check: ContentCheck,
    answering: Answering = _relay,
) -> GatewayResponse:
    """Return the ASGI response that relays this request.

    scope: with its canonical path. check: of keys that share the provider's account. Raises
    GatewayError.
    """
    started_at = time.perf_counter()
    content = await _read_content(gateway, scope, receive)
    principal, headers, folded = content.principal, content.headers, folded_path(content.path)
    query = scope.get("query_string", b"").decode("latin-1")
    model = await _model_in(content, folded, query)
    route = route_for(gateway, model, principal)
    fenced = principal.paths is not None
    if fenced and content.data:
        await check(gateway, content)
    user = await run_by_weight(content.data, _user_of, content) if fenced else None
    forward = new_dispatcher(gateway, route, headers, principal, user)
    if folded in BY_TOKENS:
        forward.meter.guess = guess_tokens(len(content.data))
    passing = RelayedRequest(
        content.method,
        relayed_path(content.path, query, folded=fenced),
        content.data or None,
        content.content_type,
        own_headers=[(b"x-memory-status", b"off"), (b"x-memory-reason", b"path")],
        started_at=started_at,
    )
    output = 0 if folded == "/embeddings" else None
    answer = answering(content, forward, passing)
    name = request_id(scope)
    entry = RequestInfo(name, principal, folded, started_at, model or "", output=output)
    entry.background = answer.goes_on
    _tell_of_no_memory(gateway, content.method, headers, folded)
    return accounted_response(gateway, forward, entry, answer.ready)


async def _model_in(content: RelayedContent, path: str, query: str) -> str | None:
    """Return the model that a request names. path: folded. Raises GatewayError."""
    typed_body = (content.data, content.content_type)
    arguments = (content.principal, content.method, path, query, typed_body)
    return await run_by_weight(content.data, model_asked, *arguments)


async def _read_content(gateway: GatewayState, scope: Any, receive: Any) -> RelayedContent:
    """Read a request whose key reaches its path. Raises GatewayError."""
    headers = merge_headers(scope["headers"])
    method = scope["method"]
    principal = gateway.keys.caller(headers)
    path = tail_of(scope["path"])
    check_path(principal, method, folded_path(path))
    limit = int(gateway.settings.server.max_body_mib * 1024 * 1024)
    body = await read_body(receive, headers, limit)
    return RelayedContent(principal, method, path, headers, user_in(scope["path"]), body)


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
                    upstream_path("models"),
                    None,
                    upstream_headers([], forward.caller.credential(target), None),
                    "GET",
                )
            )
            data = await incoming.read(LIST_BYTES)
            await incoming.close()
        if incoming.status != 200:
            return []
        entries = (await run_by_weight(data, decode, data))["data"]
        return [
            m
            for m in entries
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


def _user_of(content: RelayedContent) -> str | None:
    """Return whom a request with an Idempotency-Key names, however it does: as it stands there."""
    if b"idempotency-key" not in content.headers:
        return None
    if user_name := content.headers.get(b"x-memory-user", b"").decode("latin-1") or content.user:
        return user_name
    try:
        places = find_members(content.data, USER_MEMBERS)
    except UnreadableMembers:
        return None
    names = (read_string(content.data, places[m]) for m in USER_MEMBERS if m in places)
    return next(filter(None, names), None)


def _tell_of_no_memory(
    gateway: GatewayState, method: str, headers: Mapping[bytes, bytes], path: str
) -> None:
    """Tell the log once a program and path that it goes without memory."""
    known_programs = gateway.process.relayed
    if method in READING or len(known_programs) >= MOST_TOLD:
        return
    agent = headers.get(b"user-agent", b"").decode("ascii", "replace")
    program = PRODUCT.match(agent)
    client = "a client without a name"
    if program:
        client = program[0]
    place = "/".join(
        s if WORD.fullmatch(s) else "..." for s in path.split("/", SEGMENTS)[:SEGMENTS]
    )
    if (client, place) not in known_programs:
        known_programs.add((client, place))
        log.info(
            "%s calls /v1%s, which has no memory: its requests are forwarded unchanged. "
            "/v1/chat/completions, /v1/responses and /v1/messages have memory: use one of these "
            "if you can.",
            client,
            place,
        )


def route_for(gateway: GatewayState, name: str | None, principal: Principal) -> Route:
    """Return the route of a model; the default one where none is named. Raises GatewayError."""
    if name:
        return gateway.router.route(name, principal)
    return Route(((gateway.router.default(),),))
