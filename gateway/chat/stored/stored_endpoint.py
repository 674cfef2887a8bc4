"""Requests on a stored response: GET, DELETE, cancel, input items.

The provider's copy contains our calls, outputs and core text. A finished response is answered from
its row, as its client saw it. Other requests go to the provider with its own id, and our parts are
removed from its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.chat.intake.owned_responses import find_own, is_kept, user_named
from gateway.chat.stored.background_booking import UNFINISHED, book_finished
from gateway.chat.stored.kept_responses import asked_page, input_of
from gateway.chat.stored.provider_call import ProviderCall
from gateway.chat.stored.stored_answer import StoredAnswer, stored_answer
from gateway.chat.stored.stored_responses import client_items
from gateway.chat.stored.stored_stream import StoredEvents, StoredStream
from gateway.errors import BadRequest, UpstreamRefused
from gateway.http.json_thread import run_heavy
from gateway.http.response import GatewayResponse, ResponseProducer
from gateway.relay.endpoint import route_for
from gateway.routing.router import Target
from gateway.state import GatewayState, request_id
from gateway.storage.bookings import BOOKING
from gateway.storage.responses import StoredResponse
from gateway.tools.own_tools import owned_names
from gateway.wire.chat import Json, encode
from gateway.wire.headers import merge_headers
from memory.core.tool_definitions import client_names

# Between two looks at a response that runs in the background.
POLL_SECONDS = 0.5
SUBPATHS = ("cancel", "input_items")


class StoredVerb:
    """One request on a stored response.

    name: the id that the client knows. path_user: from `/u/{user}`.
    """

    def __init__(self, gateway: GatewayState, scope: Any, name: str, path_user: str | None) -> None:
        self._gateway = gateway
        self._scope = scope
        self._name = name
        self._headers = merge_headers(scope["headers"])
        self._principal = gateway.keys.caller(self._headers)
        self._user = user_named(gateway, self._principal, self._headers, path_user)
        self._query = scope.get("query_string", b"").decode("latin-1")

    async def get(self) -> bytes:
        """Return the response as JSON."""
        row = await self._row()
        if self._wants_more and len(row.rounds) == 1 and not is_kept(row) and not row.kind:
            call = self._call(row)
            response = await call.ask("GET", "responses", row.rounds[0], query=self._query)
        else:
            response = row.shown or await self._ask_for(row, finished=False)
        return await run_heavy(self._encode_restored, row, response)

    @property
    def _wants_more(self) -> bool:
        """Whether a query asks for members that an answer does not have by itself."""
        return any(name.startswith("include") for name in parse_qs(self._query))

    @property
    def _streams(self) -> bool:
        """Whether the response is asked for as events."""
        return parse_qs(self._query).get("stream") == ["true"]

    def answer(self, verb: str) -> GatewayResponse:
        """Return what answers a request.

        verb: get, delete, cancel or input_items.
        """
        path = "/responses/{id}" + (f"/{verb}" if verb in SUBPATHS else "")
        begin: Callable[[], Awaitable[ResponseProducer]] = StoredAnswer(getattr(self, verb)).ready
        if verb == "get" and self._streams:
            begin = self._stream
        return stored_answer(self._gateway, self._principal, path, request_id(self._scope), begin)

    async def _stream(self) -> StoredStream:
        """Return the events that the client was shown."""
        row = await self._row()
        after = self._starting_after()
        call = self._call(row)
        read_response = partial(self._response, row, finished=True)
        events = StoredEvents(row, self._mask(row), call, read_response, after)
        return StoredStream(events)

    async def _response(self, row: StoredResponse, *, finished: bool) -> Json:
        response = row.shown or await self._ask_for(row, finished=finished)
        return await run_heavy(self._restored, row, response)

    async def _ask_for(self, row: StoredResponse, *, finished: bool) -> Json:
        """Return a response as its provider has it.

        finished: wait until it is, as long as an answer may take.
        """
        until = asyncio.get_running_loop().time() + self._target(row).settings.timeouts.total
        while True:
            response = await self._ask(row, "GET", row.rounds[-1])
            await book_finished(self._call(row), row, response)
            is_late = asyncio.get_running_loop().time() > until
            if not finished or is_late or response.get("status") not in UNFINISHED:
                return response
            await asyncio.sleep(POLL_SECONDS)

    async def cancel(self) -> bytes:
        """Cancel a response that runs in the background."""
        row = await self._row()
        if is_kept(row):
            raise BadRequest(
                f"Response {row.id[:80]!r} is finished: only one that runs in the background can "
                "be cancelled."
            )
        response = await self._ask(row, "POST", row.rounds[-1], "cancel")
        await book_finished(self._call(row), row, response)
        return await run_heavy(self._encode_restored, row, response)

    async def input_items(self) -> bytes:
        """Return what the client had sent, without our additions."""
        row = await self._row()
        if is_kept(row):
            return await run_heavy(self._encode_input, row)
        call = self._call(row)
        names = ("responses", row.rounds[0], "input_items")
        page = await call.ask("GET", *names, query=self._query)
        tag = self._gateway.memory.scope(row.tenant, row.user, "default").tag
        return await run_heavy(_encode_items, page, tag)

    async def delete(self) -> bytes:
        """Delete a response and all its rounds."""
        row = await self._row()
        if BOOKING in row.echo and row.shown is None:
            # Once it is gone nobody can tell what it cost.
            with suppress(UpstreamRefused):
                await self._ask_for(row, finished=False)
        for name in () if is_kept(row) else row.rounds:
            try:
                await self._ask(row, "DELETE", name)
            except UpstreamRefused as e:
                # What is gone there may go here.
                if e.status != 404:
                    raise
        await self._gateway.responses.remove(row.tenant, row.id)
        self._gateway.kept_sizes.forget(row.tenant, row.user, row.thread)
        answer = {"id": row.id, "object": "response", "deleted": True}
        return encode(answer)

    def _starting_after(self) -> int:
        """Return the number of the event after which to begin. Raises BadRequest."""
        event_number = (parse_qs(self._query).get("starting_after") or ["-1"])[0]
        if event_number != "-1" and not (
            event_number.isascii() and event_number.isdigit() and len(event_number) < 10
        ):
            raise BadRequest(
                f"`starting_after` is {event_number[:40]!r}: give an event's sequence_number.",
                param="starting_after",
            )
        return int(event_number)

    async def _row(self) -> StoredResponse:
        return await find_own(self._gateway, self._principal, self._user, self._name)

    async def _ask(self, row: StoredResponse, method: str, *names: str) -> Json:
        """Ask the provider about a response.

        names: its id, and the verb. Raises UpstreamRefused with its own answer,
        UpstreamUnreachable.
        """
        return await self._call(row).ask(method, "responses", *names)

    def _call(self, row: StoredResponse) -> ProviderCall:
        return ProviderCall(self._gateway, self._principal, self._headers, self._target(row))

    def _target(self, row: StoredResponse) -> Target:
        route = route_for(self._gateway, row.model, self._principal)
        matching_targets = (t for t in route.targets if t.label == row.target)
        return next(matching_targets, route.targets[0])

    def _encode_restored(self, row: StoredResponse, response: Json) -> bytes:
        return encode(self._restored(row, response))

    def _encode_input(self, row: StoredResponse) -> bytes:
        return encode(asked_page(input_of(row), self._query))

    def _restored(self, row: StoredResponse, response: Json) -> Json:
        """Return a response with the client's own members, and its name of the model."""
        if row.shown is None and (alias := self._alias(row)):
            response = {**response, "model": alias}
        if (echo := self._echo(row)) is None:
            # Nothing of ours was in the request.
            return response
        return {**echo.restore(response), "id": row.id}

    def _mask(self, row: StoredResponse) -> ResponsesMask:
        """Return what shows the provider's stream of a response as its client saw it."""
        echo = self._echo(row) or Echo(frozenset())
        return ResponsesMask(echo.owned, self._alias(row), echo)

    def _alias(self, row: StoredResponse) -> str | None:
        is_alias = row.model and self._target(row).model != row.model
        if is_alias:
            return row.model
        return None

    def _echo(self, row: StoredResponse) -> Echo | None:
        """Return the client's own members; None where its request went as it was."""
        if not row.echo.keys() - {"items", BOOKING} or row.kind:
            return None
        return Echo(
            owned_names(self._gateway.toolbox, row.tenant)
            - client_names((row.shown or {}).get("tools")),
            row.echo.get("instructions"),
            row.echo.get("previous_response_id"),
            include=row.echo.get("include"),
            changed=True,
        )


def _encode_items(page: Json, tag: str) -> bytes:
    return encode(client_items(page, tag))
