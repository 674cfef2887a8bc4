"""Responses that are forwarded unchanged; only their owner is recorded."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import replace

import msgspec

from gateway.chat.stored.background_booking import UNFINISHED, booking_of, watch
from gateway.chat.stored.provider_call import ProviderCall
from gateway.chat.turn.relayed_turn import RelayedTurn
from gateway.http.json_thread import run_by_weight, run_heavy
from gateway.storage.responses import ITEMS, StoredResponse, item_ids
from gateway.wire.chat import Json, decode
from gateway.wire.json_weight import is_in, is_readable
from gateway.wire.sse import LONG_BYTES

ADDED = b"response.output_item.added"
# Of an answer that is looked into for its id.
READ_BYTES = 8 << 20
# Of a stream, among which its first event is.
EVENT_LINES = 8


class StoredPassthrough(RelayedTurn):
    """A response that is forwarded unchanged; only its owner is recorded.

    Its provider stores it. Its owner may continue from it in any mode, and nobody else.
    """

    _row: StoredResponse | None = None
    # The ids of its items, which their owner may name.
    _items: tuple[str, ...] = ()

    @property
    def goes_on(self) -> bool:
        return self._turn_input.runs_in_background

    async def body(self) -> AsyncGenerator[bytes, None]:
        parts = []
        size = 0
        is_noted = False
        async for part in super().body():
            size += len(part)
            if not is_noted and size <= READ_BYTES:
                parts.append(part)
                if self._tells_all(part, size):
                    is_noted = await self._note_owner(b"".join(parts))
            if len(self._items) < ITEMS:
                if len(part) > LONG_BYTES:
                    self._items += tuple(await run_heavy(_items_begun, part))
                elif ADDED in part:
                    self._items += tuple(_items_begun(part))
            yield part
        if not is_noted and size <= READ_BYTES:
            await self._note_owner(b"".join(parts))
        if self._row is not None and self._items:
            row = replace(self._row, echo={**self._row.echo, "items": [*self._items[:ITEMS]]})
            self._gateway.responses.save(row)

    def _tells_all(self, part: bytes, size: int) -> bool:
        """Tell whether the bytes so far may contain the response's id."""
        raw_reply = self._raw_reply
        if raw_reply is None or raw_reply.later_events is not None:
            return b'"response"' in part
        return raw_reply.incoming.header(b"content-length") == b"%d" % size

    async def _note_owner(self, data: bytes) -> bool:
        """Record the owner of a response; False if its id has not arrived yet."""
        response = await run_by_weight(data, response_in, data)
        served = self._forward.served
        request = self._turn_input
        if not isinstance(response.get("id"), str) or served is None:
            return False
        goes_on = self.goes_on and response.get("status") in UNFINISHED
        # Some servers do not tell that they store; what goes on there is stored.
        if response.get("store") is True or goes_on:
            tenant = request.principal.tenant
            model = str(request.body.get("model") or "")
            row = StoredResponse(
                response["id"], tenant, request.user, [response["id"]], served.label, model
            )
            self._row = replace(
                row, created_at=time.time(), echo=booking_of(request, self._forward)
            )
            self._items += tuple(item_ids(response))
            # It goes on without its client.
            if goes_on or response.get("background") is True:
                await self._gateway.responses.note(self._row)
                headers = dict(request.headers)
                watch(ProviderCall(self._gateway, request.principal, headers, served), self._row)
            else:
                self._gateway.responses.save(self._row)
        return True


def _items_begun(part: bytes) -> list[str]:
    """Return the ids of the items that begin in a piece of a stream."""
    out: list[str] = []
    if not is_in(part, ADDED):
        return out
    for line in part.split(b"\n"):
        if not line.startswith(b"data: ") or ADDED not in line or not is_readable(line):
            continue
        try:
            event = decode(line[6:])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(event, dict):
            out += item_ids({"output": [event.get("item")]})
    return out


def response_in(data: bytes) -> Json:
    """Return the response that a body holds, or the first of its events; {} for none."""
    for text in (data, *(x[6:] for x in data.split(b"\n", EVENT_LINES) if x.startswith(b"data: "))):
        if not text.lstrip().startswith(b"{") or not is_readable(text):
            continue
        try:
            members = decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        members = members.get("response", members)
        if isinstance(members, dict) and members.get("object") == "response":
            return members
    return {}
