"""A turn's answer as items: whole, or as the events of a stream.

The turn is that of chat completions, whose mask reads the model's answers; what memory calls did is
shown here, unlike there.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

import msgspec

from gateway.apis.base import HiddenRounds
from gateway.apis.chat.answer_reader import PlainCompletion, read_chunk
from gateway.apis.chat.chat_format import ChatFormat, ChatMask
from gateway.apis.chat.hidden_exchange import HiddenExchange
from gateway.apis.chat.repeated_calls import SettlingInterceptor
from gateway.apis.round_result import RoundResult
from gateway.errors import GatewayError
from gateway.http.response import ResponseProducer
from gateway.letta.errors import describe_error, error_body
from gateway.letta.ids import letta_id
from gateway.letta.items import (
    CALLS,
    ROUND,
    THOUGHTS,
    TurnOfItems,
    iso_now,
    shown_call,
    summed_usage,
)
from gateway.wire.chat import Chunk, Json, chunk, encode, lift
from gateway.wire.sse import COMMENT, DONE, SseEvent, frame
from memory import Messages
from memory.session.toolbox import Result, text_of_result

# A finish at the limit of output.
CUT = "length"
# Stands in no event: an event of the model's was read, and nothing is shown for it.
MARK = b"\x00"


class ItemOptions(msgspec.Struct, frozen=True):
    """How a client wants its answer.

    stream: as events. tokens: text as it comes. pings: in the form of items. kinds: of items, None
    for all. rounds: those after which the turn is at its bound.
    """

    run: str
    stream: bool = False
    tokens: bool = False
    pings: bool = True
    kinds: frozenset[str] | None = None
    rounds: int = 1 << 30


class ItemsOfTurn:
    """The items of one answer, as its rounds come. finish: of the newest round."""

    def __init__(self, options: ItemOptions) -> None:
        self.options = options
        self.turn = TurnOfItems(secrets.randbits(62), options.run, iso_now())
        self.shown_items: list[Json] = []
        self.rounds = 0
        self.finish = ""
        self.strange = False
        self.is_ended_by_rule = False
        self._pending_items: list[Json] = []

    def begin(self, key: int) -> None:
        """Name the turn that the items are of."""
        self.turn = msgspec.structs.replace(self.turn, key=key)

    def add_round(self, result: RoundResult) -> list[Json]:
        """Take a round in, and return its items."""
        self.rounds += 1
        choice = (result.reply.get("choices") or [{}])[0]
        self.finish = str(choice.get("finish_reason") or "")
        self.strange = bool(result.theirs)
        for call in result.ours:
            if not call.get("id"):
                call["id"] = f"call_{secrets.token_hex(12)}"
        return self.keep(self.turn.of_message(self.rounds, choice.get("message") or {}))

    def add_results(self, calls: Sequence[Json], texts: Sequence[str]) -> None:
        """Take in what the calls of the newest round came to."""
        self._pending_items += self.keep(self.turn.of_results(self.rounds, calls, texts))

    def take_pending(self) -> list[Json]:
        """Return the items that nobody has shown yet."""
        out = self._pending_items
        self._pending_items = []
        return out

    def keep(self, items: list[Json]) -> list[Json]:
        """Return those of some items that the client wants, and keep them for a whole answer."""
        kinds = self.options.kinds
        wanted_items = [i for i in items if kinds is None or i["message_type"] in kinds]
        if not self.options.stream:
            self.shown_items += wanted_items
        return wanted_items

    @property
    def stop_reason(self) -> Json:
        reason = "end_turn"
        if self.finish == CUT:
            reason = "max_tokens_exceeded"
        elif self.is_ended_by_rule:
            reason = "tool_rule"
        elif self.strange:
            reason = "error"
        elif self.rounds > self.options.rounds:
            reason = "max_steps"
        return {"message_type": "stop_reason", "stop_reason": reason}

    def usage(self, usage_members: Json | None) -> Json:
        return summed_usage(usage_members, self.rounds, self.options.run)


class LettaFormat(ChatFormat):
    """Chat completions upstream, items to the client. One for each request."""

    noun = "message"

    def __init__(self, options: ItemOptions) -> None:
        self.items = ItemsOfTurn(options)
        self.repeats = ("new", "attempt")

    def take_again(self, *, unanswered: bool) -> None:
        """Take a retry for a new message, if it is the last one that had no answer."""
        self.repeats = ("new", "new" if unanswered else "attempt")

    def mask(
        self, body: Json, owned: Collection[str], alias: str | None, *, injected: bool, view: Any
    ) -> LettaMask:
        interceptor = SettlingInterceptor(owned, True, alias, lean=True)
        return LettaMask(interceptor, self.items)

    def hidden_rounds(self) -> HiddenRounds:
        return ListedExchange(self.items)

    def error_body(self, error: GatewayError, request: str) -> bytes:
        return error_body(error, request)


class ListedExchange(HiddenExchange):
    """The hidden rounds of a turn, of which the client reads the results."""

    def __init__(self, items: ItemsOfTurn) -> None:
        super().__init__()
        self._items = items

    def add_round(
        self, result: RoundResult, answers: Sequence[Result], client: Messages, by: str
    ) -> None:
        super().add_round(result, answers, client, by)
        self._items.add_results(result.ours, [text_of_result(answer) for answer in answers])


class LettaMask(ChatMask):
    """One answer as items. What the memory records is what a chat completion would have shown."""

    def __init__(self, interceptor: SettlingInterceptor, items: ItemsOfTurn) -> None:
        super().__init__(interceptor)
        # The chat's own shows the model's bytes as they are.
        self.fast_forward = self._forward_piece
        self._items = items
        self._streams = items.options.stream
        self._round_chunks = RoundPieces(items) if items.options.tokens and self._streams else None

    def _forward_piece(self, event_bytes: bytes) -> bytes:
        """See the protocol. What adds to no item that is shown already is a mark."""
        if self._round_chunks is not None:
            text_delta = self._interceptor.read_forward(event_bytes)
            if text_delta is None:
                return b""
            return self._round_chunks.show_delta(*text_delta) or MARK
        if self._interceptor.fast_forward(event_bytes):
            return MARK
        return b""

    async def show(self, event: SseEvent) -> bytes:
        if self._round_chunks is None or event.data == DONE:
            await super().show(event)
            return b""
        chunk = await read_chunk(event.data or b"")
        self.over = chunk.error is not None
        self._interceptor.feed(chunk)
        return _frames(self._round_chunks.of_chunk(chunk))

    def show_whole(self, answer: Chunk | PlainCompletion, *, heavy: bool = False) -> list[bytes]:
        super().show_whole(answer, heavy=heavy)
        if self._round_chunks is None:
            return []
        shown_chunk = answer.chunk() if isinstance(answer, PlainCompletion) else answer
        return [_frames(self._round_chunks.of_chunk(shown_chunk))]

    def take_whole(self, answer: Chunk | PlainCompletion) -> RoundResult | None:
        result = super().take_whole(answer)
        if result is not None:
            self._items.add_round(result)
        return result

    def close(self) -> tuple[bytes, RoundResult]:
        _, result = super().close()
        if self._round_chunks is not None:
            self._round_chunks.name_calls(result)
        items = self._items.add_round(result)
        return (_frames(items) if self._streams and self._round_chunks is None else b""), result

    def replay(self, reply: Json) -> tuple[bytes, RoundResult]:
        self._interceptor.feed(chunk(lift(reply), b""))
        _, result = self._interceptor.close()
        items = self._items.add_round(result)
        return (_frames(items) if self._streams else b""), result

    def end_with(self, reply: Json) -> tuple[bytes, RoundResult]:
        """End the answer. The result was shown already, as what its tool returned."""
        self._interceptor.feed(chunk(lift(reply), b""))
        _, result = self._interceptor.close()
        self._items.is_ended_by_rule = True
        return b"", result

    def start_next_round(self) -> bytes:
        super().start_next_round()
        if self._round_chunks is not None:
            self._round_chunks.start()
        return self._returns()

    def finish(self) -> bytes:
        super().finish()
        return self._returns()

    def _returns(self) -> bytes:
        pending_items = self._items.take_pending()
        if self._streams:
            return _frames(pending_items)
        return b""

    def end(self, usage: Json | None) -> bytes:
        last_items = [self._items.stop_reason, self._items.usage(self.usage)]
        return _frames(last_items) + frame(DONE)

    def body(self, usage: Json | None, *, long: bool = False) -> bytes | list[bytes]:
        answer = {
            "messages": self._items.shown_items,
            "stop_reason": self._items.stop_reason,
            "usage": self._items.usage(self.usage),
        }
        return encode(answer)

    def fault(self, error: GatewayError) -> bytes:
        sentence, members = describe_error(error)
        error_item = {
            "message_type": "error_message",
            "run_id": self._items.options.run,
            "error_type": str(members["code"] or members["type"]),
            "message": sentence,
            "detail": sentence,
        }
        stop = {"message_type": "stop_reason", "stop_reason": "llm_api_error"}
        return _frames([stop]) + b"event: error\n" + frame(encode(error_item))

    def keepalive(self) -> bytes:
        if not self._items.options.pings:
            return COMMENT
        ping = {"message_type": "ping", "id": letta_id("ping", secrets.token_hex(16))}
        return _frames([{**ping, "date": iso_now()}])


class QuietProducer:
    """An answer without the marks of what is not shown."""

    def __init__(self, producer: ResponseProducer) -> None:
        self._producer = producer
        self.stream = producer.stream
        self.build_head = producer.build_head
        self.extra_headers = producer.extra_headers
        self.error_event = producer.error_event
        self.keepalive = producer.keepalive
        self.instead_of = producer.instead_of
        self.on_finish = producer.on_finish

    @property
    def memory(self) -> str:
        return self._producer.memory

    async def body(self) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self._producer.body()) as parts:
            async for part in parts:
                if part != MARK and (visible_part := part.replace(MARK, b"")):
                    yield visible_part


class RoundPieces:
    """The items of one round in the pieces in which they come."""

    def __init__(self, items: ItemsOfTurn) -> None:
        self._items = items
        # Of the round's calls, in the order in which they began.
        self._ids: list[str] = []
        # By the index that the model gives.
        self._places: dict[Any, int] = {}
        # Of an event with text, up to the text; b"" for none.
        self._begin: bytes | None = None

    def start(self) -> None:
        """Begin another round."""
        self._ids.clear()
        self._places.clear()
        self._begin = None

    def show_delta(self, lane: int, delta: Json) -> bytes:
        """Return the events of a delta that only continues what the round says."""
        text = delta.get("content")
        if lane or len(delta) > 1 or not isinstance(text, str):
            if lane:
                return b""
            return _frames(self._items.keep(self._of_delta(delta)))
        if self._begin is None:
            item = self._items.turn.text(self._items.rounds + 1, "")
            self._begin = _frames(self._items.keep([item])).removesuffix(b'""}\n\n')
        return self._begin and self._begin + encode(text) + b"}\n\n"

    def of_chunk(self, chunk: Chunk) -> list[Json]:
        """Return what a chunk adds to the items of the round."""
        out = []
        for choice in chunk.body.get("choices") or ():
            delta = choice.get("delta") or {}
            if not choice.get("index") and isinstance(delta, dict):
                out += self._of_delta(delta)
        return self._items.keep(out)

    def _of_delta(self, delta: Json) -> list[Json]:
        turn = self._items.turn
        number = self._items.rounds + 1
        out = []
        if thought := next(
            (text_value for n in THOUGHTS if isinstance(text_value := delta.get(n), str)), ""
        ):
            out.append(turn.thought(number, thought))
        if isinstance(text := delta.get("content"), str) and text:
            out.append(turn.text(number, text))
        return out + [self._call(call) for call in delta.get("tool_calls") or ()]

    def _call(self, delta: Json) -> Json:
        index = delta.get("index")
        shown_tool_call = shown_call(delta)
        place = self._places.get(index)
        has_name = bool(shown_tool_call["tool_call_id"] or shown_tool_call["name"])
        if place is None or (
            has_name and shown_tool_call["tool_call_id"] not in ("", self._ids[place])
        ):
            place = self._places[index] = len(self._ids)
            self._ids.append(shown_tool_call["tool_call_id"] or f"call_{secrets.token_hex(12)}")
        turn = self._items.turn
        number = self._items.rounds + 1
        shown_tool_call |= {
            "tool_call_id": self._ids[place],
            "name": shown_tool_call["name"] or None,
        }
        order = number * ROUND + CALLS + place
        return turn.item(
            order, "tool_call_message", tool_call=shown_tool_call, tool_calls=shown_tool_call
        )

    def name_calls(self, result: RoundResult) -> None:
        """Give the calls of a round that has come the ids under which they were shown."""
        choice = (result.reply.get("choices") or [{}])[0]
        calls = (choice.get("message") or {}).get("tool_calls") or []
        for call, ident in zip(calls, self._ids, strict=False):
            if not call.get("id"):
                call["id"] = ident


def _frames(items: Sequence[Json]) -> bytes:
    """Return items as events, which have no name: the client passes over events that have one."""
    return b"".join(frame(encode(item)) for item in items)
