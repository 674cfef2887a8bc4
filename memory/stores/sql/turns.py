"""One turn's database work: the snapshot it reads once, the rows it opens, and what it records at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, literal_column, select, update

from memory.blocks import Block
from memory.epoch import Epoch, Past
from memory.errors import Erased
from memory.fit import Sent
from memory.history import Node, Turn, recognise, trail_after
from memory.jobs.queue import Job, enqueue
from memory.messages import Json, mac
from memory.prefix import Kept, Messages, Prefix, leading
from memory.scope import Scope
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import facts as fact_rows
from memory.stores.sql import kept, owners
from memory.stores.sql import messages as message_rows
from memory.stores.sql import schema as t
from memory.stores.sql.rows import add_row, among, any_of, execute, inserting, put_row

n, cv = t.nodes.c, t.conversations.c
encode, decode = msgspec.json.encode, msgspec.json.decode
CANDIDATES = 64
# Built once, like those below: they run in every turn, and building a statement costs more than running it.
EDITS = select(t.scopes.c.edits).where(t.scopes.c.id == bindparam("scope"))
BY_NAME = select(t.conversations).where(
    cv.scope_id == bindparam("scope"), cv.name == bindparam("which")
)
BY_KEY = select(t.conversations).where(
    cv.scope_id == bindparam("scope"), cv.id == bindparam("which")
)
EPOCH = select(t.epochs).where(
    t.epochs.c.scope_id == bindparam("scope"), t.epochs.c.id == bindparam("epoch")
)
ATTEMPT = (
    select(t.nodes)
    .where(n.request == bindparam("request"), n.scope_id == bindparam("scope"))
    .order_by(n.id.desc())
    .limit(1)
)
TRIED = update(t.nodes).where(n.id == bindparam("node")).values(at=bindparam("now"))
PLANNED = ("epoch", "note", "told", "carriers")
TRIED_ANEW = TRIED.values(**{name: bindparam(name) for name in ("request", "rounds", *PLANNED)})
MOVED = (
    update(t.conversations)
    .where(cv.id == bindparam("which"), cv.scope_id == bindparam("scope"))
    .values(head=bindparam("head"), resent=bindparam("resent"), updated_at=bindparam("updated_at"))
)
TURN_OF = select(n.turn).where(n.id == bindparam("which"))
_m = t.messages.c
SAID = select(_m.digest).where(_m.node == bindparam("node"), _m.source == "chat").order_by(_m.id)
RETRY_SECONDS = 600
TOUCHED = 1.0  # seconds within which a scope's last activity is not written again


@dataclass(slots=True)
class Ask:
    """What a turn asks the store. explicit: the conversation's name, where the client gave one. request: what names it among its retries.
    room: bytes of a history kept here that its model's window holds."""

    scope: Scope
    turn: Turn
    defaults: Mapping[str, Block]
    explicit: str | None = None
    request: bytes | None = None
    room: int = kept.MOST


@dataclass(slots=True)
class Conversation:
    id: int
    name: str
    explicit: bool
    resent: bool
    head: int | None


@dataclass(slots=True)
class Ledger:
    """An earlier attempt at this very request: its node, and its finished hidden rounds."""

    node: Node
    rounds: list[Json]


@dataclass(slots=True)
class Snapshot:
    """Everything a turn needs to know, read in one transaction."""

    owner: owners.Owner
    scope_id: int | None
    turn: Turn
    prepended: int = 0  # messages of server-kept history, after the `lead` system messages that the client begins with
    lead: int = 0
    behind: tuple[bytes, str] | None = (
        None  # the link of what was said before the kept messages, and what stands for it
    )
    edits: int = 0
    blocks: dict[str, Block] = field(default_factory=dict)
    defaults: Mapping[str, Block] = field(default_factory=dict)
    past: Past = field(default_factory=Past)
    conversation: Conversation | None = None  # the one named, or the one of the recognised node
    waiting: Node | None = (
        None  # the earlier attempt's node, else an unanswered one for exactly this history
    )
    waiting_in: Conversation | None = None  # and its conversation
    ledger: Ledger | None = None
    sent: Sent | None = (
        None  # what the turn before sent, where this one goes on from its very messages
    )
    kept: Kept | None = (
        None  # the conversation as the turn before left it, where its history is kept here
    )
    own: int = 0  # bytes, apart from those two, while it is kept for the next turn

    @property
    def since(self) -> int:
        """Index of the first message that this request adds."""
        return self.lead + self.prepended if self.prepended else self.turn.suffix


