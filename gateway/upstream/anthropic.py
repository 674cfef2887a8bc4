"""Anthropic: chat completions are translated to its Messages API and back.

Any other path is passed on as it is. Each event becomes a chunk at once; closing or cancelling
closes the connection at once; statuses are kept. The key is sent as `x-api-key`, never as
Authorization, unless it is an OAuth token, which only works there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.apis.translation.messages_reply_to_chat import (
    StreamedAnswer,
    WholeAnswer,
    answer,
    refusal,
)
from gateway.apis.translation.messages_request_from_chat import (
    BINDING,
    binds_thinking,
    dropped_members,
    messages_request,
    thoughts_in_loop,
    with_stale_thinking_dropped,
)
from gateway.errors import BadRequest
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import upstream_path, with_query
from gateway.upstream.base import (
    ANSWER_BYTES,
    ERROR_BYTES,
    Carriage,
    Content,
    Headers,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)
from gateway.upstream.translated_body import Translation, translate_response
from gateway.wire.chat import Json, decode, encode
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.long_strings import CutText

CHAT = upstream_path("chat", "completions")
MESSAGES_PATH = upstream_path("messages")
SPEAKS = "messages"
VERSION = b"2023-06-01"
OAUTH = b"sk-ant-oat"
Facts = Callable[[str], Mapping[str, Any]]


class _NativeRequest(NamedTuple):
    """A request in Anthropic's words. bound: it needs the beta. thoughts: blocks of thinking that
    its tool loop had. usage: a usage chunk is wanted."""

    content: Content
    bound: bool
    thoughts: int
    usage: bool
    lost_members: tuple[str, ...]


class AnthropicUpstream:
    """Anthropic's API, or a server that is compatible with it.

    wire: sends to its base URL, which ends in `/v1`. facts: what models.toml knows of a model.
    max_tokens: for requests without a maximum to models that are unknown. version: an
    `anthropic-version` in place of the usual one.
    """

    def __init__(
        self, server: Upstream, facts: Facts, max_tokens: int = 4096, version: str = ""
    ) -> None:
        self._server = server
        self._facts = facts
        self._max_tokens = max_tokens
        self._version = version.encode() or VERSION

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request, see the port.

        Raises BadRequest for a chat completion that cannot be translated.
        """
        request = replace(request, headers=self._headers(request.headers))
        path, _, query = request.path.partition("?")
        if path != CHAT or request.method != "POST":
            if request.composed and binds_thinking(self._facts(request.model)):
                request = await _tolerate_changes(request)
            return _with_request_id(await self._server.send(request))
        client_body = request.body or b""
        native_request = await run_by_weight(
            client_body, self._translate_request, client_body, request
        )
        headers = _with_beta(request.headers, BINDING) if native_request.bound else request.headers
        outgoing = replace(
            request,
            path=with_query(MESSAGES_PATH, query),
            content=native_request.content,
            headers=headers,
        )
        incoming = _with_request_id(await self._server.send(outgoing))
        out = translate_response(incoming, _into(incoming, native_request))
        out.carriage = Carriage(SPEAKS, native_request.lost_members)
        return out

    def _translate_request(self, client_body: bytes, request: UpstreamRequest) -> _NativeRequest:
        """Translate a request. Raises BadRequest."""
        text = CutText(client_body)
        body = _object(text.cut_text)
        if request.model:
            body = {**body, "model": request.model}
        native_body = messages_request(
            body, self._facts(str(body.get("model"))), self._max_tokens, request.frozen
        )
        options = body.get("stream_options")
        lost_members = dropped_members(body)
        wants = isinstance(options, dict) and bool(options.get("include_usage"))
        return _NativeRequest(
            text.restore(encode(native_body)),
            "block_binding" in native_body.get("thinking", {}),
            thoughts_in_loop(body),
            wants,
            lost_members,
        )

    def _headers(self, headers: Sequence[tuple[bytes, bytes]]) -> Headers:
        out = [_key_header(v) if k == b"authorization" else (k, v) for k, v in headers]
        if any(k == b"anthropic-version" for k, _ in out):
            return out
        return [*out, (b"anthropic-version", self._version)]


async def _tolerate_changes(request: UpstreamRequest) -> UpstreamRequest:
    """Return a request of the API's own that is not refused for what changed before thinking."""
    client_body = request.body or b""
    tolerant_body = await run_by_weight(
        client_body, lambda: with_stale_thinking_dropped(decode(client_body))
    )
    if tolerant_body is None:
        return request
    return replace(
        request, content=encode(tolerant_body), headers=_with_beta(request.headers, BINDING)
    )


def _key_header(authorization: bytes) -> tuple[bytes, bytes]:
    key = authorization.partition(b" ")[2].strip()
    if key.startswith(OAUTH):
        return (b"authorization", authorization)
    return (b"x-api-key", key)


def _with_beta(headers: Sequence[tuple[bytes, bytes]], name: str) -> Headers:
    values = [v for k, v in headers if k == b"anthropic-beta"]
    names = dict.fromkeys([*b",".join(values).replace(b" ", b"").split(b","), name.encode()])
    return [
        *((k, v) for k, v in headers if k != b"anthropic-beta"),
        (b"anthropic-beta", b",".join(n for n in names if n)),
    ]


def _with_request_id(incoming: UpstreamResponse) -> UpstreamResponse:
    """Add the response's request id under the name that clients know."""
    request_id = incoming.header(b"request-id")
    if request_id is not None and incoming.header(b"x-request-id") is None:
        incoming.headers.append((b"x-request-id", request_id))
    return incoming


def _into(incoming: UpstreamResponse, native_request: _NativeRequest) -> Translation:
    if not 200 <= incoming.status < 300:
        return WholeAnswer(refusal, ERROR_BYTES)
    created_at = int(time.time())
    if not incoming.is_events:
        return WholeAnswer(
            lambda data: (
                answer(data, created_at, native_request.thoughts) if is_readable(data) else data
            ),
            ANSWER_BYTES,
        )
    return StreamedAnswer(created_at, native_request.thoughts, native_request.usage, is_readable)


def _object(data: bytes) -> Json:
    if not is_readable(data):
        raise BadRequest(
            f"The body has {UNREADABLE}: that is the limit of the translation for this provider. "
            "Send fewer."
        )
    try:
        body = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise BadRequest(f"The body is not valid JSON: {str(e)[:200]}", code="invalid_json") from e
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.", code="invalid_json")
    return body
