"""Where memory is placed in a request so that the provider's prompt cache keeps its prefix. Pure.

An *epoch* is the life of one frozen core text. Rules:

- What has changed since is announced once, in a note at the end of a user message, and only when
  the request ends in it. The note is stored with the answer to it and stays at that place, byte for
  byte, for the rest of the epoch.
- Hidden exchanges are inserted again at the node they belong to, within the epoch, and nowhere
  else.
- Invariant: frozen core + notes in this body = the current blocks, except for a change that still
  waits for its user message. If that is impossible (the carrier of a note is gone), a new epoch
  starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from memory.conversation.matching import RequestHistory, TurnNode, locate_node
from memory.conversation.messages import SYSTEM, Json
from memory.core.blocks import (
    INSTRUCTION,
    OPENED,
    CoreBlock,
    compile_core,
    element_of,
    is_introduced,
    note,
)
from memory.ids import new_id

Overlay = dict[str, str | None]
# Why an epoch ended whose tools may not be shown any more.
OTHER_TOOLS = "tools changed"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One frozen core text.

    blocks: label to value as frozen. edits: the scope's count of outside edits at that time. cut:
    link of the last evicted message. elide: link up to which large tool results are stubs. tools:
    those of the operator that are shown, by name, with a digest of each.
    """

    id: str
    core: str
    blocks: Mapping[str, str]
    edits: int = 0
    cut: bytes | None = None
    elide: bytes | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochPolicy:
    """When epochs end.

    idle_seconds: after which a provider's cache is assumed cold. note_chars: most characters of the
    notes of one epoch. live: a new epoch for every request. instruction: what the core text begins
    with.
    """

    idle_seconds: float = 300
    note_chars: int = 6000
    live: bool = False
    instruction: str = INSTRUCTION


class PlacementPlan(msgspec.Struct):
    """What is placed into this request.

    notes, splices: by message index. note: the new one, on the last message.
    """

    epoch: Epoch
    # Why a new epoch began; empty if it continues.
    reason: str
    notes: dict[int, str] = msgspec.field(default_factory=dict)
    splices: dict[int, list[Json]] = msgspec.field(default_factory=dict)
    # Message index of the epoch's nodes with a note or a hidden exchange, by id, oldest first.
    places: dict[int, int] = msgspec.field(default_factory=dict)
    note: str = ""
    told: Overlay = msgspec.field(default_factory=dict)


class PreviousTurn(msgspec.Struct):
    """What the store knows of the conversation that this request continues.

    at: index of the assistant message that is `node`. places: message indexes of the carriers
    before `node`, by id, if the history up to `at` is exactly the one they were placed in; None if
    they must be found.
    """

    node: TurnNode | None = None
    at: int = -1
    epoch: Epoch | None = None
    # the epoch's nodes with a note or a hidden exchange, up to `node`, oldest first
    carriers: Sequence[TurnNode] = ()
    places: Mapping[int, int] | None = None


def block_values(blocks: Sequence[CoreBlock]) -> dict[str, str]:
    return {b.label: b.value for b in blocks}


