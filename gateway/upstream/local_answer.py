"""An upstream that answers a text of the gateway's own, as a chat completion."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from gateway.config.settings import ProviderSettings
from gateway.upstream.base import Headers, UpstreamRequest, UpstreamResponse
from gateway.upstream.bridge_translation import BridgeOptions
from gateway.upstream.bridged import BridgedUpstream, SpokenFormats
from gateway.wire.chat import encode
from gateway.wire.chat_request import parse
from memory import new_id

JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [(b"content-type", b"text/event-stream")]
NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
NAME = "mnemogate"
SETTINGS = ProviderSettings(base_url="http://127.0.0.1/v1", wires=("chat",))


class LocalAnswer:
    """Answers a chat completion with one text, made when it is asked for."""

    def __init__(self, answer: Callable[[], Awaitable[str]]) -> None:
        self._answer = answer

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        text = await self._answer()
        body = parse(request.body or b"{}")
        head = {"id": new_id("chatcmpl"), "created": int(time.time()), "model": body.get("model")}
        if body.get("stream"):
            return UpstreamResponse(200, EVENTS, _pieces(_events(head, body, text)))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = {**head, "object": "chat.completion", "choices": [choice], "usage": NO_USAGE}
        return UpstreamResponse(200, JSON, _pieces([encode(completion)]))


def _events(head: dict[str, Any], body: dict[str, Any], text: str) -> list[bytes]:
    head = {**head, "object": "chat.completion.chunk"}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": text}, None),
        ({}, "stop"),
    ]
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in deltas
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": NO_USAGE})
    return [*(b"data: " + encode(chunk) + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n"]


async def _pieces(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def local_upstream(answer: Callable[[], Awaitable[str]]) -> BridgedUpstream:
    """Return an upstream that answers in any format with the text that this makes."""
    options = BridgeOptions(NAME, drop=SETTINGS.drop)
    return BridgedUpstream(LocalAnswer(answer), SpokenFormats(SETTINGS.wires), options)
