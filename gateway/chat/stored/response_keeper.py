"""Stores a row for each response of the Responses API, with its owner."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gateway.apis.base import HiddenRounds, ReplyMask
from gateway.apis.envelope import EnvelopeMask
from gateway.apis.native import HiddenParts
from gateway.apis.responses.responses_format import RESPONSES, input_items
from gateway.apis.responses.responses_reply import ResponsesMask
from gateway.chat.intake.request import TurnInput
from gateway.chat.stored import kept_responses
from gateway.chat.stored.background_booking import UNFINISHED, booking_of, watch
from gateway.chat.stored.provider_call import ProviderCall
from gateway.chat.stored.stored_passthrough import response_in
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.storage import responses
from gateway.storage.responses import StoredResponse
from gateway.wire.chat import Json

ECHOED = ("instructions", "previous_response_id", "include")


def keeper_of(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher
) -> ResponseKeeper | None:
    """Return the keeper of a turn's response; None for a format whose provider stores nothing."""
    if request.api is RESPONSES:
        return ResponseKeeper(gateway, request, forward)
    return None


@dataclass(frozen=True, slots=True)
class ResponseKeeper:
    """Stores what a turn leaves at the provider.

    request: of the turn. forward: its dispatcher.
    """

    gateway: GatewayState
    request: TurnInput
    forward: Dispatcher

    async def row(
        self, mask: ReplyMask, replies: Sequence[Json], hidden: HiddenRounds, conversation: str
    ) -> StoredResponse | None:
        """Return the row of an answer; None where the provider stores nothing.

        replies: its rounds, as received.
        """
        if isinstance(mask, EnvelopeMask):
            response = mask.merged()
        else:
            response = {}
        rounds = [str(r["id"]) for r in replies if r.get("id")]
        served = self.forward.served
        request = self.request
        if not rounds or served is None:
            return None
        kept_parts = await self._kept_members(served, mask, replies, response)
        is_unfinished = response.get("status") in UNFINISHED
        # Some servers do not tell that they store; what goes on there is stored.
        goes_on = is_unfinished and self._in_background
        if response.get("store") is not True and not kept_parts and not goes_on:
            return None
        is_pending = isinstance(hidden, HiddenParts) and hidden.reply.get("id") == rounds[-1]
        return StoredResponse(
            str(response.get("id")),
            request.principal.tenant,
            request.user,
            rounds,
            served.label,
            request.body["model"],
            conversation,
            hidden.last if isinstance(hidden, HiddenParts) and is_pending else (),
            None if is_unfinished else response,
            self._echo() | self._cuts(mask) | kept_parts,
            time.time(),
            request.thread if kept_parts else "",
        )

    def _cuts(self, mask: ReplyMask) -> Json:
        """Return how the answer was cut into pieces, to be streamed so again."""
        if isinstance(mask, ResponsesMask) and self.request.wants_stream:
            cuts = mask.cuts
        else:
            cuts = []
        if any(cuts):
            return {"cuts": cuts}
        return {}

    async def _kept_members(
        self, served: Target, mask: ReplyMask, replies: Sequence[Json], response: Json
    ) -> Json:
        """Return the members of an answer that are stored here; see `measure_kept`.

        Returns {} if its provider stores them, or nobody does.
        """
        request, items = self.request, self.request.kept_items
        # Its server was only now found to keep nothing.
        learnt = items is None and not served.keeps_responses and not request.chained
        if learnt and request.body.get("store") is not False:
            items = input_items(request.body)
        if items is None:
            return {}
        kept_parts, size = await kept_responses.measure_kept(
            items, replies, response, is_long=mask.is_long
        )
        if not learnt:
            if kept_parts:
                tenant = request.principal.tenant
                self.gateway.kept_sizes.add(tenant, request.user, request.thread, size)
            return kept_parts
        has_room = kept_parts and await kept_responses.has_room(
            self.gateway, request, kept_parts, response
        )
        if has_room:
            return kept_parts
        return {}

    def beside(self, row: StoredResponse | None) -> Mapping[str, Json]:
        """Return what is written in the turn's transaction."""
        if row is None:
            return {}
        return {responses.ResponseTable.counted: responses.plain(row)}

    def note_first(
        self, events: AsyncGenerator[bytes, None], conversation: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """Return a stream's events; a background one's owner is recorded before the first.

        The provider goes on with it after the client left or this worker died.
        """
        if self._in_background:
            return self._note_first(events, conversation)
        return events

    async def _note_first(
        self, events: AsyncGenerator[bytes, None], conversation: str
    ) -> AsyncGenerator[bytes, None]:
        is_noted = False
        async with aclosing(events):
            async for part in events:
                if not is_noted and b'"response"' in part:
                    name = response_in(part).get("id")
                    served = self.forward.served
                    if isinstance(name, str) and served is not None:
                        await self.gateway.responses.note(
                            self._early_row(name, served, conversation)
                        )
                        is_noted = True
                yield part

    @property
    def _in_background(self) -> bool:
        """Whether the response goes on at its provider without its client."""
        return self.request.runs_in_background

    def _early_row(self, name: str, served: Target, conversation: str) -> StoredResponse:
        """Return the row of a response that has begun."""
        request = self.request
        return StoredResponse(
            name,
            request.principal.tenant,
            request.user,
            [name],
            served.label,
            request.body["model"],
            conversation,
            echo=self._echo(),
            created_at=time.time(),
        )

    def settle(self, row: StoredResponse | None, *, written: bool) -> None:
        """Write the row by itself, if it was not written with its turn."""
        if row is not None and not written:
            self.gateway.responses.save(row)
        if row is not None and row.shown is None and self.forward.served is not None:
            request = self.request
            headers = dict(request.headers)
            target = self.forward.served
            watch(ProviderCall(self.gateway, request.principal, headers, target), row)
        self.gateway.responses.write_held()

    def _echo(self) -> Json:
        """Return members of the request as the client sent them."""
        echo = {m: self._client_member(m) for m in ECHOED}
        return echo | booking_of(self.request, self.forward)

    def _client_member(self, name: str) -> Any:
        if name == "previous_response_id":
            return self.request.chained or None
        return self.request.body.get(name)
