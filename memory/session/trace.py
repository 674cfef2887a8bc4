"""The explain record: what the memory did to one request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from memory.context.epoch import PlacementPlan
from memory.conversation.messages import Json
from memory.core.blocks import CoreBlock
from memory.core.layers import Layer
from memory.core.tool_definitions import SEARCHES

NUMBERS = frozenset({int, float, bool, type(None)})
# Of one object that are kept: upstreams tell a dozen.
MAX_USAGE_MEMBERS = 64
# Stands for the name of a tool where monitors list searches.
RECALL = "automatic_recall"
# What a tool's result begins with then.
NOTHING_FOUND, FAILED = "Nothing found in ", "Error: "


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A memory tool that ran, as monitors see it.

    outcome: `ok`, `empty` (a search without a hit) or `error`.
    """

    name: str
    outcome: str
    milliseconds: float
    searches: bool

    @classmethod
    def of(cls, name: str, result: str, milliseconds: float) -> ObservedCall:
        outcome = (
            "error"
            if result.startswith(FAILED)
            else "empty"
            if result.startswith(NOTHING_FOUND)
            else "ok"
        )
        return cls(name, outcome, milliseconds, name in SEARCHES)

    @classmethod
    def of_recall(cls, text: str, milliseconds: float) -> ObservedCall:
        """Return the automatic search. text: what it added to the request."""
        return cls(RECALL, "ok" if text else "empty", milliseconds, searches=True)


class InjectedTokens(msgspec.Struct):
    """What was added to the request.

    core: None if it is the epoch's, which is stored itself. history: number of stored messages
    before the client's.
    """

    core: str | None
    notes: Mapping[int, str]
    splices: Mapping[int, Sequence[Json]]
    recall: str
    tools: Sequence[str]
    history: int


class TokenCounts(msgspec.Struct, frozen=True):
    """The tokens of a request.

    injected: of what was added. prompt: of the whole request if it was counted, else an estimate
    of the client's own part. system: of the client's system messages. window: of the model, None
    where it is unknown.
    """

    injected: int
    prompt: int
    counted: bool
    system: int
    window: int | None


class ExplainTrace(msgspec.Struct):
    """Collects the content of the record while the turn runs.

    rounds: the usage that each round reported. omitted_labels: labels of the blocks for which the
    model's window had no room. client_tools: tokens of the tools that the request brought.
    shared_left_out: of the shared ones beyond those that one memory shows. shared: ids of those
    that are shown, by label. layers: what was read beside the own memory.
    """

    tools: list[Json] = msgspec.field(default_factory=list)
    evicted: list[Json] = msgspec.field(default_factory=list)
    timings: dict[str, float] = msgspec.field(default_factory=dict)
    rounds: list[Any] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    omitted_labels: list[str] = msgspec.field(default_factory=list)
    client_tools: int = 0
    shared_left_out: Sequence[str] = ()
    shared: dict[str, str] = msgspec.field(default_factory=dict)
    layers: Json = msgspec.field(default_factory=dict)

    def note_layers(
        self, layers: Sequence[Layer], blocks: Mapping[str, str], recall_layers: Mapping[str, str]
    ) -> None:
        """Name the layers that were read, and those of the blocks and of what was recalled."""
        labels = [layer.label for layer in layers]
        self.layers = {"read": labels, "blocks": dict(blocks), "recall": dict(recall_layers)}

    def note_shared(self, blocks: Iterable[CoreBlock], omitted_labels: Sequence[str]) -> None:
        """Name the shared blocks that are shown, and those that are not, since there are many."""
        self.shared = {block.label: block.id for block in blocks if block.shared}
        self.omitted_labels = [*self.omitted_labels, *omitted_labels]
        self.shared_left_out = omitted_labels

    def note_once(self, remark: str) -> None:
        """Add a remark, unless it is there."""
        if remark not in self.notes:
            self.notes.append(remark)

    def to_json(self, plan: PlacementPlan, injected: InjectedTokens, counts: TokenCounts) -> Json:
        """Return the record's members."""
        return {
            "epoch": {"id": plan.epoch.id, "began": plan.reason or None},
            "injected": {
                "core": injected.core,
                "blocks_left_out": self.omitted_labels,
                "notes": _by_place(injected.notes, "text") if injected.notes else [],
                "spliced": _by_place(injected.splices, "messages") if injected.splices else [],
                "recall": injected.recall,
                "tools": injected.tools,
                "history": injected.history,
            },
            "tools": self.tools,
            "evicted": self.evicted,
            "timings_ms": self.timings,
            "remarks": self.notes,
            "tokens": {
                "injected": counts.injected,
                "prompt_estimate": counts.prompt,
                "counted": counts.counted,
                "system": counts.system,
                "client_tools": self.client_tools,
                "window": counts.window,
                "rounds": list(map(_beginning, self.rounds)),
            },
            **({"left_out": list(self.shared_left_out)} if self.shared_left_out else {}),
            **({"shared": self.shared} if self.shared else {}),
            **({"layers": self.layers} if self.layers else {}),
        }


def _by_place(additions: Mapping[int, Any], name: str) -> list[Json]:
    """Return what was added to messages, in their order."""
    return [{"message": i, name: text} for i, text in sorted(additions.items())]


def _beginning(usage: Any, depth: int = 3) -> Any:
    """Return what an upstream told of its usage, of each object its first members."""
    is_short = isinstance(usage, dict) and len(usage) <= MAX_USAGE_MEMBERS and depth
    # As it nearly always is.
    if is_short and NUMBERS.issuperset(map(type, usage.values())):
        return usage
    if isinstance(usage, dict):
        members = islice(usage.items(), MAX_USAGE_MEMBERS) if depth else ()
        return {name: _beginning(value, depth - 1) for name, value in members}
    if isinstance(usage, list):
        return [_beginning(value, depth - 1) for value in usage[:MAX_USAGE_MEMBERS] if depth]
    if isinstance(usage, str):
        return usage[:MAX_USAGE_MEMBERS]
    return usage
