"""A stored response as the events of a stream.

A provider streams what it made in the background again, also while it is being made. That stream is
masked as the first one was, so that the events have the same numbers. Any other response is taken
apart anew, in the pieces that its first stream had.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gateway.apis.responses.response_events import events_behind
from gateway.apis.responses.responses_reply import ResponsesMask
from gateway.chat.intake.owned_responses import is_kept
from gateway.chat.stored.background_booking import book_finished
from gateway.chat.stored.provider_call import ProviderCall
from gateway.chat.stored.stored_answer import NO_MEMORY
from gateway.errors import GatewayError, StreamIncomplete, UpstreamFailed
from gateway.http.json_thread import run_heavy
from gateway.http.response import CompletionProducer, ResponseHead
from gateway.routing.replies import EventReader
from gateway.storage.responses import StoredResponse
from gateway.upstream.base import UpstreamResponse
from gateway.wire.chat import Json
from gateway.wire.headers import Pairs
from gateway.wire.sse import SseFramer


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """What a stream is made of.

    mask: what shows the provider's rounds. read_response: returns the response once it is finished.
    after: the number of the event behind which to begin.
    """

    row: StoredResponse
    mask: ResponsesMask
    call: ProviderCall
    read_response: Callable[[], Awaitable[Json]]
    after: int


class StoredStream(CompletionProducer):
    """The events of one stored response."""

    def __init__(self, events: StoredEvents) -> None:
        super().__init__(stream=True)
        self._events = events
        self._mask = events.mask

    @property
    def memory(self) -> str:
        return "off"

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        row = self._events.row
        is_kept_here = is_kept(row) or bool(row.kind) or not row.rounds
        first_round = None
        if not is_kept_here:
            first_round = await self._open(row.rounds[0])
        if first_round is None:
            response = await self._events.read_response()
            cuts = row.echo.get("cuts") or ()
            yield await run_heavy(events_behind, response, cuts, self._events.after)
            return
        async for events in self._rounds(first_round):
            if events and (events_left := self._mask.number - 1 - self._events.after) > 0:
                yield _newest_events(events, events_left)

    async def _rounds(self, first_round: UpstreamResponse) -> AsyncGenerator[bytes, None]:
        """Yield what is shown of the provider's rounds, event by event."""
        rounds = self._events.row.rounds
        incoming: UpstreamResponse | None = first_round
        for number, name in enumerate(rounds):
            if number:
                self._mask.start_next_round()
                incoming = await self._open(name)
            if incoming is None:
                raise StreamIncomplete(
                    "The provider streams only the beginning of this response. Ask for it without "
                    "`stream`."
                )
            async for events in self._round(incoming):
                yield events
        await book_finished(self._events.call, self._events.row, self._mask.merged())
        yield self._mask.end(None)

    async def _round(self, incoming: UpstreamResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for batch in EventReader(incoming, SseFramer()):
                for event in batch:
                    if event.data and not self._mask.over:
                        yield await self._mask.show(event)
                if self._mask.over:
                    break
        finally:
            await incoming.close()
        mask = self._mask
        if mask.is_long:
            _, result = await run_heavy(mask.close)
        else:
            _, result = mask.close()
        if result.error is not None:
            raise UpstreamFailed(result.error)
        if not result.complete:
            raise StreamIncomplete("The provider's stream ended before the response did.")

    async def _open(self, name: str) -> UpstreamResponse | None:
        """Return the provider's stream of a round; None where it has none."""
        incoming = await self._events.call.open("GET", "responses", name, query="stream=true")
        if incoming.status == 200 and incoming.is_events:
            return incoming
        await incoming.close()
        return None

    async def whole(self) -> bytes:
        return b""

    def build_head(self, *, committed: bool) -> ResponseHead:
        return self.completion_head([])

    async def ready(self) -> StoredStream:
        return self

    def extra_headers(self) -> Pairs:
        return NO_MEMORY

    def error_event(self, error: GatewayError) -> bytes:
        return self._mask.fault(error)

    def on_finish(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        return None


def _newest_events(events_text: bytes, count: int) -> bytes:
    """Return at most so many of some events, the newest."""
    events = events_text.split(b"\n\n")
    return b"\n\n".join(events[-1 - count :])
