"""Responses whose input ends with a compaction trigger, as Codex compacts a conversation.

A server that knows the trigger answers itself. At any other the gateway compacts, and answers with
the one item that the client looks for.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator

from gateway.apis.envelope_events import event_of
from gateway.apis.responses.responses_format import RESPONSES, input_items
from gateway.apis.translation.responses_reply_from_chat import response_head
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.whole_body import read_input
from gateway.chat.stored.compactor import JSON, Compaction, Compactor
from gateway.chat.turn.relayed_turn import RelayedTurn
from gateway.errors import BadRequest, GatewayError, UpstreamRefused
from gateway.http.response import SSE, ResponseHead, ResponseProducer
from gateway.relay.passthrough import PassthroughProducer
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.wire.chat import Json, encode

TRIGGER = "compaction_trigger"
# Of a server that may not know the trigger.
REFUSALS = (400, 404, 405, 422, 501)


def may_ask_for_compaction(request: TurnInput) -> bool:
    """Tell whether a request may end with a trigger: for certain where its input was read."""
    if request.api is not RESPONSES or request.body.get("store") is not False:
        return False
    items = request.body.get("input")
    if items is not None:
        return _is_triggered(items)
    return TRIGGER.encode() in request.raw_body


def _is_triggered(items: object) -> bool:
    newest_item = None
    if isinstance(items, list) and items:
        newest_item = items[-1]
    return isinstance(newest_item, dict) and newest_item.get("type") == TRIGGER


async def begin_compaction(
    gateway: GatewayState,
    request: TurnInput,
    forward: Dispatcher,
    relayed: PassthroughProducer,
) -> ResponseProducer:
    """Return what compacts a request's input. relayed: answers where it does not ask for that."""
    request = await read_input(request)
    if not _is_triggered(request.body.get("input")):
        return await relayed.ready()
    return TriggeredCompaction(gateway, request, forward, relayed.passing)


class TriggeredCompaction(RelayedTurn):
    """The server's answer, or the gateway's where the server does not know the trigger."""

    _is_own = False

    async def body(self) -> AsyncGenerator[bytes, None]:
        try:
            async for part in super().body():
                yield part
        except (UpstreamRefused, BadRequest) as e:
            if e.status not in REFUSALS:
                raise
            answer = await self._compact(e)
            self._is_own = True
            yield answer

    def build_head(self, *, committed: bool) -> ResponseHead:
        if not self._is_own:
            return super().build_head(committed=committed)
        if self.stream:
            return ResponseHead(list(SSE), events=True)
        return ResponseHead(list(JSON))

    async def _compact(self, refusal: GatewayError) -> bytes:
        """Return an answer of the gateway's. Raises GatewayError."""
        request = self._turn_input
        tenant = request.principal.tenant
        user = request.user
        compactor = Compactor(self._gateway, self._forward, tenant, user)
        items = input_items(request.body)[:-1]
        try:
            compaction = await compactor.compact(request.body["model"], items)
        except UpstreamRefused as e:
            raise e from refusal
        head = response_head(request.body, secrets.token_hex(16), int(time.time()))
        ending = {"status": "completed", "output": [compaction.item], "usage": compaction.usage}
        response = {**head, **ending}
        if not self.stream:
            return encode(response)
        return _events(head, compaction, response)


def _events(head: Json, compaction: Compaction, response: Json) -> bytes:
    output_place = {"output_index": 0, "item": compaction.item}
    events: list[Json] = [
        {"type": "response.created", "response": head},
        {"type": "response.in_progress", "response": head},
        {"type": "response.output_item.added", **output_place},
        {"type": "response.output_item.done", **output_place},
        {"type": "response.completed", "response": response},
    ]
    numbered = ({**event, "sequence_number": at} for at, event in enumerate(events))
    return b"".join(map(event_of, numbered))
