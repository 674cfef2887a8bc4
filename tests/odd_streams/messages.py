"""An answer as a stream of the Messages API, with the oddities of real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.odd_streams.answers import Answer, Call, Text, cut

Json = dict[str, Any]
USAGE = {"input_tokens": 9, "output_tokens": 3}


@dataclass(frozen=True)
class BlockOddities:
    """How a server streams blocks. deltas: how many closing events there are."""

    index: str
    ident: str
    ends: str
    deltas: int
    # The input in the beginning and in the pieces.
    twice: bool
    # Only there.
    in_beginning: bool
    # There are pieces of a kind that nobody knows.
    unknown: bool = False
    # What stands for the type of each block.
    type: Any = "told"

    @staticmethod
    def choose(rng: Random) -> BlockOddities:
        return BlockOddities(
            rng.choice(("counted", "counted", "missing", "zero", "null", "gaps", "text")),
            rng.choice(("same", "same", "blank", "missing", "integer")),
            rng.choice(("each", "each", "last", "none", "too many")),
            rng.choice((1, 1, 2, 3)),
            rng.random() < 0.25,
            rng.random() < 0.2,
            rng.random() < 0.3,
            rng.choice(("told", "told", None, 5, "", (), "missing")),
        )


def make_stream(rng: Random, answer: Answer, odd: BlockOddities) -> Iterator[Json]:
    """Yield the events that say an answer."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**head, "stop_reason": None, "usage": USAGE}}
    ends = []
    for place, part in enumerate(answer):
        yield from block_events(rng, part, place, odd)
        end = {"type": "content_block_stop", **index_of(place, odd)}
        if odd.ends == "last":
            ends.append(end)
        elif odd.ends != "none":
            yield end
    yield from ends
    if odd.ends == "too many":
        yield {"type": "content_block_stop", "index": len(answer) + 7}
    yield from closings(answer, odd)


def closings(answer: Answer, odd: BlockOddities) -> Iterator[Json]:
    """Yield the closing events: the reason in one, the usage in the others."""
    reason = "tool_use" if any(isinstance(p, Call) for p in answer) else "end_turn"
    for number in range(odd.deltas):
        ending = {"stop_reason": reason if not number else None, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 3 + number}}
    yield {"type": "message_stop"}


def index_of(place: int, odd: BlockOddities) -> Json:
    if odd.index == "missing":
        return {}
    if odd.index == "null":
        return {"index": None}
    spelt: Json = {"zero": 0, "gaps": 3 * place, "text": str(place)}
    return {"index": spelt.get(odd.index, place)}


def block_events(rng: Random, part: Text | Call, place: int, odd: BlockOddities) -> Iterator[Json]:
    """Yield the events of one block, but for its end."""
    where = index_of(place, odd)
    block: Json = {"type": "text", "text": ""}
    pieces: list[Json] = []
    if isinstance(part, Text):
        pieces = [{"type": "text_delta", "text": p} for p in cut(rng, part.text)]
    else:
        whole = json.loads(part.arguments)
        block = {"type": "tool_use", **ident_of(part, odd), "name": part.name, "input": {}}
        if odd.twice or odd.in_beginning:
            block["input"] = whole
        if not odd.in_beginning:
            texts = cut(rng, part.arguments)
            pieces = [{"type": "input_json_delta", "partial_json": p} for p in texts]
    if odd.unknown:
        pieces.insert(rng.randrange(len(pieces) + 1), {"type": "hint_delta", "hint": "nothing"})
    if odd.type == "missing":
        del block["type"]
    elif odd.type != "told":
        block["type"] = odd.type
    yield {"type": "content_block_start", **where, "content_block": block}
    for piece in pieces:
        yield {"type": "content_block_delta", **where, "delta": piece}


def ident_of(call: Call, odd: BlockOddities) -> Json:
    if odd.ident == "missing":
        return {}
    idents: Json = {"blank": "", "integer": 7}
    return {"id": idents.get(odd.ident, call.ident)}
