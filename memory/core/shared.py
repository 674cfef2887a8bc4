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

# That one memory shows.
MOST_BLOCKS = 20
# Above each number of a mark.
SMALLEST = 1 << 31
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
            if self.kind == "user":
                return OWN
            return TENANT
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
        cls,
        block: CoreBlock,
        memberships: Sequence[Membership],
        created_at: float,
        member_count: int,
    ) -> SeenBlock:
        """Return a block as it is seen by these memberships, of which there is one at least."""
        may_write = any(membership.write for membership in memberships) and not block.read_only
        seen_block = replace(block, read_only=not may_write, shared=True)
        nearest_membership = min(memberships, key=lambda membership: membership.rank)
        return cls(
            seen_block,
            nearest_membership.rank,
            created_at,
            member_count,
            layer=nearest_membership.layer,
        )


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
        block_keys = [
            f"{seen_block.block.id} {seen_block.outside} {seen_block.block.read_only:d}"
            for seen_block in self.blocks.values()
        ]
        if block_keys:
            return crc32("\n".join(sorted(block_keys)).encode())
        return 0

    def mix_mark(self, edits: int) -> int:
        """Return what a count of edits and the mark are together."""
        shown_mark = self.mark
        if shown_mark:
            mixed = (edits + shown_mark) % SMALLEST
        else:
            mixed = edits
        return mix_layers(mixed, self.layers)

    def over(self, own_blocks: Mapping[str, CoreBlock]) -> dict[str, CoreBlock]:
        """Return own blocks, replaced by shared ones of their label."""
        return {
            **own_blocks,
            **{label: seen_block.block for label, seen_block in self.blocks.items()},
        }


def choose_shown(seen_blocks: Iterable[SeenBlock], space: BlockSpace) -> ShownBlocks:
    """Return the nearest block of each label, without the farthest ones that do not fit.

    space: for those that are attached to an agent, and for the shared ones.
    """
    nearest_blocks: dict[str, SeenBlock] = {}
    for seen_block in sorted(seen_blocks, key=lambda s: (s.rank, s.created_at, s.block.id)):
        nearest_blocks.setdefault(seen_block.block.label, seen_block)
    attached = [seen_block for seen_block in nearest_blocks.values() if seen_block.attached]
    optional_blocks = [
        seen_block for seen_block in nearest_blocks.values() if not seen_block.attached
    ]
    fitting = [
        *_fit(attached, space.blocks, space.characters),
        *_fit(optional_blocks, MOST_BLOCKS, space.shared_characters),
    ]
    shown_blocks = {seen_block.block.label: seen_block for seen_block in fitting}
    return ShownBlocks(shown_blocks, sorted(nearest_blocks.keys() - shown_blocks.keys()))


def _fit(seen_blocks: Sequence[SeenBlock], blocks: int, characters: int) -> Iterator[SeenBlock]:
    """Yield blocks, the nearest first, as long as they fit."""
    for seen_block in seen_blocks[:blocks]:
        characters -= length_of(seen_block.block)
        if characters < 0:
            return
        yield seen_block


def change_block(block: CoreBlock, change: BlockEdit) -> CoreBlock:
    """Return the block as changed from outside. Raises BlockReadOnly, BlockFull.

    A block that is read-only changes only where the edit takes that back.
    """
    new_values = {
        n: value for n in BlockEdit.__slots__ if (value := getattr(change, n)) is not None
    }
    changed_block = replace(block, **new_values)
    if changed_block == block:
        return block
    if changed_block.read_only:
        writable(block)
    return require_fit(changed_block)


def attribute_lines(
    written_value: tuple[str, Writers], new_value: str, writer: str | None
) -> Writers:
    """Return who wrote each line of a value. written_value: the value before, with its writers.

    A line that was there already stays its writer's: of two that read the same, the older one's.
    """
    if not new_value:
        return []
    writers_by_line: dict[str, str | None] = {}
    for line, line_writer in zip(written_value[0].split("\n"), written_value[1], strict=False):
        writers_by_line.setdefault(line, line_writer)
    return [writers_by_line.get(line, writer) for line in new_value.split("\n")]


def without_lines_of(value: str, writers: Writers, user: str) -> tuple[str, Writers]:
    """Return a value without the lines of a writer, and the writers of the others."""
    if not value:
        return value, []
    lines = value.split("\n")
    line_writers = [*writers, *[None] * (len(lines) - len(writers))]
    remaining_lines = [
        (line, line_writer)
        for line, line_writer in zip(lines, line_writers, strict=False)
        if line_writer != user
    ]
    return "\n".join(line for line, _ in remaining_lines), [
        line_writer for _, line_writer in remaining_lines
    ]


def rename_writer(writers: Writers, source: str, target: str | None) -> Writers:
    """Return the writers with another name for one of them."""
    return [target if line_writer == source else line_writer for line_writer in writers]


def may_undo(writer: str | None, undoable_writers: Collection[str] | None) -> bool:
    """Tell whether an edit may be undone. undoable_writers: by these users alone, None for any."""
    return undoable_writers is None or writer in undoable_writers
