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

SILENT = canonical({"role": "assistant", "content": ""})  # an empty answer identifies nothing
# assistant messages to look up in each query, newest first, until one is known
LOOKS = (
    1,
    3,
    None,
)
TRAIL = 16  # answers before a node that it remembers, 4 bytes each


# What a request is that says what the newest turn asked: it asks for that answer again; it is a new
# message; or it asks again only if that turn was an earlier attempt at it.
Repeat = Literal["again", "new", "attempt"]


class TurnNode(msgspec.Struct):
    """One answer, and what was placed into its request.

    told: block values announced by notes, over the epoch's own. carriers: ids of the earlier nodes
    of the epoch that have a note or a hidden exchange. asked, chain: the link before and after the
    answer. hidden: the messages that replace the client's assistant message, including our calls.
    """

    id: int
    conversation: int
    parent: int | None = None
    digest: bytes = b""
    chain: bytes = b""
    asked: bytes = b""
    trail: bytes = b""
    depth: int = 1
    state: str = "open"  # open: not answered yet; done; aborted
    epoch: str | None = None
    note: str | None = None
    told: dict[str, str | None] = msgspec.field(default_factory=dict)
    hidden: list[Json] | None = None
    carriers: list[int] = msgspec.field(default_factory=list)
    branch: int = 0
    at: float = 0.0
    text: str = ""  # of an aborted answer: the part that was shown
    recall: str | None = (
        None  # text of automatic recall at the newest user message; kept while tools run
    )
    # keys of what recall showed in this conversation, this turn included, oldest first
    recalled: list[int] = msgspec.field(default_factory=list)
    turn: int = 0  # id of the first of several choices (n > 1); otherwise its own id
    holder: int | None = None  # the worker that works on it, where there are several

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
        seen: DigestCache | None = None,
    ) -> None:
        found = messages if type(messages) is Messages else Messages.of(messages)
        self.key, self._messages = key, found
        self._seen = DigestCache() if seen is None else seen
        links = (
            None
            if seeded and found.after.system != found.before.system
            else found.before.links_of(key)
        )
        self._known = (
            0 if links is None else found.before.count
        )  # index of the first message hashed here
        start, link = links or (
            keyed_hash(key, b"start", system_text(filter(is_system, found)) if seeded else b""),
            found.after.behind,
        )
        self.start, self.origin = start, found.after.behind or start
        self._from = link = link or start  # link of everything before it
        self._links, self._digests = hash_chain(
            key, link, found.new if self._known else found, self._seen
        )
        self.end = self._links[-1] if self._links else link
        found.after.links = key, self.start, self.end

    def link(self, index: int) -> bytes:
        """Return the link of messages 0 to `index`."""
        return self._links[index - self._known] if index >= self._known else self.links[index]

    def digest(self, index: int) -> bytes:
        return self._digests[index - self._known] if index >= self._known else self.digests[index]

    @property
    def links(self) -> list[bytes]:
        self._hash()
        return self._links

    @property
    def digests(self) -> list[bytes]:
        self._hash()
        return self._digests

    def _hash(self) -> None:
        if self._known:
            self._links, self._digests = hash_chain(
                self.key, self.origin, self._messages, self._seen
            )
            self._known, self._from = 0, self.origin

    def reach(self, index: int, link: bytes) -> None:
        """Hash the messages from `index` on, but not those before.

        link: of the messages before `index`.
        """
        if index >= self._known:
            return
        links, digests = hash_chain(self.key, link, self._messages[index : self._known], self._seen)
        if links[-1] == self._from:  # otherwise it is not a link of this history
            self._links, self._digests = [*links, *self._links], [*digests, *self._digests]
            self._known, self._from = index, link

    def place(self, link: bytes | None) -> int:
        """Return the last message that this link covers; -1 for none.

        Looks among the hashed messages first.
        """
        if link is None:
            return -1
        while True:
            for index in range(len(self._links) - 1, -1, -1):
                if self._links[index] == link:
                    return self._known + index
            if not self._known or self._from == link:
                return self._known - 1 if self._from == link else -1
            self._hash()

    def before(self, index: int) -> bytes:
        """Return the link of everything before message `index`."""
        return (
            self._from
            if index == self._known
            else self.link(index - 1)
            if index > 0
            else self.origin
        )


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
        seen: DigestCache | None = None,
    ) -> RequestHistory:
        found = messages if type(messages) is Messages else Messages.of(messages)
        return cls(found, HashChain(key, found, seeded, seen))

    @property
    def mark(self) -> CompactionMark | None:
        """The mark of the newest cut; None if this scope has none."""
        mark = self.messages.after.mark
        return mark if mark is not None and mark.key == self.chain.key else None

    def enter(self) -> None:
        """Decode and hash what follows the newest cut, if the rest is not needed."""
        if (mark := self.mark) is not None:
            self.reach(mark.index, mark.link)

    def reach(self, index: int, link: bytes) -> None:
        """Decode and hash the messages from `index` on.

        link: of the messages before `index`.
        """
        if (mark := self.messages.before.mark) is not None and mark.index <= index:
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
        newest = list(islice((i for i in self.answers() if i <= index), TRAIL))
        return b"".join(self.chain.digest(i)[:4] for i in reversed(newest))