def snapshot(conn: Connection, ask: Ask) -> Snapshot:
    """Reads the scope, its blocks, the line this request continues, and an earlier attempt at it."""
    owner = owners.as_found(conn, ask.scope)
    scope_id = owners.find(conn, ask.scope)
    turn = ask.turn
    out = Snapshot(owner, scope_id, turn, blocks=dict(ask.defaults), defaults=ask.defaults)
    if scope_id is None:
        return out
    out.edits = execute(conn, EDITS, {"scope": scope_id}).scalar_one()
    if ask.explicit:
        out.conversation = conversation(conn, scope_id, ask.explicit)
    if (
        out.conversation
        and out.conversation.head
        and turn.newest < 0
        and not out.conversation.resent
    ):
        out.turn = turn = _prepended(conn, out, out.conversation.head, ask)
    node, at = recognise(turn, ask.scope.named, Nodes(conn, scope_id))
    if node:
        out.past = _past(conn, scope_id, node, at)
        if out.conversation is None and not ask.explicit:
            out.conversation = conversation(conn, scope_id, node.conversation)
    branch = node.branch if node and not ask.scope.named else 0
    out.blocks = block_rows.all_of(conn, block_rows.Shelf(scope_id, ask.defaults, branch, branch))
    nodes = Nodes(conn, scope_id)
    if ask.request:
        out.ledger = _ledger(conn, ask.request, scope_id)
    out.waiting = (
        out.ledger.node if out.ledger else nodes.waiting(turn.chain.end, node.id if node else None)
    )
    if out.waiting:
        out.waiting_in = conversation(conn, scope_id, out.waiting.conversation)
        if ask.explicit not in (None, out.waiting_in.name if out.waiting_in else None):
            out.waiting = out.waiting_in = None  # the same was said in another conversation
    return out


def _prepended(conn: Connection, out: Snapshot, head: int, ask: Ask) -> Turn:
    """The request behind the history that is kept here."""
    messages, line = ask.turn.messages, out.conversation
    assert line is not None and out.scope_id is not None  # noqa: S101, PT018 - the head is the line's
    end = kept.end(conn, out.scope_id, (line.id, head), messages, ask.room)
    out.lead, out.prepended, out.behind = leading(messages), len(end.messages), end.behind
    whole = [*messages[: out.lead], *end.messages, *messages[out.lead :]]
    return Turn.of(
        ask.scope.key,
        Messages(Prefix(behind=end.behind[0] if end.behind else b""), whole),
        not ask.scope.named,
    )


def conversation(conn: Connection, scope_id: int, which: str | int) -> Conversation | None:
    """A conversation of the scope by its name or its row key."""
    row = execute(
        conn, BY_NAME if isinstance(which, str) else BY_KEY, {"scope": scope_id, "which": which}
    ).first()
    return Conversation(row.id, row.name, row.explicit, row.resent, row.head) if row else None


def _past(conn: Connection, scope_id: int, node: Node, at: int) -> Past:
    if node.epoch is None:
        return Past(node, at)
    row = execute(conn, EPOCH, {"scope": scope_id, "epoch": node.epoch}).first()
    epoch = (
        Epoch(row.id, row.core, decode(row.blocks), row.edits, row.cut, row.elide) if row else None
    )
    carriers = [node] if node.note or node.hidden else []
    if node.carriers:
        carriers = [
            *map(
                node_of,
                conn.execute(
                    select(t.nodes)
                    .where(n.scope_id == scope_id, n.id.in_(node.carriers))
                    .order_by(n.id)
                ),
            ),
            *carriers,
        ]
    return Past(node, at, epoch, carriers)


def summaries(conn: Connection, scope_id: int, links: Sequence[bytes]) -> list[tuple[bytes, str]]:
    """The kept summaries of histories that end in one of these links, each with its link."""
    return [
        (row.chain, row.content)
        for row in among(conn, _summarised, {"scope": scope_id}, list(dict.fromkeys(links)))
    ]


@cache
def _summarised(size: int) -> Any:
    s = t.summaries.c
    return select(s.chain, s.content).where(s.scope_id == bindparam("scope"), any_of(s.chain, size))


def _nodes(*which: Any) -> Any:
    """Built once: these run in every turn, and building a statement costs more than running it."""
    return (
        select(t.nodes)
        .where(n.scope_id == bindparam("scope"), *which)
        .order_by(n.id.desc())
        .limit(CANDIDATES)
    )


@cache
def _by_digest(size: int) -> Any:
    return _nodes(any_of(n.digest, size), ANSWERED)


