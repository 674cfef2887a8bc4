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
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert, select, update

from memory.conversation.messages import keyed_hash
from memory.core.blocks import CoreBlock
from memory.core.edits import LIMIT, BlockEdit, put_block
from memory.errors import BlockReadOnly, BlockSpaceFull, Conflict, TooManyBlocks
from memory.export_format import (
    Any_Line,
    BlockLine,
    ConversationLine,
    MessageLine,
    NodeLine,
    PassageLine,
    SharedBlockLine,
    UserFileChunkLine,
    UserFileLine,
    VersionLine,
    moment,
)
from memory.ids import clock, new_id, new_key
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
from memory.stores.sql.transfer import file_copies, import_space
from memory.stores.sql.transfer.import_manifest import (
    ConversationImport,
    ImportManifest,
    ImportPart,
    LineReader,
)
from memory.stores.sql.transfer.transcripts import (
    ConversationHeader,
    ImportedMessage,
    Transcriber,
    TranscriptStep,
    digest_messages,
    steps_of,
)

OURS = re.compile(r"passage_[0-9a-f]{32}")
OUR_MESSAGE = re.compile(r"msg_[0-9a-f]{32}")
KINDS = ("blocks", "versions", "passages", "conversations", "messages")
LEFT = 60.0  # seconds without progress, after which an unfinished import is removed


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
    db: Database, hand: ManagementActor, manifest: ImportManifest
) -> ImportReceipt:
    """Write an examined import into the user's memory.

    Raises TooManyBlocks or BlockSpaceFull before anything is written. Raises ErasedMeanwhile,
    Conflict, StoreUnavailable; what was written by then stays, and a repetition writes the rest.
    """
    receipt = ImportReceipt()
    owner = await db.read(lambda conn: scopes.current_owner(conn, hand.scope))
    for name, part in manifest.parts.items():
        scope = Scope(hand.scope.tenant, hand.scope.user, name, hand.scope.secret)
        desk = ImportTarget(ManagementActor(scope, hand.defaults, hand.source), owner.generation)
        lines = _LineReader(desk, receipt, manifest.files).read_lines(part)
        if part is next(iter(manifest.parts.values())):
            lines = _check_then_read(desk, manifest, lines)
        await run_generator(db, lines, desk.open, hand.lock)
    return receipt


def _check_then_read(
    desk: ImportTarget, manifest: ImportManifest, lines: Iterator[int]
) -> Iterator[int]:
    """Check the blocks of all agents before the first line of the first one is written."""
    yield from import_space.check_parts(lambda: desk.conn, desk.hand, manifest.parts)
    yield from lines


async def import_conversation(
    db: Database, hand: ManagementActor, said: Sequence[ImportedMessage], name: str | None
) -> FoundConversation:
    """Store a chat as a new conversation; its assistant messages count as ours.

    Raises Conflict for a name in use.
    """
    owner = await db.read(lambda conn: scopes.current_owner(conn, hand.scope))
    desk = ImportTarget(hand, owner.generation, outside=False)
    times = [s.at for s in said]
    heading = ConversationHeader(
        name or new_id("conv"), name is not None, created_at=min(times), updated_at=max(times)
    )

    digests = await asyncio.to_thread(digest_messages, hand.scope.key, said)

    def writing() -> Iterator[int]:
        desk.free(heading.name)
        transcriber = Transcriber(None, desk.scope_id, hand.scope.key, digests)
        yield from desk.conversation(transcriber, heading, steps_of(said))
        enqueue(desk.conn, vectors.job_of(desk.scope_id))

    await run_generator(db, writing(), desk.open, hand.lock)
    found = await db.read(
        lambda conn: conversation_rows.find_named(conn, desk.scope_id, heading.name)
    )
    if found is None:
        raise Conflict(f"the conversation {heading.name!r} was deleted as soon as it was there")
    return found


class ImportTarget:
    """The memory that an import writes to, over several transactions.

    generation: of the user at the start. outside: the import changes what frozen core texts
    contain.
    """

    def __init__(self, hand: ManagementActor, generation: int, *, outside: bool = True) -> None:
        self.hand, self._outside = hand, outside
        self._owner = scopes.ScopeOwner(hand.scope, generation)
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
        for stored in transcriber.write(ident, heading, steps):
            yield stored
            transcriber.conn = self.conn
        gone, self._unfinished = self._unfinished, None
        if self.conn.execute(delete(t.jobs).where(t.jobs.c.dedupe == gone.dedupe)).rowcount == 0:
            raise Conflict(
                "the store was so slow that a conversation was given up half written: do it again"
            )


