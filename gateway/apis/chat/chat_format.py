"""Chat completions as a format of the turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.apis.base import (
    ASKS_AGAIN,
    LIGHT_PARTS,
    Composed,
    HiddenRounds,
    RequestFacts,
    RoundParts,
    SentPieces,
    TargetFacts,
    chat_only,
)
from gateway.apis.chat.answer_reader import (
    PlainCompletion,
    read_chunk,
    read_completion_body,
)
from gateway.apis.chat.hidden_exchange import HiddenExchange, tool_calls
from gateway.apis.chat.repeated_calls import SettlingInterceptor
from gateway.apis.chat.searched_answer import CitedTexts
from gateway.apis.round_result import RoundResult
from gateway.errors import GatewayError
from gateway.http.json_thread import run_heavy
from gateway.http.paths import upstream_path
from gateway.http.upstream_request import UpstreamRequest
from gateway.wire.chat import (
    Chunk,
    Json,
    chunk,
    decode_answer,
    encode,
    encode_in_parts,
    lift,
    parse_chunk,
)
from gateway.wire.placement import (
    Placement,
    encode_request,
    for_target,
    message_spans,
    place_lasting,
    place_memory,
    without_tools,
)
from gateway.wire.sse import COMMENT, DONE, LONG_BYTES, SseEvent, frame
from memory import Messages, Repeat, ToolCall, new_id
from memory.core.tool_definitions import as_json, client_names

NO_NAMES: frozenset[str] = frozenset()
NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


class ChatFormat:
    """`POST /v1/chat/completions`."""

    name = "chat"
    path = upstream_path("chat", "completions")
    noun = "chat completion"
    sums_usage = True
    marks_overflow = True
    is_chat = True
    cut_is_final = False
    repeats: tuple[Repeat, Repeat] = ASKS_AGAIN

    def identity(self, body: Json) -> Json:
        return body

    def facts(self, body: Json, summaries: Sequence[str] = ()) -> RequestFacts:
        wants_several = isinstance(body.get("n"), int) and body["n"] > 1
        tools = body.get("tools")
        return RequestFacts(
            body["messages"],
            frozenset(client_names(tools)) if tools else NO_NAMES,
            not (wants_several or body.get("functions") or body.get("function_call")),
            "response_format" in body and _wants_json(body),
        )

    def own_request(self, body: Json, history: Messages | None) -> Composed:
        return body, (), history, None

    def compose(self, parts: RoundParts, target: str) -> Composed:
        """See the protocol. What the turn before sent to this target is gone on from.

        The next turn goes on from this one as it is without what was recalled for it alone.
        """
        prompt = parts.prompt
        hidden_messages = parts.hidden.messages
        previous_body = prompt.previous_prompt
        client = prompt.client
        if previous_body is not None and (
            previous_body.by != target or (client is not None and client.source is None)
        ):
            previous_body = None
        fitted = prompt.fitted
        placement = Placement(
            prompt.core,
            prompt.notes,
            chat_only(prompt.splices) if prompt.splices else {},
            fitted.drop,
            fitted.swap,
            prompt.recall,
            as_json(prompt.tools) if parts.tools else (),
            previous_body.of.count if previous_body else 0,
        )
        body = place_memory({**parts.body, "messages": prompt.messages}, placement)
        lasting = None
        if prompt.recall:
            lasting = place_lasting(prompt.messages, placement)
        if hidden_messages:
            body["messages"] = [*body["messages"], *hidden_messages]
        if not parts.tools and prompt.tools:
            body = without_tools(body, parts.body)
        if parts.ask_usage and body.get("stream"):
            _ask_usage(body)
        return body, previous_body.parts if previous_body else (), client, lasting

    def encode(
        self, composition: Composed, target: TargetFacts, *, frozen: bool, long: bool
    ) -> tuple[UpstreamRequest, SentPieces]:
        body, sent_body, client, lasting = composition
        thoughts = not target.settings.speaks_chat
        messages = for_target(body["messages"], target.label, thoughts=thoughts)
        spans = message_spans(messages, client, sent_body)
        content = encode_request({**body, "model": target.model}, spans, client)
        stream = bool(body.get("stream"))
        if lasting is not None:
            spans = message_spans(
                for_target(lasting, target.label, thoughts=thoughts), client, sent_body
            )
        return UpstreamRequest(self.path, content, frozen=frozen, stream=stream), spans

    def event_error(self, data: bytes) -> Any:
        return parse_chunk(data).error

    def read_whole(self, data: bytes) -> tuple[Chunk | PlainCompletion | None, Any]:
        return read_completion_body(data)

    def mask(
        self, body: Json, owned: Collection[str], alias: str | None, *, injected: bool, view: Any
    ) -> ChatMask:
        options = body.get("stream_options")
        wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        stream = bool(body.get("stream"))
        interceptor = SettlingInterceptor(owned, wants_usage or not stream, alias, lean=stream)
        return ChatMask(interceptor)

    def hidden_rounds(self) -> HiddenRounds:
        return HiddenExchange()

    def text_reply(self, body: Json, text: str, before: Json | None) -> Json:
        message = {"role": "assistant", "content": text}
        head = {"id": new_id("chatcmpl"), "object": "chat.completion", "created": int(time.time())}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        reply = {**head, "model": body["model"], "choices": choices}
        if before is not None:
            return reply
        return {**reply, "usage": NO_USAGE}

    def calls(self, result: RoundResult) -> list[ToolCall]:
        return tool_calls(result)

    def error_body(self, error: GatewayError, request: str) -> bytes:
        return error.body()


CHAT = ChatFormat()


class FinishedCompletion(NamedTuple):
    """An upstream's answer that goes to the client as it came: its bytes, and what they say."""

    raw: bytes
    completion: Json


