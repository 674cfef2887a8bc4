"""An answer of Anthropic's Messages API, whole or as events, as a chat completion. Pure.

Rules:
- Text is `content`; thinking is `reasoning_content`, and whole with its signature in
  `thinking_blocks`, each with its `index` among
  those of the tool loop (so that lists which clients add up keep them apart) and its `position` in
  the content (so that it can go
  back to where it stood). Other blocks, such as those of Anthropic's own server tools, are not
  shown.
- An event becomes its chunk at once. Only the finish waits, for `message_stop`: a stream that was
  cut has none, and no `[DONE]`.
- Usage counts in events are running totals. Those of the input belong together: some servers tell
  them at the start, some at the
  end, some both times, and a zero at the end takes nothing back.
- An `error` event is the last one, with the HTTP status that stands for its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.wire.answer_parts import AnswerPart, Parts
from gateway.wire.chat import Json, encode, object_or_empty, read_event_object
from gateway.wire.part_keys import messages_key, readable_block, readable_block_event
from gateway.wire.sse import DONE, SseEvent, StreamTranslator, frame

# Any other: stop.
FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
CODES = {
    "authentication_error": "invalid_api_key",
    "billing_error": "insufficient_quota",
    "rate_limit_error": "rate_limit_exceeded",
}
OVERFLOWS = (
    "prompt is too long",
    "exceed context limit",
    "exceeds the context window",
    "context window exceeded",
)
INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
PING = b": ping\n\n"


class WholeAnswer:
    """Fed the bytes of a whole body; gives what `told` makes of them, at the end.

    most: bytes that are kept.
    """

    def __init__(self, on_answer: Callable[[bytes], bytes], max_bytes: int) -> None:
        self._on_answer = on_answer
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def waiting(self) -> int:
        return self._size

    def feed(self, data: bytes) -> bytes:
        if self._size < self._max_bytes:
            self._parts.append(data)
            self._size += len(data)
        return b""

    def end(self) -> bytes:
        return self._on_answer(b"".join(self._parts))


class StreamedAnswer(StreamTranslator):
    """A stream of the API's events as one of chunks.

    usage: a usage chunk was asked for. readable: tells of an event's data whether it is short
    enough to be read.
    """

    def __init__(
        self,
        created_at: int,
        thoughts: int = 0,
        usage: bool = False,
        readable: Callable[[bytes], bool] = bool,
    ) -> None:
        super().__init__()
        self._chunks = Chunks(created_at, thoughts, usage)
        self._readable = readable

    def _translate(self, event: SseEvent) -> bytes:
        if self._chunks.over or not event.data or not self._readable(event.data):
            return b""
        event_object = read_event_object(event)
        frames = b"".join(frame(encode(chunk)) for chunk in self._chunks.of(event_object))
        return frames + (
            frame(DONE)
            if event_object.get("type") == "message_stop"
            else PING
            if event_object.get("type") == "ping"
            else b""
        )


def answer(data: bytes, created_at: int, thoughts: int = 0) -> bytes:
    """Return the bytes of a message as those of a completion (see there); what is neither a message
    nor an error is left as it came.
    """
    message = object_or_empty(data)
    if message.get("type") == "error":
        return encode({"error": _error(message)})
    if isinstance(message.get("content"), list):
        return encode(completion(message, created_at, thoughts))
    return data


def completion(message: Json, created_at: int, thoughts: int = 0) -> Json:
    """Return a whole message as a chat completion.

    created_at: seconds since the epoch. thoughts: thinking blocks the tool loop had before.
    """
    texts_by_kind: dict[str, list[str]] = {"text": [], "thinking": []}
    blocks: list[Json] = []
    calls: list[Json] = []
    for position, block in enumerate(map(readable_block, _dicts(message.get("content")))):
        kind = _text(block.get("type"))
        if kind in texts_by_kind:
            texts_by_kind[kind].append(_text(block.get(kind)))
        if kind in ("thinking", "redacted_thinking"):
            blocks.append(_thought(block, thoughts + len(blocks), position))
        if kind == "tool_use":
            calls.append(_call(block, encode(block.get("input") or {}).decode()))
    message_members = {
        "role": "assistant",
        "content": "".join(texts_by_kind["text"]) or None,
        "reasoning_content": "".join(texts_by_kind["thinking"]),
        "thinking_blocks": blocks,
        "tool_calls": calls,
    }
    shown_members = {k: v for k, v in message_members.items() if v or k == "content"}
    choice = {
        "index": 0,
        "message": shown_members,
        "finish_reason": _finish(message.get("stop_reason")),
    }
    return {
        **_head(message, created_at),
        "object": "chat.completion",
        "choices": [choice],
        "usage": usage(message.get("usage")),
    }


class BlockState(AnswerPart):
    """One content block. block: as far as it has come."""

    __slots__ = ("block",)

    def __init__(self) -> None:
        super().__init__()
        self.block: Json = {}


class Chunks:
    """One stream's events as chunks. over: nothing more is to come."""

    def __init__(self, created_at: int, thoughts: int, wants_usage: bool) -> None:
        self._created_at = created_at
        self._thoughts = thoughts
        self._wants_usage = wants_usage
        self._head: Json = {}
        self._usage: Json = {}
        self._stop: Any = None
        self._blocks = Parts(BlockState)
        self._calls = 0
        self.over = False

    def of(self, event: Json) -> list[Json]:
        """Return the chunks that an event gives, in order; an error is one of them."""
        event = readable_block_event(event)
        match event.get("type"):
            case "message_start":
                message = _dict(event.get("message"))
                self._head = {**_head(message, self._created_at), "object": "chat.completion.chunk"}
                self._usage = combine_usage({}, message.get("usage"))
                return [self._chunk({"role": "assistant", "content": None})]
            case "content_block_start":
                state = self._blocks.begin(messages_key(event))
                return self._began(state, dict(_dict(event.get("content_block"))))
            case "content_block_delta":
                grown = self._blocks.find(messages_key(event))
                return self._grew(grown.block if grown else {}, _dict(event.get("delta")))
            case "content_block_stop":
                ended_block = self._blocks.find_end(messages_key(event))
                if ended_block and not ended_block.has_ended:
                    return self._end_block(ended_block)
                return []
            case "message_delta":
                self._stop = _dict(event.get("delta")).get("stop_reason") or self._stop
                self._usage = combine_usage(self._usage, event.get("usage"))
            case "message_stop":
                self.over = True
                unended = [c for s in self._blocks.open_parts() for c in self._end_block(s)]
                if self._wants_usage:
                    usage_chunks = [{**self._head, "choices": [], "usage": usage(self._usage)}]
                else:
                    usage_chunks = []
                return [*unended, self._chunk({}, _finish(self._stop)), *usage_chunks]
            case "error":
                self.over = True
                return [{"error": _error(event)}]
        return []

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        return {**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def _began(self, state: BlockState, block: Json) -> list[Json]:
        state.block = block
        # Of its members, until it ends: to add each to all before it would be quadratic.
        block["pieces"] = {}
        if block.get("type") == "tool_use":
            block["call"] = self._calls
            self._calls = self._calls + 1
            return [self._chunk({"tool_calls": [{"index": block["call"], **_call(block, "")}]})]
        kind = _text(block.get("type"))
        return self._text_chunk(kind, block.get(kind))

    def _grew(self, block: Json, delta: Json) -> list[Json]:
        match delta.get("type"):
            case "text_delta":
                return self._text_chunk("text", delta.get("text"))
            case "thinking_delta":
                _append_piece(block, "thinking", delta)
                return self._text_chunk("thinking", delta.get("thinking"))
            case "signature_delta":
                _append_piece(block, "signature", delta)
            case "input_json_delta" if (
                partial_json := _text(delta.get("partial_json"))
            ) and "call" in block:
                block["grown"] = True
                return [self._arguments(block, partial_json)]
        return []

    def _text_chunk(self, kind: str, text_value: Any) -> list[Json]:
        member = {"text": "content", "thinking": "reasoning_content"}.get(kind)
        if member and (text := _text(text_value)):
            return [self._chunk({member: text})]
        return []

    def _arguments(self, block: Json, text: str) -> Json:
        return self._chunk(
            {"tool_calls": [{"index": block["call"], "function": {"arguments": text}}]}
        )

    def _end_block(self, state: BlockState) -> list[Json]:
        self._blocks.end(state)
        block = state.block
        # None came in pieces: it is what the start told.
        if "call" in block and "grown" not in block:
            return [self._arguments(block, encode(block.get("input") or {}).decode())]
        if block.get("type") in ("thinking", "redacted_thinking"):
            self._thoughts += 1
            block |= {
                member: "".join(member_texts) for member, member_texts in block["pieces"].items()
            }
            return [
                self._chunk({"thinking_blocks": [_thought(block, self._thoughts - 1, state.order)]})
            ]
        return []


def _append_piece(block: Json, member: str, delta: Json) -> None:
    """Keep one more piece of a member of a block."""
    if block:
        block["pieces"].setdefault(member, [_text(block.get(member))]).append(
            _text(delta.get(member))
        )


def usage(native_usage: Any) -> Json:
    """Anthropic's usage as OpenAI's: there the prompt's tokens hold the cached ones too."""
    counts = {k: _count(_dict(native_usage).get(k)) for k in (*INPUT, "output_tokens")}
    prompt = sum(counts[k] for k in INPUT)
    details = {
        "cached_tokens": counts["cache_read_input_tokens"],
        "cache_creation_tokens": counts["cache_creation_input_tokens"],
    }
    return {
        "prompt_tokens": prompt,
        "completion_tokens": counts["output_tokens"],
        "total_tokens": prompt + counts["output_tokens"],
        "prompt_tokens_details": details,
    }


def combine_usage(have: Json, later_usage: Any) -> Json:
    """Usage told so far with what a later event tells of it."""
    later_counts = {k: v for k, v in _dict(later_usage).items() if v is not None}
    if not any(_count(later_counts.get(k)) for k in INPUT):
        later_counts = {k: v for k, v in later_counts.items() if k not in INPUT}
    return {**have, **later_counts}


def refusal(data: bytes) -> bytes:
    """Return an error body as OpenAI's, with the original in it; what is no error of Anthropic's is
    left as it came.
    """
    error_body = object_or_empty(data)
    if error_body.get("type") == "error":
        return encode({"error": {**_error(error_body, coded=True), "upstream": error_body}})
    return data


def _error(native_error: Json, *, coded: bool = False) -> Json:
    """coded: with OpenAI's code; else with the HTTP status of that kind of error, which an event
    has no other place for.
    """
    error = _dict(native_error.get("error"))
    kind = str(error.get("type") or "api_error")
    message = str(error.get("message") or "no text")
    error_object = {"message": message, "type": kind, "param": None, "code": None}
    if not coded:
        return {**error_object, "status": STATUS.get(kind, 500)}
    if any(words in message for words in OVERFLOWS):
        return {**error_object, "code": "context_length_exceeded"}
    if "credit balance is too low" in message:
        return {**error_object, "code": "insufficient_quota"}
    if kind == "not_found_error" and message.startswith("model"):
        return {**error_object, "code": "model_not_found"}
    return {**error_object, "code": CODES.get(kind)}


def _head(message: Json, created_at: int) -> Json:
    return {
        "id": message.get("id"),
        "object": "",
        "created": created_at,
        "model": message.get("model"),
    }


def _finish(reason: Any) -> str:
    return FINISH.get(str(reason), "stop")


def _call(block: Json, arguments: str) -> Json:
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }


def _thought(block: Json, index: int, position: Any) -> Json:
    thought_members = {
        k: v for k, v in block.items() if k in ("type", "thinking", "signature", "data")
    }
    return {**thought_members, "index": index, "position": position}


def _dict(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    return {}


def _dicts(value: Any) -> list[Json]:
    if isinstance(value, list):
        return [v for v in value if isinstance(v, dict)]
    return []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


def _count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return 0
