"""Blocks that several memories show: which of them one memory sees, and who wrote which line. Pure.

A shared block takes the place of an own block of its label. Of two shared ones with one label the
nearest is seen, and no more than fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from memory.core.block_space import BlockSpace, length_of
from memory.core.blocks import CoreBlock
from memory.core.edits import BlockEdit, require_fit, writable
from memory.core.layers import OWN, TENANT, Layer, layer_label, mix_layers

MOST_BLOCKS = 20  # that one memory shows
SMALLEST = 1 << 31  # above each number of a mark
# How near a membership is; of a user it may be with one agent alone, which is nearer.
RANKS = {"user": 1, "agent": 2, "project": 3, "team": 4, "everyone": 5}
Writers = list[str | None]


@dataclass(frozen=True, slots=True)
class Membership:
    """By which a memory sees a block. kind: one of `RANKS`. agent: of a user, "" for all.

    name: of the member.
    """

    kind: str
    agent: str
    write: bool
    name: str = ""

    @property
    def layer(self) -> str:
        """The layer of a block that is seen by it."""
        if self.kind in ("user", "everyone"):
            return OWN if self.kind == "user" else TENANT
        return layer_label(self.kind, self.name)

    @property
    def rank(self) -> int:
        return RANKS[self.kind] - (self.kind == "user" and bool(self.agent))


@dataclass(frozen=True, slots=True)
class SeenBlock:
    """A shared block as one memory sees it. rank: of its nearest membership; 0 is nearest.

    block: read-only where this memory may not write. outside: counts edits that begin new epochs.
    attached: to the agent whose own memory this is, of which it counts as an own block. layer: of
    the nearest membership.
    """

    block: CoreBlock
    rank: int
    created_at: float
    outside: int
    attached: bool = False
    layer: str = ""

    @classmethod
    def of(
        cls, block: CoreBlock, by: Sequence[Membership], created_at: float, outside: int
    ) -> SeenBlock:
        """Return a block as it is seen by these memberships, of which there is one at least."""
        may_write = any(membership.write for membership in by) and not block.read_only
        seen = replace(block, read_only=not may_write, shared=True)
        nearest = min(by, key=lambda membership: membership.rank)
        return cls(seen, nearest.rank, created_at, outside, layer=nearest.layer)


@dataclass(frozen=True, slots=True)
class ShownBlocks:
    """What a memory shows of the shared blocks, by label. left_out: labels that do not fit.

    layers: that it reads beside its own memory.
    """

    blocks: Mapping[str, SeenBlock]
    left_out: Sequence[str] = ()
    layers: Sequence[Layer] = ()

    @property
    def mark(self) -> int:
        """What differs after each change that begins a new epoch; 0 where nothing is shown."""
        told = [
            f"{seen.block.id} {seen.outside} {seen.block.read_only:d}"
            for seen in self.blocks.values()
        ]
        return crc32("\n".join(sorted(told)).encode()) if told else 0

    def mix_mark(self, edits: int) -> int:
        """Return what a count of edits and the mark are together."""
        mark = self.mark
        mixed = (edits + mark) % SMALLEST if mark else edits
        return mix_layers(mixed, self.layers)

    def over(self, own: Mapping[str, CoreBlock]) -> dict[str, CoreBlock]:
        """Return own blocks, replaced by shared ones of their label."""
        return {**own, **{label: seen.block for label, seen in self.blocks.items()}}


def choose_shown(seen: Iterable[SeenBlock], space: BlockSpace) -> ShownBlocks:
    """Return the nearest block of each label, without the farthest ones that do not fit.

    space: for those that are attached to an agent, and for the shared ones.
    """
    nearest: dict[str, SeenBlock] = {}
    for one in sorted(seen, key=lambda s: (s.rank, s.created_at, s.block.id)):
        nearest.setdefault(one.block.label, one)
    attached = [one for one in nearest.values() if one.attached]
    others = [one for one in nearest.values() if not one.attached]
    fitting = [
        *_fit(attached, space.blocks, space.characters),
        *_fit(others, MOST_BLOCKS, space.shared_characters),
    ]
    shown = {one.block.label: one for one in fitting}
    return ShownBlocks(shown, sorted(nearest.keys() - shown.keys()))


def _fit(found: Sequence[SeenBlock], blocks: int, characters: int) -> Iterator[SeenBlock]:
    """Yield blocks, the nearest first, as long as they fit."""
    for one in found[:blocks]:
        characters -= length_of(one.block)
        if characters < 0:
            return
        yield one


def change_block(block: CoreBlock, change: BlockEdit) -> CoreBlock:
    """Return the block as changed from outside. Raises BlockReadOnly, BlockFull.

    A block that is read-only changes only where the edit takes that back.
    """
    wanted = {n: v for n in BlockEdit.__slots__ if (v := getattr(change, n)) is not None}
    after = replace(block, **wanted)
    if after == block:
        return block
    if after.read_only:
        writable(block)
    return require_fit(after)


def attribute_lines(before: tuple[str, Writers], after: str, writer: str | None) -> Writers:
    """Return who wrote each line of a value. before: the value before, with its writers.

    A line that was there already stays its writer's: of two that read the same, the older one's.
    """
    if not after:
        return []
    known: dict[str, str | None] = {}
    for line, who in zip(before[0].split("\n"), before[1], strict=False):
        known.setdefault(line, who)
    return [known.get(line, writer) for line in after.split("\n")]


def without_lines_of(value: str, writers: Writers, user: str) -> tuple[str, Writers]:
    """Return a value without the lines of a writer, and the writers of the others."""
    if not value:
        return value, []
    lines = value.split("\n")
    told = [*writers, *[None] * (len(lines) - len(writers))]
    kept = [(line, who) for line, who in zip(lines, told, strict=False) if who != user]
    return "\n".join(line for line, _ in kept), [who for _, who in kept]


def rename_writer(writers: Writers, source: str, target: str | None) -> Writers:
    """Return the writers with another name for one of them."""
    return [target if who == source else who for who in writers]


def may_undo(writer: str | None, only: Collection[str] | None) -> bool:
    """Tell whether an edit may be undone. only: by these users alone, None for any."""
    return only is None or writer in only
