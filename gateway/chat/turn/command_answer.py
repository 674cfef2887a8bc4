"""The answer of a chat command in `/v1/responses`: the client can continue from its id.

The provider does not know it. A request that continues from it continues from the response before
it (`goes_on` of its row).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any

from gateway.apis.envelope_events import event_of
from gateway.chat.intake.owned_responses import find_base
from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.relayed_turn import RelayedTurn
from gateway.storage.responses import COMMAND, StoredResponse
from gateway.wire.chat import Json, encode, read_object
from memory import MemoryFault, StoreUnavailable, management

CLOSED = "response.completed"
DATA = b"data: "


def is_to_be_kept(request: TurnInput) -> bool:
    """Tell whether a client may continue from the answer of its command."""
    provider_keeps = request.route.keeps_responses and request.body.get("store") is not False
    return provider_keeps or request.kept_items is not None


class CommandAnswer(RelayedTurn):
    """The answer of a command, stored as a response. request: as its client sent it."""

    # The response before the command, as its server knows it.
    _base = ""

    async def body(self) -> AsyncGenerator[bytes, None]:
        is_kept = await self._may_keep()
        async for part in super().body():
            yield await self._keep(part) if is_kept else part

    async def _may_keep(self) -> bool:
        """Tell whether the answer is stored: not for an unproven key, which anybody may invent."""
        gateway = self._gateway
        request = self._turn_input
        if request.chained:
            base = await find_base(gateway, request.principal, request.user, request.chained)
            self._base = base.id if base is not None else ""
            return True
        if request.thread or gateway.settings.single_user or gateway.settings.mode != "own-key":
            return True
        try:
            return await management.users.is_proven(gateway.memory, request.principal.tenant)
        except MemoryFault:
            return False

    async def _keep(self, part: bytes) -> bytes:
        """Return a part of the answer with the id of the stored response."""
        if not self.stream:
            response = self._as_kept(read_object(part))
            await self._write(response)
            self._whole_body = encode(response)
            return self._whole_body
        out = []
        for event in part.split(b"\n\n"):
            data = event.partition(DATA)[2]
            if not data.startswith(b"{"):
                out.append(event + b"\n\n" if event else b"")
                continue
            event_data = read_object(data)
            if isinstance(event_data.get("response"), dict):
                event_data = {**event_data, "response": self._as_kept(event_data["response"])}
            if event_data.get("type") == CLOSED:
                await self._write(event_data["response"])
            out.append(event_of(event_data))
        return b"".join(out)

    def _as_kept(self, response: Json) -> Json:
        request = self._turn_input
        kept_response = {**response, "store": True, "previous_response_id": request.chained or None}
        thread: Any = request.thread or request.body.get("conversation")
        if isinstance(thread, dict):
            name = thread.get("id")
        else:
            name = thread
        if name:
            return {**kept_response, "conversation": {"id": name}}
        return kept_response

    async def _write(self, response: Json) -> None:
        request = self._turn_input
        echo = {
            "kind": COMMAND,
            "input": request.kept_items or [],
            "output": response["output"],
            "previous_response_id": self._base or None,
        }
        row = StoredResponse(
            response["id"],
            request.principal.tenant,
            request.user,
            (),
            "",
            request.body["model"],
            shown=response,
            echo=echo,
            created_at=time.time(),
            thread=request.thread,
        )
        try:
            await self._gateway.responses.create(row)
        except StoreUnavailable:
            self._gateway.responses.save(row)
