"""What a request places and offers: its epoch, the memory tools, the operator's tools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memory.context import epoch as epochs
from memory.context.compaction import OURS_BYTES
from memory.context.tokens import TokenCounter
from memory.conversation.messages import Json
from memory.core import tool_definitions
from memory.core.blocks import CoreBlock
from memory.ids import clock
from memory.session.context import TurnContext


class OfferedTools(msgspec.Struct, frozen=True):
    """The tools of a request. owned: names of calls that are run here, and never shown."""

    definitions: Sequence[Json]
    tokens: int
    byte_count: int
    owned: frozenset[str] = tool_definitions.OURS


def offer_tools(
    turn: TurnContext, counter: TokenCounter, planned: epochs.PlacementPlan
) -> OfferedTools:
    """Return the tools that a request shows: the memory's, then the operator's of its epoch."""
    ask = turn.ask
    tokens = 0
    byte_count = 0
    memory_tools: list[Json] = []
    text = ""
    measured_tokens = 0
    if ask.offer and turn.injects and not turn.is_spare:
        if turn.snapshot.layers:
            share = turn.snapshot.share
        else:
            share = ()
        write = ask.mode == "full"
        is_named = ask.scope.is_named
        if not ask.client_tools and not share:
            memory_tools, text, measured_tokens = tool_definitions.usual_tools(write, is_named)
        else:
            offer = tool_definitions.tools_to_offer
            memory_tools = offer(ask.client_tools, write=write, named=is_named, share=share)
            text = tool_definitions.text_of(memory_tools)
            measured_tokens = tool_definitions.measured_tokens(memory_tools)
    if memory_tools:
        tokens = counter.fixed(text, measured_tokens)
        byte_count = OURS_BYTES
    if ask.toolbox is None and planned.reason != epochs.OTHER_TOOLS:
        return OfferedTools(memory_tools, tokens, byte_count)
    return _join_toolbox(turn, planned, OfferedTools(memory_tools, tokens, byte_count))


def _join_toolbox(
    turn: TurnContext, planned: epochs.PlacementPlan, tools: OfferedTools
) -> OfferedTools:
    """Return the memory's tools with those of the operator behind them."""
    toolbox = turn.ask.toolbox
    before = turn.snapshot.past.epoch
    names = {*planned.epoch.tools, *(before.tools if before is not None else ())}
    if toolbox is None:
        return msgspec.structs.replace(tools, owned=tools.owned.union(names))
    if toolbox.is_idle and not names:
        return tools
    operator_offer = toolbox.offer(planned.epoch.tools)
    return OfferedTools(
        [*tools.definitions, *operator_offer.definitions],
        tools.tokens + operator_offer.tokens,
        tools.byte_count + operator_offer.byte_count,
        tools.owned.union(names, toolbox.names),
    )


def plan_placement(turn: TurnContext, blocks: Sequence[CoreBlock]) -> epochs.PlacementPlan:
    """Continue the conversation's epoch, or begin a new one. blocks: the blocks."""
    snapshot = turn.snapshot
    toolbox = turn.ask.toolbox
    present = epochs.CurrentMemory(
        blocks, turn.ask.scope.tag, snapshot.edits, clock.now(), snapshot.earlier_summary
    )
    if turn.injects:
        past = snapshot.past
    else:
        past = epochs.PreviousTurn()
    if toolbox is not None:
        present.tools = toolbox.choose_tools({block.label for block in blocks})
        if past.epoch is not None:
            before = past.epoch.tools
        else:
            before = {}
        present.keeps_tools = toolbox.continues(before)
    planned = epochs.plan(snapshot.turn, past, present, turn.policy.rules)
    if (delivery := turn.progress.delivery) is not None:
        planned = delivery.place(planned, snapshot.turn)
    attempt_node = snapshot.attempt_node
    # The turn's own rounds show these edits.
    if (
        turn.identity.adopted
        and turn.progress.rounds
        and attempt_node
        and attempt_node.epoch == planned.epoch.id
        and planned.note
        and attempt_node.note
    ):
        history = snapshot.turn
        at = epochs.end_of_words(history, len(history.messages))
        notes = {**planned.notes, at: attempt_node.note}
        return msgspec.structs.replace(
            planned, notes=notes, note=attempt_node.note, told=attempt_node.told
        )
    return planned
