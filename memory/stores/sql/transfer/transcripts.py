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
    steps: list[TranscriptStep] = []
    for message in messages:
        if not steps or steps[-1].state == "done":
            steps.append(
                TranscriptStep(
                    str(len(steps)),
                    str(len(steps) - 1) if steps else None,
                    state="open",
                    at=message.at,
                )
            )
        steps[-1].said.append(message)
        steps[-1].at = message.at
        if message.message.get("role") == "assistant":
            steps[-1].state = "done"
    return steps


def digest_messages(key: bytes, messages: Sequence[ImportedMessage]) -> dict[int, bytes]:
    """Return the digests of messages, by the `id` of each, in the scope of this key.

    Made before anything is written: a long one takes long, and a transaction waits for nobody.
    """
    spoken_messages = (
        imported_message.message
        for imported_message in messages
        if not is_system(imported_message.message)
    )
    return {id(message): digest_of(key, message) for message in spoken_messages}


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
        self._scope = scope_id
        self._key = key
        self._digests = digests or {}
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
        head = heading.head
        if head not in self.nodes:
            answered_ids = [s.id for s in steps if self.nodes[s.id].state != "open"]
            head = answered_ids[-1] if answered_ids else None
        conversations = t.conversations.c
        if self._open.execute(
            select(conversations.id).where(
                conversations.scope_id == self._scope, conversations.name == heading.name
            )
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
        if digest is None:
            return digest_of(self._key, message)
        return digest

    def _step(self, conversation: int, step: TranscriptStep) -> Iterator[int]:
        parent = None
        if step.parent:
            parent = self.nodes.get(step.parent)
        first_node = None
        if step.first and step.first != step.id:
            first_node = self.nodes.get(step.first)
        digests: list[bytes] = []
        # The history, followed by this step's messages.
        asked_link = (parent.chain or parent.asked) if parent else self._start
        for said in step.said:
            digests.append(self._digest(said.message))
            if said.source != "evicted" and not _answers(said) and not is_system(said.message):
                asked_link = keyed_hash(self._key, asked_link, digests[-1])
            yield 0
        node = TurnNode(
            id=new_key(),
            conversation=conversation,
            parent=parent.id if parent else None,
            asked=first_node.asked if first_node else asked_link,
            at=step.at,
            turn=first_node.id if first_node else 0,
        )
        answer = next((said.message for said in step.said if _answers(said)), None)
        if answer is not None:
            digest = self._digest(answer)
            complete_node(node, parent, digest, keyed_hash(self._key, node.asked, digest))
        if answer is not None and step.state == "aborted":
            node.state = "aborted"
            node.text = collapse_whitespace(text_of(answer))
        self.nodes[step.id] = node
        add_row(self._open, t.nodes, **columns(node, self._scope))
        words_before = ""
        for said, digest in zip(step.said, digests, strict=True):
            place = message_rows.MessagePlace(
                conversation, node.id, said.source, said.at, said.aborted, words_before, said.id
            )
            yield message_rows.add(self._open, self._scope, place, [(said.message, digest)])
            words_before = text_of(said.message)


def _answers(said: ImportedMessage) -> bool:
    return said.message.get("role") == "assistant" and said.source != "evicted"
