"""Plays odd streams through the masks and the bridges, and compares what a client sees.

The law: the client's view equals the same answer sent whole, less our calls; ours are run once
each, with the arguments that the model gave.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from gateway.apis.chat.interceptor import Interceptor
from gateway.apis.envelope import EnvelopeMask
from gateway.apis.messages.messages_reply import MessagesMask
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.apis.round_result import RoundResult
from gateway.apis.translation.chat_reply_parts import ReplyWriter
from gateway.apis.translation.chat_tools import ChatTools
from gateway.apis.translation.messages_reply_from_chat import MessagesReply
from gateway.apis.translation.messages_reply_to_chat import StreamedAnswer
from gateway.apis.translation.reply_stream import BridgedStream
from gateway.apis.translation.responses_reply_from_chat import ResponsesReply
from gateway.apis.translation.responses_reply_to_chat import StreamedResponse
from gateway.wire.chat import parse_chunk
from gateway.wire.sse import DONE, SseFramer, StreamTranslator, frame
from tests.odd_streams import chat, messages, responses
from tests.odd_streams.answers import OURS, Answer, calls_of, make_answer, said

Json = dict[str, Any]
Calls = list[tuple[str, str]]


@dataclass
class View:
    """What a client saw of an answer, and what was run here. shown: all of its bytes."""

    text: str
    calls: Calls
    run: Calls
    shown: bytes

    def faults(self, answer: Answer) -> list[str]:
        """Return what is not as the law has it."""
        mine, clients = calls_of(answer, owned=True), calls_of(answer, owned=False)
        out = []
        if any(f'"{name}"'.encode() in self.shown for name in OURS):
            out.append("shown")
        if [c for c in normal(clients) if c not in normal(self.calls)]:
            out.append("lost")
        if self.text != said(answer) or normal(self.calls) != normal(clients):
            out.append("view")
        if normal(self.run) != normal(mine):
            out.append("run")
        return out


def normal(calls: Calls) -> list[tuple[str, Any]]:
    """Return calls with what their arguments say."""
    return [(name, parsed(arguments)) for name, arguments in calls]


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def framed(event: Json) -> bytes:
    name = b"event: %b\n" % event["type"].encode() if "type" in event else b""
    return name + frame(json.dumps(event).encode())


def events_of(data: bytes) -> Iterator[Json]:
    for event in SseFramer().feed(data):
        if event.data and event.data != DONE:
            yield json.loads(event.data)


# Each way of the bytes through a gateway.


def through_chat(data: Iterable[bytes]) -> View:
    """Show a chat completion's stream to a client of chat completions."""
    mask, shown = Interceptor(OURS, include_usage=True), b""
    for raw in data:
        quick = mask.fast_forward(raw)
        if quick:
            shown += quick
            continue
        for event in SseFramer().feed(raw):
            if event.data and event.data != DONE:
                shown += b"".join(map(frame, mask.feed(parse_chunk(event.data))))
    held, result = mask.close()
    shown += b"".join(map(frame, [*held, *mask.finish()]))
    again = Interceptor((), include_usage=True)
    for event in events_of(shown):
        again.feed(parse_chunk(json.dumps(event).encode()))
    message = again.close()[1].reply["choices"][0]["message"]
    calls = [chat_call(c) for c in message.get("tool_calls") or ()]
    return View(message.get("content") or "", calls, [chat_call(c) for c in result.ours], shown)


def chat_call(call: Json) -> tuple[str, str]:
    return call["function"].get("name") or "", call["function"].get("arguments") or ""


def through_mask(mask: EnvelopeMask, data: Iterable[bytes]) -> tuple[bytes, RoundResult]:
    shown = b""
    for raw in data:
        quick = mask.fast_forward(raw)
        shown += quick or b"".join(mask.take(event, raw) for event in events_of(raw))
    held, result = mask.close()
    return shown + held + mask.finish() + mask.end(None), result


def through_responses(data: Iterable[bytes]) -> View:
    mask = ResponsesMask(OURS, None, Echo(frozenset(OURS)))
    shown, result = through_mask(mask, data)
    items = list(events_of(shown))[-1]["response"]["output"]
    text = "".join(p["text"] for i in items if i["type"] == "message" for p in i["content"])
    calls = [item_call(i) for i in items if i["type"] == "function_call"]
    ended = [e for e in events_of(shown) if e["type"] == "response.output_item.done"]
    if all(type(e.get("output_index")) is int for e in ended):
        ended.sort(key=lambda e: e["output_index"])
    if len(ended) == len(items) and [e["item"] for e in ended] != items:
        text = f"the items that ended are not those of the end: {text}"
    return View(text, calls, [item_call(c) for c in result.ours], shown)


