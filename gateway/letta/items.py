"""The items of a turn as a Letta client reads them: what was said, called and returned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.letta.ids import ItemPlace, letta_id
from gateway.wire.chat import Json
from memory import text_of

THOUGHTS = ("reasoning_content", "reasoning")
# The order of items within a turn: what was asked, then of each round its thoughts, text and calls,
# and what the calls returned.
ROUND = 1 << 20
TEXT = 1
CALLS = 2
RETURNS = 1 << 16
# How a result begins of a call that did nothing.
FAILED = "Error:"


def iso_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class TurnOfItems(msgspec.Struct, frozen=True):
    """The turn that items are of. key: its row key. run: the request's id, None where unknown."""

    key: int
    run: str | None
    date: str

    def item(self, order: int, kind: str, **members: Any) -> Json:
        """Return an item. order: its place within the turn."""
        ident = ItemPlace(self.key, order).id
        number = order // ROUND
        return {
            "id": ident,
            "date": self.date,
            "message_type": kind,
            "otid": ident.removeprefix("message-"),
            "run_id": self.run,
            "step_id": letta_id("step", f"{self.key:016x}{number:016x}") if number else None,
            **members,
        }

    def thought(self, number: int, text: str) -> Json:
        """Return what the model thought in a round, from 1."""
        order = number * ROUND
        return self.item(order, "reasoning_message", reasoning=text, source="reasoner_model")

    def text(self, number: int, text: str) -> Json:
        """Return what the model said in a round."""
        return self.item(number * ROUND + TEXT, "assistant_message", content=text)

    def call(self, number: int, place: int, call: Json) -> Json:
        """Return one call of a round."""
        shown_tool_call = shown_call(call)
        order = number * ROUND + CALLS + place
        return self.item(
            order, "tool_call_message", tool_call=shown_tool_call, tool_calls=[shown_tool_call]
        )

    def result(self, number: int, place: int, call: Json, text: str) -> Json:
        """Return what a call of a round came to."""
        status = "error" if text.startswith(FAILED) else "success"
        members = {"tool_return": text, "status": status, "tool_call_id": str(call.get("id") or "")}
        tool_return = {**members, "type": "tool", "stdout": None, "stderr": None}
        order = number * ROUND + RETURNS + place
        name = (call.get("function") or {}).get("name")
        return self.item(
            order, "tool_return_message", name=name, **members, tool_returns=[tool_return]
        )

    def of_message(self, number: int, message: Json) -> list[Json]:
        """Return the items of a model's message."""
        out = []
        if thought := thoughts_in(message):
            out.append(self.thought(number, thought))
        if text := text_of(message):
            out.append(self.text(number, text))
        calls = message.get("tool_calls") or []
        return out + [self.call(number, i, call) for i, call in enumerate(calls)]

    def of_results(self, number: int, calls: Sequence[Json], texts: Sequence[str]) -> list[Json]:
        """Return what the calls of a round came to."""
        call_results = enumerate(zip(calls, texts, strict=False))
        return [self.result(number, i, call, text) for i, (call, text) in call_results]


def shown_call(call: Json) -> Json:
    """Return a call as the client knows it."""
    function = call.get("function") or {}
    return {
        "name": str(function.get("name") or ""),
        "arguments": str(function.get("arguments") or ""),
        "tool_call_id": str(call.get("id") or ""),
    }


def thoughts_in(message: Json) -> str:
    """Return what a model's message tells of its thoughts."""
    return next(
        (thought for n in THOUGHTS if isinstance(thought := message.get(n), str) and thought), ""
    )


def summed_usage(usage: Json | None, rounds: int, run: str | None) -> Json:
    """Return the usage of all rounds together."""
    usage_members = usage or {}
    prompt = usage_members.get("prompt_tokens_details") or {}
    completion = usage_members.get("completion_tokens_details") or {}
    return {
        "message_type": "usage_statistics",
        "prompt_tokens": _number(usage_members.get("prompt_tokens")),
        "completion_tokens": _number(usage_members.get("completion_tokens")),
        "total_tokens": _number(usage_members.get("total_tokens")),
        "cached_input_tokens": _number(prompt.get("cached_tokens")),
        "reasoning_tokens": _number(completion.get("reasoning_tokens")),
        "step_count": rounds,
        "run_ids": [run] if run else [],
    }


def _number(value: object) -> int:
    if isinstance(value, int):
        return value
    return 0
