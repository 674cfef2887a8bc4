"""Where memory goes in a request so that the provider's prompt cache keeps its prefix. Pure.

An *epoch* is the life of one frozen core text. Rules (MEMORY.md 2):
- What changed since is told once, in a note at the end of a user message, and only when the request
  ends in it. The note
  is stored under the answer given to it and stands at that same place, byte for byte, for the rest
  of the epoch.
- Hidden exchanges are spliced back at the node they belong to, within the epoch, and nowhere else.
- Invariant: frozen core + notes present in this body = the current blocks, bar a change still
  waiting for its user message.
  Where it cannot hold (a note's carrier is gone), a new epoch starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory.conversation.matching import RequestHistory, TurnNode, locate_node
from memory.conversation.messages import Json
from memory.core.blocks import Block, compile_core, note
from memory.ids import new_id

Overlay = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Epoch:
    """blocks: label to value as frozen.

    edits: the scope's count of outside edits then. cut: link of the last evicted message; elide:
    link up to which large tool results are stubs.
    """

    id: str
    core: str
    blocks: Mapping[str, str]
    edits: int = 0
    cut: bytes | None = None
    elide: bytes | None = None


@dataclass(frozen=True, slots=True)
class EpochPolicy:
    """idle: seconds after which a provider's cache is cold.

    note_chars: room for the notes of one epoch.
    """

    idle: float = 300
    note_chars: int = 6000
    live: bool = False


@dataclass(slots=True)
class PlacementPlan:
    """What is placed into this request.

    notes and splices by message index; `note` is the new one, on the last message.
    """

    epoch: Epoch
    reason: str  # why a new epoch began; empty when it goes on
    notes: dict[int, str] = field(default_factory=dict)
    splices: dict[int, list[Json]] = field(default_factory=dict)
    places: dict[int, int] = field(
        default_factory=dict
    )  # where the epoch's nodes with a note or a hidden exchange stand, by id, oldest first
    note: str = ""
    told: Overlay = field(default_factory=dict)


@dataclass(slots=True)
class PreviousTurn:
    """What the store knows of the line this request continues.

    at: index of the assistant message that is `node`. places: where the carriers before `node`
    stand, by id, when the history up to `at` is the very one that they were placed in; None where
    that is to be found.
    """

    node: TurnNode | None = None
    at: int = -1
    epoch: Epoch | None = None
    # the epoch's nodes with a note or a hidden exchange, up to and with `node`, oldest first
    carriers: Sequence[TurnNode] = ()
    places: Mapping[int, int] | None = None


def block_values(blocks: Sequence[Block]) -> dict[str, str]:
    return {b.label: b.value for b in blocks}


def apply_overrides(base: Mapping[str, str], told: Mapping[str, str | None]) -> dict[str, str]:
    """Return what the model was told: the frozen values, then what notes said (None: removed)."""
    return {k: v for k, v in {**base, **told}.items() if v is not None}


def new_epoch(
    blocks: Sequence[Block], tag: str, edits: int, *, summary: str = "", cut: bytes | None = None
) -> Epoch:
    """Return a fresh epoch: these blocks, compiled now."""
    return Epoch(
        new_id("epoch"), compile_core(blocks, tag, summary), block_values(blocks), edits, cut
    )


@dataclass(slots=True)
class CurrentMemory:
    """What is so now.

    edits: the scope's count of edits made from outside the conversation. at: seconds since 1970.
    behind: the link of what was said before the request's first message, and the summary that
    stands for it.
    """

    blocks: Sequence[Block]
    tag: str
    edits: int
    at: float
    behind: tuple[bytes, str] | None = None


def plan(
    turn: RequestHistory, past: PreviousTurn, present: CurrentMemory, rules: EpochPolicy
) -> PlacementPlan:
    """Go on with the line's epoch where the invariant can hold, else begins a new one and says
    why.
    """
    placed = _continue_epoch(turn, past, present, rules)
    if isinstance(placed, PlacementPlan):
        placed = _add_note(placed, turn, past.node, present, rules)
    if isinstance(placed, str):
        cut, summary = present.behind or (None, "")
        return PlacementPlan(
            new_epoch(present.blocks, present.tag, present.edits, summary=summary, cut=cut), placed
        )
    return placed


def _continue_epoch(  # noqa: C901 - a table of reasons, one after the other
    turn: RequestHistory, past: PreviousTurn, present: CurrentMemory, rules: EpochPolicy
) -> PlacementPlan | str:
    """Return the notes and splices of the running epoch at their places, or the reason why it
    cannot go on.
    """
    node, epoch = past.node, past.epoch
    if rules.live:
        return "live placement"
    if node is None or epoch is None:
        return "new conversation"
    if epoch.edits != present.edits:
        return "edited outside the conversation"
    if present.at - node.at > rules.idle:
        return "idle"
    if past.places is None:
        turn.enter()
        cut = epoch.cut
        if cut not in (None, turn.chain.origin) and not -1 < turn.chain.place(cut) < past.at:
            return "history trimmed"
    out = PlacementPlan(epoch, "")
    for carrier in past.carriers:
        place = _place_of(turn, past, node, carrier)
        if place is None:
            return "a note's carrier is gone"
        if carrier.note:
            out.notes[place - 1] = carrier.note
        if carrier.hidden:
            out.splices[place] = carrier.hidden
        out.places[carrier.id] = place
    if len(out.notes) != sum(1 for c in past.carriers if c.note):
        return "a note's carrier is gone"
    return out


def _place_of(
    turn: RequestHistory, past: PreviousTurn, node: TurnNode, carrier: TurnNode
) -> int | None:
    """Find where a node with a note or a hidden exchange stands in the history.

    None where it is gone, or where its note would not follow a user message.
    """
    if past.places is not None:
        return past.at if carrier.id == node.id else past.places[carrier.id]
    place = past.at if carrier.id == node.id else locate_node(turn, node, past.at, carrier)
    if place is None or not carrier.note:
        return place
    return place if place and turn.messages[place - 1].get("role") == "user" else None


def _add_note(
    out: PlacementPlan,
    turn: RequestHistory,
    node: TurnNode | None,
    present: CurrentMemory,
    rules: EpochPolicy,
) -> PlacementPlan | str:
    """Add the new note, where the request ends in a user message; a reason when the notes outgrew
    their room.
    """
    out.told = dict(node.told) if node else {}
    now = block_values(present.blocks)
    known = apply_overrides(out.epoch.blocks, out.told)
    if not now.keys() <= {*out.epoch.blocks, *out.told}:
        return "a block was added"  # a note could not tell what it is for
    if known == now or not turn.messages or turn.messages[-1].get("role") != "user":
        return out
    out.note = note(known, now, present.tag)
    if sum(map(len, out.notes.values())) + len(out.note) > rules.note_chars:
        return "notes over their budget"
    out.notes[len(turn.messages) - 1] = out.note
    out.told = {
        k: now.get(k) for k in {*known, *now} | {*out.told} if now.get(k) != out.epoch.blocks.get(k)
    }
    return out


def new_node(
    ident: int, conversation: int, turn: RequestHistory, past: PreviousTurn, made: PlacementPlan
) -> TurnNode:
    """Return the node of this request, before its answer: what was placed, under whom it hangs."""
    parent = past.node
    return TurnNode(
        id=ident,
        conversation=conversation,
        parent=parent.id if parent else None,
        asked=turn.chain.end,
        epoch=made.epoch.id,
        note=made.note or None,
        told=made.told,
        carriers=list(made.places),
        branch=parent.branch if parent else 0,
    )
