"""An answer as a chat completion's stream, with the oddities of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.odd_streams.answers import Answer, Call, cut

Json = dict[str, Any]
HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHOICE_INDEXES: dict[str, Json] = {
    "number": {"index": 0},
    "missing": {},
    "null": {"index": None},
    "text": {"index": "0"},
    "fraction": {"index": 0.0},
}
# Members of events that tell nothing.
IDLE: list[Json] = [
    {},
    {"choices": None},
    {"choices": {}},
    {"choices": [None]},
    {"choices": [{"index": 0, "delta": None}]},
    {"choices": [{"index": "0", "delta": []}]},
    {"choices": [{"delta": ""}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": {}, "content": None, "role": False}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [None]}}]},
]


@dataclass(frozen=True)
class ChatOddities:
    """How a server streams calls.

    choice: how the index of the choice is told. idle: there are events that tell nothing.
    """

    index: str
    ident: str
    name: str
    # Arguments in one piece, with the name.
    whole: bool
    # Calls grow side by side.
    parallel: bool
    # Several deltas in one event.
    bundled: bool
    choice: str = "number"
    idle: bool = False

    @staticmethod
    def choose(rng: Random) -> ChatOddities:
        indexes = ("counted", "counted", "missing", "zero", "first only", "text", "fraction")
        index = rng.choice(indexes)
        ident = rng.choice(("first", "repeated", "changing", "blank", "missing", "integer", "null"))
        # A piece of a name with another id could only be another name.
        names = ("first", "first", "repeated", "late", "middle", "fragments")
        return ChatOddities(
            index,
            ident,
            rng.choice(names[:-1] if ident == "changing" else names),
            rng.random() < 0.2,
            index in ("counted", "text", "fraction") and rng.random() < 0.3,
            rng.random() < 0.2,
            rng.choice(("number", "number", "missing", "null", "text", "fraction")),
            rng.random() < 0.3,
        )


def make_stream(rng: Random, answer: Answer, odd: ChatOddities) -> Iterator[Json]:
    """Yield the chunks that say an answer."""
    for told in say_answer(rng, answer, odd):
        (choice,) = told["choices"]
        index = CHOICE_INDEXES[odd.choice]
        named = {k: v for k, v in choice.items() if k != "index"}
        yield {**told, "choices": [{**index, **named}]}
        if odd.idle and rng.random() < 0.5 and not choice["finish_reason"]:
            yield {**HEAD, **rng.choice(IDLE)}


def say_answer(rng: Random, answer: Answer, odd: ChatOddities) -> Iterator[Json]:
    """Yield the same, each chunk with one choice."""
    yield chunk({"role": "assistant", "content": ""})
    calls = [p for p in answer if isinstance(p, Call)]
    queues: list[list[Json]] = []
    texts: list[Json] | None = None
    for part in answer:
        if isinstance(part, Call):
            deltas = call_deltas(rng, part, calls.index(part), odd)
            queues.append([{"tool_calls": [delta]} for delta in deltas])
            continue
        pieces = [{"content": piece} for piece in cut(rng, part.text)]
        if odd.parallel and texts is not None:
            # Texts follow each other.
            texts += pieces
        else:
            queues.append(texts := pieces)
    deltas = side_by_side(rng, queues) if odd.parallel else [d for q in queues for d in q]
    for delta in bundle(rng, deltas) if odd.bundled else deltas:
        yield chunk(delta)
    yield chunk({}, "tool_calls" if calls else "stop")


def chunk(delta: Json, finish: str | None = None) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def side_by_side(rng: Random, queues: list[list[Json]]) -> list[Json]:
    """Return the deltas of several parts in turns; each part begins in its order."""
    begun = [queue.pop(0) for queue in queues if queue]
    rest = [queue for queue in queues if queue]
    out = list(begun)
    while rest:
        queue = rng.choice(rest)
        out.append(queue.pop(0))
        rest = [q for q in rest if q]
    return out


def bundle(rng: Random, deltas: list[Json]) -> list[Json]:
    """Return deltas with some calls' deltas in one event."""
    out: list[Json] = []
    for delta in deltas:
        joins = out and "tool_calls" in delta and "tool_calls" in out[-1]
        if joins and rng.random() < 0.5:
            out[-1] = {"tool_calls": [*out[-1]["tool_calls"], *delta["tool_calls"]]}
        else:
            out.append(delta)
    return out


def call_deltas(rng: Random, call: Call, place: int, odd: ChatOddities) -> list[Json]:
    """Return the deltas of one call."""
    pieces: list[str | None] = [call.arguments] if odd.whole else [*cut(rng, call.arguments)]
    if odd.name == "repeated" and odd.ident == "changing":
        # A name and an id alone would begin another call.
        pieces = [p for p in pieces if p]
    if odd.name == "fragments":
        pieces[:0] = (None, None)
    named = name_pieces(rng, call, len(pieces), odd)
    count = max(len(pieces), max(named) + 1)
    out = []
    for at in range(count):
        has_text = at < len(pieces) and pieces[at] is not None
        function: Json = {"arguments": pieces[at]} if has_text else {}
        if at in named:
            function = {"name": named[at], **function}
        out.append({**where(place, at, odd), **ident_of(rng, call, at, odd), "function": function})
    return out


def name_pieces(rng: Random, call: Call, count: int, odd: ChatOddities) -> dict[int, str]:
    """Return which deltas tell the name, and what of it."""
    if odd.name == "late" and not odd.whole:
        return {count: call.name}
    if odd.name == "middle" and not odd.whole:
        return {rng.randrange(count): call.name}
    if odd.name == "fragments":
        return {0: call.name[:5], 1: call.name[5:]} if len(call.name) > 5 else {0: call.name}
    if odd.name == "repeated":
        return dict.fromkeys(range(count), call.name)
    return {0: call.name}


def where(place: int, at: int, odd: ChatOddities) -> Json:
    if odd.index == "missing" or (odd.index == "first only" and at):
        return {}
    spelt: Json = {"zero": 0, "text": str(place), "fraction": float(place)}
    return {"index": spelt.get(odd.index, place)}


def ident_of(rng: Random, call: Call, at: int, odd: ChatOddities) -> Json:
    if odd.ident in ("blank", "null"):
        return {"id": "" if odd.ident == "blank" else None, "type": "function"}
    if odd.ident == "changing":
        return {"id": f"{call.ident}_{at}_{rng.randrange(999)}", "type": "function"}
    if odd.ident == "missing" or (odd.ident == "first" and at):
        return {}
    number = int(call.ident.removeprefix("call_").replace("_", "0"))
    return {"id": number if odd.ident == "integer" else call.ident, "type": "function"}
