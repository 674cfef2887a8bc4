"""The client's own request while the memory is down.

It is forwarded and answered as usual, and marked `degraded`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.round_sender import TurnKeeper
from gateway.chat.turn.round_stream import (
    close_round,
    raise_for_incomplete,
    stream_round,
    write_body,
)
from gateway.errors import GatewayError
from gateway.http.response import CompletionProducer, ResponseHead
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.replies import CompletionReply
from gateway.state import GatewayState
from gateway.wire.headers import Pairs


class DegradedProducer(CompletionProducer):
    """An answer without memory, in both modes."""

    def __init__(self, gateway: GatewayState, request: TurnInput, forward: Dispatcher) -> None:
        super().__init__(stream=request.wants_stream)
        self._request = request
        self._forward = forward
        self._keeper: TurnKeeper | None = None
        if gateway.stored is not None:
            self._keeper = gateway.stored.keep(gateway, request, forward)
        view = None
        if request.whole_facts is not None:
            view = request.whole_facts.view
        self._mask = request.api.mask(request.body, (), forward.alias, injected=False, view=view)
        self._reply: CompletionReply | None = None
        self._bytes = 0

    @property
    def memory(self) -> str:
        return "degraded"

    def chunks(self) -> AsyncGenerator[bytes, None]:
        answer = self._answer()
        if self._keeper is None:
            return answer
        return self._keeper.note_first(answer, "")

    async def _answer(self) -> AsyncGenerator[bytes, None]:
        api = self._request.api
        mask = self._mask
        body = self._request.body
        reply = self._reply = await self._forward.complete(lambda _: api.own_request(body, None))
        mask.alias = self._forward.alias
        try:
            async for events in stream_round(reply, mask, self._forward):
                yield events
        finally:
            await reply.incoming.close()
        last_events, result = await close_round(mask)
        if last_events:
            yield last_events
        self._forward.meter.record_usage(result.usage)
        raise_for_incomplete(result, self._forward, whole=reply.plain is not None)
        if reply.plain is not None:
            self._bytes = len(reply.plain)
            mask.pass_on(reply.plain, result)
            # The mask's now.
            reply.plain = b""
        if held_events := mask.finish():
            yield held_events
        if (keeper := self._keeper) is not None:
            row = await keeper.row(mask, [result.reply], api.hidden_rounds(), "")
            keeper.settle(row, written=False)
        if self.stream:
            yield mask.end(mask.usage)

    async def whole(self) -> bytes | list[bytes]:
        return await write_body(self._mask, self._mask.usage, self._bytes)

    def build_head(self, *, committed: bool) -> ResponseHead:
        return self.completion_head(self._reply.headers if self._reply is not None else [])

    def extra_headers(self) -> Pairs:
        return [
            (b"x-memory-status", b"degraded"),
            (b"x-memory-reason", b"degraded: the memory store is unavailable"),
            *self._forward.target_headers(self._request.started_at),
        ]

    def error_event(self, error: GatewayError) -> bytes:
        return self._mask.fault(error)

    def keepalive(self) -> bytes:
        return self._mask.keepalive()

    def on_finish(self, error: BaseException | None) -> None:
        return