class _LineReader:
    """Writes the lines of one agent. Methods that write many rows yield after each."""

    def __init__(self, desk: ImportTarget, receipt: ImportReceipt, limits: FileLimits) -> None:
        self._desk, self._receipt = desk, receipt
        self._limits = limits

    @property
    def _shelf(self) -> block_rows.BlockSet:
        return block_rows.BlockSet(self._desk.scope_id, self._desk.hand.defaults)

    def read_lines(self, part: ImportPart) -> Iterator[int]:
        restored = {label: self._ident(label) for label in part.blocks if not self._there(label)}
        newest = dict.fromkeys(restored, 0)
        for _, line in part.versions or ():
            if isinstance(line, VersionLine) and line.label in restored:
                self._receipt.imported["versions"] += self._version(restored[line.label], line)
                newest[line.label] = max(newest[line.label], line.version)
                yield 1
        for label, lines in part.blocks.items():
            for number, block in lines:
                if isinstance(block, BlockLine) and label in restored:
                    self._restore_block(restored.pop(label), block, newest[label])
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
            self._take_file(number, line)
            yield 1

    def _take_file(self, number: int, line: Any_Line) -> None:
        """Take a line of a file; the last one of its chunks makes it."""
        desk, is_whole, reason, name = self._desk, False, "", ""
        if isinstance(line, UserFileLine):
            name = line.name
            reason = file_copies.begin_copy(
                desk.conn, desk.scope_id, line, self._limits, lambda: desk.hand.defaults
            )
        elif isinstance(line, UserFileChunkLine):
            name = line.sha256
            is_whole, reason = file_copies.add_copied_chunk(
                desk.conn, desk.scope_id, line, self._limits, lambda: desk.hand.defaults
            )
        if is_whole:
            self._receipt.imported["files"] = self._receipt.imported.get("files", 0) + 1
        if reason:
            self._receipt.skip(number, "file", name, reason)

    def _there(self, label: str) -> bool:
        b, desk = t.blocks.c, self._desk
        mine, here = (
            desk.hand.defaults.get(label),
            select(b.id).where(b.scope_id == desk.scope_id, b.branch == 0, b.label == label),
        )
        return bool(mine and mine.read_only) or desk.conn.execute(here).first() is not None

    def _ident(self, label: str) -> str:
        """Return the id of a restored block.

        Always the same, so that versions from an interrupted import are recognised.
        """
        desk = self._desk
        return (
            "block_"
            + keyed_hash(desk.hand.scope.key, str(desk.scope_id).encode(), label.encode()).hex()
        )

    def _edit_block(self, number: int, line: BlockLine) -> None:
        """Change an existing block, like any other edit."""
        if line.deleted:
            return
        desk, change = self._desk, BlockEdit(line.value, line.description, line.limit)
        how = put_block(line.label, change, desk.hand.defaults)
        try:
            before = block_rows.all_of(desk.conn, self._shelf).get(line.label)
            after = block_rows.edit(desk.conn, self._shelf, line.label, how, desk.hand.source)
            self._receipt.imported["blocks"] += after != before
        except BlockReadOnly:
            self._receipt.skip(number, "block", line.label, "read_only")

    def _copy_shared(self, number: int, line: SharedBlockLine) -> None:
        """Make an own block of a shared one, where its label is free."""
        desk = self._desk
        if line.label in block_rows.all_of(desk.conn, self._shelf):
            self._receipt.skip(number, "shared_block", line.label, "label_taken")
            return
        limit = max(LIMIT, len(line.value))
        how = put_block(line.label, BlockEdit(line.value, line.description, limit), {})
        try:
            block_rows.edit(desk.conn, self._shelf, line.label, how, desk.hand.source)
            self._receipt.imported["blocks"] += 1
        except (TooManyBlocks, BlockSpaceFull):
            self._receipt.skip(number, "shared_block", line.label, "no_space")

    def _restore_block(self, ident: str, line: BlockLine, newest: int) -> None:
        """Restore a missing block, whose versions have been written. newest: of those.

        Raises TooManyBlocks, BlockSpaceFull.
        """
        desk = self._desk
        if not line.deleted:
            block = CoreBlock(line.label, line.value, line.description)
            before = desk.hand.defaults.get(line.label)
            block_rows.check_space(desk.conn, self._shelf, before, block)
        desk.conn.execute(
            insert(t.blocks).values(
                id=ident,
                scope_id=desk.scope_id,
                branch=0,
                label=line.label,
                description=line.description,
                value="" if line.deleted else line.value,
                limit=line.limit,
                read_only=line.read_only,
                version=max(newest, line.version),
                deleted=line.deleted,
                updated_at=_at(line.updated_at),
            )
        )
        self._receipt.imported["blocks"] += not line.deleted

    def _version(self, ident: str, line: VersionLine) -> bool:
        v, conn = t.block_versions.c, self._desk.conn
        if (
            conn.execute(select(v.id).where(v.block_id == ident, v.version == line.version)).first()
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
            created_at=_at(line.created_at),
        )
        return True

    def _passages(self, lines: LineReader) -> Iterator[int]:
        for _, line in lines:
            if isinstance(line, PassageLine):
                yield self._passage(line)

    def _passage(self, line: PassageLine) -> int:
        p, desk = t.passages.c, self._desk
        holder = (
            desk.conn.execute(select(p.scope_id).where(p.public_id == line.id)).scalar()
            if line.id
            else None
        )
        if holder == desk.scope_id:
            return 1
        new = passage_rows.NewPassage(
            line.content,
            line.tags,
            line.type,
            line.importance,
            line.actor,
            created_at=_at(line.created_at),
            quote=line.quote,
            speaker=line.speaker,
        )
        stored, made = passage_rows.add(desk.conn, desk.scope_id, new)
        self._receipt.imported["passages"] += made
        values: dict[str, str | float | None] = {}
        if made == len(stored) == 1:
            if line.forgotten_at:
                values = {
                    "deleted_at": _at(line.forgotten_at),
                    "deleted_by": line.forgotten_by,
                    "superseded_by": line.superseded_by and line.superseded_by[:64],
                }
            if line.id and holder is None and OURS.fullmatch(line.id):
                values["public_id"] = line.id
        if values:
            desk.conn.execute(update(t.passages).where(p.id == stored[0]["key"]).values(**values))
        return max(len(stored), 1)

    def _conversations(self, part: ImportPart) -> Iterator[int]:
        c, desk = t.conversations.c, self._desk
        transcriber = Transcriber(None, desk.scope_id, desk.hand.scope.key)
        for name, chat in part.chats.items():
            if (
                desk.conn.execute(
                    select(c.id).where(c.scope_id == desk.scope_id, c.name == name)
                ).first()
                is not None
            ):
                self._receipt.skip(chat.lines.first, "conversation", name, "already there")
                yield 1
                continue
            heading, steps = yield from _gather_steps(name, chat)
            for stored in desk.conversation(transcriber, heading, steps):
                self._receipt.imported["messages"] += stored
                yield stored
            self._receipt.imported["conversations"] += 1
            yield 1
        if part.chats:
            enqueue(desk.conn, vectors.job_of(desk.scope_id))


