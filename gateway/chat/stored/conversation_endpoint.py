"""Requests on conversation objects of the Responses API, and on their items.

A server that supports conversations stores them; this module knows their owners, and removes our
items from listings. For other servers they are stored here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.chat.intake.owned_responses import (
    KEPT,
    find_conversation,
    store_is_away,
    user_named,
)
from gateway.chat.intake.stored_names import check_names
from gateway.chat.stored import kept_responses
from gateway.chat.stored.conversation_body import (
    encode_added,
    encode_asked,
    encode_page,
    encode_whole,
    items_in,
    measure_items,
    metadata_in,
    read_conversation_body,
)
from gateway.chat.stored.provider_call import ProviderCall
from gateway.errors import BadRequest, Forbidden, ResourceNotFound
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.storage.responses import ADDED, CONVERSATION, StoredResponse
from gateway.tools.own_tools import owned_names
from gateway.wire.chat import Json, encode
from gateway.wire.headers import merge_headers
from memory import StoreUnavailable, management

# Of a row beside its items, with its metadata.
ROW_BYTES = 1000


class ConversationVerb:
    """One request on a conversation.

    name: its id, "" to create one. path_user: from `/u/{user}`. body: as it was sent.
    """

    def __init__(
        self, gateway: GatewayState, scope: Any, name: str, path_user: str | None, body: bytes
    ) -> None:
        self._gateway = gateway
        self._name = name
        self._raw_body = body
        self._headers = merge_headers(scope["headers"])
        self._principal = gateway.keys.caller(self._headers)
        # A key that may name others, and did not, makes one for whoever comes first.
        self._user = user_named(gateway, self._principal, self._headers, path_user)
        self._asker = gateway.names.user(self._principal, self._headers, path_user, {})
        # Of the conversation, once it is found.
        self._owner = self._asker
        self._query = scope.get("query_string", b"").decode("latin-1")
        self._method = scope["method"]

    async def create(self) -> bytes:
        """Create a conversation: at the provider, or here if it does not support them."""
        body = await read_conversation_body(self._raw_body)
        await self._check_names()
        provider_keeps = self._target.keeps_responses
        conversation = None
        if provider_keeps:
            conversation = await self._provider.ask_if_there("conversations", self._raw_body)
        if conversation is not None:
            if isinstance(conversation.get("id"), str):
                await self._write(self._row(conversation["id"], {}, target=self._target.label))
            return await encode_whole(conversation)
        await self._check_may_write()
        items = items_in(body)
        metadata = metadata_in(body)
        await kept_responses.check_room(
            self._gateway, self._principal.tenant, self._user, "", ROW_BYTES
        )
        row = self._row(f"{KEPT}{secrets.token_hex(20)}", metadata)
        await self._write(row)
        if items:
            await self._add(row, items)
        return encode(_conversation_of(row))

    async def get(self) -> bytes:
        """Return the conversation."""
        row = await self._find()
        if row is None:
            return await encode_whole(await self._pass_on())
        return encode(_conversation_of(row))

    async def change(self) -> bytes:
        """Replace the conversation's metadata."""
        row = await self._find()
        if row is None:
            return await encode_whole(await self._pass_on())
        body = await read_conversation_body(self._raw_body)
        metadata = metadata_in(body)
        await self._change(row.id, lambda echo: {**echo, "metadata": metadata})
        return encode(_conversation_of(replace(row, echo={"metadata": metadata})))

    async def delete(self) -> bytes:
        """Delete the conversation and the items that its client added."""
        row = await self._find()
        if row is None:
            answer = await self._pass_on()
        else:
            answer = {"id": row.id, "object": "conversation.deleted", "deleted": True}
        try:
            await self._gateway.responses.remove_thread(self._principal.tenant, self._name)
            self._gateway.kept_sizes.forget(self._principal.tenant, self._owner, self._name)
        except StoreUnavailable as e:
            raise store_is_away() from e
        return await encode_whole(answer)

    async def items(self) -> bytes:
        """Return a page of its items, without ours."""
        row = await self._find()
        if row is None:
            page = await self._pass_on("items")
            tag = self._gateway.memory.scope(self._principal.tenant, self._owner, "default").tag
            owned = owned_names(self._gateway.toolbox, self._principal.tenant)
            return await encode_page(page, owned, tag)
        numbered_items = await self._items_of(row)
        return await encode_asked([i for _, i in numbered_items], self._query)

    async def add_items(self) -> bytes:
        """Add items to it."""
        row = await self._find()
        if row is None:
            return await encode_whole(await self._pass_on("items"))
        items = items_in(await read_conversation_body(self._raw_body))
        if not items:
            raise BadRequest("`items` must be a list of items, and not empty.", param="items")
        added_turn = await self._add(row, items)
        return await encode_added(kept_responses.input_of(added_turn))

    async def item(self, name: str) -> bytes:
        """Return one of its items."""
        row = await self._find()
        if row is None:
            return await encode_whole(await self._pass_on("items", name))
        return await encode_whole((await self._item(row, name))[1])

    async def delete_item(self, name: str) -> bytes:
        """Delete one of its items."""
        row = await self._find()
        if row is None:
            return await encode_whole(await self._pass_on("items", name))
        turn, item = await self._item(row, name)
        shown_output = (turn.shown or {}).get("output") or []

        def edit(echo: Json) -> Json:
            output = echo.get("output") or shown_output
            input_items = _without(echo["input"], f"{turn.id}_in", item["id"])
            output_items = _without(output, f"{turn.id}_out", item["id"])
            return {**echo, "input": input_items, "output": output_items}

        await self._change(turn.id, edit)
        return encode(_conversation_of(row))

    @property
    def _target(self) -> Target:
        return self._gateway.router.default()

    def _row(self, name: str, metadata: Json, *, target: str = "") -> StoredResponse:
        tenant = self._principal.tenant
        now = time.time()
        echo = {"kind": CONVERSATION, "metadata": metadata}
        response = StoredResponse(name, tenant, self._user, (), target, "", echo=echo)
        return replace(response, created_at=now, thread=name)

    async def _find(self) -> StoredResponse | None:
        """Return the caller's conversation; None if its provider stores it."""
        place = (self._gateway, self._principal, self._user, self._name)
        row = await find_conversation(*place)
        if row is not None:
            self._owner = row.user
        else:
            self._owner = self._asker
        if row is None or row.target:
            return None
        return row

    async def _items_of(self, row: StoredResponse) -> list[tuple[StoredResponse, Json]]:
        """Return its items, each with its turn."""
        turns = await kept_responses.thread_rows(
            self._gateway, self._principal, row.user, self._name
        )
        return [(turn, i) for turn in turns for i in _numbered(turn)]

    async def _item(self, row: StoredResponse, name: str) -> tuple[StoredResponse, Json]:
        for turn, item in await self._items_of(row):
            if item["id"] == name:
                return turn, item
        raise ResourceNotFound(f"Item with id {name[:80]!r} not found.", code="item_not_found")

    async def _add(self, row: StoredResponse, items: list[Json]) -> StoredResponse:
        await kept_responses.thread_rows(self._gateway, self._principal, row.user, row.id)
        await self._check_may_write()
        size = await measure_items(self._raw_body, items) + ROW_BYTES
        await kept_responses.check_room(self._gateway, row.tenant, row.user, row.id, size)
        name = f"{ADDED}_{secrets.token_hex(16)}"
        echo = {"kind": ADDED, "input": items, "output": []}
        added_turn = replace(row, id=name, echo=echo, created_at=time.time())
        await self._write(added_turn)
        return added_turn

    async def _write(self, row: StoredResponse) -> None:
        try:
            await self._gateway.memory.wait_until_ready()
            await self._gateway.responses.create(row)
        except StoreUnavailable as e:
            raise store_is_away() from e

    async def _change(self, name: str, edit: Any) -> None:
        try:
            await self._gateway.responses.change(self._principal.tenant, name, edit)
        except StoreUnavailable as e:
            raise store_is_away() from e

    async def _check_may_write(self) -> None:
        """Raise Forbidden for an unproven key, which anybody may invent."""
        gateway = self._gateway
        principal = self._principal
        if gateway.settings.mode != "own-key" or gateway.settings.single_user:
            return
        try:
            await gateway.memory.wait_until_ready()
            proven = await management.users.is_proven(gateway.memory, principal.tenant)
        except StoreUnavailable as e:
            raise store_is_away() from e
        if not proven:
            raise Forbidden(
                "No upstream has accepted this key yet, so nothing is stored for it. Ask the model "
                "something first."
            )

    async def _check_names(self) -> None:
        """Raise ResourceNotFound if a body names an object that is not the caller's."""
        if self._principal.paths is None or not self._raw_body:
            return
        body = await read_conversation_body(self._raw_body)
        items_in(body)
        await check_names(self._gateway, self._principal, self._asker, self._raw_body, body)

    async def _pass_on(self, *names: str) -> Json:
        await self._check_names()
        content = None
        if self._method == "POST":
            content = self._raw_body
        path = ("conversations", self._name, *names)
        return await self._provider.ask(self._method, *path, query=self._query, content=content)

    @property
    def _provider(self) -> ProviderCall:
        return ProviderCall(self._gateway, self._principal, self._headers, self._target)


