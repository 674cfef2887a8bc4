"""One user's memory is added to another's. Imported where it is needed: few gateways do this.

What the source has is exported, imported for the target, and then erased at the source. Each step
can be repeated: what has arrived is recognised, so an interrupted merge is completed by doing it
again, and nothing is erased before all has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from memory.core.block_space import BlockTally, space_of
from memory.core.blocks import CoreBlock
from memory.errors import Conflict
from memory.export_format import (
    LIMIT,
    BlockLine,
    ConversationLine,
    ExportLine,
    MessageLine,
    NodeLine,
    PolicyLine,
    SharedBlockLine,
    UserFileChunkLine,
    UserFileLine,
    encode_line,
)
from memory.management.file_merging import copy_files
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.engine.database import Database
from memory.stores.sql.owners import erasure, merge_owner
from memory.stores.sql.owners.merge_owner import AgentHoldings, Holdings, StoredBlock
from memory.stores.sql.owners.rename_owner import OwnerRename
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.transfer import exporter, importer
from memory.stores.sql.transfer.import_manifest import ImportLimits, ImportManifest

MOVED = ("blocks", "passages", "conversations", "messages")
# What an export tells of a time.
MILLISECOND = 0.001


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that is wanted. blocks: the operator's. actor: who asked for it."""

    owners: OwnerRename
    blocks: Mapping[str, CoreBlock] = field(default_factory=dict)
    actor: str = "merge"


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge will do.

    source: what the source has. joined: by agent, the labels that both have, whose texts are
    joined. renamed: by agent, conversations whose name the target uses for another one, and their
    new names.
    """

    source: Holdings
    joined: dict[str, list[str]]
    renamed: dict[str, dict[str, str]]
    arrived: dict[str, set[str]]
    target: dict[str, AgentHoldings]

    @property
    def counts(self) -> dict[str, int]:
        """How much the source has, by kind."""
        return {kind: self.source.count(kind) for kind in MOVED}


async def plan_merge(db: Database, merge: Merge) -> MergePlan:
    """Return what a merge will do; nothing is changed.

    Raises NotFound if either has no memory; Conflict, TooManyBlocks or BlockSpaceFull if it cannot
    be done; StoreUnavailable.
    """
    owners = merge.owners
    if owners.source == owners.target:
        raise Conflict(f"{owners.source[1]!r} is the same user: name another one")
    source = await db.read(lambda conn: merge_owner.read_holdings(conn, owners.source))
    target = await db.read(lambda conn: merge_owner.read_holdings(conn, owners.target))
    joined_labels: dict[str, list[str]] = {}
    new_names: dict[str, dict[str, str]] = {}
    arrived: dict[str, set[str]] = {}
    for agent, source_holdings in source.agents.items():
        target_holdings = target.agents.get(agent, AgentHoldings())
        joined_labels[agent] = sorted(source_holdings.blocks.keys() & target_holdings.blocks.keys())
        _check_blocks(joined_labels[agent], source_holdings, target_holdings, merge.blocks)
        _check_space(source_holdings, target_holdings, merge.blocks)
        arrived[agent] = {
            name
            for name in source_holdings.conversations
            if _is_there(name, source_holdings, target_holdings)
        }
        new_names[agent] = {
            name: _free_name(name, owners.source[1], source_holdings, target_holdings)
            for name in source_holdings.conversations.keys() & target_holdings.conversations.keys()
            if name not in arrived[agent]
        }
    return MergePlan(source, joined_labels, new_names, arrived, target.agents)


def _check_blocks(
    labels: list[str],
    source_holdings: AgentHoldings,
    target_holdings: AgentHoldings,
    operators: Mapping[str, CoreBlock],
) -> None:
    """Raise Conflict for a block that cannot take what the source has in it."""
    for label in labels:
        target_block = target_holdings.blocks[label]
        joined_block = _join_blocks(target_block, source_holdings.blocks[label].value)
        if len(joined_block.value) > LIMIT:
            raise Conflict(f"the block {label!r} would have more than {LIMIT:,} characters")
        if label not in operators and target_block.read_only and joined_block != target_block:
            raise Conflict(
                f"the block {label!r} is read-only at the target, and would not take what the "
                "other one has: delete one of them"
            )


def _check_space(
    source_holdings: AgentHoldings,
    target_holdings: AgentHoldings,
    operators: Mapping[str, CoreBlock],
) -> None:
    """Raise TooManyBlocks or BlockSpaceFull if the target has no room for the source's blocks."""
    blocks = {
        label: block for label, block in operators.items() if label not in target_holdings.deleted
    }
    blocks |= {label: _to_core(label, block) for label, block in target_holdings.blocks.items()}
    tally = BlockTally(space_of(operators), blocks)
    for label, block in source_holdings.blocks.items():
        if (default := operators.get(label)) is not None and default.read_only:
            continue
        if label in target_holdings.blocks:
            block = _join_blocks(target_holdings.blocks[label], block.value)
        tally.put(label, _to_core(label, block))


