"""Answers that memory cannot read: the request goes through without memory.

Whatever an upstream sends, a client with memory gets at least what it would get without. The
client's own request is sent again, and its answer passed on as bytes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.passing import relay_turn
from gateway.errors import GatewayError, UnreadableAnswer
from gateway.http.asgi import ClientLeft
from gateway.http.response import ResponseHead
from gateway.relay.passthrough import PassthroughProducer
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.wire.headers import Pairs

UNREAD = "memory could not read the model's answer, so the request was sent again without memory"
log = logging.getLogger("mnemogate")
# Ends the turn whose answer was not read.
Finish = Callable[[], Coroutine[Any, Any, None] | None]


def answer_unread(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, error: Exception, end: Finish
) -> UnreadTurn | None:
    """Return what answers a request in place of its turn; None where the error is the answer.

    end: ends the turn.
    """
    # A defect of our reading.
    is_own = not isinstance(error, GatewayError | ClientLeft)
    if not (is_own or isinstance(error, UnreadableAnswer)):
        return None
    if gateway.settings.memory.on_error == "fail" or needs_memory(request):
        return None
    log.warning(
        "memory could not read an answer, and the request goes without it (%s): %s",
        request.id,
        error,
        exc_info=error if is_own else None,
    )
    relayed = relay_turn(gateway, replace(request, too_heavy=UNREAD), forward)
    return UnreadTurn(relayed, error, end)


def needs_memory(request: TurnInput) -> bool:
    """Tell whether a request has its history from memory alone."""
    is_named = request.conversation and not request.resends
    # Else it is not sent from here.
    is_kept_here = is_named and request.api.is_chat
    return bool(is_kept_here) and request.facts.history.after.newest < 0


class UnreadTurn:
    """A request passed on without memory, after its turn has failed.

    error: why it has. end: ends the turn.
    """

    def __init__(self, relayed: PassthroughProducer, error: Exception, end: Finish) -> None:
        self.stream = relayed.stream
        self._relayed = relayed
        self._error = error
        self._end = end

    @property
    def memory(self) -> str:
        return self._relayed.memory

    async def body(self) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self._relayed.body()) as parts:
            async for part in parts:
                if self._relayed.gives_events and not self.stream:
                    # Nobody who wants an object reads events.
                    raise self._error
                yield part

    def build_head(self, *, committed: bool) -> ResponseHead:
        return self._relayed.build_head(committed=committed)

    def extra_headers(self) -> Pairs:
        return self._relayed.extra_headers()

    def error_event(self, error: GatewayError) -> bytes:
        return self._relayed.error_event(error)

    def keepalive(self) -> bytes:
        return self._relayed.keepalive()

    def instead_of(self, error: Exception) -> None:
        return

    async def on_finish(self, error: BaseException | None) -> None:
        self._relayed.on_finish(error)
        if (ending := self._end()) is not None:
            await ending