def _conversation_of(row: StoredResponse) -> Json:
    """Return a conversation as the API has it."""
    metadata = row.echo.get("metadata") or {}
    at = int(row.created_at)
    return {"id": row.id, "object": "conversation", "created_at": at, "metadata": metadata}


def _numbered(turn: StoredResponse) -> list[Json]:
    """Return the items of a turn as its client sees them, each with an id."""
    shown_items = {i.get("id"): i for i in (turn.shown or {}).get("output") or ()}
    output = turn.echo.get("output") or list(shown_items.values())
    kept_items = [
        i for i in _with_ids(output, f"{turn.id}_out") if not kept_responses.is_deleted(i)
    ]
    return [*kept_responses.input_of(turn), *(shown_items.get(i["id"], i) for i in kept_items)]


def _with_ids(items: Sequence[Json], prefix: str) -> list[Json]:
    return [{"id": f"{prefix}_{n}", **item} for n, item in enumerate(items)]


def _without(items: Sequence[Json], prefix: str, name: str) -> list[Json]:
    """Return items with a mark in place of one; the places of the others stay."""
    placeholder = {"type": kept_responses.DELETED}
    ids = [item["id"] for item in _with_ids(items, prefix)]
    return [placeholder if ident == name else i for ident, i in zip(ids, items, strict=True)]
