"""Imports an export.

It is examined completely first, so that an invalid line means that nothing is stored; then it is
written in pieces, between which others write.

- Existing rows are not duplicated; rows that may not be changed are skipped and reported. So an
  interrupted import is completed by repeating it.
- A block comes with its versions, a conversation with all messages or not at all: the row by which
  it is found is written last.
- A user who is erased meanwhile stays erased; the import ends.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert, select, update

from memory.conversation.messages import keyed_hash
from memory.core.blocks import CoreBlock
from memory.core.edits import LIMIT, BlockEdit, put_block
from memory.errors import BlockReadOnly, BlockSpaceFull, Conflict, TooManyBlocks
from memory.export_format import (
    Any_Line,
    BlockLine,
    PassageLine,
    SharedBlockLine,
    SkillLine,
    UserFileChunkLine,
    UserFileLine,
    VersionLine,
)
from memory.ids import new_id, new_key
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import run_generator
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.statements import add_row
from memory.stores.sql.index import vectors
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows import conversations as conversation_rows
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.conversations import FoundConversation
from memory.stores.sql.rows.file_uploads import FileLimits
from memory.stores.sql.rows.jobs import QueuedJob, enqueue
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.transfer import file_copies, import_space, skill_transfer
from memory.stores.sql.transfer.import_manifest import (
    ImportManifest,
    ImportPart,
    LineReader,
)
from memory.stores.sql.transfer.import_steps import gather_steps, time_of
from memory.stores.sql.transfer.transcripts import (
    ConversationHeader,
    ImportedMessage,
    Transcriber,
    TranscriptStep,
    digest_messages,
    steps_of,
)

OURS = re.compile(r"passage_[0-9a-f]{32}")
KINDS = ("blocks", "versions", "passages", "conversations", "messages")
# Seconds without progress, after which an unfinished import is removed.
LEFT = 60.0


@dataclass(slots=True)
class ImportReceipt:
    """The result. imported: new rows by kind.

    skipped: what was not changed, with line number and reason.
    """

    imported: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    skipped: list[dict[str, str | int]] = field(default_factory=list)

    def skip(self, number: int, kind: str, name: str, reason: str) -> None:
        self.skipped.append({"line": number, "object": kind, "id": name, "reason": reason})


async def import_into(
    db: Database, actor: ManagementActor, manifest: ImportManifest
) -> ImportReceipt:
    """Write an examined import into the user's memory.

    Raises TooManyBlocks or BlockSpaceFull before anything is written. Raises ErasedMeanwhile,
    Conflict, StoreUnavailable; what was written by then stays, and a repetition writes the rest.
    """
    receipt = ImportReceipt()
    owner = await db.read(lambda conn: scopes.current_owner(conn, actor.scope))
    for name, part in manifest.parts.items():
        scope = Scope(actor.scope.tenant, actor.scope.user, name, actor.scope.secret)
        agent_actor = ManagementActor(scope, actor.defaults, actor.source)
        target = ImportTarget(agent_actor, owner.generation)
        lines = _LineReader(target, receipt, manifest.files).read_lines(part)
        if part is next(iter(manifest.parts.values())):
            lines = _check_then_read(target, manifest, lines)
        await run_generator(db, lines, target.open, actor.lock)
    return receipt


def _check_then_read(
    target: ImportTarget, manifest: ImportManifest, lines: Iterator[int]
) -> Iterator[int]:
    """Check the blocks of all agents before the first line of the first one is written."""
    yield from import_space.check_parts(lambda: target.conn, target.hand, manifest.parts)
    yield from lines


async def import_conversation(
    db: Database, actor: ManagementActor, messages: Sequence[ImportedMessage], name: str | None
) -> FoundConversation:
    """Store a chat as a new conversation; its assistant messages count as ours.

    Raises Conflict for a name in use.
    """
    owner = await db.read(lambda conn: scopes.current_owner(conn, actor.scope))
    target = ImportTarget(actor, owner.generation, outside=False)
    times = [s.at for s in messages]
    heading = ConversationHeader(
        name or new_id("conv"), name is not None, created_at=min(times), updated_at=max(times)
    )

    digests = await asyncio.to_thread(digest_messages, actor.scope.key, messages)

    def writing() -> Iterator[int]:
        target.free(heading.name)
        transcriber = Transcriber(None, target.scope_id, actor.scope.key, digests)
        yield from target.conversation(transcriber, heading, steps_of(messages))
        enqueue(target.conn, vectors.job_of(target.scope_id))

    await run_generator(db, writing(), target.open, actor.lock)
    conversation = await db.read(
        lambda conn: conversation_rows.find_named(conn, target.scope_id, heading.name)
    )
    if conversation is None:
        raise Conflict(f"the conversation {heading.name!r} was deleted as soon as it was there")
    return conversation


class ImportTarget:
    """The memory that an import writes to, over several transactions.

    generation: of the user at the start. outside: the import changes what frozen core texts
    contain.
    """

    def __init__(self, actor: ManagementActor, generation: int, *, outside: bool = True) -> None:
        self.hand = actor
        self._outside = outside
        self._owner = scopes.ScopeOwner(actor.scope, generation)
        self._conn: Connection | None = None
        self._scope: int | None = None
        self._unfinished: QueuedJob | None = None

    def open(self, conn: Connection) -> None:
        """Begin a piece. Raises ErasedMeanwhile, or Conflict if the user or the memory is gone."""
        self._conn = conn
        scope_id = scopes.get_or_create(conn, self._owner)
        if self._scope not in (None, scope_id):
            raise Conflict("this user's memory was removed while it was written to: do it again")
        self._scope = scope_id
        scopes.touch(conn, scope_id, outside=self._outside)
        if self._unfinished is not None:
            enqueue(conn, self._unfinished)

    @property
    def conn(self) -> Connection:
        assert self._conn is not None  # noqa: S101 - opened before anything is done
        return self._conn

    @property
    def scope_id(self) -> int:
        assert self._scope is not None  # noqa: S101 - as above
        return self._scope

    def free(self, name: str) -> None:
        """Raise Conflict if a conversation with this name exists."""
        if conversation_rows.find_named(self.conn, self.scope_id, name) is not None:
            raise Conflict(
                f"there is a conversation {name!r} of this user already: choose another id, or "
                "delete that one"
            )

    def conversation(
        self, transcriber: Transcriber, heading: ConversationHeader, steps: list[TranscriptStep]
    ) -> Iterator[int]:
        """Write a conversation; a job removes an incomplete one after an interruption."""
        ident = new_key()
        self._unfinished = QueuedJob(
            "erase",
            {"scopes": [], "conversations": {str(self.scope_id): [ident]}},
            dedupe=new_id("erase"),
            delay=LEFT,
            again=True,
        )
        enqueue(self.conn, self._unfinished)
        transcriber.conn = self.conn
        for stored_count in transcriber.write(ident, heading, steps):
            yield stored_count
            transcriber.conn = self.conn
        removal_job = self._unfinished
        self._unfinished = None
        removal = delete(t.jobs).where(t.jobs.c.dedupe == removal_job.dedupe)
        if self.conn.execute(removal).rowcount == 0:
            raise Conflict(
                "the store was so slow that a conversation was given up half written: do it again"
            )


class _LineReader:
    """Writes the lines of one agent. Methods that write many rows yield after each."""

    def __init__(self, target: ImportTarget, receipt: ImportReceipt, limits: FileLimits) -> None:
        self._desk = target
        self._receipt = receipt
        self._limits = limits

    @property
    def _shelf(self) -> block_rows.BlockSet:
        return block_rows.BlockSet(self._desk.scope_id, self._desk.hand.defaults)

    def read_lines(self, part: ImportPart) -> Iterator[int]:
        restored = {label: self._ident(label) for label in part.blocks if not self._there(label)}
        newest_versions = dict.fromkeys(restored, 0)
        for _, line in part.versions or ():
            if isinstance(line, VersionLine) and line.label in restored:
                self._receipt.imported["versions"] += self._version(restored[line.label], line)
                newest_versions[line.label] = max(newest_versions[line.label], line.version)
                yield 1
        for label, lines in part.blocks.items():
            for number, block in lines:
                if isinstance(block, BlockLine) and label in restored:
                    self._restore_block(restored.pop(label), block, newest_versions[label])
                elif isinstance(block, BlockLine):
                    self._edit_block(number, block)
                yield 1
        if part.passages is not None:
            yield from self._passages(part.passages)
        for number, line in part.shared or ():
            if isinstance(line, SharedBlockLine):
                self._copy_shared(number, line)
            yield 1
        yield from self._files(part)
        yield from self._conversations(part)

    def _files(self, part: ImportPart) -> Iterator[int]:
        for number, line in part.files or ():
            if isinstance(line, SkillLine):
                self._take_skill(number, line)
            else:
                self._take_file(number, line)
            yield 1

    def _take_skill(self, number: int, line: SkillLine) -> None:
        target = self._desk
        actor = target.hand.source.actor
        is_made, reason = skill_transfer.copy_skill(target.conn, target.scope_id, line, actor)
        if is_made:
            self._receipt.imported["skills"] = self._receipt.imported.get("skills", 0) + 1
        if reason:
            self._receipt.skip(number, "skill", line.name, reason)

    def _take_file(self, number: int, line: Any_Line) -> None:
        """Take a line of a file; the last one of its chunks makes it."""
        target = self._desk
        is_whole = False
        reason = ""
        name = ""
        if isinstance(line, UserFileLine):
            name = line.name
            reason = file_copies.begin_copy(
                target.conn, target.scope_id, line, self._limits, lambda: target.hand.defaults
            )
        elif isinstance(line, UserFileChunkLine):
            name = line.sha256
            is_whole, reason = file_copies.add_copied_chunk(
                target.conn, target.scope_id, line, self._limits, lambda: target.hand.defaults
            )
        if is_whole:
            self._receipt.imported["files"] = self._receipt.imported.get("files", 0) + 1
        if reason:
            self._receipt.skip(number, "file", name, reason)

    def _there(self, label: str) -> bool:
        blocks = t.blocks.c
        target = self._desk
        default_block = target.hand.defaults.get(label)
        block_query = select(blocks.id).where(
            blocks.scope_id == target.scope_id, blocks.branch == 0, blocks.label == label
        )
        return (
            bool(default_block and default_block.read_only)
            or target.conn.execute(block_query).first() is not None
        )

    def _ident(self, label: str) -> str:
        """Return the id of a restored block.

        Always the same, so that versions from an interrupted import are recognised.
        """
        target = self._desk
        return (
            "block_"
            + keyed_hash(target.hand.scope.key, str(target.scope_id).encode(), label.encode()).hex()
        )

    def _edit_block(self, number: int, line: BlockLine) -> None:
        """Change an existing block, like any other edit."""
        if line.deleted:
            return
        target = self._desk
        change = BlockEdit(line.value, line.description, line.limit)
        editor = put_block(line.label, change, target.hand.defaults)
        try:
            old_block = block_rows.all_of(target.conn, self._shelf).get(line.label)
            new_block = block_rows.edit(
                target.conn, self._shelf, line.label, editor, target.hand.source
            )
            self._receipt.imported["blocks"] += new_block != old_block
        except BlockReadOnly:
            self._receipt.skip(number, "block", line.label, "read_only")

    def _copy_shared(self, number: int, line: SharedBlockLine) -> None:
        """Make an own block of a shared one, where its label is free."""
        target = self._desk
        if line.label in block_rows.all_of(target.conn, self._shelf):
            self._receipt.skip(number, "shared_block", line.label, "label_taken")
            return
        limit = max(LIMIT, len(line.value))
        editor = put_block(line.label, BlockEdit(line.value, line.description, limit), {})
        try:
            block_rows.edit(target.conn, self._shelf, line.label, editor, target.hand.source)
            self._receipt.imported["blocks"] += 1
        except (TooManyBlocks, BlockSpaceFull):
            self._receipt.skip(number, "shared_block", line.label, "no_space")

    def _restore_block(self, ident: str, line: BlockLine, newest_version: int) -> None:
        """Restore a missing block, whose versions have been written. newest_version: of those.

        Raises TooManyBlocks, BlockSpaceFull.
        """
        target = self._desk
        if not line.deleted:
            block = CoreBlock(line.label, line.value, line.description)
            default_block = target.hand.defaults.get(line.label)
            block_rows.check_space(target.conn, self._shelf, default_block, block)
        target.conn.execute(
            insert(t.blocks).values(
                id=ident,
                scope_id=target.scope_id,
                branch=0,
                label=line.label,
                description=line.description,
                value="" if line.deleted else line.value,
                limit=line.limit,
                read_only=line.read_only,
                version=max(newest_version, line.version),
                deleted=line.deleted,
                updated_at=time_of(line.updated_at),
            )
        )
        self._receipt.imported["blocks"] += not line.deleted

    def _version(self, ident: str, line: VersionLine) -> bool:
        block_versions = t.block_versions.c
        conn = self._desk.conn
        if (
            conn.execute(
                select(block_versions.id).where(
                    block_versions.block_id == ident, block_versions.version == line.version
                )
            ).first()
            is not None
        ):
            return False
        add_row(
            conn,
            t.block_versions,
            scope_id=self._desk.scope_id,
            block_id=ident,
            version=line.version,
            before=line.before,
            after=line.after,
            actor=line.actor,
            request_id=line.request_id,
            tool_call_id=line.tool_call_id,
            undoes=line.undoes,
            quote=line.quote,
            created_at=time_of(line.created_at),
        )
        return True

    def _passages(self, lines: LineReader) -> Iterator[int]:
        for _, line in lines:
            if isinstance(line, PassageLine):
                yield self._passage(line)

    def _passage(self, line: PassageLine) -> int:
        passages = t.passages.c
        target = self._desk
        holder = None
        if line.id:
            holder = target.conn.execute(
                select(passages.scope_id).where(passages.public_id == line.id)
            ).scalar()
        if holder == target.scope_id:
            return 1
        new_passage = passage_rows.NewPassage(
            line.content,
            line.tags,
            line.type,
            line.importance,
            line.actor,
            created_at=time_of(line.created_at),
            quote=line.quote,
            speaker=line.speaker,
        )
        stored_hits, made_count = passage_rows.add(target.conn, target.scope_id, new_passage)
        self._receipt.imported["passages"] += made_count
        values: dict[str, str | float | None] = {}
        if made_count == len(stored_hits) == 1:
            if line.forgotten_at:
                values = {
                    "deleted_at": time_of(line.forgotten_at),
                    "deleted_by": line.forgotten_by,
                    "superseded_by": line.superseded_by and line.superseded_by[:64],
                }
            if line.id and holder is None and OURS.fullmatch(line.id):
                values["public_id"] = line.id
        if values:
            target.conn.execute(
                update(t.passages).where(passages.id == stored_hits[0]["key"]).values(**values)
            )
        return max(len(stored_hits), 1)

    def _conversations(self, part: ImportPart) -> Iterator[int]:
        conversations = t.conversations.c
        target = self._desk
        transcriber = Transcriber(None, target.scope_id, target.hand.scope.key)
        for name, chat in part.chats.items():
            if (
                target.conn.execute(
                    select(conversations.id).where(
                        conversations.scope_id == target.scope_id, conversations.name == name
                    )
                ).first()
                is not None
            ):
                self._receipt.skip(chat.lines.first, "conversation", name, "already there")
                yield 1
                continue
            heading, steps = yield from gather_steps(name, chat)
            for stored_count in target.conversation(transcriber, heading, steps):
                self._receipt.imported["messages"] += stored_count
                yield stored_count
            self._receipt.imported["conversations"] += 1
            yield 1
        if part.chats:
            enqueue(target.conn, vectors.job_of(target.scope_id))
