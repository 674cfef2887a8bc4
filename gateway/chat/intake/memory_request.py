"""Builds the memory's view of a request."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from msgspec.structs import replace

from gateway.chat.intake.capabilities import capabilities_of
from gateway.chat.intake.memory_mode import asks_for_all
from gateway.chat.intake.request import KnownMembers, TurnInput
from gateway.chat.intake.request_headers import TIMEZONE, zone_of
from gateway.config.agents import AgentSettings
from gateway.memory_adapters.summarizer import Summarizer
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.wire.chat import Json
from memory import (
    SAVES,
    SEARCHES,
    Decision,
    InboxLimits,
    Messages,
    Scope,
    TurnRequest,
    decide,
    follow_setting,
    keyed_hash,
)

SORTED = msgspec.json.Encoder(order="sorted")
NO_MESSAGES = Messages.of(())
# Of a request that calls no agent.
NO_PROFILE = AgentSettings()
# Members that a retry may change.
NOT_IDENTITY = ("messages", "input", "stream", "stream_options")


async def ask_of(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, target: Target
) -> TurnRequest:
    """Return the memory's view of a request."""
    known = request.known
    # What targets refuse is learnt from request to request.
    if known is None or gateway.lacks.byte_count:
        return await _read_ask(gateway, request, forward, target)
    if known.target is not target:
        ask = await _read_ask(gateway, request, forward, target)
        known.ask = replace(ask, messages=NO_MESSAGES, complete=None, client_tools=None, body=b"")
        known.target = target
        return ask
    return await _ask_again(gateway, request, forward, known)


async def _read_ask(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, target: Target
) -> TurnRequest:
    body, facts = request.body, request.facts
    takes = capabilities_of(gateway, facts, body, target)
    agent = request.agent_call.agent
    profile = agent.settings if agent is not None else NO_PROFILE
    decisions = _decide(gateway, profile, target, searches=takes.searches)
    return TurnRequest(
        scope=_scope_of(gateway, request),
        messages=facts.history,
        model=request.model,
        request_id=request.id,
        mode=request.mode,
        explicit=request.conversation,
        resends=request.resends,
        client_tools=body.get("tools"),
        offer=takes.tools and profile.memory_tools,
        inject=takes.additions,
        recall=decisions["recall"].on,
        window=await _window(gateway, request, forward, target),
        tokenizer=gateway.vocabularies.start_loading(target.tokenizer),
        max_output=request.max_output,
        complete=Summarizer(gateway, forward, request.model, profile.summarizer),
        members_digest=await _digest_of(request),
        idempotency=request.idempotency_key,
        certain=request.is_retry,
        repeats=request.api.repeats[request.is_retry],
        extract=decisions["extract"].on,
        unread=decisions["extract"].on or decisions["extract"].open,
        decisions=decisions,
        body=request.raw_body,
        zone=await _zone(gateway, request, profile),
        harness=request.harness,
        tasks=_handles_tasks(gateway, request),
        policy=None if agent is None else gateway.agents.policy_of(agent),
        said_by=request.user if profile.home == "agent" else None,
        inbox=None if agent is None else _inbox_limits(gateway, request),
    )


async def _ask_again(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, known: KnownMembers
) -> TurnRequest:
    """Return the view of a request that is like one before it, see `TurnInput.known`.

    What is learnt of models and targets may be another by now.
    """
    target = known.target
    assert target is not None  # noqa: S101 - it is that of the request
    assert known.ask is not None  # noqa: S101 - it is kept with the target
    # As `capabilities_of` says of a target that refused nothing.
    searches = target.supports_tools
    decisions = _decide(gateway, NO_PROFILE, target, searches=searches)
    return replace(
        known.ask,
        messages=request.facts.history,
        request_id=request.id,
        client_tools=request.body.get("tools"),
        recall=decisions["recall"].on,
        window=await _window(gateway, request, forward, target),
        tokenizer=gateway.vocabularies.start_loading(target.tokenizer),
        complete=Summarizer(gateway, forward, known.ask.model, NO_PROFILE.summarizer),
        extract=decisions["extract"].on,
        unread=decisions["extract"].on or decisions["extract"].open,
        decisions=decisions,
        body=request.raw_body,
    )


def _scope_of(gateway: GatewayState, request: TurnInput) -> Scope:
    tenant = request.principal.tenant
    return gateway.memory.scope(tenant, request.owner, request.agent, request.project)


def _handles_tasks(gateway: GatewayState, request: TurnInput) -> bool:
    """Return whether a templated prompt may go without memory: not if the client asks for all."""
    if gateway.settings.memory.tasks != "auto":
        return False
    return not (b"x-memory" in request.headers and asks_for_all(request.headers))


def _inbox_limits(gateway: GatewayState, request: TurnInput) -> InboxLimits | None:
    """Return how many messages to its agent a turn delivers; None for none."""
    if request.mode != "full":
        return None
    bounds = gateway.settings.delegation
    return InboxLimits(bounds.inbox_messages, bounds.inbox_characters, bounds.inbox_days)


def _decide(
    gateway: GatewayState, profile: AgentSettings, target: Target, *, searches: bool
) -> dict[str, Decision]:
    """Return whether recall and extraction are on, and why. searches: our tools are taken."""
    memory = gateway.settings.memory
    models = gateway.memory.models
    recall = profile.recall or memory.recall
    extract = profile.extract or memory.extract
    # No record is asked.
    if recall != "auto" and extract != "auto":
        return {"recall": follow_setting(recall), "extract": follow_setting(extract)}
    takes_tools = searches and memory.tools != "never" and profile.memory_tools
    searching = models.of(target.label, SEARCHES)
    saving = models.of(target.label, SAVES)
    use = partial(decide, takes_tools=takes_tools)
    return {
        "recall": use(recall, record=searching, use="search"),
        "extract": use(extract, record=saving, use="save"),
    }


async def _zone(gateway: GatewayState, request: TurnInput, profile: AgentSettings) -> str:
    """Return the time zone of the request, of its user's policy, or of its agent; "" for none."""
    if TIMEZONE in request.headers and (zone := zone_of(request.headers)):
        return zone
    zone = ""
    if request.user is not None and not gateway.memory.policies.is_unused:
        memory = gateway.memory
        user = (request.principal.tenant, request.user)
        zone = await memory.policies.zone(user, memory.policy.read_deadline)
    return zone or ("" if request.agent_call.agent is None else profile.timezone)


async def _window(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, target: Target
) -> int | None:
    """Return the tokens that a request may have: of the model, or fewer by the profile.

    None where the upstream manages the context.
    """
    if request.facts.manages_context:
        return None
    if not request.api.is_chat and _is_kept_elsewhere(request):
        return None
    agent = request.agent_call.agent
    if agent is not None:
        profile = agent.settings
    else:
        profile = NO_PROFILE
    window = await gateway.windows.find(target, forward.caller)
    if not profile.context_window:
        return window
    return min(window or profile.context_window, profile.context_window)


def _is_kept_elsewhere(request: TurnInput) -> bool:
    """Tell whether the memory may know messages that such a request does not resend."""
    return bool(request.conversation) and not request.resends


async def _digest_of(request: TurnInput) -> bytes:
    """Return the digest of what stands beside the messages, made in a thread if they are heavy."""
    if request.facts.history.heavy:
        return await asyncio.to_thread(_digest_rest, request.body)
    return _digest_rest(request.body)


def _digest_rest(body: Json) -> bytes:
    """Return a digest that tells requests with equal messages apart."""
    members = dict(body)
    for name in NOT_IDENTITY:
        members.pop(name, None)
    return keyed_hash(b"rest", SORTED.encode(members))
