"""An export read back in, in one transaction: all of it or nothing. What is there already is not doubled; what may not be
changed is skipped and told."""
from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert, select, update

from memory.blocks import check_label
from memory.edits import Change, put
from memory.errors import BlockReadOnly, ToolError
from memory.ids import new_id
from memory.jobs.queue import enqueue
from memory.portable import (
    Any_Line,
    BadLine,
    BlockLine,
    ConversationLine,
    MessageLine,
    NodeLine,
    PassageLine,
    VersionLine,
    moment,
)
from memory.scope import Scope
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import schema as t
from memory.stores.sql import vectors
from memory.stores.sql.hand import Hand, marked
from memory.stores.sql.transcripts import Heading, Said, Step, Transcriber, steps_of

OURS = re.compile(r"passage_[0-9a-f]{32}")
Lines = Sequence[tuple[int, Any_Line]]
KINDS = ("blocks", "versions", "passages", "conversations", "messages")


@dataclass(slots=True)
class Receipt:
    """imported: rows made by kind. skipped: what was left as it is, each with its line and the reason."""

    imported: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    skipped: list[dict[str, str | int]] = field(default_factory=list)


def import_lines(conn: Connection, hand: Hand, lines: Lines, agent: str | None = None) -> Receipt:
    """Writes the lines into the user's memory. agent: into this agent's, whatever the lines say. Raises BadLine."""
    receipt = Receipt()
    for name in dict.fromkeys(agent or line.agent for _, line in lines):
        mine = [(number, line) for number, line in lines if (agent or line.agent) == name]
        scope = Scope(hand.scope.tenant, hand.scope.user, name, hand.scope.secret)
        _Reader(conn, Hand(scope, hand.defaults, hand.source), receipt).read(mine)
    return receipt


class _Reader:
    """Writes the lines of one agent."""

    def __init__(self, conn: Connection, hand: Hand, receipt: Receipt) -> None:
        self._conn, self._hand, self._receipt = conn, hand, receipt
        self._scope = marked(conn, hand.scope)
        self._shelf = block_rows.Shelf(self._scope, hand.defaults)
        self._restored: dict[str, str] = {}  # label to the row id of a block that came back with its versions

    def read(self, lines: Lines) -> None:
        chats = _Chats()
        for number, line in lines:
            try:
                if isinstance(line, BlockLine):
                    self._block(number, line)
                elif isinstance(line, VersionLine):
                    self._version(line)
                elif isinstance(line, PassageLine):
                    self._passage(line)
                else:
                    chats.take(number, line)
            except ToolError as e:
                raise BadLine(f"Line {number} cannot be imported: {e}") from e
        self._conversations(chats)

    def _skip(self, number: int, kind: str, name: str, reason: str) -> None:
        self._receipt.skipped.append({"line": number, "object": kind, "id": name, "reason": reason})

    def _block(self, number: int, line: BlockLine) -> None:
        check_label(line.label)
        b, mine = t.blocks.c, self._hand.defaults.get(line.label)
        row = self._conn.execute(select(b.id).where(b.scope_id == self._scope, b.branch == 0, b.label == line.label)).first()
        if row is None and not (mine and mine.read_only):
            self._restore(line)
        elif not line.deleted:
            change = Change(line.value, line.description, line.limit)
            try:
                before = block_rows.all_of(self._conn, self._shelf).get(line.label)
                after = block_rows.edit(self._conn, self._shelf, line.label, put(line.label, change, self._hand.defaults), self._hand.source)
                self._receipt.imported["blocks"] += after != before
            except BlockReadOnly:
                self._skip(number, "block", line.label, "read_only")

    def _restore(self, line: BlockLine) -> None:
        """A block that is not here comes back as it was, to be followed by its versions."""
        change = Change(line.value, line.description, line.limit)
        put(line.label, change, {})(None)
        ident = self._restored[line.label] = new_id("block")
        self._conn.execute(insert(t.blocks).values(
            id=ident, scope_id=self._scope, branch=0, label=line.label, description=line.description, value="" if line.deleted else line.value,
            limit=line.limit, read_only=line.read_only, version=line.version, deleted=line.deleted, updated_at=_at(line.updated_at)))
        self._receipt.imported["blocks"] += not line.deleted

    def _version(self, line: VersionLine) -> None:
        if (ident := self._restored.get(line.label)) is None:
            return
        v = t.block_versions.c
        if self._conn.execute(select(v.id).where(v.block_id == ident, v.version == line.version)).first() is not None:
            return
        self._conn.execute(insert(t.block_versions).values(
            scope_id=self._scope, block_id=ident, version=line.version, before=line.before, after=line.after, actor=line.actor, request_id=line.request_id,
            tool_call_id=line.tool_call_id, undoes=line.undoes, created_at=_at(line.created_at)))
        self._conn.execute(update(t.blocks).where(t.blocks.c.id == ident, t.blocks.c.version < line.version).values(version=line.version))
        self._receipt.imported["versions"] += 1

    def _passage(self, line: PassageLine) -> None:
        p = t.passages.c
        passage_rows.check(line.content, line.type, line.importance)
        holder = self._conn.execute(select(p.scope_id).where(p.public_id == line.id)).scalar() if line.id else None
        if holder == self._scope:
            return
        new = passage_rows.Insert(line.content, line.tags, line.type, line.importance, line.actor, created_at=_at(line.created_at))
        stored, made = passage_rows.add(self._conn, self._scope, new)
        self._receipt.imported["passages"] += made
        if made != 1 or len(stored) != 1:
            return
        values: dict[str, str | float | None] = {}
        if line.forgotten_at:
            values = {"deleted_at": _at(line.forgotten_at), "deleted_by": line.forgotten_by, "superseded_by": line.superseded_by and line.superseded_by[:64]}
        if line.id and holder is None and OURS.fullmatch(line.id):
            values["public_id"] = line.id
        if values:
            self._conn.execute(update(t.passages).where(p.id == stored[0]["key"]).values(**values))

    def _conversations(self, chats: _Chats) -> None:
        c = t.conversations.c
        transcriber = Transcriber(self._conn, self._scope, self._hand.scope.key)
        for name, chat in chats.found.items():
            if self._conn.execute(select(c.id).where(c.scope_id == self._scope, c.name == name)).first() is not None:
                self._skip(chat.number, "conversation", name, "already there")
                continue
            steps = chat.all_steps()
            first, last = min((s.at for s in steps), default=0.0), max((s.at for s in steps), default=0.0)
            told = chat.line
            heading = Heading(name, True, created_at=first, updated_at=last) if told is None else Heading(
                name, told.explicit, told.resent, told.forked_from, told.head, _at(told.created_at, first), _at(told.updated_at, last))
            self._receipt.imported["messages"] += transcriber.conversation(heading, steps)
            self._receipt.imported["conversations"] += 1
        if chats.found:
            enqueue(self._conn, vectors.job_of(self._scope))


