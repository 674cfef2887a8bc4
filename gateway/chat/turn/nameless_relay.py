"""Relays requests of a path with memory that name no model: the provider may know it."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.body import ModelMissing
from gateway.chat.intake.relayed_names import check_content
from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.passing import relay_stored
from gateway.errors import GatewayError
from gateway.http.asgi import Send, respond_error
from gateway.relay.endpoint import RelayedContent, pass_on
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.relay.path_policy import folded_path
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState, request_id
from gateway.wire.chat import Json


async def relay_nameless(
    gateway: GatewayState, scope: Any, unnamed_model: ModelMissing, send: Send
) -> None:
    """Relay a request without a model: the provider may know it (a stored prompt)."""
    plain_headers = [h for h in scope["headers"] if h[0] != b"content-encoding"]
    messages = iter([{"type": "http.request", "body": unnamed_model.body, "more_body": False}])
    request = _NamelessRequest(gateway, request_id(scope), unnamed_model.members)

    async def receive() -> Any:
        if (message := next(messages, None)) is not None:
            return message
        return await asyncio.Event().wait()

    name = [(b"x-mnemogate-request-id", request_id(scope).encode())]
    try:
        where = {**scope, "headers": plain_headers}
        response = await pass_on(gateway, where, receive, check_content, request.answer)
    except GatewayError as e:
        await respond_error(send, e, name)
    else:
        await response(scope, receive, send)


class _NamelessRequest(NamedTuple):
    """A request without a model. id: the gateway's name for it. members: what its body says."""

    gateway: GatewayState
    id: str
    members: Json

    def answer(
        self, content: RelayedContent, forward: Dispatcher, passing: RelayedRequest
    ) -> PassthroughProducer:
        """Return what answers it; who owns a stored response is recorded."""
        is_stored = self.members.get("store") is not False
        if not is_stored or folded_path(content.path) != f"/{RESPONSES.name}":
            return PassthroughProducer(forward, passing, content.wants_events)
        names = self.gateway.names
        principal = content.principal
        request = TurnInput(
            id=self.id,
            principal=principal,
            headers=content.headers,
            path_user=content.user,
            raw_body=content.data,
            started_at=passing.started_at,
            body=self.members,
            route=forward.route,
            mode="off",
            user=names.user(principal, content.headers, content.user, self.members),
            conversation=None,
            too_heavy="",
            agent="",
            idempotency_key="",
            is_retry=False,
            api=RESPONSES,
            whole_facts=None,
        )
        return relay_stored(self.gateway, request, forward, passing)
