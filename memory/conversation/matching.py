"""Which conversation a request continues, told from the history it resends. Pure.

A *node* is one answer this gateway gave. Named users (MEMORY.md 5): the newest assistant message of
the request that is such an answer fixes the node, so a trimmed history, added context or half of an
aborted answer is still recognised; equal texts are told apart by the exact chain, then by the run
of answers before them. Nobody named: the exact chain only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Protocol

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

SILENT = canonical(
    {"role": "assistant", "content": ""}
)  # an answer that says nothing identifies nothing
# assistant messages looked up in one query, newest first; the rest only when none of these is known
LOOKS = (
    1,
    3,
    None,
)
TRAIL = 16  # answers remembered before a node, 4 bytes each


@dataclass(slots=True)
class TurnNode:
    """One answer, and what was placed into its request.

    `told`: block values told by notes, over the epoch's own.

    carriers: ids of the earlier nodes of the epoch that hold a note or a hidden exchange. asked,
    chain: the link before and after the answer. hidden: the messages that stand for the client's
    assistant message, our calls included.
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
    told: dict[str, str | None] = field(default_factory=dict)
    hidden: list[Json] | None = None
    carriers: list[int] = field(default_factory=list)
    branch: int = 0
    at: float = 0.0
    text: str = ""  # of an aborted answer: what was shown
    recall: str | None = (
        None  # what automatic recall put at the newest user message; kept while tools run
    )
    turn: int = 0  # id of the first of sibling answers (n > 1); its own id otherwise

    def __post_init__(self) -> None:
        self.turn = self.turn or self.id


class HashChain:
    """The history of one request as hashes: `link(i)` names messages 0..i, `digest(i)` message i
    alone.

    key: the scope's. seeded: for a request that names nobody, its system text is in all of it; then
    only the exact chain is believed. What an earlier request ended in is hashed again only where
    somebody asks for its links. origin: the link before the first message, which names what was
    said before it. end: the link that names all.
    """

    def __init__(
        self,
        key: bytes,
        messages: Sequence[Json],
        seeded: bool = False,
        seen: DigestCache | None = None,
    ) -> None:
        self.key, self._messages, self._seen = (
            key,
            (found := Messages.of(messages)),
            DigestCache() if seen is None else seen,
        )
        links = (
            None
            if seeded and found.after.system != found.before.system
            else found.before.links_of(key)
        )
        self._known = (
            0 if links is None else found.before.count
        )  # the first one that is hashed here
        start, link = links or (
            keyed_hash(key, b"start", system_text(filter(is_system, found)) if seeded else b""),
            found.after.behind,
        )
        self.start, self.origin = start, found.after.behind or start
        self._from = link = link or start  # names everything before that one
        self._links, self._digests = hash_chain(
            key, link, found.new if self._known else found, self._seen
        )
        self.end = self._links[-1] if self._links else link
        found.after.keep_links(key, self.start, self.end)

    def link(self, index: int) -> bytes:
        """Return the link that names messages 0 to `index`."""
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
        """Hash the messages from `index` on, where only later ones were; those before it are not.

        link: the one that names them.
        """
        if index >= self._known:
            return
        links, digests = hash_chain(self.key, link, self._messages[index : self._known], self._seen)
        if links[-1] == self._from:  # else it is not the link of this history
            self._links, self._digests = [*links, *self._links], [*digests, *self._digests]
            self._known, self._from = index, link

    def place(self, link: bytes | None) -> int:
        """Return the last message that this link covers; -1 for none.

        Those that are hashed are looked at first.
        """
        if link is None:
            return -1
        for _ in range(2):
            for index in range(len(self._links) - 1, -1, -1):
                if self._links[index] == link:
                    return self._known + index
            if not self._known or self._from == link:
                break
            self._hash()
        return self._known - 1 if self._from == link else -1

    def before(self, index: int) -> bytes:
        """Return the link that names everything before message `index`."""
        return (
            self._from
            if index == self._known
            else self.link(index - 1)
            if index > 0
            else self.origin
        )