@dataclass(slots=True)
class _Chat:
    number: int
    line: ConversationLine | None = None
    steps: dict[str, Step] = field(default_factory=dict)
    plain: list[Said] = field(default_factory=list)

    def all_steps(self) -> list[Step]:
        """Its nodes; the messages without any come after them, as a chat of their own."""
        plain = steps_of(self.plain)
        for step in plain:  # names of their own, so that they meet no node of the file
            step.id = f"plain {self.number} {step.id}"
            step.parent = step.parent and f"plain {self.number} {step.parent}"
        return [*self.steps.values(), *plain]


class _Chats:
    """Conversations of an import by name, gathered from lines in any order."""

    def __init__(self) -> None:
        self.found: dict[str, _Chat] = {}

    def take(self, number: int, line: Any_Line) -> None:
        """Raises BadLine."""
        if isinstance(line, ConversationLine):
            self._of(number, line.id).line = line
        elif isinstance(line, NodeLine):
            self._of(number, line.conversation).steps[line.id] = Step(line.id, line.parent, line.first, line.state, _at(line.created_at))
        elif isinstance(line, MessageLine):
            self._message(number, line)

    def _message(self, number: int, line: MessageLine) -> None:
        if not isinstance(line.message.get("role"), str):
            raise BadLine(f"Line {number} cannot be imported: `message` needs a `role`.")
        calls = line.message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(isinstance(c, dict) for c in calls)):
            raise BadLine(f"Line {number} cannot be imported: `message.tool_calls` must be a list of objects.")
        chat, said = self._of(number, line.conversation), Said(line.message, _at(line.created_at), line.source, line.aborted)
        if line.node is None:
            chat.plain.append(said)
        elif (step := chat.steps.get(line.node)) is not None:
            step.said.append(said)
        else:
            raise BadLine(f"Line {number} cannot be imported: the node {line.node!r} of its conversation must stand before it.")

    def _of(self, number: int, name: str) -> _Chat:
        return self.found.setdefault(name, _Chat(number))


def _at(value: str | None, otherwise: float | None = None) -> float:
    if value is not None:
        return moment(value)
    return time.time() if otherwise is None else otherwise