def _gather_steps(
    name: str, chat: ConversationImport
) -> Generator[int, None, tuple[ConversationHeader, list[TranscriptStep]]]:
    """Return a conversation's header and steps, from lines in any order; yield 0 after each."""
    told: ConversationLine | None = None
    by_name: dict[str, TranscriptStep] = {}
    plain: list[ImportedMessage] = []
    for _, line in chat.lines:
        if isinstance(line, ConversationLine):
            told = line
        elif isinstance(line, NodeLine):
            by_name[line.id] = TranscriptStep(
                line.id, line.parent, line.first, line.state, _at(line.created_at)
            )
        elif isinstance(line, MessageLine):
            said = _message_of(line)
            (plain if line.node is None else by_name[line.node].said).append(said)
        yield 0
    loose = steps_of(plain)
    for step in loose:  # own names, which no node of the file has
        step.id = f"plain {chat.lines.first} {step.id}"
        step.parent = step.parent and f"plain {chat.lines.first} {step.parent}"
    steps = [*by_name.values(), *loose]
    first, last = min((s.at for s in steps), default=0.0), max((s.at for s in steps), default=0.0)
    heading = (
        ConversationHeader(name, True, created_at=first, updated_at=last)
        if told is None
        else ConversationHeader(
            name,
            told.explicit,
            told.resent,
            told.forked_from,
            told.head,
            _at(told.created_at, first),
            _at(told.updated_at, last),
        )
    )
    return heading, steps


def _message_of(line: MessageLine) -> ImportedMessage:
    ident = line.id if line.id and OUR_MESSAGE.fullmatch(line.id) else ""
    return ImportedMessage(line.message, _at(line.created_at), line.source, line.aborted, ident)


def _at(value: str | None, otherwise: float | None = None) -> float:
    if value is not None:
        return moment(value)
    return clock.now() if otherwise is None else otherwise