# States as the partial indexes spell them: a parameter in their place is looked at with each use, and the statement prepared anew (30 us).
OPEN, ANSWERED, NOT_DONE, CUT_OFF = (
    n.state == literal_column("'open'"),
    n.state != literal_column("'open'"),
    n.state != literal_column("'done'"),
    n.state == literal_column("'aborted'"),
)
BY_CHAIN = _nodes(n.digest == bindparam("digest"), n.chain == bindparam("chain"), ANSWERED)
OF_DIGEST = (
    select(n.id)
    .where(n.scope_id == bindparam("scope"), n.digest == bindparam("digest"), ANSWERED)
    .limit(2)
)
ABORTED = _nodes(NOT_DONE, CUT_OFF, n.asked == bindparam("asked"))
ABORTED_AFTER = _nodes(CUT_OFF, n.parent == bindparam("parent"))
ONE = _nodes(n.id == bindparam("node"))
WAITING = _nodes(NOT_DONE, OPEN, n.asked == bindparam("asked"))


class Nodes:
    """One scope's nodes, as recognition asks for them."""

    def __init__(self, conn: Connection, scope_id: int) -> None:
        self._conn, self._scope = conn, scope_id

    def _read(self, query: Any, **values: Any) -> list[Node]:
        return [
            node_of(row) for row in execute(self._conn, query, {"scope": self._scope, **values})
        ]

    def by_digest(self, digests: Sequence[bytes]) -> list[Node]:
        return [
            node_of(row) for row in among(self._conn, _by_digest, {"scope": self._scope}, digests)
        ]

    def only(self, digest: bytes) -> int | None:
        """The one answered node of this digest; None for none, and for several."""
        found = execute(self._conn, OF_DIGEST, {"scope": self._scope, "digest": digest}).scalars()
        return found[0] if len(found) == 1 else None

    def by_chain(self, chain: bytes, digest: bytes) -> list[Node]:
        return self._read(BY_CHAIN, chain=chain, digest=digest)

    def aborted(self, asked: bytes, parent: int | None) -> list[Node]:
        found = self._read(ABORTED, asked=asked)
        return found if parent is None else [*found, *self._read(ABORTED_AFTER, parent=parent)]

    def one(self, ident: int) -> Node | None:
        found = self._read(ONE, node=ident)
        return found[0] if found else None

    def waiting(self, asked: bytes, parent: int | None) -> Node | None:
        found = [node for node in self._read(WAITING, asked=asked) if node.parent == parent]
        return found[0] if found else None


def node_of(row: Row[Any]) -> Node:
    return Node(
        id=row.id,
        conversation=row.conversation,
        parent=row.parent,
        digest=row.digest or b"",
        chain=row.chain or b"",
        asked=row.asked or b"",
        trail=row.trail or b"",
        depth=row.depth,
        state=row.state,
        epoch=row.epoch,
        note=row.note,
        told=decode(row.told) if row.told else {},
        recall=row.recall,
        hidden=decode(row.hidden) if row.hidden else None,
        carriers=decode(row.carriers) if row.carriers else [],
        branch=row.branch,
        at=row.at,
        text=row.text or "",
        turn=row.turn,
    )


def columns(node: Node, scope_id: int) -> dict[str, Any]:
    return {
        "id": node.id,
        "scope_id": scope_id,
        "conversation": node.conversation,
        "parent": node.parent,
        "turn": node.turn,
        "digest": node.digest or None,
        "chain": node.chain or None,
        "asked": node.asked,
        "trail": node.trail or None,
        "depth": node.depth,
        "state": node.state,
        "epoch": node.epoch,
        "note": node.note,
        "recall": node.recall,
        "told": encode(node.told).decode() if node.told else None,
        "hidden": encode(node.hidden).decode() if node.hidden else None,
        "carriers": encode(node.carriers).decode() if node.carriers else None,
        "branch": node.branch,
        "at": node.at,
        "text": node.text or None,
    }


def _ledger(conn: Connection, request: bytes, scope_id: int) -> Ledger | None:
    row = execute(conn, ATTEMPT, {"request": request, "scope": scope_id}).first()
    return Ledger(node_of(row), decode(row.rounds) if row.rounds else []) if row else None


# --- writing -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Opening:
    """What is written while the upstream works: the conversation, the unanswered node and the messages the request adds."""

    owner: owners.Owner
    conversation: Conversation
    forked_from: str | None
    node: Node
    messages: Sequence[tuple[Json, bytes]]  # with their digests
    request: bytes | None
    adopted: bool = False  # the node is there already, from an earlier attempt
    rounds: Sequence[Json] = ()  # of an earlier attempt, which count
    scope_id: int | None = None  # the scope's row, where the turn found one
    there: Any = None  # the scope and the conversation as this transaction found them (see `owners.standing`)


