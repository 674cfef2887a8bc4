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
MILLISECOND = 0.001  # what an export tells of a time


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


async def plan_merge(db: Database, wanted: Merge) -> MergePlan:
    """Return what a merge will do; nothing is changed.

    Raises NotFound if either has no memory; Conflict, TooManyBlocks or BlockSpaceFull if it cannot
    be done; StoreUnavailable.
    """
    owners = wanted.owners
    if owners.source == owners.target:
        raise Conflict(f"{owners.source[1]!r} is the same user: name another one")
    source = await db.read(lambda conn: merge_owner.read_holdings(conn, owners.source))
    target = await db.read(lambda conn: merge_owner.read_holdings(conn, owners.target))
    joined: dict[str, list[str]] = {}
    renamed: dict[str, dict[str, str]] = {}
    arrived: dict[str, set[str]] = {}
    for agent, mine in source.agents.items():
        theirs = target.agents.get(agent, AgentHoldings())
        joined[agent] = sorted(mine.blocks.keys() & theirs.blocks.keys())
        _check_blocks(joined[agent], mine, theirs, wanted.blocks)
        _check_space(mine, theirs, wanted.blocks)
        arrived[agent] = {name for name in mine.conversations if _is_there(name, mine, theirs)}
        renamed[agent] = {
            name: _free_name(name, owners.source[1], mine, theirs)
            for name in mine.conversations.keys() & theirs.conversations.keys()
            if name not in arrived[agent]
        }
    return MergePlan(source, joined, renamed, arrived, target.agents)


def _check_blocks(
    labels: list[str],
    mine: AgentHoldings,
    theirs: AgentHoldings,
    operators: Mapping[str, CoreBlock],
) -> None:
    """Raise Conflict for a block that cannot take what the source has in it."""
    for label in labels:
        there = theirs.blocks[label]
        full = _join_blocks(there, mine.blocks[label].value)
        if len(full.value) > LIMIT:
            raise Conflict(f"the block {label!r} would have more than {LIMIT:,} characters")
        if label not in operators and there.read_only and full != there:
            raise Conflict(
                f"the block {label!r} is read-only at the target, and would not take what the "
                "other one has: delete one of them"
            )


def _check_space(
    mine: AgentHoldings, theirs: AgentHoldings, operators: Mapping[str, CoreBlock]
) -> None:
    """Raise TooManyBlocks or BlockSpaceFull if the target has no room for the source's blocks."""
    blocks = {label: block for label, block in operators.items() if label not in theirs.deleted}
    blocks |= {label: _to_core(label, block) for label, block in theirs.blocks.items()}
    tally = BlockTally(space_of(operators), blocks)
    for label, block in mine.blocks.items():
        if (default := operators.get(label)) is not None and default.read_only:
            continue
        if label in theirs.blocks:
            block = _join_blocks(theirs.blocks[label], block.value)
        tally.put(label, _to_core(label, block))


def _to_core(label: str, block: StoredBlock) -> CoreBlock:
    return CoreBlock(label, block.value, block.description)


def _join_blocks(there: StoredBlock, text: str) -> StoredBlock:
    """Return a block with the lines of a text that it has not."""
    lines = there.value.split("\n") if there.value else []
    known = {line.strip() for line in lines}
    missing = [line for line in text.split("\n") if line.strip() and line.strip() not in known]
    if not missing:
        return there
    value = "\n".join([*lines, *missing])
    return replace(there, value=value, limit=max(there.limit, len(value)))


def _is_there(name: str, mine: AgentHoldings, theirs: AgentHoldings) -> bool:
    """Tell whether the target has this very conversation, whole."""
    if name not in theirs.conversations:
        return False
    (began, said), (there, heard) = mine.conversations[name], theirs.conversations[name]
    return abs(began - there) <= MILLISECOND and heard >= said


def _free_name(name: str, user: str, mine: AgentHoldings, theirs: AgentHoldings) -> str:
    """Return another name of a conversation, the same one each time it arrives."""
    number, suffix = 1, f" ({user[:100]})"
    while True:
        found = f"{name[: 250 - len(suffix)]}{suffix if number == 1 else f'{suffix} {number}'}"
        moved = AgentHoldings(conversations={found: mine.conversations[name]})
        if found not in mine.conversations and (
            found not in theirs.conversations or _is_there(found, moved, theirs)
        ):
            return found
        number += 1


def _silent(_: int) -> None:
    """Show nothing."""


async def merge_users(
    db: Database, wanted: Merge, on_progress: Callable[[int], None] = _silent
) -> MergePlan:
    """Add the source's memory to the target's, and erase it at the source.

    on_progress: called with the lines read so far. Returns what was done. Raises what `plan_merge`
    raises, before anything is changed. Raises Conflict, StoreUnavailable: what has arrived stays,
    and doing it again does the rest.
    """
    plan, owners, body, lines = await plan_merge(db, wanted), wanted.owners, bytearray(), 0
    async for line in exporter.export(db, *owners.source):
        lines += 1
        on_progress(lines)
        for kept in _translate(plan, line):
            body += encode_line(kept)
    manifest = ImportManifest(bytes(body), ImportLimits(wanted.blocks))
    await manifest.examine()
    scope = Scope(*owners.target, "default", owners.secret)
    actor = ManagementActor(scope, wanted.blocks, EditSource(wanted.actor))
    await importer.import_into(db, actor, manifest)
    await copy_files(db, owners, wanted.blocks)
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
            there = plan.target[line.memory].blocks[line.label]
            full = _join_blocks(there, line.value)
            if full == there or line.deleted:
                return
            line.value, line.limit, line.description = full.value, full.limit, full.description
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
    memory: Memory, wanted: Merge, on_progress: Callable[[int], None] = _silent
) -> MergePlan:
    """Merge two memories in the gateway that serves them.

    Raises Conflict while turns wait in the recovery log, and what `merge_users` raises.
    """
    if not memory.spill.is_empty:
        raise Conflict("turns wait in the recovery log; merge the memories once they are stored")
    plan = await merge_users(memory.db, wanted, on_progress)
    memory.policies.forget()
    memory.shared.outdate(wanted.owners.target[0])
    return plan