NOTHING = RequestHistory.of(b"", ())


def best_match(
    turn: RequestHistory, index: int, candidates: Sequence[TurnNode], head: int | None = None
) -> TurnNode | None:
    """Return the candidate that is assistant message `index`.

    Preferred is the exact chain, then the longest run of equal answers, then the newest.
    """
    digest, link = turn.chain.digest(index), turn.chain.link(index)
    found = {n.id: n for n in candidates if n.digest == digest and n.state != "open"}
    matches = [n for n in found.values() if n.chain == link] or list(found.values())
    if len(matches) < 2:
        return matches[0] if matches else None
    trail = turn.trail(index)
    return max(matches, key=lambda n: (_common_tail(n.trail, trail), n.id == head, n.id))


def _common_tail(a: bytes, b: bytes) -> int:
    n = 0
    while (
        n + 4 <= min(len(a), len(b))
        and a[len(a) - n - 4 : len(a) - n] == b[len(b) - n - 4 : len(b) - n]
    ):
        n += 4
    return n


def find_half_answer(
    turn: RequestHistory, index: int, aborted: Sequence[TurnNode]
) -> TurnNode | None:
    """Return the aborted answer that assistant message `index` begins with, or vice versa."""
    said = collapse_whitespace(text_of(turn.messages[index]))
    if not said:
        return None
    return max(
        (
            n
            for n in aborted
            if n.state == "aborted"
            and n.text
            and (n.text.startswith(said) or said.startswith(n.text))
        ),
        key=lambda n: n.id,
        default=None,
    )


def locate_node(turn: RequestHistory, node: TurnNode, at: int, carrier: TurnNode) -> int | None:
    """Return where an earlier node of the conversation stands in the request; None if gone.

    `node` stands at `at`. The exact chain decides; otherwise the position as many answers before
    `at` as there were between the two nodes.
    """
    there = (i for i in turn.answers() if i <= at)
    exact = next((i for i in there if turn.chain.link(i) == carrier.chain), None)
    if exact is not None:
        return exact
    there = (i for i in turn.answers() if i <= at)
    likely = (
        next(islice(there, node.depth - carrier.depth, None), None)
        if node.depth >= carrier.depth
        else None
    )
    return likely if likely is not None and turn.chain.digest(likely) == carrier.digest else None


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

    def find_aborted(self, asked: bytes, parent: int | None) -> list[TurnNode]:
        """Return aborted answers to exactly this history or, with a parent, those after it."""
        ...


def recognise(turn: RequestHistory, named: bool, lookup: NodeLookup) -> tuple[TurnNode | None, int]:
    """Return the node this request continues, and the index of its assistant message.

    (None, -1) for none.
    """
    newest = turn.newest
    if newest < 0:
        return None, -1
    turn.enter()
    if (
        not named or turn.chain.digest(newest) == turn.silent
    ):  # an empty answer is only recognised by what came before it
        found = lookup.by_chain(turn.chain.link(newest), turn.chain.digest(newest))
        if found or not named:
            return (max(found, key=lambda n: n.id), newest) if found else (None, -1)
    node, at = _newest_known(turn, lookup)
    if at == newest:
        return node, at
    following = min(takewhile(lambda i: i > at, turn.answers()))
    half = find_half_answer(
        turn,
        following,
        lookup.find_aborted(turn.chain.before(following), node.id if node else None),
    )
    return (half, following) if half else (node, at)


def _newest_known(turn: RequestHistory, lookup: NodeLookup) -> tuple[TurnNode | None, int]:
    silent = turn.silent
    spoken = (i for i in turn.answers() if turn.chain.digest(i) != silent)
    for most in LOOKS:
        some = list(islice(spoken, most))
        candidates = lookup.by_digest([turn.chain.digest(i) for i in some]) if some else []
        # the lookup is limited: among many equal answers, the one with exactly this history may be
        # missing
        if candidates:
            candidates += lookup.by_chain(turn.chain.link(some[0]), turn.chain.digest(some[0]))
        for index in some:
            if candidates and (node := best_match(turn, index, candidates)):
                return node, index
    return None, -1


def complete_node(node: TurnNode, parent: TurnNode | None, digest: bytes, chain: bytes) -> TurnNode:
    """Complete a node with its answer.

    digest: of the message shown to the client. chain: the link after it.
    """
    node.digest, node.chain = digest, chain
    node.trail = trail_after(parent, node.digest)
    node.depth = parent.depth + 1 if parent else 1
    node.state = "done"
    return node