def open_turn(conn: Connection, o: Opening, *, answered: bool = False) -> int:
    """Makes the request durable. answered: its node is written with its answer. Returns the scope's row id. Raises Erased."""
    now, c = time.time(), o.conversation
    there = owners.standing(conn, o.owner, o.scope_id, c.id)
    o.there = there if there is not None and there.conversation is not None else None
    scope_id: int = there.id if there else owners.ensure(conn, o.owner)
    if there is None or now - there.active_at > TOUCHED:
        owners.touch(conn, scope_id)
    if there is None or there.conversation is None:
        found = conversation(conn, scope_id, c.name) if c.explicit else None
        if found is not None:
            c.id = o.node.conversation = (
                found.id
            )  # another turn of the same name may have been first
        else:
            add_row(
                conn,
                t.conversations,
                id=c.id,
                scope_id=scope_id,
                name=c.name,
                explicit=c.explicit,
                resent=c.resent,
                forked_from=o.forked_from,
                head=None,
                created_at=now,
                updated_at=now,
            )
    rounds = encode(o.rounds).decode() if o.rounds else None
    if o.adopted:
        row = columns(
            o.node, scope_id
        )  # what this attempt is told: a later one that resumes its rounds is told the same
        execute(
            conn,
            TRIED_ANEW,
            {
                "node": o.node.id,
                "now": now,
                "request": o.request,
                "rounds": rounds,
                **{name: row[name] for name in PLANNED},
            },
        )
        return scope_id
    if not answered:
        add_row(conn, t.nodes, **columns(o.node, scope_id), request=o.request, rounds=rounds)
        message_rows.append(conn, _asked(o, scope_id, now), _newest(o.there))
    return scope_id


def _asked(o: Opening, scope_id: int, now: float) -> list[dict[str, Any]]:
    """The rows of the messages that the request adds."""
    return list(
        message_rows.rows_of(
            scope_id, message_rows.Place(o.conversation.id, o.node.id, "chat", now), o.messages
        )
    )


def _newest(there: Any) -> int | None:
    return None if there is None else max(there.stored or 0, there.indexed or 0)


def round_done(conn: Connection, node: int, rounds: Sequence[Json]) -> None:
    """Enters the finished hidden rounds of this attempt; commits with what their calls wrote."""
    conn.execute(
        update(t.nodes).where(n.id == node).values(rounds=encode(rounds).decode(), at=time.time())
    )


def attempt_failed(conn: Connection, node: int) -> None:
    """Notes when; the node stays open, so that a repetition of the request goes on with it."""
    execute(conn, TRIED, {"node": node, "now": time.time()})


def drop_turn(conn: Connection, scope_id: int, node: int) -> None:
    """Takes an opened turn back: nothing is kept of a request that the upstream refused for its credentials."""
    row = conn.execute(
        select(n.conversation).where(n.id == node, n.scope_id == scope_id, n.state == "open")
    ).first()
    if row is None:
        return
    message_rows.remove(conn, t.messages.c.node == node)
    conn.execute(delete(t.nodes).where(n.id == node))
    if (
        conn.execute(select(n.id).where(n.conversation == row.conversation).limit(1)).first()
        is None
    ):
        conn.execute(delete(t.conversations).where(cv.id == row.conversation))
    kinds = (t.conversations, t.blocks, t.passages)
    if all(
        conn.execute(select(k.c.id).where(k.c.scope_id == scope_id).limit(1)).first() is None
        for k in kinds
    ):
        conn.execute(delete(t.scopes).where(t.scopes.c.id == scope_id))


@dataclass(slots=True)
class Record:
    """What a turn leaves: its answers (one a choice), its epoch when new, its explain record. Plain data, so that it can
    be spilled to a file when the store fails after the answer left."""

    owner: owners.Owner
    conversation: int
    nodes: list[Node]
    answers: list[Json]
    resent: bool
    epoch: Epoch | None = None
    explain: tuple[str, Json] | None = None
    evicted: list[tuple[Json, bytes]] = field(default_factory=list)
    prove: bool = False
    key: bytes = b""  # the scope's, for the links of a line that is joined anew
    seen_head: int | None = None  # the line's end as this turn found it
    kept: bool = False  # the line is kept here (a client that sends its newest message alone)
    again: bool = (
        False  # an earlier attempt may have left an answer of its own, which this one replaces
    )
    jobs: list[Job] = field(default_factory=list)  # what follows in the background
    used: list[int] = field(default_factory=list)  # passages that automatic recall showed
    scope_id: int | None = None  # the scope's row, where it is known
    parent_turn: int | None = None  # the turn of the first node's parent, where it is known


