"""How a relayed event stream ends in each dialect, so that one which was cut does not look whole.

Pure.

An ending sees every event and knows whether the answer was complete; its `told` is the last event
of one that was not, in the shape which that API's clients raise on.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.errors import GatewayError
from gateway.wire.chat import decode, encode
from gateway.wire.sse import DONE, SseEvent, frame
from gateway.wire.streamed_calls import read_index

FINISH = re.compile(rb'"finish_reason"\s*:\s*"|"error"')
CHOICE = re.compile(rb'"choices"|"error"')


class StreamEnding:
    """A dialect without a rule of its own: a stream that ends has ended."""

    is_complete = True

    @property
    def ended(self) -> bool:
        """Whether an event said that nothing more follows."""
        return self.is_complete and type(self) is not StreamEnding

    def see(self, event: SseEvent) -> None:
        """Take an event into account."""

    def error_event(self, error: GatewayError) -> bytes:
        return frame(error.event())


class ChatEnding(StreamEnding):
    """Chat completions and completions: a finish for every choice, `[DONE]`, or an error of the
    upstream's own.

    several: more than one choice was asked for, so every event is read for its choices; else only
    those that may end it.
    """

    def __init__(self, several: bool = False) -> None:
        self.is_complete = False
        self._telling = CHOICE if several else FINISH
        self._open: dict[int, bool] = {}

    def see(self, event: SseEvent) -> None:
        data = event.data
        if not data or self.is_complete:
            return
        if data == DONE:
            self.is_complete = True
        elif self._telling.search(data):
            body = _object(data)
            for choice in _dicts(body.get("choices")):
                lane = read_index(choice.get("index")) or 0
                self._open[lane] = not choice.get("finish_reason") and self._open.get(lane, True)
            self.is_complete = bool(body.get("error")) or (
                bool(self._open) and not any(self._open.values())
            )


class ResponsesEnding(StreamEnding):
    """The Responses API: one of its terminal events."""

    TERMINAL = (
        b'"response.completed"',
        b'"response.incomplete"',
        b'"response.failed"',
        b'"response.cancelled"',
        b'"error"',
    )

    def __init__(self) -> None:
        self.is_complete = False
        self._last_event: SseEvent | None = None
        self._number = -1

    def see(self, event: SseEvent) -> None:
        if not event.data or event.data == DONE:
            return
        if any(name in event.data for name in self.TERMINAL):
            kind = _object(event.data).get("type")
            self.is_complete = self.is_complete or f'"{kind}"'.encode() in self.TERMINAL
        if b'"response"' in event.data:
            self._last_event = event
        self._number += 1

    def error_event(self, error: GatewayError) -> bytes:
        response = None
        if self._last_event is not None and self._last_event.data:
            response = _object(self._last_event.data).get("response")
        fault = {"code": error.code or "server_error", "message": error.message}
        failed_response = {
            **(response if isinstance(response, dict) else {"object": "response"}),
            "status": "failed",
            "error": fault,
        }
        event_body = {
            "type": "response.failed",
            "sequence_number": self._number + 1,
            "response": failed_response,
            # Which OpenAI's own clients raise on: of the response's they do not.
            "error": fault,
        }
        return b"event: response.failed\n" + frame(encode(event_body))


class MessagesEnding(StreamEnding):
    """Anthropic's Messages API: `message_stop` or an error."""

    def __init__(self) -> None:
        self.is_complete = False

    def see(self, event: SseEvent) -> None:
        if event.data and (b"message_stop" in event.data or b'"error"' in event.data):
            self.is_complete = self.is_complete or _object(event.data).get("type") in (
                "message_stop",
                "error",
            )

    def error_event(self, error: GatewayError) -> bytes:
        return b"event: error\n" + frame(
            encode({"type": "error", "error": {"type": "api_error", "message": error.message}})
        )


def ending_of(path: str, several: bool = False) -> StreamEnding:
    """Return the ending of streams at this path, below `/v1`. several: see `ChatEnding`."""
    match path.partition("?")[0].rstrip("/"):
        case "/chat/completions" | "/completions":
            return ChatEnding(several)
        case "/responses":
            return ResponsesEnding()
        case "/messages":
            return MessagesEnding()
    return StreamEnding()


def error_of(data: bytes) -> Any:
    """Return the error that an event's data reports at its top level, if any."""
    if b'"error"' in data:
        return _object(data).get("error")
    return None


def is_object(data: bytes) -> bool:
    """Tell whether an event's data is a JSON object."""
    return bool(_object(data))


def _object(data: bytes) -> dict[str, Any]:
    try:
        body = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if isinstance(body, dict):
        return body
    return {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def told_error(error: Any) -> Any:
    """Return an error as SDKs read it: an object whose `message` is a text.

    Some servers report a text alone (TGI), or an object without one.
    """
    if not isinstance(error, dict):
        text = encode(error).decode()
        if isinstance(error, str):
            text = error
        return {"message": text, "type": "upstream_error", "param": None, "code": None}
    message = error.get("message")
    if isinstance(message, str) and message:
        return error
    return {**error, "message": "The upstream reported an error and said nothing about it."}
