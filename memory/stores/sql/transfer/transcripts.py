"""Stores an imported chat as if its turns had happened here.

Its assistant messages count as ours, so that a client that resends this history is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert, select

from memory.conversation.matching import HashChain, TurnNode, complete_node
from memory.conversation.messages import (
    EMPTY,
    Json,
    collapse_whitespace,
    digest_of,
    is_system,
    keyed_hash,
    text_of,
)
from memory.errors import Conflict
from memory.ids import clock, new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import add_row
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.turns.turn_reader import columns


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message.

    at: Unix time. source: evicted messages are outside of the history. id: "" for a new one.
    """

    message: Json
    at: float
    source: str = "import"
    aborted: bool = False
    id: str = ""


@dataclass(slots=True)
class TranscriptStep:
    """One request and its answer.

    id, parent, first: names within the transcript; first: the first of several choices.
    """

    id: str
    parent: str | None = None
    first: str | None = None
    state: str = "done"
    at: float = 0.0
    said: list[ImportedMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ConversationHeader:
    """The conversation itself.

    head: the step where it continues, None for the last answered one. Times are Unix times.
    """

    name: str
    explicit: bool = False
    resent: bool = False
    forked_from: str | None = None
    head: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0


def steps_of(messages: Sequence[ImportedMessage]) -> list[TranscriptStep]:
    """Split a plain chat into steps: each assistant message ends one."""
    out: list[TranscriptStep] = []
    for one in messages:
        if not out or out[-1].state == "done":
            out.append(
                TranscriptStep(
                    str(len(out)), str(len(out) - 1) if out else None, state="open", at=one.at
                )
            )
        out[-1].said.append(one)
        out[-1].at = one.at
        if one.message.get("role") == "assistant":
            out[-1].state = "done"
    return out


def digest_messages(key: bytes, messages: Sequence[ImportedMessage]) -> dict[int, bytes]:
    """Return the digests of messages, by the `id` of each, in the scope of this key.

    Made before anything is written: a long one takes long, and a transaction waits for nobody.
    """
    spoken = (one.message for one in messages if not is_system(one.message))
    return {id(message): digest_of(key, message) for message in spoken}


class Transcriber:
    """Writes transcripts into one scope.

    conn: the open transaction; a long transcript is written in several. key: of the scope's
    digests. digests: of messages, as far as they were made. nodes: those written so far, by step
    name, for parents of forks.
    """

    def __init__(
        self,
        conn: Connection | None,
        scope_id: int,
        key: bytes,
        digests: Mapping[int, bytes] | None = None,
    ) -> None:
        self.conn = conn
        self._scope, self._key, self._digests = scope_id, key, digests or {}
        self._start = HashChain(key, []).start
        self.nodes: dict[str, TurnNode] = {}

    def conversation(self, heading: ConversationHeader, steps: Sequence[TranscriptStep]) -> int:
        """Write one conversation at once; return the number of stored messages."""
        return sum(self.write(new_key(), heading, steps))

    def write(
        self, ident: int, heading: ConversationHeader, steps: Sequence[TranscriptStep]
    ) -> Iterator[int]:
        """Write one conversation message by message; yield the number of new rows.

        Its own row is written last, so that it is there completely or not at all. Raises Conflict
        for a name in use.
        """
        now = clock.now()
        for step in steps:
            yield from self._step(ident, step)
        answered = [s.id for s in steps if self.nodes[s.id].state != "open"]
        head = heading.head if heading.head in self.nodes else answered[-1] if answered else None
        c = t.conversations.c
        if self._open.execute(
            select(c.id).where(c.scope_id == self._scope, c.name == heading.name)
        ).first():
            raise Conflict(
                f"there is a conversation {heading.name!r} of this user already: choose another "
                "id, or delete that one"
            )
        self._open.execute(
            insert(t.conversations).values(
                id=ident,
                scope_id=self._scope,
                name=heading.name,
                explicit=heading.explicit,
                resent=heading.resent,
                forked_from=heading.forked_from,
                head=None if head is None else self.nodes[head].turn,
                created_at=heading.created_at or now,
                updated_at=heading.updated_at or now,
            )
        )

    @property
    def _open(self) -> Connection:
        # the caller that continues a transcript opens its transaction
        assert self.conn is not None  # noqa: S101
        return self.conn

    def _digest(self, message: Json) -> bytes:
        if is_system(message):
            return EMPTY
        digest = self._digests.get(id(message))
        return digest_of(self._key, message) if digest is None else digest

    def _step(self, conversation: int, step: TranscriptStep) -> Iterator[int]:
        parent = self.nodes.get(step.parent) if step.parent else None
        first = self.nodes.get(step.first) if step.first and step.first != step.id else None
        digests: list[bytes] = []
        asked = (
            (parent.chain or parent.asked) if parent else self._start
        )  # the history, followed by this step's messages
        for s in step.said:
            digests.append(self._digest(s.message))
            if s.source != "evicted" and not _answers(s) and not is_system(s.message):
                asked = keyed_hash(self._key, asked, digests[-1])
            yield 0
        node = TurnNode(
            id=new_key(),
            conversation=conversation,
            parent=parent.id if parent else None,
            asked=first.asked if first else asked,
            at=step.at,
            turn=first.id if first else 0,
        )
        answer = next((s.message for s in step.said if _answers(s)), None)
        if answer is not None:
            digest = self._digest(answer)
            complete_node(node, parent, digest, keyed_hash(self._key, node.asked, digest))
        if answer is not None and step.state == "aborted":
            node.state, node.text = "aborted", collapse_whitespace(text_of(answer))
        self.nodes[step.id] = node
        add_row(self._open, t.nodes, **columns(node, self._scope))
        before = ""
        for s, digest in zip(step.said, digests, strict=True):
            place = message_rows.MessagePlace(
                conversation, node.id, s.source, s.at, s.aborted, before, s.id
            )
            yield message_rows.add(self._open, self._scope, place, [(s.message, digest)])
            before = text_of(s.message)


def _answers(s: ImportedMessage) -> bool:
    return s.message.get("role") == "assistant" and s.source != "evicted"
