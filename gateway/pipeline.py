"""What chat and relayed requests share: the dispatcher and the accounted response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec

from gateway.accounting import RequestAccount
from gateway.auth.authenticator import Principal
from gateway.http.response import GatewayResponse, ResponseProducer
from gateway.limits.limiter import KeyQuota
from gateway.routing.caller import Caller
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Route
from gateway.state import GatewayState
from gateway.usage.log import UsageRecord
from gateway.wire.headers import client_side, encode_user_header, with_owners_idempotency_key
from memory import Messages, conversation_key, keyed_hash, shown_owner


class RequestInfo(msgspec.Struct):
    """What the accounting of a request knows before it begins.

    user: None if the usage record names no user. output: most tokens that the answer may have.
    background: the answer goes on after the request. owner, agent, project: whose memory it is
    about. profile: the agent that was called and has a profile, "" for none. parent: the client's
    request whose agent asked, "" for none.
    """

    id: str
    principal: Principal
    path: str
    started_at: float
    model: str = ""
    mode: str = "off"
    user: str | None = None
    output: int | None = None
    background: bool = False
    owner: str | None = None
    agent: str = ""
    project: str = ""
    profile: str = ""
    parent: str = ""


def accounted_response(
    gateway: GatewayState,
    forward: Dispatcher,
    entry: RequestInfo,
    begin: Callable[[], Awaitable[ResponseProducer]],
) -> GatewayResponse:
    """Return the response of a request, with its accounting.

    begin: starts the work, once the request is admitted.
    """
    forward.request = entry.id
    principal = entry.principal
    if principal.tenant in gateway.process.bookings.tenants_without_key and principal.authorization:
        gateway.credentials.keep(principal.tenant, principal.authorization)
        gateway.process.bookings.resume(principal.tenant)
    account = _account(gateway, forward, entry)
    base = [(b"x-mnemogate-request-id", entry.id.encode())]
    if entry.mode != "off":
        base.append((b"x-memory-user", encode_user_header(shown_owner(entry.owner or entry.user))))
        if entry.agent not in ("", "default"):
            base.append((b"x-memory-agent", encode_user_header(entry.agent)))
        if entry.project:
            base.append((b"x-memory-project", encode_user_header(entry.project)))
    return GatewayResponse(
        partial(account.begin, begin),
        account,
        base,
        gateway.process.live,
        gateway.settings.server,
    )


def _account(gateway: GatewayState, forward: Dispatcher, entry: RequestInfo) -> RequestAccount:
    """Build the accounting of a request: its usage record and the quota of its key."""
    principal = entry.principal
    record = UsageRecord(
        entry.id,
        time.time(),
        principal.tenant,
        entry.user,
        principal.key,
        entry.model,
        "",
        entry.path,
        entry.mode,
        0.0,
        0,
        agent=entry.profile,
    )
    if entry.parent:
        record.parent = entry.parent
    limits = principal.limits
    budget = principal.budget
    allowance = KeyQuota(
        principal.key, limits.rpm, limits.tpm, limits.concurrent, budget.usd, budget.period
    )
    return RequestAccount(
        forward,
        record,
        entry.started_at,
        gateway.limits,
        gateway.usage,
        allowance,
        gateway.metrics,
        gateway.traces,
        entry.output,
        entry.background,
    )


def affinity_key(messages: object, explicit: str | None, owner: str) -> bytes:
    """Return what stays the same in a conversation, for it to stay with its target.

    It keeps a conversation on one target. Made of the conversation's explicit name, or else of its
    first user message.
    """
    if isinstance(messages, Messages):
        first_message = messages.after.first
    else:
        if isinstance(messages, list):
            message_list = messages
        else:
            message_list = [{"role": "user", "content": messages}]
        first_message = next(
            (
                conversation_key(m)
                for m in message_list
                if isinstance(m, dict) and m.get("role") == "user"
            ),
            b"",
        )
    return keyed_hash(
        b"beginning",
        owner.encode("utf-8", "surrogatepass"),
        explicit.encode("utf-8", "surrogatepass") if explicit else first_message,
    )


def new_dispatcher(
    gateway: GatewayState,
    route: Route,
    headers: Mapping[bytes, bytes],
    principal: Principal,
    user: str | None = None,
) -> Dispatcher:
    """Return the dispatcher of a request over its route's targets.

    user: whom it is for. Its deadline is the longest total timeout of these targets.
    """
    settings = gateway.settings
    is_own_key = gateway.keys.own
    client = client_side(headers, settings.server.forward_headers, own=is_own_key)
    is_keyed = b"idempotency-key" in headers and (not is_own_key or user)
    # The account of an app is shared by its users.
    if is_keyed:
        owner = f"{principal.tenant}\x00{user or ''}"
        client = with_owners_idempotency_key(client, gateway.secret, owner)
    return Dispatcher(
        route,
        gateway.choice,
        Caller(
            client,
            principal.authorization,
            not is_own_key,
            account=principal.tenant if is_own_key else "",
            tenant=principal.tenant,
            shares=gateway.keys.serves_several_tenants,
        ),
        retries=settings.routing.retries,
        deadline=asyncio.get_running_loop().time() + route.total_seconds,
    )