def record(conn: Connection, r: Record, opening: Opening | None = None) -> int:
    """Writes a turn's answers; safe to call again with the same record. opening: its request, where that was not written before.
    Returns the conversation's newest node. Raises Erased."""
    request: dict[str, Any] = {}
    said: list[dict[str, Any]] = []
    now = time.time()
    if opening is not None:
        r.scope_id, request = open_turn(conn, opening, answered=True), {"request": opening.request}
        said = _asked(opening, r.scope_id, now)
        r.conversation = opening.conversation.id
        for node in r.nodes:
            node.conversation = r.conversation
    there = (
        opening.there
        if opening is not None and opening.there is not None
        else owners.standing(
            conn, r.owner, r.scope_id or owners.ensure(conn, r.owner), r.conversation
        )
    )
    if there is None or there.conversation is None:
        raise Erased("the conversation was deleted while this ran; nothing of it is kept")
    scope_id: int = there.id
    if r.kept:
        _join(conn, there, r)
    if r.epoch is not None:
        e = r.epoch
        put_row(
            conn,
            t.epochs,
            ("id",),
            id=e.id,
            scope_id=scope_id,
            core=e.core,
            blocks=encode(dict(e.blocks)).decode(),
            edits=e.edits,
            cut=e.cut,
            elide=e.elide,
            created_at=now,
        )
    for node, answer in zip(r.nodes, r.answers, strict=True):
        node.at = now
        if r.again:
            message_rows.remove(
                conn, (t.messages.c.node == node.id) & (t.messages.c.source == "answer")
            )
        put_row(conn, t.nodes, ("id",), **columns(node, scope_id), **request)
        request = {}
        said += message_rows.rows_of(
            scope_id,
            message_rows.Place(r.conversation, node.id, "answer", now, node.state == "aborted"),
            [(answer, node.digest)],
        )
    message_rows.append(conn, said, _newest(there))
    head = _move(conn, there, r, now)
    if r.evicted:
        message_rows.add(
            conn,
            scope_id,
            message_rows.Place(r.conversation, r.nodes[0].id, "evicted", now),
            r.evicted,
            once=True,
        )
    if r.explain:
        execute(
            conn,
            explaining(conn.dialect.name),
            {
                "id": r.nodes[0].id,
                "scope_id": scope_id,
                "record": encode({**r.explain[1], "created_at": now}).decode(),
                "created_at": now,
            },
        )
    fact_rows.used(conn, r.used)
    for job in r.jobs:
        if not job.every or owners.nth_turn(conn, scope_id, job.every):
            enqueue(conn, replace(job, scope_id=scope_id))
    if r.prove and not there.proven:
        owners.prove(conn, scope_id)
    return head


@cache
def explaining(dialect: str) -> Any:
    """Keeps a turn's explain record; those of other attempts at the turn stay before it."""
    x = t.explains.c
    statement = inserting(dialect, t.explains, x.keys())
    return statement.on_conflict_do_update(
        index_elements=["id"],
        set_={
            "record": x.record + "\n" + statement.excluded.record,
            "created_at": statement.excluded.created_at,
        },
    )


def _join(conn: Connection, line: Any, r: Record) -> None:
    """A line kept here loses no turn: one that another overtook meanwhile goes on behind it. line: see `owners.standing`."""
    head, first = line.head, r.nodes[0]
    if head is None or head in (first.parent, first.id, r.seen_head):
        return
    before = Nodes(conn, line.id).one(head)
    if before is None:
        return
    link = before.chain
    for digest in execute(conn, SAID, {"node": first.id}).scalars():
        link = mac(r.key, link, digest)
    for node in r.nodes:
        node.parent, node.asked, node.depth = before.id, link, before.depth + 1
        node.chain, node.trail = mac(r.key, link, node.digest), trail_after(before, node.digest)


def _move(conn: Connection, line: Any, r: Record, now: float) -> int:
    """Moves the conversation's head to this answer, and returns it. The first continuation keeps the line: a later sibling does not
    move it. line: see `owners.standing`."""
    first, head = r.nodes[0], line.head
    sibling = (
        head is not None and not line.explicit and first.parent is not None and first.turn != head
    )
    stays = (
        sibling
        and (r.parent_turn or execute(conn, TURN_OF, {"which": first.parent}).scalar()) != head
    )
    to: int = head if stays else first.turn
    execute(
        conn,
        MOVED,
        {
            "which": r.conversation,
            "scope": line.id,
            "head": to,
            "resent": line.resent or r.resent,
            "updated_at": now,
        },
    )
    return to
