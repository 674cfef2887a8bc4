"""Servers that stream as real ones are reported to. A script is as `wire_models` has it.

Ollama's Responses shape follows the source of its converter, Gemini's index 0 public reports; the
others what was found with those servers from outside. None is a recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.chat_only_model import ChatOnlyModel
from tests.responses_only_model import ResponsesOnlyModel
from tests.wire_models import Json, MessagesModel, ResponsesModel, pieces

ADDED = "response.output_item.added"


class OddChat(ChatOnlyModel):
    """A chat server whose streamed calls are its own."""

    def events(self, reply: Json) -> Iterable[Json]:
        calls = reply["choices"][0]["message"].get("tool_calls") or []
        for event in super().events(reply):
            delta = event["choices"][0]["delta"] if event["choices"] else {}
            if "tool_calls" not in delta:
                yield event
                continue
            if "name" not in delta["tool_calls"][0]["function"]:
                # All deltas of a call stand where its first one did.
                continue
            index = delta["tool_calls"][0]["index"]
            for told in self.deltas(calls[index], index):
                yield self._chunk(reply, {"tool_calls": [told]})

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        """The deltas of one call."""
        raise NotImplementedError


class Gemini(OddChat):
    """Each call whole in an event of its own, all of them numbered 0."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        yield {**call, "index": 0}


class GeminiWithoutIds(OddChat):
    """The same, as older versions and some gateways before it have it."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        yield {"index": 0, "id": "", "type": "function", "function": call["function"]}


class Poolside(OddChat):
    """Each piece of a call has an id of its own."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        named = {"name": call["function"]["name"], "arguments": ""}
        yield {**call, "index": index, "function": named}
        for number, piece in enumerate(pieces(call["function"]["arguments"])):
            function = {"arguments": piece}
            yield {**call, "id": f"{call['id']}-{number}", "index": index, "function": function}


class OpenRouter(OddChat):
    """Members of every delta are there, blank or null where nothing is told."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        named = {"name": call["function"]["name"], "arguments": ""}
        yield {**call, "index": index, "function": named}
        for piece in pieces(call["function"]["arguments"]):
            function = {"name": None, "arguments": piece}
            yield {"index": index, "id": None, "type": "function", "function": function}
        yield {"index": index, "id": "", "type": None, "function": {"name": "", "arguments": ""}}


class OllamaChat(OddChat):
    """Each call whole, numbered; an empty content beside it."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        yield {**call, "index": index}


