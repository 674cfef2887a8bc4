"""An answer of the Responses API, whole or as events, as a chat completion. Pure.

Rules:
- Text is `content`, what the model thinks is `reasoning_content`. Encrypted reasoning is in
  `thinking_blocks` too, each with its `index` among those of the tool loop and its `position` among
  the items, so that it can go back to where it stood. Items of the server's own tools are not
  shown.
- An event becomes its chunk at once. What a server never told in pieces is told from the whole
  item, or from the whole response at the end.
- A call begins once its name is known. The finish waits for the terminal event: a stream that was
  cut has none, and no `[DONE]`.
- A response that failed is an error, with the HTTP status that stands for its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gateway.apis.translation.chat_reply_parts import count_of
from gateway.wire.answer_parts import AnswerPart, PartKey, Parts
from gateway.wire.arguments import RepeatedArguments
from gateway.wire.chat import (
    CALLS,
    Json,
    MalformedReply,
    encode,
    fold,
    object_or_empty,
    read_event_object,
)
from gateway.wire.part_keys import item_key, readable_event, responses_key
from gateway.wire.sse import DONE, SseEvent, StreamTranslator, frame

TERMINAL = frozenset({"response.completed", "response.incomplete"})
FAILED = frozenset({"response.failed", "response.cancelled"})
# The member of a delta in which each kind of text is told.
TEXTS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning_content",
    "response.reasoning_summary_text.delta": "reasoning_content",
}
PARTS = {"output_text": "content", "refusal": "refusal"}
# The kind of call that a delta belongs to.
GROWS = {
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
# Where some servers tell it first.
NAMING = frozenset({"response.function_call_arguments.done"})
REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
STATUS = {
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "server_is_overloaded": 503,
    "vector_store_timeout": 504,
}
CALL_KINDS = {"function_call": "arguments", "custom_tool_call": "input"}


class ItemState(AnswerPart):
    """One item of an answer, as far as the client was told.

    item: as it began, or whole. told: something of its text or arguments. part: of its summary, the
    newest. call: its index among the calls, None for no call. waiting: arguments that came before
    its name. done: all of it was told.
    """

    __slots__ = ("arguments", "call", "done", "item", "part", "told", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.item: Json = {}
        self.told = self.done = False
        self.part: Any = None
        self.call: int | None = None
        self.arguments = RepeatedArguments()
        self.waiting: list[str] = []


class StreamedResponse(StreamTranslator):
    """A stream of the API's events as one of chunks.

    thoughts: blocks of thinking that the tool loop had before. usage: a usage chunk was asked for.
    readable: tells of an event's data whether it is short enough to be read.
    """

    def __init__(self, thoughts: int, usage: bool, readable: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._chunks = ResponseChunks(thoughts, usage)
        self._readable = readable

    def _translate(self, event: SseEvent) -> bytes:
        if self._chunks.over or not event.data or not self._readable(event.data):
            return b""
        frames = b"".join(
            frame(encode(chunk)) for chunk in self._chunks.of(read_event_object(event))
        )
        if self._chunks.finished:
            return frames + frame(DONE)
        return frames


def completion_of(data: bytes, thoughts: int = 0) -> bytes:
    """Return the bytes of a whole response as those of a completion.

    What is neither a response nor an error is left as it came. Raises MalformedReply.
    """
    response = object_or_empty(data)
    if response.get("status") in ("failed", "cancelled"):
        return encode({"error": _error(response.get("error"))})
    if not isinstance(response.get("output"), list):
        return data
    chunks = ResponseChunks(thoughts, wants_usage=True)
    completed_event = {"type": "response.completed", "response": response}
    completion = fold(list(chunks.of(completed_event)))
    return encode({**completion, "object": "chat.completion"})


class ResponseChunks:
    """One stream's events as chunks.

    over: nothing more is to come. finished: it came to its proper end.
    """

    def __init__(self, thoughts: int, wants_usage: bool) -> None:
        self._thoughts = thoughts
        self._wants_usage = wants_usage
        self._head: Json = {}
        self._items = Parts(ItemState)
        self._calls = 0
        self.over = self.finished = False

    def of(self, event: Json) -> Iterator[Json]:
        """Give the chunks of an event, in order; an error is one of them. Raises MalformedReply."""
        event = readable_event(event)
        kind = str(event.get("type"))
        if kind in TEXTS:
            yield from self._grow_text(event, TEXTS[kind])
        elif kind in GROWS:
            yield from self._grow_call(event)
        elif kind == "response.output_item.added":
            yield from self._begin(event)
        elif kind == "response.output_item.done":
            state = self._state(event, self._items.find_end)
            yield from self._end_item(state, _dict(event.get("item")), event.get("output_index"))
        elif kind in NAMING:
            yield from self._begin_call(self._state(event, self._items.find))
        elif kind in TERMINAL:
            yield from self._close(_dict(event.get("response")))
        elif kind in FAILED:
            yield self._fail(_dict(event.get("response")).get("error"))
        elif kind == "error" or (event.get("error") and "response" not in event):
            yield self._fail(event.get("error") or event)
        elif not self._head:
            yield from self._open(_dict(event.get("response")))

    def _open(self, response: Json) -> Iterator[Json]:
        """Give the chunk that begins the answer, once it is known which that is."""
        if self._head or not response:
            return
        self._head = {
            "id": response.get("id"),
            "object": "chat.completion.chunk",
            "created": response.get("created_at"),
            "model": response.get("model"),
        }
        yield self._chunk({"role": "assistant", "content": None})

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        return {**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def _state(self, event: Json, find: Callable[[PartKey], ItemState | None]) -> ItemState:
        """Return the item that an event belongs to. Raises MalformedReply."""
        key = responses_key(event)
        if key.index is not None and not 0 <= key.index < CALLS:
            raise MalformedReply(f"an item without a usable index below {CALLS}")
        state = find(key)
        if state is None and event.get("output_index", 0) is None and not key.idents:
            raise MalformedReply("an item with neither an index nor an id")
        return self._check(state or self._items.imply(key))

    def _check(self, state: ItemState) -> ItemState:
        if state.order >= CALLS:
            raise MalformedReply(f"an answer of more than {CALLS} items")
        return state

    def _grow_text(self, event: Json, member: str) -> Iterator[Json]:
        state = self._state(event, self._items.find)
        if text := _text(event.get("delta")):
            part = event.get("summary_index")
            if state.told and part != state.part:
                text = f"\n\n{text}"
            state.told = True
            state.part = part
            yield self._chunk({member: text})

    def _begin(self, event: Json) -> Iterator[Json]:
        state = self._state(event, self._items.begin)
        item = state.item = _dict(event.get("item"))
        if state.kind in CALL_KINDS:
            # Some servers tell these again in the deltas.
            state.arguments = RepeatedArguments(_text(item.get(CALL_KINDS[state.kind])))
            yield from self._begin_call(state)

    def _begin_call(self, state: ItemState) -> Iterator[Json]:
        """Begin a call once its name and its id are known."""
        item = state.item
        if state.call is not None or not (state.name and item and state.kind in CALL_KINDS):
            return
        state.call = self._calls
        self._calls = self._calls + 1
        text = "".join(state.waiting)
        state.told = bool(text)
        named_item = {**item, "type": state.kind, "name": state.name}
        yield self._chunk({"tool_calls": [{"index": state.call, **_call(named_item, text)}]})

    def _grow_call(self, event: Json) -> Iterator[Json]:
        state = self._state(event, self._items.find)
        text = state.arguments.add(_text(event.get("delta")))
        if text and state.call is None:
            state.waiting.append(text)
        elif text and not state.done:
            yield self._more(state, text)

    def _more(self, state: ItemState, text: str) -> Json:
        """Return a chunk with more of a call's arguments."""
        state.told = True
        argument_item = {"type": state.kind, CALL_KINDS[state.kind]: text}
        return self._chunk({"tool_calls": [{"index": state.call, **_arguments(argument_item)}]})

    def _end_item(self, state: ItemState, item: Json, position: Any) -> Iterator[Json]:
        """Give what of a whole item the client was not told yet."""
        if state.done:
            return
        self._items.end(state)
        state.done = True
        if state.kind in CALL_KINDS:
            yield from self._end_call(state, item)
        elif not state.told:
            for member, text in _texts_of(item):
                yield self._chunk({member: text})
        if state.kind == "reasoning" and item.get("encrypted_content"):
            place = position if type(position) is int else state.order
            block = {**item, "index": self._thoughts, "position": place}
            self._thoughts += 1
            yield self._chunk({"thinking_blocks": [block]})

    def _end_call(self, state: ItemState, item: Json) -> Iterator[Json]:
        final_arguments = _text(item.get(CALL_KINDS[state.kind]))
        state.item = item or state.item
        if state.call is None and final_arguments:
            state.waiting = [final_arguments]
        elif not state.told:
            text = state.arguments.end()
            state.waiting.append(final_arguments or text)
        yield from self._begin_call(state)
        if state.call is not None and not state.told and (text := "".join(state.waiting)):
            yield self._more(state, text)

    def _close(self, response: Json) -> Iterator[Json]:
        yield from self._open(response)
        items = [_dict(item) for item in _list(response.get("output"))[: CALLS + 1]]
        keys = [item_key(item) for item in items]
        matches = self._items.match(keys)
        for index, (item, key, match) in enumerate(zip(items, keys, matches, strict=True)):
            state = self._check(match or self._items.imply(key))
            yield from self._end_item(state, item, index)
        for state in self._items.open_parts():
            yield from self._end_item(state, state.item, None)
        self.over = self.finished = True
        reason = _dict(response.get("incomplete_details")).get("reason")
        finish = "tool_calls" if self._calls else "stop"
        if response.get("status") == "incomplete":
            finish = REASONS.get(str(reason), "length")
        yield self._chunk({}, finish)
        if self._wants_usage and (native_usage := response.get("usage")):
            yield {**self._head, "choices": [], "usage": usage(native_usage)}

    def _fail(self, error: Any) -> Json:
        self.over = True
        return {"error": _error(error)}


