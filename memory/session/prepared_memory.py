"""What a turn placed, kept for the next one of its conversation.

While nobody edits the memory, and the request comes in the same circumstances, all of it is the
same from turn to turn: it is made once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from memory.context.epoch import (
    Epoch,
    PlacementPlan,
    apply_overrides,
    block_values,
)
from memory.core.blocks import CoreBlock
from memory.ids import clock
from memory.session.context import TurnContext
from memory.session.request import Policy

Circumstances = tuple[object, ...]


class PlacedMemory(msgspec.Struct, frozen=True):
    """What a turn shows. budget: tokens for its prompt, None if that is unknown.

    seen_versions: label to the block's version as the model sees it. tokens: of the core text and
    the notes.
    """

    blocks: Sequence[CoreBlock]
    budget: int | None
    seen_versions: Mapping[str, int]
    tokens: int


class PreparedMemory(msgspec.Struct, frozen=True, eq=False):
    """What holds for the next turn, if that finds the same blocks, epoch, policy and circumstances.

    blocks: those of the snapshot, compared as an object: whoever writes them makes another.
    """

    blocks: Mapping[str, CoreBlock]
    epoch: Epoch
    policy: Policy
    circumstances: Circumstances
    placed_memory: PlacedMemory

    def holds(self, turn: TurnContext) -> bool:
        """Tell whether a turn shows the same."""
        snapshot = turn.snapshot
        return (
            self.blocks is snapshot.blocks
            and self.epoch is snapshot.past.epoch
            and self.policy is turn.policy
            and self.epoch.edits == snapshot.edits
            and may_prepare(turn)
            and self.circumstances == circumstances_of(turn)
        )

    def place(self, turn: TurnContext) -> PlacementPlan | None:
        """Return the plan of a turn that goes on with the epoch; None if it has to be looked at.

        That is so after a pause, where the history is not exactly the one before, and where notes
        or hidden exchanges have their places.
        """
        past = turn.snapshot.past
        node = past.node
        if node is None or past.places is None or past.carriers or turn.identity.adopted:
            return None
        if clock.now() - node.at > self.policy.rules.idle_seconds:
            return None
        return PlacementPlan(self.epoch, "", told=dict(node.told))


def may_prepare(turn: TurnContext) -> bool:
    """Tell whether what a turn shows depends on nothing that comes with each request."""
    ask = turn.ask
    return (
        turn.injects
        and turn.task is None
        and not turn.is_stranger
        and (ask.toolbox is None or ask.toolbox.fingerprint is not None)
        and not turn.snapshot.layers
        and turn.progress.delivery is None
    )


def circumstances_of(turn: TurnContext) -> Circumstances:
    """Return what of a request decides what is shown, and how it is counted."""
    ask = turn.ask
    estimates = turn.services.counter.is_estimate
    tools = None
    if ask.toolbox is not None:
        tools = ask.toolbox.fingerprint
    return ask.mode, ask.window, ask.max_output, ask.tokenizer, estimates, tools


def prepare(
    turn: TurnContext, plan: PlacementPlan, placed_memory: PlacedMemory
) -> PreparedMemory | None:
    """Return what holds for the next turn; None where the model has not been told everything."""
    epoch = plan.epoch
    rules = turn.policy.rules
    toolbox = turn.ask.toolbox
    if rules.live or not may_prepare(turn):
        return None
    if epoch.tools if toolbox is None else not toolbox.continues(epoch.tools):
        return None
    if not placed_memory.blocks or len(placed_memory.blocks) != len(turn.snapshot.blocks):
        # The explain record names those that are left out.
        return None
    if apply_overrides(epoch.blocks, plan.told) != block_values(placed_memory.blocks):
        return None
    return PreparedMemory(
        turn.snapshot.blocks, epoch, turn.policy, circumstances_of(turn), placed_memory
    )
