"""Builds the memory's view of a request."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from gateway.chat.capabilities import capabilities_of
from gateway.chat.memory_mode import asks_for_all
from gateway.chat.request import TurnInput
from gateway.chat.request_headers import zone_of
from gateway.memory_adapters.summarizer import Summarizer
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.wire.chat import Json
from gateway.wires.chat.format import CHAT
from memory import SAVES, SEARCHES, TurnRequest, decide, keyed_hash

SORTED = msgspec.json.Encoder(order="sorted")
NOT_IDENTITY = ("messages", "input", "stream", "stream_options")  # members that a retry may change


async def ask_of(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, target: Target
) -> TurnRequest:
    """Return the memory's view of a request."""
    memory, body, facts = gateway.settings.memory, request.body, request.facts
    managed = facts.manages_context or _is_kept_elsewhere(request)
    takes = capabilities_of(gateway, facts, body, target)
    models = gateway.memory.models
    searching, saving = models.of(target.label, SEARCHES), models.of(target.label, SAVES)
    takes_tools = takes.searches and memory.tools != "never"
    recall = decide(memory.recall, takes_tools=takes_tools, record=searching, use="search")
    extract = decide(memory.extract, takes_tools=takes_tools, record=saving, use="save")
    return TurnRequest(
        scope=gateway.memory.scope(request.principal.tenant, request.user, request.agent),
        messages=facts.history,
        model=body["model"],
        request_id=request.id,
        mode=request.mode,
        explicit=request.conversation,
        resends=request.resends,
        client_tools=body.get("tools"),
        offer=takes.tools,
        inject=takes.additions,
        recall=recall.on,
        window=None if managed else await gateway.windows.find(target, forward.caller),
        tokenizer=gateway.vocabularies.start_loading(target.tokenizer),
        max_output=request.max_output,
        complete=Summarizer(gateway, forward, body["model"]),
        rest=await _digest_rest(body, heavy=facts.history.heavy),
        idempotency=request.idempotency_key,
        certain=request.is_retry,
        extract=extract.on,
        unread=extract.on or extract.open,
        decisions={"recall": recall, "extract": extract},
        body=request.raw,
        zone=zone_of(request.headers),
        tasks=memory.tasks == "auto" and not asks_for_all(request.headers),
    )


def _is_kept_elsewhere(request: TurnInput) -> bool:
    """Tell whether the memory may know messages that such a request does not resend."""
    return request.wire is not CHAT and bool(request.conversation) and not request.resends


async def _digest_rest(body: Json, *, heavy: bool) -> bytes:
    """Return a digest that tells requests with equal messages apart."""
    members = {k: v for k, v in body.items() if k not in NOT_IDENTITY}
    digest = partial(_digest, members)
    return await asyncio.to_thread(digest) if heavy else digest()


def _digest(members: Json) -> bytes:
    return keyed_hash(b"rest", SORTED.encode(members))
