"""An answer as a stream of the Responses API, with the oddities of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.odd_streams.answers import Answer, Call, Text, cut

Json = dict[str, Any]
HEAD = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
TEXT_PART = {"type": "output_text", "annotations": []}


@dataclass(frozen=True)
class ItemOddities:
    """How a server streams items.

    name: the event that tells it first. twice: arguments in the beginning and in the deltas.
    unknown: which items events of a kind that nobody knows speak of. type: what stands for the
    type of each item.
    """

    index: str
    ident: str
    begins: bool
    ends: str
    name: str
    listed: str
    twice: bool
    numbered: bool
    cut: bool
    unknown: str = ""
    type: Any = "told"

    @staticmethod
    def choose(rng: Random) -> ItemOddities:
        odd = ItemOddities(
            rng.choice(("counted", "counted", "missing", "zero", "null", "pieces without", "text")),
            rng.choice(("same", "same", "changing", "missing", "blank", "integer")),
            rng.random() < 0.75,
            rng.choice(("each", "each", "last", "none", "calls")),
            rng.choice(("first", "first", "arguments", "end", "close")),
            rng.choice(("all", "all", "none", "calls")),
            rng.random() < 0.25,
            rng.random() < 0.7,
            rng.random() < 0.8,
            rng.choice(("", "", "", "its own", "later", "none")),
            rng.choice(("told", "told", "told", None, 5, "", " ", (), {"a": 1}, "missing")),
        )
        return odd.possible()

    def possible(self) -> ItemOddities:
        """Return the same, less what leaves nothing to tell the items by."""
        odd = self
        if not odd.begins and (odd.ident == "changing" or odd.index == "null"):
            odd = replace(odd, ident="same")
        apart = odd.begins or odd.ident in ("same", "integer") or odd.index in ("counted", "text")
        if odd.name == "close":
            odd = replace(odd, listed="all", ends="none") if apart else replace(odd, name="end")
        if odd.ends == "none" and (odd.name == "end" or not odd.begins):
            odd = replace(odd, listed="all")
        return odd if apart else replace(odd, ends="each")


def make_stream(rng: Random, answer: Answer, odd: ItemOddities) -> Iterator[Json]:
    """Yield the events that say an answer."""
    items = [item_of(part, place, odd) for place, part in enumerate(answer)]
    events: list[Json] = []
    ends: list[Json] = []
    for place, (part, item) in enumerate(zip(answer, items, strict=True)):
        if odd.unknown:
            events += unknown_events(rng, place, odd)
        events += item_events(rng, part, item, place, odd)
        if odd.unknown:
            events += unknown_events(rng, place, odd)
        if odd.ends != "none" and (odd.ends != "calls" or isinstance(part, Call)):
            end = {"type": "response.output_item.done", **index_of(place, odd, 0), "item": item}
            (ends if odd.ends == "last" else events).append(end)
    begun = {**HEAD, "status": "in_progress", "output": []}
    kinds = {"all": ("message", "function_call"), "calls": ("function_call",)}
    listed = [i for i in items if i["type"] in kinds.get(odd.listed, ())]
    done = {**HEAD, "status": "completed", "output": listed}
    typed(odd, [*events, *ends], listed)
    told = [
        {"type": "response.created", "response": begun},
        *events,
        *ends,
        {"type": "response.completed", "response": done},
    ]
    for number, event in enumerate(told):
        yield {**event, "sequence_number": number} if odd.numbered else event


def unknown_events(rng: Random, place: int, odd: ItemOddities) -> Iterator[Json]:
    """Yield events of a kind that nobody knows, with or without an index and an id."""
    other = place + {"its own": 0, "later": rng.randrange(3), "none": 50}[odd.unknown]
    for _ in range(rng.randrange(3)):
        where = rng.choice(({}, index_of(other, odd, 0))) if odd.unknown != "none" else {}
        ident = rng.choice(({}, {"item_id": ident_of(other, 1, odd)}))
        if odd.unknown == "none":
            ident = rng.choice(({"item_id": "nobody's"}, {"item_id": ""}, {"output_index": 90}))
        kind = rng.choice(("response.progress", "response.mcp_call_arguments.delta", "x"))
        yield {"type": kind, **where, **ident, "delta": "nothing", "text": "nothing"}


def typed(odd: ItemOddities, events: list[Json], listed: list[Json]) -> None:
    """Put what a server tells in place of the type of its items."""
    if odd.type == "told":
        return
    told_items = [e["item"] for e in events if "item" in e]
    for item in {id(i): i for i in [*told_items, *listed]}.values():
        if odd.type == "missing":
            del item["type"]
        else:
            item["type"] = odd.type


def item_of(part: Text | Call, place: int, odd: ItemOddities) -> Json:
    ident = {} if odd.ident == "missing" else {"id": ident_of(place, 0, odd)}
    if isinstance(part, Text):
        content = [{**TEXT_PART, "text": part.text}]
        return {**ident, "type": "message", "role": "assistant", "content": content}
    call = {"call_id": part.ident, "name": part.name, "arguments": part.arguments}
    return {**ident, "type": "function_call", **call}


def ident_of(place: int, at: int, odd: ItemOddities) -> Any:
    if odd.ident == "integer":
        return 100 + place
    if odd.ident == "blank":
        return ""
    return f"item_{place}_{at}" if odd.ident == "changing" else f"item_{place}"


def index_of(place: int, odd: ItemOddities, at: int) -> Json:
    if odd.index == "missing" or (odd.index == "pieces without" and at):
        return {}
    if odd.index == "null":
        return {"output_index": None}
    spelt: Json = {"zero": 0, "text": str(place)}
    return {"output_index": spelt.get(odd.index, place)}


def item_events(
    rng: Random, part: Text | Call, item: Json, place: int, odd: ItemOddities
) -> Iterator[Json]:
    """Yield the events of one item, but for its end."""
    told = ""
    if odd.begins:
        begun = {**item, "content": []} if isinstance(part, Text) else dict(item)
        if isinstance(part, Call):
            told = begin_arguments(rng, part, odd)
            begun["arguments"] = told
            if odd.name != "first":
                begun["name"] = rng.choice(("", None))
        yield {"type": "response.output_item.added", **index_of(place, odd, 0), "item": begun}
    kind = "output_text" if isinstance(part, Text) else "function_call_arguments"
    whole = part.text if isinstance(part, Text) else part.arguments
    pieces = cut(rng, whole) if odd.cut else [whole]
    for at, piece in enumerate(pieces, 1):
        ident = {} if odd.ident == "missing" else {"item_id": ident_of(place, at, odd)}
        where = {**index_of(place, odd, at), **ident}
        yield {"type": f"response.{kind}.delta", **where, "delta": piece}
    if isinstance(part, Call):
        ident = {} if odd.ident == "missing" else {"item_id": ident_of(place, 99, odd)}
        where = {**index_of(place, odd, 1), **ident}
        name = {"name": part.name} if odd.name == "arguments" else {}
        done = {"type": f"response.{kind}.done", **where, **name, "arguments": whole}
        yield done


def begin_arguments(rng: Random, call: Call, odd: ItemOddities) -> str:
    """Return what the beginning of a call tells of arguments that its pieces tell again."""
    if not odd.twice:
        return ""
    return call.arguments[: rng.choice((1, 3, len(call.arguments)))]