@dataclass(slots=True)
class RequestHistory:
    """A request as history: its messages and their chain."""

    messages: Messages
    chain: HashChain

    @classmethod
    def of(
        cls,
        key: bytes,
        messages: Sequence[Json],
        seeded: bool = False,
        seen: DigestCache | None = None,
    ) -> RequestHistory:
        found = Messages.of(messages)
        return cls(found, HashChain(key, found, seeded, seen))

    @property
    def mark(self) -> CompactionMark | None:
        """Where the history is entered behind its newest cut, None for none of this scope."""
        mark = self.messages.after.mark
        return mark if mark is not None and mark.key == self.chain.key else None

    def enter(self) -> None:
        """Decode and hashes what is behind the newest cut, where no more is to be looked at."""
        if (mark := self.mark) is not None:
            self.reach(mark.index, mark.link)

    def reach(self, index: int, link: bytes) -> None:
        """Decode and hashes the messages from `index` on.

        link: the one that names those before it.
        """
        if (mark := self.messages.before.mark) is not None and mark.index <= index:
            self.messages.enter()
        self.chain.reach(index, link)

    def answers(self) -> Iterator[int]:
        """Yield the indexes of the assistant's messages, newest first: no older one is decoded than
        is asked for.
        """
        return (
            i for i in range(self.newest, -1, -1) if self.messages[i].get("role") == "assistant"
        )

    @property
    def silent(self) -> bytes:
        """The digest of an answer that says nothing."""
        return keyed_hash(self.chain.key, SILENT)

    @property
    def newest(self) -> int:
        """The index of the last message of the assistant; -1 for none."""
        return self.messages.after.newest

    @property
    def suffix(self) -> int:
        """Index of the first message after the last assistant message: what this request adds."""
        return self.newest + 1

    def trail(self, index: int) -> bytes:
        """Return the digests of the assistant messages up to and with `index`, shortened, newest
        last.
        """
        newest = list(islice((i for i in self.answers() if i <= index), TRAIL))
        return b"".join(self.chain.digest(i)[:4] for i in reversed(newest))


NOTHING = RequestHistory.of(b"", ())


def best_match(
    turn: RequestHistory, index: int, candidates: Sequence[TurnNode], head: int | None = None
) -> TurnNode | None:
    """Return the candidate that assistant message `index` is: exact chain first, then the longest
    run of answers, then the newest.
    """
    digest, link = turn.chain.digest(index), turn.chain.link(index)
    found = {n.id: n for n in candidates if n.digest == digest and n.state != "open"}
    mine = [n for n in found.values() if n.chain == link] or list(found.values())
    if len(mine) < 2:
        return mine[0] if mine else None
    trail = turn.trail(index)
    return max(mine, key=lambda n: (_common_tail(n.trail, trail), n.id == head, n.id))


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
    """Return the aborted answer of which assistant message `index` is the beginning, or which is
    its beginning.
    """
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
    """Return where in the request an earlier node of the same line stands, given that `node` stands
    at `at`; None when gone.

    The exact chain decides; else the place as many answers before `at` as there were between the
    two nodes.
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
    """The nodes of one scope, as recognition asks for them.

    Synchronous: it runs inside one read transaction.
    """

    def by_digest(self, digests: Sequence[bytes]) -> list[TurnNode]:
        """Answered nodes with one of these answer digests, newest first, bounded."""
        ...

    def by_chain(self, chain: bytes, digest: bytes) -> list[TurnNode]:
        """Answered nodes at exactly this history, whose last message has this digest."""
        ...

    def find_aborted(self, asked: bytes, parent: int | None) -> list[TurnNode]:
        """Aborted answers to exactly this history, or, with a parent, those that followed it."""
        ...


def recognise(turn: RequestHistory, named: bool, lookup: NodeLookup) -> tuple[TurnNode | None, int]:
    """Return the node this request continues and the index of the assistant message that is it;
    (None, -1) for none.
    """
    newest = turn.newest
    if newest < 0:
        return None, -1
    turn.enter()
    if (
        not named or turn.chain.digest(newest) == turn.silent
    ):  # one that says nothing is known by what came before it alone
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
        # the lookup is bounded: among many equal answers the one at exactly this history may be
        # missing
        if candidates:
            candidates += lookup.by_chain(turn.chain.link(some[0]), turn.chain.digest(some[0]))
        for index in some:
            if candidates and (node := best_match(turn, index, candidates)):
                return node, index
    return None, -1


def complete_node(node: TurnNode, parent: TurnNode | None, digest: bytes, chain: bytes) -> TurnNode:
    """Return the node with its answer: the digest of the message the client was shown, and the link
    after it.
    """
    node.digest, node.chain = digest, chain
    node.trail = trail_after(parent, node.digest)
    node.depth = parent.depth + 1 if parent else 1
    node.state = "done"
    return node
