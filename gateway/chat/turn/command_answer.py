"""The answer of a chat command in `/v1/responses`: the client can continue from its id.

The provider does not know it. A request that continues from it continues from the response before
it (`goes_on` of its row).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any

from gateway.apis.envelope_events import event_of
from gateway.chat.intake.request import TurnInput
from gateway.chat.stored.stored_passthrough import RelayedTurn
from gateway.chat.stored.stored_responses import find_base
from gateway.storage.responses import COMMAND, StoredResponse
from gateway.wire.chat import Json, encode, read_object
from memory import MemoryFault, StoreUnavailable, management

CLOSED = "response.completed"
DATA = b"data: "


def is_to_be_kept(request: TurnInput) -> bool:
    """Tell whether a client may continue from the answer of its command."""
    there = request.route.keeps_responses and request.body.get("store") is not False
    return there or request.kept is not None


class CommandAnswer(RelayedTurn):
    """The answer of a command, stored as a response. request: as its client sent it."""

    _base = ""  # the response before the command, as its server knows it

    async def body(self) -> AsyncGenerator[bytes, None]:
        kept = await self._may_keep()
        async for part in super().body():
            yield await self._keep(part) if kept else part

    async def _may_keep(self) -> bool:
        """Tell whether the answer is stored: not for an unproven key, which anybody may invent."""
        gateway, asked = self._gateway, self._asked
        if asked.chained:
            base = await find_base(gateway, asked.principal, asked.user, asked.chained)
            self._base = base.id if base is not None else ""
            return True
        if asked.thread or gateway.settings.single_user or gateway.settings.mode != "own-key":
            return True
        try:
            return await management.users.is_proven(gateway.memory, asked.principal.tenant)
        except MemoryFault:
            return False

    async def _keep(self, part: bytes) -> bytes:
        """Return a part of the answer with the id of the stored response."""
        if not self.stream:
            shown = self._as_kept(read_object(part))
            await self._write(shown)
            self._whole_body = encode(shown)
            return self._whole_body
        out = []
        for event in part.split(b"\n\n"):
            data = event.partition(DATA)[2]
            if not data.startswith(b"{"):
                out.append(event + b"\n\n" if event else b"")
                continue
            found = read_object(data)
            if isinstance(found.get("response"), dict):
                found = {**found, "response": self._as_kept(found["response"])}
            if found.get("type") == CLOSED:
                await self._write(found["response"])
            out.append(event_of(found))
        return b"".join(out)

    def _as_kept(self, response: Json) -> Json:
        asked = self._asked
        shown = {**response, "store": True, "previous_response_id": asked.chained or None}
        thread: Any = asked.thread or asked.body.get("conversation")
        name = thread.get("id") if isinstance(thread, dict) else thread
        return {**shown, "conversation": {"id": name}} if name else shown

    async def _write(self, shown: Json) -> None:
        asked = self._asked
        echo = {
            "kind": COMMAND,
            "input": asked.kept or [],
            "output": shown["output"],
            "previous_response_id": self._base or None,
        }
        row = StoredResponse(
            shown["id"],
            asked.principal.tenant,
            asked.user,
            (),
            "",
            asked.body["model"],
            shown=shown,
            echo=echo,
            created_at=time.time(),
            thread=asked.thread,
        )
        try:
            await self._gateway.responses.create(row)
        except StoreUnavailable:
            self._gateway.responses.save(row)
