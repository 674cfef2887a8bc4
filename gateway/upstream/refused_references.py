"""Sends input items, and again without those that their server refuses by their ids.

A client may name what an earlier answer held by its id alone. Where the rows of that answer are
gone (a user was erased, the database was lost), nobody here knows what stood beside it, so the
server is asked. Without this, each resend of the conversation would be refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from gateway.http.json_thread import look_for, run_by_weight
from gateway.upstream.base import (
    ERROR_BYTES,
    Carriage,
    OnePiece,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)
from gateway.upstream.bridge_translation import read_body
from gateway.wire.chat import encode
from gateway.wire.headers import with_body_idempotency_key
from gateway.wire.item_references import REFERENCE, without_refused

REFUSALS = (400, 404, 422)
# How often only what a refusal names is left out; then every reference is.
BY_NAME = 3
LOST_ITEMS = "input.item_reference"


async def send_items(server: Upstream, request: UpstreamRequest) -> UpstreamResponse:
    """Send a request, and again after each refusal that names one of its items."""
    incoming = await server.send(request)
    lost_names: tuple[str, ...] = ()
    for attempt in range(BY_NAME + 2):
        if incoming.status not in REFUSALS:
            break
        if not lost_names and not await look_for(request.content, REFERENCE.encode()):
            break
        refusal = await incoming.read(ERROR_BYTES)
        await incoming.close()
        incoming = replace(incoming, body=OnePiece(refusal))
        body = request.body or b"{}"
        drops_every = attempt >= BY_NAME
        content = await run_by_weight(body, _without_refused, body, refusal, drops_every)
        if content is None:
            break
        lost_names = (LOST_ITEMS,)
        # Another body than the one the client's Idempotency-Key stands for.
        headers = with_body_idempotency_key([*request.headers], content)
        request = replace(request, content=content, headers=headers)
        incoming = await server.send(request)
    if lost_names and 200 <= incoming.status < 300:
        beyond = incoming.carriage or Carriage("")
        incoming.carriage = beyond._replace(lost_members=(*lost_names, *beyond.lost_members))
    return incoming


def _without_refused(client_body: bytes, refusal: bytes, every: bool) -> bytes | None:
    body = without_refused(read_body(client_body), refusal.decode("utf-8", "replace"), every=every)
    if body is None:
        return None
    return encode(body)