class LmStudio(OddChat):
    """Ids are numbers, and the name comes again with every piece."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        for piece in pieces(call["function"]["arguments"]):
            function = {"name": call["function"]["name"], "arguments": piece}
            yield {**call, "index": index, "function": function}


class NoIndex(OddChat):
    """No index; the name comes after the arguments."""

    def deltas(self, call: Json, index: int) -> Iterator[Json]:
        for piece in pieces(call["function"]["arguments"]):
            yield {"id": call["id"], "function": {"arguments": piece}}
        yield {"id": call["id"], "function": {"name": call["function"]["name"]}}


class OddResponses(ResponsesOnlyModel):
    """A server of the Responses API whose events are its own."""

    def check(self, body: Json) -> Iterable[str]:
        return ResponsesModel.check(self, body)

    def events(self, reply: Json) -> Iterable[Json]:
        for number, event in enumerate(self.told(list(super().events(reply)))):
            yield {**event, "sequence_number": number}

    def told(self, events: list[Json]) -> Iterator[Json]:
        """The same events as this server sends them."""
        raise NotImplementedError


class LlamaServer(OddResponses):
    """Neither an index nor a number; parts are known by their id."""

    def events(self, reply: Json) -> Iterable[Json]:
        for event in super().events(reply):
            yield {k: v for k, v in event.items() if k not in ("output_index", "sequence_number")}

    def told(self, events: list[Json]) -> Iterator[Json]:
        yield from events


class OllamaResponses(OddResponses):
    """A call stands at the index of the text before it, which never ends; so do calls of several
    chunks. The end lists the calls, or else the text.
    """

    def told(self, events: list[Json]) -> Iterator[Json]:
        calls = [i for i in events[-1]["response"]["output"] if i["type"] == "function_call"]
        for event in events:
            if event["type"] == "response.completed" and calls:
                yield {**event, "response": {**event["response"], "output": calls}}
            elif "output_index" not in event:
                yield event
            elif not (calls and self._ends_text(event)):
                yield {**event, "output_index": 0}

    def _ends_text(self, event: Json) -> bool:
        kind = event["type"]
        item = event.get("item", {}).get("type", "message")
        return kind.endswith(".done") and item == "message" and "arguments" not in kind


class Vllm(OddResponses):
    """The beginning of a call has the first of its arguments, which the pieces tell again."""

    def told(self, events: list[Json]) -> Iterator[Json]:
        items = events[-1]["response"]["output"]
        for event in events:
            item = event.get("item", {})
            if event["type"] == ADDED and item["type"] == "function_call":
                whole = items[event["output_index"]]["arguments"]
                yield {**event, "item": {**item, "arguments": whole[:5]}}
            else:
                yield event


class VllmWhole(Vllm):
    """The same, with all of them."""

    def told(self, events: list[Json]) -> Iterator[Json]:
        items = events[-1]["response"]["output"]
        for event in events:
            yield (
                {**event, "item": items[event["output_index"]]} if event["type"] == ADDED else event
            )


class ChangingIds(OddResponses):
    """Every event has another id for the same item."""

    def told(self, events: list[Json]) -> Iterator[Json]:
        for number, event in enumerate(events):
            if "item_id" in event:
                yield {**event, "item_id": f"id_{number}"}
            elif "item" in event:
                yield {**event, "item": {**event["item"], "id": f"id_{number}"}}
            else:
                yield event


class NoBeginnings(OddResponses):
    """Items have pieces and an end."""

    def told(self, events: list[Json]) -> Iterator[Json]:
        yield from (e for e in events if e["type"] != ADDED)


class LateNames(OddResponses):
    """The name of a call comes with its end."""

    def told(self, events: list[Json]) -> Iterator[Json]:
        for event in events:
            if event["type"] == ADDED and "name" in event["item"]:
                yield {**event, "item": {**event["item"], "name": ""}}
            else:
                yield event


class OnlyAtTheEnd(OddResponses):
    """Nothing but the beginning and the end of the response."""

    def told(self, events: list[Json]) -> Iterator[Json]:
        yield from (e for e in events if "response" in e)


class OddMessages(MessagesModel):
    """A server of the Messages API whose events are its own."""

    def events(self, reply: Json) -> Iterable[Json]:
        for event in super().events(reply):
            yield from self.told(event)

    def told(self, event: Json) -> Iterator[Json]:
        """What it sends for an event."""
        raise NotImplementedError


class AllZero(OddMessages):
    """Every block is numbered 0."""

    def told(self, event: Json) -> Iterator[Json]:
        yield {**event, "index": 0} if "index" in event else event


class NoBlockIndex(OddMessages):
    """No block is numbered."""

    def told(self, event: Json) -> Iterator[Json]:
        yield {k: v for k, v in event.items() if k != "index"}


class TwoClosings(OddMessages):
    """The reason in one event, the usage in another."""

    def told(self, event: Json) -> Iterator[Json]:
        yield event
        if event["type"] == "message_delta":
            nothing: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}
            yield {**event, "delta": nothing}


CHAT = (Gemini, GeminiWithoutIds, Poolside, OpenRouter, OllamaChat, LmStudio, NoIndex)
RESPONSES = (
    LlamaServer,
    OllamaResponses,
    Vllm,
    VllmWhole,
    ChangingIds,
    NoBeginnings,
    LateNames,
    OnlyAtTheEnd,
)
MESSAGES = (AllZero, NoBlockIndex, TwoClosings)
