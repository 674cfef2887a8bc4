"""A scripted upstream, the public test double of the port.

It plays responses in order and keeps every request it received.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from gateway.upstream.base import UpstreamRequest, UpstreamResponse

Answer = UpstreamResponse | Exception | Callable[[UpstreamRequest], UpstreamResponse]


class ScriptedUpstream:
    """Plays `answers` one after the other, and repeats the last one.

    An answer is an UpstreamResponse (see `completion`, `stream`, `refusal`), an exception to raise,
    or a function of the request.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = list(answers)
        self.requests: list[UpstreamRequest] = []

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        self.requests.append(request)
        if len(self._answers) > 1:
            answer = self._answers.pop(0)
        else:
            answer = self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            return answer(request)
        return answer

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON bodies received, decoded."""
        return [json.loads(r.body or b"null") for r in self.requests]


async def _parts(parts: Sequence[bytes | Exception]) -> AsyncIterator[bytes]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
        yield part


def completion(
    message: dict[str, Any], finish: str = "stop", **top: Any
) -> Callable[[UpstreamRequest], UpstreamResponse]:
    """Return a whole completion with this assistant message."""
    body = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        **top,
    }
    return lambda _: UpstreamResponse(
        200, [(b"content-type", b"application/json")], _parts([json.dumps(body).encode()])
    )


def stream(
    chunks: Sequence[dict[str, Any] | bytes | Exception],
) -> Callable[[UpstreamRequest], UpstreamResponse]:
    """Return a stream of these chunks. Bytes are sent as they are, an exception breaks it off."""
    parts = [
        b"data: " + json.dumps(c).encode() + b"\n\n" if isinstance(c, dict) else c for c in chunks
    ]
    return lambda _: UpstreamResponse(200, [(b"content-type", b"text/event-stream")], _parts(parts))


def refusal(
    status: int, body: dict[str, Any], headers: Sequence[tuple[bytes, bytes]] = ()
) -> Callable[[UpstreamRequest], UpstreamResponse]:
    """Return an error response."""
    return lambda _: UpstreamResponse(
        status,
        [(b"content-type", b"application/json"), *headers],
        _parts([json.dumps(body).encode()]),
    )
