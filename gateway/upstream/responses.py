"""A server that speaks the Responses API: chat completions are translated to it and back.

Any other path is passed on as it is. Each event becomes a chunk at once; closing or cancelling
closes the connection at once; statuses and refusals are the server's own, whose shape is the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from msgspec.structs import replace

from gateway.apis.translation.messages_reply_to_chat import WholeAnswer
from gateway.apis.translation.messages_request_from_chat import thoughts_in_loop
from gateway.apis.translation.responses_reply_to_chat import StreamedResponse, completion_of
from gateway.apis.translation.responses_request_from_chat import response_request
from gateway.errors import BadRequest
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import upstream_path, with_query
from gateway.upstream.base import (
    ANSWER_BYTES,
    Carriage,
    Content,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)
from gateway.upstream.translated_body import Translation, translate_response
from gateway.wire.chat import encode
from gateway.wire.chat_request import parse
from gateway.wire.headers import with_body_idempotency_key
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.long_strings import CutText
from gateway.wire.losses import Losses

CHAT = upstream_path("chat", "completions")
RESPONSES_PATH = upstream_path("responses")
SPEAKS = "responses"


class _ResponseRequest(NamedTuple):
    """A request as the API's. thoughts: blocks of thinking that its tool loop had. usage: a usage
    chunk is wanted."""

    content: Content
    thoughts: int
    usage: bool
    lost_members: tuple[str, ...]


class ResponsesUpstream:
    """A server that speaks Responses and no chat completions.

    provider: its name in the settings. drop: what a request may lose.
    """

    def __init__(self, server: Upstream, provider: str, drop: Collection[str]) -> None:
        self._server = server
        self._provider = provider
        self._drop = drop

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request, see the port.

        Raises BadRequest, which names the member, for what cannot be carried.
        """
        path, _, query = request.path.partition("?")
        if path != CHAT or request.method != "POST":
            return await self._server.send(request)
        client_body = request.body or b"{}"
        response_body = await run_by_weight(client_body, self._translate, client_body)
        # Another body than the one the client's Idempotency-Key stands for.
        headers = with_body_idempotency_key([*request.headers], response_body.content)
        below = with_query(RESPONSES_PATH, query)
        outgoing = replace(request, path=below, content=response_body.content, headers=headers)
        incoming = await self._server.send(outgoing)
        if 200 <= incoming.status < 300:
            incoming = translate_response(incoming, _into(incoming, response_body))
        incoming.carriage = Carriage(SPEAKS, response_body.lost_members)
        return incoming

    def _translate(self, client_body: bytes) -> _ResponseRequest:
        """Translate a request. Raises BadRequest."""
        if not is_readable(client_body):
            raise BadRequest(
                f"The body has {UNREADABLE}: that is the limit of what is carried to this model's "
                "server. Send fewer."
            )
        text = CutText(client_body)
        body = parse(text.cut_text)
        losses = Losses(self._provider, self._drop, "the Responses API")
        content = text.restore(encode(response_request(body, losses)))
        options = body.get("stream_options")
        wants = isinstance(options, dict) and bool(options.get("include_usage"))
        return _ResponseRequest(content, thoughts_in_loop(body), wants, tuple(losses.names))


def _into(incoming: UpstreamResponse, response_body: _ResponseRequest) -> Translation:
    if incoming.is_events:
        return StreamedResponse(response_body.thoughts, response_body.usage, is_readable)

    def translate(data: bytes) -> bytes:
        if is_readable(data):
            return completion_of(data, response_body.thoughts)
        return data

    return WholeAnswer(translate, ANSWER_BYTES)
