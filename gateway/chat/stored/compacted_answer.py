"""The answer of `/v1/responses/compact`: the server's own, or one of the gateway's."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from gateway.apis.responses.responses_format import input_items
from gateway.chat.intake.whole_body import read_whole
from gateway.chat.stored import kept_responses
from gateway.chat.stored.compactor import JSON, Compactor, new_ident
from gateway.chat.stored.named_items import find_known, tell_items
from gateway.errors import UpstreamRefused
from gateway.http.json_thread import look_for, run_by_weight
from gateway.http.response import ResponseHead
from gateway.relay.endpoint import RelayedContent
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.upstream.bridged import NO_PATH, is_path_missing
from gateway.wire.chat import Json, encode
from gateway.wire.item_references import REFERRING


class CompactedAnswer(PassthroughProducer):
    """The server's answer, or the gateway's where the server has no such path."""

    def __init__(
        self,
        gateway: GatewayState,
        content: RelayedContent,
        forward: Dispatcher,
        passing: RelayedRequest,
    ) -> None:
        super().__init__(forward, passing, stream=False)
        self._gateway = gateway
        self._content = content
        self._is_own = False

    async def body(self) -> AsyncGenerator[bytes, None]:
        try:
            async for part in super().body():
                yield part
        except UpstreamRefused as e:
            if e.status not in NO_PATH or not is_path_missing(e.status, e.content):
                raise
            answer = await self._compact()
            self._is_own = True
            yield answer

    def build_head(self, *, committed: bool) -> ResponseHead:
        if self._is_own:
            return ResponseHead(list(JSON))
        return super().build_head(committed=committed)

    async def ready(self) -> CompactedAnswer:
        """Tell the items in full that the server cannot take by their ids."""
        gateway = self._gateway
        content = self._content
        if not await look_for(content.data, *REFERRING):
            return self
        body = await self._read()
        items = body.get("input")
        tenant = content.principal.tenant
        if isinstance(items, list):
            full_items = await find_known(gateway, tenant, self._user_in(body), items)
            if (sent_items := tell_items(items, full_items)) != items:
                sent_body = {**body, "input": sent_items}
                self.passing.body = await run_by_weight(content.data, encode, sent_body)
        return self

    async def _read(self) -> Json:
        data = self._content.data
        return await run_by_weight(data, read_whole, data)

    def _user_in(self, body: Json) -> str | None:
        content = self._content
        return self._gateway.names.user(content.principal, content.headers, content.user, body)

    async def _compact(self) -> bytes:
        """Return an answer of the gateway's. Raises GatewayError."""
        body = await self._read()
        principal = self._content.principal
        user = self._user_in(body)
        items = [*await self._chain(body, user), *input_items(body)]
        compactor = Compactor(self._gateway, self._forward, principal.tenant, user)
        compaction = await compactor.compact(str(body.get("model") or ""), items)
        return encode(
            {
                "id": new_ident("resp"),
                "object": "response.compaction",
                "created_at": int(time.time()),
                "output": [*compaction.kept_items, compaction.item],
                "usage": compaction.usage,
            }
        )

    async def _chain(self, body: Json, user: str | None) -> list[Json]:
        """Return the items of the stored response that a body goes on from. Raises GatewayError."""
        response_id = body.get("previous_response_id")
        if not isinstance(response_id, str):
            return []
        principal = self._content.principal
        rows = await kept_responses.chain_rows(self._gateway, principal, user, response_id)
        return [item for row in rows for item in kept_responses.items_in(row)]