def _to_core(label: str, block: StoredBlock) -> CoreBlock:
    return CoreBlock(label, block.value, block.description)


def _join_blocks(block: StoredBlock, text: str) -> StoredBlock:
    """Return a block with the lines of a text that it has not."""
    if block.value:
        lines = block.value.split("\n")
    else:
        lines = []
    block_lines = {line.strip() for line in lines}
    missing_lines = [
        line for line in text.split("\n") if line.strip() and line.strip() not in block_lines
    ]
    if not missing_lines:
        return block
    value = "\n".join([*lines, *missing_lines])
    return replace(block, value=value, limit=max(block.limit, len(value)))


def _is_there(name: str, source_holdings: AgentHoldings, target_holdings: AgentHoldings) -> bool:
    """Tell whether the target has this very conversation, whole."""
    if name not in target_holdings.conversations:
        return False
    (began, source_count) = source_holdings.conversations[name]
    (target_begin, heard) = target_holdings.conversations[name]
    return abs(began - target_begin) <= MILLISECOND and heard >= source_count


def _free_name(
    name: str, user: str, source_holdings: AgentHoldings, target_holdings: AgentHoldings
) -> str:
    """Return another name of a conversation, the same one each time it arrives."""
    number = 1
    suffix = f" ({user[:100]})"
    while True:
        free_name = f"{name[: 250 - len(suffix)]}{suffix if number == 1 else f'{suffix} {number}'}"
        moved_holdings = AgentHoldings(
            conversations={free_name: source_holdings.conversations[name]}
        )
        if free_name not in source_holdings.conversations and (
            free_name not in target_holdings.conversations
            or _is_there(free_name, moved_holdings, target_holdings)
        ):
            return free_name
        number += 1


def _silent(_: int) -> None:
    """Show nothing."""


async def merge_users(
    db: Database, merge: Merge, on_progress: Callable[[int], None] = _silent
) -> MergePlan:
    """Add the source's memory to the target's, and erase it at the source.

    on_progress: called with the lines read so far. Returns what was done. Raises what `plan_merge`
    raises, before anything is changed. Raises Conflict, StoreUnavailable: what has arrived stays,
    and doing it again does the rest.
    """
    plan = await plan_merge(db, merge)
    owners = merge.owners
    body = bytearray()
    lines = 0
    async for line in exporter.export(db, *owners.source):
        lines += 1
        on_progress(lines)
        for translated_line in _translate(plan, line):
            body += encode_line(translated_line)
    manifest = ImportManifest(bytes(body), ImportLimits(merge.blocks))
    await manifest.examine()
    scope = Scope(*owners.target, "default", owners.secret)
    actor = ManagementActor(scope, merge.blocks, EditSource(merge.actor))
    await importer.import_into(db, actor, manifest)
    await copy_files(db, owners, merge.blocks)
    applications = list(db.application_tables)
    await erasure.erase(
        db,
        owners.secret,
        owners.source,
        (),
        before=lambda conn: merge_owner.finish(conn, owners, plan.source.mark, applications),
    )
    return plan


def _translate(plan: MergePlan, line: ExportLine) -> Iterator[ExportLine]:
    """Yield a line as the target takes it; nothing for what it keeps as it is."""
    match line:
        case PolicyLine() | SharedBlockLine() | UserFileLine() | UserFileChunkLine():
            return
        case BlockLine() if line.label in plan.joined[line.memory]:
            target_block = plan.target[line.memory].blocks[line.label]
            joined_block = _join_blocks(target_block, line.value)
            if joined_block == target_block or line.deleted:
                return
            line.value = joined_block.value
            line.limit = joined_block.limit
            line.description = joined_block.description
        case ConversationLine():
            if line.id in plan.arrived[line.memory]:
                return
            names = plan.renamed[line.memory]
            line.id = names.get(line.id, line.id)
            line.forked_from = names.get(line.forked_from or "", line.forked_from)
        case NodeLine() | MessageLine():
            if line.conversation in plan.arrived[line.memory]:
                return
            names = plan.renamed[line.memory]
            line.conversation = names.get(line.conversation, line.conversation)
    yield line


async def merge_live_users(
    memory: Memory, merge: Merge, on_progress: Callable[[int], None] = _silent
) -> MergePlan:
    """Merge two memories in the gateway that serves them.

    Raises Conflict while turns wait in the recovery log, and what `merge_users` raises.
    """
    if not memory.recovery_log.is_empty:
        raise Conflict("turns wait in the recovery log; merge the memories once they are stored")
    plan = await merge_users(memory.db, merge, on_progress)
    memory.policies.forget()
    memory.shared.outdate(merge.owners.target[0])
    return plan