def _call(item: Json, arguments: str) -> Json:
    """Return the beginning of a call as chat completions have it. arguments: so far."""
    ((kind, function_members),) = _arguments({**item, CALL_KINDS[item["type"]]: arguments}).items()
    call_members = {"name": item.get("name"), **function_members}
    return {"id": item.get("call_id") or item.get("id"), "type": kind, kind: call_members}


def _arguments(item: Json) -> Json:
    """Return the arguments of a call, or more of them."""
    member = CALL_KINDS[item["type"]]
    kind = "function" if member == "arguments" else "custom"
    return {kind: {member: _text(item.get(member))}}


def _texts_of(item: Json) -> Iterator[tuple[str, str]]:
    """Yield the texts of a whole item, with the member in which each is told."""
    if item.get("type") == "reasoning":
        text_parts = _list(item.get("summary")) or _list(item.get("content"))
        texts = [_text(_dict(p).get("text")) for p in text_parts]
        if joined_text := "\n\n".join(t for t in texts if t):
            yield "reasoning_content", joined_text
    elif item.get("type") == "message":
        for part in map(_dict, _list(item.get("content"))):
            member = PARTS.get(str(part.get("type")))
            text = _text(part.get("text", part.get("refusal")))
            if member and text:
                yield member, text


def usage(native_usage: Any) -> Json:
    """Return the API's usage as chat completions have it."""
    prompt = count_of(native_usage, "input_tokens")
    output = count_of(native_usage, "output_tokens")
    cached_tokens = count_of(native_usage, "input_tokens_details", "cached_tokens")
    reasoning_tokens = count_of(native_usage, "output_tokens_details", "reasoning_tokens")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def _error(error: Any) -> Json:
    """Return an error with the HTTP status of its code, which an event has no other place for."""
    native_error = _dict(error)
    code = _text(native_error.get("code"))
    kind = _text(native_error.get("type"))
    error_object = {
        "message": _text(native_error.get("message")) or "no text",
        "type": kind if kind not in ("", "error") else "server_error",
        "param": native_error.get("param"),
        "code": code or None,
    }
    return {**error_object, "status": STATUS.get(code, 500)}


def _dict(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    return {}


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
