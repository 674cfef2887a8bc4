"""Recognise which conversation a request continues, by the history it resends. Pure.

A *node* is one answer of this gateway. For a named user, the newest assistant message of the
request that is such an answer determines the node, so a trimmed history, added context or half of
an aborted answer is still recognised; equal texts are distinguished by the exact chain, then by the
run of answers before them. Without a name only the exact chain counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Literal, Protocol

import msgspec

from memory.conversation.history import CompactionMark, Messages
from memory.conversation.messages import (
    DigestCache,
    Json,
    canonical,
    collapse_whitespace,
    hash_chain,
    is_system,
    keyed_hash,
    system_text,
    text_of,
)

# An empty answer identifies nothing.
SILENT = canonical({"role": "assistant", "content": ""})
# assistant messages to look up in each query, newest first, until one is known
LOOKS = (
    1,
    3,
    None,
)
# Answers before a node that it remembers, 4 bytes each.
TRAIL = 16

# What a request is that says what the newest turn asked: it asks for that answer again; it is a new
# message; or it asks again only if that turn was an earlier attempt at it.
Repeat = Literal["again", "new", "attempt"]


class TurnNode(msgspec.Struct, omit_defaults=True):
    """One answer, and what was placed into its request.

    told: block values announced by notes, over the epoch's own. carriers: ids of the earlier nodes
    of the epoch that have a note or a hidden exchange. asked, chain: the link before and after the
    answer. hidden: the messages that replace the client's assistant message, including our calls.
    runs: what tools ran in the user's turn up to this answer, None for nothing.
    """

    id: int
    conversation: int
    parent: int | None = None
    digest: bytes = b""
    chain: bytes = b""
    asked: bytes = b""
    trail: bytes = b""
    depth: int = 1
    # Open: not answered yet; done; aborted.
    state: str = "open"
    epoch: str | None = None
    note: str | None = None
    told: dict[str, str | None] = msgspec.field(default_factory=dict)
    hidden: list[Json] | None = None
    carriers: list[int] = msgspec.field(default_factory=list)
    branch: int = 0
    at: float = 0.0
    # Of an aborted answer: the part that was shown.
    text: str = ""
    # Text of automatic recall at the newest user message; kept while tools run.
    recall: str | None = None
    # keys of what recall showed in this conversation, this turn included, oldest first
    recalled: list[int] = msgspec.field(default_factory=list)
    # Id of the first of several choices (n > 1); otherwise its own id.
    turn: int = 0
    # The worker that works on it, where there are several.
    holder: int | None = None
    runs: Json | None = None

    def __post_init__(self) -> None:
        self.turn = self.turn or self.id


class HashChain:
    """The history of a request as hashes.

    `link(i)` identifies messages 0 to i, `digest(i)` message i alone. key: of the scope. seeded:
    for an unnamed user; the system text is part of all links, and only the exact chain counts. The
    prefix that an earlier request ended in is only hashed again if its links are needed. origin:
    the link before the first message, which stands for what was said before. end: the link of all
    messages.
    """

    def __init__(
        self,
        key: bytes,
        messages: Sequence[Json],
        seeded: bool = False,
        digests: DigestCache | None = None,
    ) -> None:
        if type(messages) is Messages:
            decoded_messages = messages
        else:
            decoded_messages = Messages.of(messages)
        self.key = key
        self._messages = decoded_messages
        self._digest_cache = DigestCache() if digests is None else digests
        links = (
            None
            if seeded and decoded_messages.after.system != decoded_messages.before.system
            else decoded_messages.before.links_of(key)
        )
        # Index of the first message hashed here.
        self._place_of_link = 0 if links is None else decoded_messages.before.count
        start, link = links or (
            keyed_hash(
                key, b"start", system_text(filter(is_system, decoded_messages)) if seeded else b""
            ),
            decoded_messages.after.behind,
        )
        self.start = start
        self.origin = decoded_messages.after.behind or start
        # Link of everything before it.
        self._from = link = link or start
        self._links, self._digests = hash_chain(
            key,
            link,
            decoded_messages.new if self._place_of_link else decoded_messages,
            self._digest_cache,
        )
        self.end = self._links[-1] if self._links else link
        decoded_messages.after.links = key, self.start, self.end

    def link(self, index: int) -> bytes:
        """Return the link of messages 0 to `index`."""
        if index >= self._place_of_link:
            return self._links[index - self._place_of_link]
        return self.links[index]

    def digest(self, index: int) -> bytes:
        if index >= self._place_of_link:
            return self._digests[index - self._place_of_link]
        return self.digests[index]

    @property
    def links(self) -> list[bytes]:
        self._hash()
        return self._links

    @property
    def digests(self) -> list[bytes]:
        self._hash()
        return self._digests

    def _hash(self) -> None:
        if self._place_of_link:
            self._links, self._digests = hash_chain(
                self.key, self.origin, self._messages, self._digest_cache
            )
            self._place_of_link = 0
            self._from = self.origin

    def reach(self, index: int, link: bytes) -> None:
        """Hash the messages from `index` on, but not those before.

        link: of the messages before `index`.
        """
        if index >= self._place_of_link:
            return
        links, digests = hash_chain(
            self.key, link, self._messages[index : self._place_of_link], self._digest_cache
        )
        # Otherwise it is not a link of this history.
        if links[-1] == self._from:
            self._links = [*links, *self._links]
            self._digests = [*digests, *self._digests]
            self._place_of_link = index
            self._from = link

    def place(self, link: bytes | None) -> int:
        """Return the last message that this link covers; -1 for none.

        Looks among the hashed messages first.
        """
        if link is None:
            return -1
        while True:
            for index in range(len(self._links) - 1, -1, -1):
                if self._links[index] == link:
                    return self._place_of_link + index
            if not self._place_of_link or self._from == link:
                if self._from == link:
                    return self._place_of_link - 1
                return -1
            self._hash()

    def before(self, index: int) -> bytes:
        """Return the link of everything before message `index`."""
        if index == self._place_of_link:
            return self._from
        if index > 0:
            return self.link(index - 1)
        return self.origin


class RequestHistory(msgspec.Struct):
    """A request's messages and their hash chain.

    newest: index of the last assistant message, -1 for none.
    """

    messages: Messages
    chain: HashChain
    newest: int = -1

    def __post_init__(self) -> None:
        self.newest = self.messages.after.newest

    @classmethod
    def of(
        cls,
        key: bytes,
        messages: Sequence[Json],
        seeded: bool = False,
        digests: DigestCache | None = None,
    ) -> RequestHistory:
        if type(messages) is Messages:
            decoded_messages = messages
        else:
            decoded_messages = Messages.of(messages)
        return cls(decoded_messages, HashChain(key, decoded_messages, seeded, digests))

    @property
    def mark(self) -> CompactionMark | None:
        """The mark of the newest cut; None if this scope has none."""
        cut_record = self.messages.after.mark
        if cut_record is not None and cut_record.key == self.chain.key:
            return cut_record
        return None

    def enter(self) -> None:
        """Decode and hash what follows the newest cut, if the rest is not needed."""
        if (cut_record := self.mark) is not None:
            self.reach(cut_record.index, cut_record.link)

    def reach(self, index: int, link: bytes) -> None:
        """Decode and hash the messages from `index` on.

        link: of the messages before `index`.
        """
        if (cut_record := self.messages.before.mark) is not None and cut_record.index <= index:
            self.messages.enter()
        self.chain.reach(index, link)

    def answers(self) -> Iterator[int]:
        """Yield the indexes of assistant messages, newest first, decoding lazily."""
        return (
            i for i in range(self.newest, -1, -1) if self.messages[i].get("role") == "assistant"
        )

    @property
    def silent(self) -> bytes:
        """The digest of an empty answer."""
        return keyed_hash(self.chain.key, SILENT)

    @property
    def suffix(self) -> int:
        """The index after the last assistant message: the first message that is new."""
        return self.newest + 1

    def trail(self, index: int) -> bytes:
        """Return the shortened digests of the assistant messages up to `index`, newest last."""
        last_indexes = list(islice((i for i in self.answers() if i <= index), TRAIL))
        return b"".join(self.chain.digest(i)[:4] for i in reversed(last_indexes))


NOTHING = RequestHistory.of(b"", ())


def best_match(
    turn: RequestHistory, index: int, candidates: Sequence[TurnNode], head: int | None = None
) -> TurnNode | None:
    """Return the candidate that is assistant message `index`.

    Preferred is the exact chain, then the longest run of equal answers, then the newest.
    """
    digest = turn.chain.digest(index)
    link = turn.chain.link(index)
    nodes_by_id = {n.id: n for n in candidates if n.digest == digest and n.state != "open"}
    matches = [n for n in nodes_by_id.values() if n.chain == link] or list(nodes_by_id.values())
    if len(matches) < 2:
        if matches:
            return matches[0]
        return None
    trail = turn.trail(index)
    return max(matches, key=lambda n: (_common_tail(n.trail, trail), n.id == head, n.id))


def _common_tail(trail: bytes, other_trail: bytes) -> int:
    shared_bytes = 0
    while (
        shared_bytes + 4 <= min(len(trail), len(other_trail))
        and trail[len(trail) - shared_bytes - 4 : len(trail) - shared_bytes]
        == other_trail[len(other_trail) - shared_bytes - 4 : len(other_trail) - shared_bytes]
    ):
        shared_bytes += 4
    return shared_bytes


def find_half_answer(
    turn: RequestHistory, index: int, aborted: Sequence[TurnNode]
) -> TurnNode | None:
    """Return the aborted answer that assistant message `index` begins with, or vice versa."""
    half_answers = [n for n in aborted if n.state == "aborted" and n.text]
    # A long text is looked at only where it can matter.
    request_text = half_answers and collapse_whitespace(text_of(turn.messages[index]))
    if not request_text:
        return None
    return max(
        (
            n
            for n in half_answers
            if n.text.startswith(request_text) or request_text.startswith(n.text)
        ),
        key=lambda n: n.id,
        default=None,
    )


def locate_node(
    turn: RequestHistory, node: TurnNode, last_index: int, carrier: TurnNode
) -> int | None:
    """Return where an earlier node of the conversation stands in the request; None if gone.

    `node` stands at `last_index`. The exact chain decides; otherwise the position as many answers
    before `last_index` as there were between the two nodes.
    """
    answer_indexes = (i for i in turn.answers() if i <= last_index)
    exact_index = next((i for i in answer_indexes if turn.chain.link(i) == carrier.chain), None)
    if exact_index is not None:
        return exact_index
    answer_indexes = (i for i in turn.answers() if i <= last_index)
    likely_index = None
    if node.depth >= carrier.depth:
        likely_index = next(islice(answer_indexes, node.depth - carrier.depth, None), None)
    if likely_index is not None and turn.chain.digest(likely_index) == carrier.digest:
        return likely_index
    return None


def trail_after(parent: TurnNode | None, digest: bytes) -> bytes:
    return ((parent.trail if parent else b"") + digest[:4])[-4 * TRAIL :]


class NodeLookup(Protocol):
    """Finds the nodes of one scope, for the recognition.

    Synchronous: it runs inside one read transaction.
    """

    def by_digest(self, digests: Sequence[bytes]) -> list[TurnNode]:
        """Return answered nodes with one of these digests, newest first, a limited number."""
        ...

    def by_chain(self, chain: bytes, digest: bytes) -> list[TurnNode]:
        """Return answered nodes with exactly this history and this last digest."""
        ...

    def find_aborted(self, history_link: bytes, parent: int | None) -> list[TurnNode]:
        """Return aborted answers to exactly this history or, with a parent, those after it."""
        ...


def recognise(
    turn: RequestHistory, is_named: bool, lookup: NodeLookup
) -> tuple[TurnNode | None, int]:
    """Return the node this request continues, and the index of its assistant message.

    (None, -1) for none.
    """
    newest_index = turn.newest
    if newest_index < 0:
        return None, -1
    turn.enter()
    # An empty answer is only recognised by what came before it.
    if not is_named or turn.chain.digest(newest_index) == turn.silent:
        matches = lookup.by_chain(turn.chain.link(newest_index), turn.chain.digest(newest_index))
        if matches or not is_named:
            if matches:
                return (max(matches, key=lambda n: n.id), newest_index)
            return (None, -1)
    node, node_index = _newest_known(turn, lookup)
    if node_index == newest_index:
        return node, node_index
    following = min(takewhile(lambda i: i > node_index, turn.answers()))
    half_answer = find_half_answer(
        turn,
        following,
        lookup.find_aborted(turn.chain.before(following), node.id if node else None),
    )
    if half_answer:
        return (half_answer, following)
    return (node, node_index)


def _newest_known(turn: RequestHistory, lookup: NodeLookup) -> tuple[TurnNode | None, int]:
    silent = turn.silent
    spoken_indexes = (i for i in turn.answers() if turn.chain.digest(i) != silent)
    for look_count in LOOKS:
        look_indexes = list(islice(spoken_indexes, look_count))
        if look_indexes:
            candidates = lookup.by_digest([turn.chain.digest(i) for i in look_indexes])
        else:
            candidates = []
        # the lookup is limited: among many equal answers, the one with exactly this history may be
        # missing
        if candidates:
            candidates += lookup.by_chain(
                turn.chain.link(look_indexes[0]), turn.chain.digest(look_indexes[0])
            )
        for index in look_indexes:
            if candidates and (node := best_match(turn, index, candidates)):
                return node, index
    return None, -1


def complete_node(node: TurnNode, parent: TurnNode | None, digest: bytes, chain: bytes) -> TurnNode:
    """Complete a node with its answer.

    digest: of the message shown to the client. chain: the link after it.
    """
    node.digest = digest
    node.chain = chain
    node.trail = trail_after(parent, node.digest)
    node.depth = parent.depth + 1 if parent else 1
    node.state = "done"
    return node