def item_call(item: Json) -> tuple[str, str]:
    return item["name"], item["arguments"]


def through_messages(data: Iterable[bytes]) -> View:
    shown, result = through_mask(MessagesMask(OURS, None), data)
    blocks: dict[int, Json] = {}
    reason = None
    for event in events_of(shown):
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks), event
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            block["text"] = block.get("text", "") + delta.get("text", "")
            block["json"] += delta.get("partial_json", "")
        elif event["type"] == "message_delta":
            reason = event["delta"]["stop_reason"]
    calls = [block_call(b) for b in blocks.values() if b["type"] == "tool_use"]
    text = "".join(b["text"] for b in blocks.values() if b["type"] == "text")
    if reason != ("tool_use" if calls else "end_turn"):
        text = f"{reason}: {text}"
    return View(text, calls, [block_call(b) for b in result.ours], shown)


def block_call(block: Json) -> tuple[str, str]:
    return block["name"], block.get("json") or json.dumps(block["input"])


def translated(translator: StreamTranslator, data: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the events of another format, one by one."""
    told = b"".join(translator.feed(raw) for raw in data) + translator.end()
    for event in SseFramer().feed(told):
        yield event.event_bytes


# The wires: how a stream is made, and the ways it takes.


def chat_stream(rng: Random, answer: Answer) -> tuple[Any, list[bytes]]:
    odd = chat.ChatOddities.choose(rng)
    return odd, [*map(framed, chat.make_stream(rng, answer, odd)), frame(DONE)]


def responses_stream(rng: Random, answer: Answer) -> tuple[Any, list[bytes]]:
    odd = responses.ItemOddities.choose(rng)
    return odd, [*map(framed, responses.make_stream(rng, answer, odd))]


def messages_stream(rng: Random, answer: Answer) -> tuple[Any, list[bytes]]:
    odd = messages.BlockOddities.choose(rng)
    return odd, [*map(framed, messages.make_stream(rng, answer, odd))]


def bridged(
    writer: Callable[[], ReplyWriter], show: Callable[[Iterable[bytes]], View]
) -> Callable[[Iterable[bytes]], View]:
    return lambda data: show(translated(BridgedStream(writer()), data))


Make = Callable[[Random, Answer], tuple[Any, list[bytes]]]
WIRES: dict[str, tuple[Make, Callable[[Iterable[bytes]], View]]] = {
    "chat": (chat_stream, through_chat),
    "responses": (responses_stream, through_responses),
    "messages": (messages_stream, through_messages),
    "responses at chat": (
        chat_stream,
        bridged(lambda: ResponsesReply({}, ChatTools(), "x", 1), through_responses),
    ),
    "messages at chat": (chat_stream, bridged(lambda: MessagesReply("m", "x"), through_messages)),
    "chat at responses": (
        responses_stream,
        lambda data: through_chat(translated(StreamedResponse(0, False, bool), data)),
    ),
    "chat at messages": (
        messages_stream,
        lambda data: through_chat(translated(StreamedAnswer(1), data)),
    ),
}


@dataclass
class Difference:
    """One stream that was not shown as it should be."""

    seed: int
    faults: list[str]
    oddities: Any
    view: View | None
    answer: Answer
    error: BaseException | None = None

    def __str__(self) -> str:
        seen = self.error or self.view
        return f"seed {self.seed}: {self.faults} {self.oddities}\n  {self.answer}\n  {seen}"


def play(wire: str, seeds: Iterable[int]) -> Iterator[Difference]:
    """Play a stream for each seed; yield those that the client saw otherwise than it should."""
    make, show = WIRES[wire]
    for seed in seeds:
        rng = Random(seed)
        answer = make_answer(rng)
        odd, data = make(rng, answer)
        try:
            view = show(data)
        except Exception as error:
            yield Difference(seed, ["error", "view"], odd, None, answer, error)
            continue
        if faults := view.faults(answer):
            yield Difference(seed, faults, odd, view, answer)
