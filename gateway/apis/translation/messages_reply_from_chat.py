"""The answer of a chat completion as a message of Anthropic's Messages API. Pure.

Reasoning is shown where the client asked for thinking and the gateway can sign it: the signature
holds what the server wants back. Elsewhere a block without text holds it, which whoever reads the
answer for the client takes out; without a signature there is none.
The usage is only known at the end, so the opening has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.apis.translation.chat_reply_parts import (
    CALL,
    CARRIER,
    REASONING,
    REFUSAL,
    TEXT,
    ReplyPart,
    ReplyWriter,
    count_of,
)
from gateway.apis.translation.messages_turns_from_chat import ERROR_TYPES
from gateway.wire.chat import Json
from memory.conversation.foreign_json import decode_foreign

REASONS = {"length": "max_tokens", "content_filter": "refusal"}
NO_USAGE = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
}


class MessagesReply(ReplyWriter):
    """See `ReplyWriter`. model: what was asked for. thinks: the client asked for thinking."""

    def __init__(self, model: Any, ident: str, *, thinks: bool = False) -> None:
        super().__init__(ident)
        self._thinks = thinks
        self._head: Json = {
            "id": f"msg_{ident}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": NO_USAGE,
        }
        # Of the blocks that are shown, by their part's index.
        self._places: dict[int, int] = {}

    def open(self, chunk: Json) -> Iterator[Json]:
        self._head["model"] = chunk.get("model") or self._head["model"]
        yield {"type": "message_start", "message": self._head}

    def begin(self, part: ReplyPart) -> Iterator[Json]:
        if part.kind == REASONING and not self._shows_thinking:
            return
        place = self._places[part.index] = len(self._places)
        block: Json = {"type": "text", "text": ""}
        if part.kind == CALL:
            block = {"type": "tool_use", "id": part.ident, "name": part.name, "input": {}}
        elif part.kind not in (TEXT, REFUSAL):
            block = {"type": "thinking", "thinking": "", "signature": part.token}
        yield {"type": "content_block_start", "index": place, "content_block": block}

    def grow(self, part: ReplyPart, text: str) -> Iterator[Json]:
        if part.kind == REASONING and not self._shows_thinking:
            return
        delta = {"type": "text_delta", "text": text}
        if part.kind == REASONING:
            delta = {"type": "thinking_delta", "thinking": text}
        elif part.kind == CALL:
            delta = {"type": "input_json_delta", "partial_json": text}
        place = self._places[part.index]
        yield {"type": "content_block_delta", "index": place, "delta": delta}

    def end(self, part: ReplyPart) -> Iterator[Json]:
        if part.kind == REASONING and not self._shows_thinking:
            if part.token:
                part.kind = CARRIER
                part.pieces = []
                yield from self.begin(part)
                yield from self.end(part)
            return
        place = self._places[part.index]
        if part.kind == REASONING and part.token:
            delta = {"type": "signature_delta", "signature": part.token}
            yield {"type": "content_block_delta", "index": place, "delta": delta}
        yield {"type": "content_block_stop", "index": place}

    @property
    def _shows_thinking(self) -> bool:
        return self._thinks and self.seal is not None

    def close(self) -> Iterator[Json]:
        ending = {"stop_reason": self._reason(), "stop_sequence": None}
        yield {"type": "message_delta", "delta": ending, "usage": _usage(self.usage)}
        yield {"type": "message_stop"}

    def error(self, error: Any) -> Json:
        return {"type": "error", "error": error_of(error, 0)}

    def refusal(self, error: Any, status: int) -> Json:
        return {"type": "error", "error": error_of(error, status)}

    def whole(self) -> Json:
        content = [_block(p) for p in self.parts if p.index in self._places]
        ending = {"stop_reason": self._reason(), "usage": _usage(self.usage)}
        return {**self._head, "content": content, **ending}

    def _reason(self) -> str:
        if (reason := REASONS.get(str(self.finish))) is not None:
            return reason
        if self.calls:
            return "tool_use"
        is_refused = any(p.kind == REFUSAL for p in self.parts)
        if is_refused:
            return "refusal"
        return "end_turn"


def error_of(error: Any, status: int) -> Json:
    """Return a server's error as Anthropic's SDKs read it. status: 0 inside a stream."""
    error_object = error if isinstance(error, dict) else {"message": error}
    if status == 0:
        code = error_object.get("code")
    else:
        code = status
    kind = None
    if type(code) is int:
        kind = ERROR_TYPES.get(code)
    usual_type = "invalid_request_error" if 400 <= status < 500 else "api_error"
    return {"type": kind or usual_type, "message": str(error_object.get("message") or "no text")}


def _block(part: ReplyPart) -> Json:
    if part.kind in (REASONING, CARRIER):
        return {"type": "thinking", "thinking": part.text, "signature": part.token}
    if part.kind != CALL:
        return {"type": "text", "text": part.text}
    return {"type": "tool_use", "id": part.ident, "name": part.name, "input": _input(part.text)}


def _input(text: str) -> Any:
    """Return a call's input; input that is not JSON stays a text, which the tool then refuses."""
    try:
        if text:
            return decode_foreign(text)
        return {}
    except (msgspec.DecodeError, RecursionError):
        return text


def _usage(usage: Json) -> Json:
    prompt = count_of(usage, "prompt_tokens")
    cached_tokens = min(prompt, count_of(usage, "prompt_tokens_details", "cached_tokens"))
    return {
        **NO_USAGE,
        "input_tokens": prompt - cached_tokens,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": count_of(usage, "completion_tokens"),
    }
