"""Begins a request with memory, and answers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from functools import partial
from typing import Any
from urllib.parse import quote

from gateway.chat.intake.lacking_search import prepare_search
from gateway.chat.intake.memory_request import ask_of
from gateway.chat.intake.operator_tools import ToolTarget, may_have_tools, toolbox_of
from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.asked_turn import Serve, run_ask
from gateway.chat.turn.degraded import DegradedProducer
from gateway.chat.turn.target_options import target_options
from gateway.chat.turn.turn import Turn, TurnLimits
from gateway.chat.turn.unread_answer import UnreadTurn, answer_unread, needs_memory
from gateway.errors import GatewayError, Unavailable
from gateway.http.response import CompletionProducer, ResponseHead
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.wire.headers import Pairs
from memory import MemoryFault

# That an answer waits for the store to take a long request.
HEAVY_SECONDS = 0.8
NOBODY = (
    "nobody was named, so what is remembered is this conversation's alone: send `user` in the "
    "body, the header X-Memory-User, or name the user in the path, /u/{user}/v1"
)


async def begin_turn(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, serve: Serve
) -> TurnProducer | DegradedProducer:
    """Begin the session of a request; return what answers it. serve: answers those of its agents.

    A memory that fails never takes the app down, unless the operator or the request needs it: then
    this raises Unavailable.
    """
    memory, body = gateway.settings.memory, request.body
    target = await forward.first_target()
    if gateway.toolbox.stand_in is not None:
        request = prepare_search(gateway, request, target)
    authorization, tenant = forward.caller.authorization, request.principal.tenant
    if authorization is not None and gateway.credentials.keep(tenant, authorization):
        gateway.worker.resume(tenant)
    try:
        ask = await ask_of(gateway, request, forward, target)
        if may_have_tools(gateway, request):
            if (chain := request.agent_call.chain) is not None:
                ask.asked_by = chain.asked_by
            run = partial(run_ask, serve, gateway)
            ask.toolbox = await toolbox_of(gateway, request, ToolTarget(forward, target, run))
        session = await gateway.memory.begin(ask)
    except MemoryFault as e:
        if memory.on_error == "fail" or needs_memory(request):
            raise Unavailable(
                "The memory store is unavailable, and this request needs it. Try again shortly.",
                headers=[(b"retry-after", b"1")],
            ) from e
        return DegradedProducer(gateway, request, forward)
    if ask.scope.user is None:
        session.trace.notes.append(NOBODY)
    turn = Turn(
        body,
        session,
        forward,
        _turn_limits(gateway, request),
        target_options(gateway, request, forward, target, session),
    )
    return TurnProducer(request, forward, turn, gateway)


def _turn_limits(gateway: GatewayState, request: TurnInput) -> TurnLimits:
    """Return the rounds and the seconds that a turn beginning now may take."""
    memory = gateway.settings.memory
    agent = request.agent_call.agent
    rounds = memory.max_rounds
    seconds = memory.turn_seconds
    if agent is not None:
        rounds = agent.settings.max_rounds or rounds
        seconds = agent.settings.turn_seconds or seconds
    until = asyncio.get_running_loop().time() + seconds
    if request.facts.history.heavy:
        patience = HEAVY_SECONDS
    else:
        patience = memory.read_deadline_ms / 1000
    sums = request.api.sums_usage and memory.usage == "sum"
    return TurnLimits(rounds, until, sums, patience)


class TurnProducer(CompletionProducer):
    """The answer of a turn whose session has begun."""

    def __init__(
        self, request: TurnInput, forward: Dispatcher, turn: Turn, gateway: GatewayState
    ) -> None:
        super().__init__(stream=request.wants_stream)
        self._request = request
        self._forward = forward
        self._turn = turn
        self._gateway = gateway

    @property
    def memory(self) -> str:
        if self._turn.why_degraded:
            return "degraded"
        return "ok"

    @property
    def turn_key(self) -> int:
        """The row key of the turn, with which the name of its explain record ends."""
        return int(self._turn.session.explain_id[-16:], 16)

    def chunks(self) -> AsyncGenerator[bytes, None]:
        return self._turn.events()

    async def whole(self) -> bytes | list[bytes]:
        return await self._turn.completion()

    def build_head(self, *, committed: bool) -> ResponseHead:
        reply = self._turn.reply
        return self.completion_head(reply.headers if reply is not None else [])

    def extra_headers(self) -> Pairs:
        turn = self._turn
        session = turn.session
        why_degraded = turn.why_degraded
        out = [
            (b"x-memory-status", b"degraded" if why_degraded else b"ok"),
            (b"x-memory-conversation", self._conversation_name(session.conversation.name)),
            *self._forward.target_headers(self._request.started_at),
        ]
        if why_degraded:
            out.append((b"x-memory-reason", b"degraded: " + why_degraded.encode()))
        if session.leaves_record:
            out.append((b"x-memory-explain", session.explain_id.encode()))
        if not self.stream:
            out += [
                (b"x-memory-rounds", b"%d" % len(turn.usages)),
                (b"x-memory-injected-tokens", b"%d" % session.prompt.injected_tokens),
            ]
            if calls := session.trace.tools:
                runs = sum("entry" in call for call in calls)
                if runs:
                    out += [(b"x-memory-tool-calls", b"%d" % runs)]
        return out

    def error_event(self, error: GatewayError) -> bytes:
        return self._turn.mask.fault(error)

    def keepalive(self) -> bytes:
        return self._turn.mask.keepalive()

    def _conversation_name(self, name: str) -> bytes:
        """Return the conversation as the client spelt it, else percent-encoded."""
        if sent_name := self._request.conversation_as_sent:
            return sent_name
        if name.isascii() and name.isidentifier():
            return name.encode()
        return quote(name).encode()

    def instead_of(self, error: Exception) -> UnreadTurn | None:
        # What fails now was read, and is recorded.
        if self._turn.is_finished:
            return None
        end = partial(self.on_finish, error)
        return answer_unread(self._gateway, self._request, self._forward, error, end)

    def on_finish(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        self._gateway.metrics.observe_turn(self._turn.session)
        authorization = self._request.principal.authorization
        if error is None and authorization is not None and self._forward.served is not None:
            self._gateway.credentials.accept(authorization)
        self._forward.tools_run = self._turn.session.trace.tools
        if self._turn.is_finished:
            return None
        return self._turn.abandon(error)