class ChatMask:
    """The interceptor of chat completions, with its chunks as events."""

    def __init__(self, interceptor: SettlingInterceptor) -> None:
        self._interceptor = interceptor
        self.fast_forward: Callable[[bytes], bytes] = interceptor.fast_forward
        self.holds_finish = False
        # While it is all of the answer.
        self._finished_completion: FinishedCompletion | None = None
        self._has_long_text = False
        self._cited_texts: CitedTexts | None = None
        self.over = False

    @property
    def alias(self) -> str | None:
        return self._interceptor.alias

    @alias.setter
    def alias(self, name: str | None) -> None:
        self._interceptor.alias = name

    @property
    def usage(self) -> Json | None:
        return self._interceptor.usage

    @property
    def ended(self) -> bool:
        return self._interceptor.ended

    @property
    def is_long(self) -> bool:
        return self._has_long_text or self._interceptor.count_calls() > LIGHT_PARTS

    async def show(self, event: SseEvent) -> bytes:
        if event.data == DONE:
            self.over = True
            return _events(self._interceptor.finish_round())
        data = event.data or b""
        chunk_read = await read_chunk(data)
        self.over = chunk_read.error is not None
        if len(data) > LONG_BYTES:
            self._has_long_text = True
            return await run_heavy(self._show_piece, chunk_read)
        tells_calls = bool(chunk_read.segments) and chunk_read.segments[-1].kind != "text"
        if tells_calls and self._interceptor.count_held() > LIGHT_PARTS:
            # What is held of many calls may come out at once.
            return await run_heavy(self._show_piece, chunk_read)
        return _events(self._interceptor.feed(chunk_read))

    def _show_piece(self, chunk: Chunk) -> bytes:
        return _events(self._interceptor.feed(chunk))

    def show_whole(self, answer: Chunk | PlainCompletion, *, heavy: bool = False) -> list[bytes]:
        self._has_long_text = self._has_long_text or heavy
        shown_chunk = answer.chunk() if isinstance(answer, PlainCompletion) else answer
        return list(map(frame, self._interceptor.feed(shown_chunk)))

    def take_whole(self, answer: Chunk | PlainCompletion) -> RoundResult | None:
        if not isinstance(answer, PlainCompletion):
            return self._interceptor.whole(answer)
        result = answer.result()
        self._interceptor.usage = result.usage
        self._interceptor.text_shown = True
        return result

    def pass_on(self, answer_bytes: bytes, result: RoundResult) -> None:
        self._finished_completion = FinishedCompletion(answer_bytes, result.reply)

    def close(self) -> tuple[bytes, RoundResult]:
        remaining_chunks, result = self._interceptor.close()
        if self._cited_texts is not None:
            self._cited_texts.read_round(self._interceptor.shown_texts())
        return _events(remaining_chunks), result

    def cite(self, begin: Callable[[Mapping[int, str]], CitedTexts]) -> None:
        """Show before each finish what the text from here on cites. begin: see `CitedTexts`."""
        if self._cited_texts is None:
            self._cited_texts = begin(self._interceptor.shown_texts())
            self._interceptor.holds_every_finish = True

    def replay(self, reply: Json) -> tuple[bytes, RoundResult]:
        shown_chunks = self._interceptor.feed(chunk(lift(reply), b""))
        remaining_events, result = self.close()
        return _events(shown_chunks) + remaining_events, result

    def hold_finish(self, *, holds: bool) -> None:
        self.holds_finish = self._interceptor.holds_finish = holds

    def end_with(self, reply: Json) -> tuple[bytes, RoundResult]:
        return self.replay(reply)

    def start_next_round(self) -> bytes | None:
        self._finished_completion = None
        self.over = False
        self._interceptor.start_next_round()
        return None

    def run_out(self) -> None:
        """Nothing: the limit is each round's."""

    def finish(self) -> bytes:
        cited_chunks: list[bytes] = []
        if self._cited_texts is not None:
            for lane, delta in self._cited_texts.take_deltas().items():
                cited_chunks += self._interceptor.show_delta(lane, delta)
        held_chunks = self._interceptor.finish()
        if held_chunks or cited_chunks:
            return _events([*cited_chunks, *held_chunks])
        return b""

    def end(self, usage: Json | None) -> bytes:
        return _events([*self._interceptor.usage_chunk(usage), DONE])

    def answers(self) -> list[Json]:
        finished_completion = self._finished_completion
        if finished_completion is not None:
            completion = finished_completion.completion
        else:
            completion = self._interceptor.answer()
        return list(map(_answer_of, completion["choices"]))

    def body(self, usage: Json | None, *, long: bool = False) -> bytes | list[bytes]:
        write = encode_in_parts if long else encode
        if self._finished_completion is None:
            completion = self._interceptor.answer()
            return write({**completion, "usage": usage} if usage is not None else completion)
        raw_answer = self._finished_completion.raw
        alias = self._interceptor.alias
        if alias is None:
            return raw_answer
        answer = decode_answer(raw_answer)
        # A long answer is not held in three copies.
        raw_answer = b""
        self._finished_completion = None
        return write({**answer, "model": alias})

    def fault(self, error: GatewayError) -> bytes:
        return frame(error.event())

    def keepalive(self) -> bytes:
        return COMMENT


def _answer_of(choice: Json) -> Json:
    return {"role": "assistant", **(choice.get("message") or {})}


def _events(payloads: Sequence[bytes]) -> bytes:
    """Return JSON texts as events."""
    return b"".join(map(frame, payloads))


def _ask_usage(body: Json) -> None:
    """Let the usage of a stream be told, in a body of our own."""
    options = body.get("stream_options")
    if options is None or isinstance(options, dict):
        body["stream_options"] = {**(options or {}), "include_usage": True}


def _wants_json(body: Json) -> bool:
    """Tell whether the answer is to be one JSON text."""
    response_format = body.get("response_format")
    return isinstance(response_format, dict) and response_format.get("type") in (
        "json_object",
        "json_schema",
    )