def apply_overrides(base: Mapping[str, str], overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Return what the model was told: frozen values, updated by notes (None: removed)."""
    return {k: v for k, v in {**base, **overrides}.items() if v is not None}


def new_epoch(
    blocks: Sequence[CoreBlock],
    tag: str,
    edits: int,
    summary_place: tuple[bytes | None, str] = (None, ""),
    instruction: str = INSTRUCTION,
) -> Epoch:
    """Return a new epoch with these blocks, compiled now.

    summary_place: link of the last evicted message, and the summary of them.
    """
    core = compile_core(blocks, tag, summary_place[1], instruction)
    return Epoch(new_id("epoch"), core, block_values(blocks), edits, summary_place[0])


class CurrentMemory(msgspec.Struct):
    """The current state of the memory.

    edits: the scope's count of edits from outside the conversation. at: Unix time. behind: link of
    what was said before the request's first message, and its summary. tools: of the operator,
    that a new epoch shows. keeps_tools: the running one may go on with those that it shows.
    """

    blocks: Sequence[CoreBlock]
    tag: str
    edits: int
    at: float
    behind: tuple[bytes, str] | None = None
    tools: Mapping[str, str] = msgspec.field(default_factory=dict)
    keeps_tools: bool = False


def plan(
    turn: RequestHistory,
    previous_turn: PreviousTurn,
    memory_state: CurrentMemory,
    rules: EpochPolicy,
) -> PlacementPlan:
    """Continue the conversation's epoch if the invariant can hold, else begin a new one."""
    placement = _continue_epoch(turn, previous_turn, memory_state, rules)
    if isinstance(placement, PlacementPlan):
        placement = _add_note(placement, turn, previous_turn.node, memory_state, rules)
    if isinstance(placement, str):
        summary_place = memory_state.behind or (None, "")
        epoch = new_epoch(
            memory_state.blocks,
            memory_state.tag,
            memory_state.edits,
            summary_place,
            rules.instruction,
        )
        if memory_state.tools:
            epoch = replace(epoch, tools=memory_state.tools)
        return PlacementPlan(epoch, placement)
    return placement


def _continue_epoch(  # noqa: C901, PLR0912 - a table of reasons, one after the other
    turn: RequestHistory,
    previous_turn: PreviousTurn,
    memory: CurrentMemory,
    rules: EpochPolicy,
) -> PlacementPlan | str:
    """Return the notes and splices of the current epoch at their places.

    Otherwise the reason why it cannot continue.
    """
    node, epoch = previous_turn.node, previous_turn.epoch
    if rules.live:
        return "live placement"
    if node is None or epoch is None:
        return "new conversation"
    if not is_introduced(epoch.core, rules.instruction, memory.tag):
        return "instruction changed"
    if OPENED in rules.instruction and _shows_other_defaults(epoch, node.told, memory.blocks):
        return "profile changed"
    if epoch.edits != memory.edits:
        return "edited outside the conversation"
    if epoch.tools and not memory.keeps_tools:
        return OTHER_TOOLS
    if memory.at - node.at > rules.idle_seconds:
        return "idle"
    if previous_turn.places is None and _is_cut_elsewhere(turn, previous_turn, epoch.cut, memory):
        return "history trimmed"
    placement = PlacementPlan(epoch, "")
    for carrier in previous_turn.carriers:
        place = _place_of(turn, previous_turn, node, carrier)
        if place is None:
            return "a note's carrier is gone"
        if carrier.note:
            placement.notes[end_of_words(turn, place)] = carrier.note
        if carrier.hidden:
            placement.splices[place] = carrier.hidden
        placement.places[carrier.id] = place
    if len(placement.notes) != sum(1 for c in previous_turn.carriers if c.note):
        return "a note's carrier is gone"
    return placement


def _shows_other_defaults(
    epoch: Epoch, overrides: Mapping[str, str | None], blocks: Sequence[CoreBlock]
) -> bool:
    """Tell whether an agent's profile describes other blocks than the frozen core text shows.

    A value that somebody edited hides the profile's own, whatever that is now.
    """
    shown_labels = {label for label in epoch.blocks if overrides.get(label, "") is not None}
    if not shown_labels <= {block.label for block in blocks}:
        return True
    for block in blocks:
        frozen = epoch.blocks.get(block.label)
        if frozen is None:
            continue
        if block.version == 0 and block.value != frozen:
            return True
        if element_of(replace(block, value=frozen)) not in epoch.core:
            return True
    return False


def _is_cut_elsewhere(
    turn: RequestHistory,
    previous_turn: PreviousTurn,
    cut_link: bytes | None,
    memory_state: CurrentMemory,
) -> bool:
    """Tell whether an epoch's summary is not that of what this request leaves out."""
    turn.enter()
    if cut_link is None:
        return memory_state.behind is not None
    return cut_link != turn.chain.origin and not -1 < turn.chain.place(cut_link) < previous_turn.at


def _place_of(
    turn: RequestHistory, previous_turn: PreviousTurn, node: TurnNode, carrier: TurnNode
) -> int | None:
    """Return the message index of a node with a note or a hidden exchange.

    None if it is gone, or if its note would not follow a user message.
    """
    if previous_turn.places is not None:
        if carrier.id == node.id:
            return previous_turn.at
        return previous_turn.places[carrier.id]
    place = (
        previous_turn.at
        if carrier.id == node.id
        else locate_node(turn, node, previous_turn.at, carrier)
    )
    if place is None or not carrier.note:
        return place
    if end_of_words(turn, place) >= 0:
        return place
    return None


def _add_note(
    placement: PlacementPlan,
    turn: RequestHistory,
    node: TurnNode | None,
    memory_state: CurrentMemory,
    rules: EpochPolicy,
) -> PlacementPlan | str:
    """Add the new note if the request ends in a user message.

    Returns a reason instead if the notes exceed their limit.
    """
    if node:
        placement.told = dict(node.told)
    else:
        placement.told = {}
    now = block_values(memory_state.blocks)
    frozen_values = apply_overrides(placement.epoch.blocks, placement.told)
    if not now.keys() <= {*placement.epoch.blocks, *placement.told}:
        # A note cannot give its description.
        return "a block was added"
    user_index = end_of_words(turn, len(turn.messages))
    if frozen_values == now or user_index < 0:
        return placement
    placement.note = note(frozen_values, now, memory_state.tag)
    if sum(map(len, placement.notes.values())) + len(placement.note) > rules.note_chars:
        return "notes over their budget"
    placement.notes[user_index] = placement.note
    placement.told = {
        k: now.get(k)
        for k in {*frozen_values, *now} | {*placement.told}
        if now.get(k) != placement.epoch.blocks.get(k)
    }
    return placement


def end_of_words(turn: RequestHistory, end: int) -> int:
    """Return the index of the user message in which the messages before `end` end.

    -1 if they end otherwise. Programs put instructions of their own behind it, as system or
    developer messages.
    """
    for index in range(end - 1, -1, -1):
        role = turn.messages[index].get("role")
        if role not in SYSTEM:
            if role == "user":
                return index
            return -1
    return -1


def new_node(
    ident: int,
    conversation: int,
    turn: RequestHistory,
    previous_turn: PreviousTurn,
    placement: PlacementPlan,
) -> TurnNode:
    """Return the node of this request, before its answer."""
    parent = previous_turn.node
    return TurnNode(
        id=ident,
        conversation=conversation,
        parent=parent.id if parent else None,
        asked=turn.chain.end,
        epoch=placement.epoch.id,
        note=placement.note or None,
        told=placement.told,
        carriers=list(placement.places),
        branch=parent.branch if parent else 0,
        recalled=parent.recalled if parent else [],
    )
