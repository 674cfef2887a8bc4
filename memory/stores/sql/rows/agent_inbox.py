"""Messages that wait for an agent: put, listed, taken back, delivered by a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from memory.errors import NotFound
from memory.ids import clock, new_id
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import Query
from memory.stores.sql.rows.scopes import UserName

# Rows a transaction.
RECORDS = 1000

x = t.agent_inbox.c
n = t.nodes.c
# Of messages whose turn is asked for anew: its answer may have reached nobody, or is replaced.
ASKED_AGAIN = exists().where(
    n.id == x.turn,
    n.asked == bindparam("asked", type_=n.asked.type),
    n.parent.is_not_distinct_from(bindparam("parent", type_=n.parent.type)),
)
WAITING = (
    select(t.agent_inbox)
    .where(
        x.tenant == bindparam("tenant"),
        x.owner == bindparam("owner"),
        x.agent == bindparam("agent"),
        or_(x.delivered_at.is_(None), ASKED_AGAIN),
        x.created_at >= bindparam("since"),
    )
    .order_by(x.created_at, x.id)
    .limit(bindparam("most"))
)


class InboxAddress(msgspec.Struct, frozen=True):
    """An agent, and whose memory with it. owner: of home `agent` its own."""

    tenant: str
    owner: str
    agent: str


class RepeatedTurn(msgspec.Struct, frozen=True):
    """What a turn that may be asked for anew follows.

    asked: link of its last message, None for a turn that repeats none. parent: node of the answer
    before it.
    """

    asked: bytes | None = None
    parent: int | None = None


class NewInboxMessage(msgspec.Struct, frozen=True):
    """A message to an agent. said_by: the user in whose turn it is sent."""

    to: InboxAddress
    sender: str
    text: str
    said_by: str | None = None


class InboxMessage(msgspec.Struct, frozen=True):
    """A stored message. Times are Unix times."""

    id: str
    sender: str
    text: str
    created_at: float
    delivered_at: float | None = None


def put(conn: Connection, new_message: NewInboxMessage) -> InboxMessage:
    """Put a message into an inbox."""
    message = InboxMessage(new_id("msg"), new_message.sender, new_message.text, clock.now())
    address = new_message.to
    conn.execute(
        insert(t.agent_inbox).values(
            id=message.id,
            tenant=address.tenant,
            agent=address.agent,
            owner=address.owner,
            sender=new_message.sender,
            said_by=new_message.said_by,
            text=new_message.text,
            created_at=message.created_at,
        )
    )
    return message


def waiting(
    address: InboxAddress, since: float, max_messages: int, repeated_turn: RepeatedTurn
) -> Query:
    """Return the query for the messages that wait, oldest first. since: older ones do not.

    repeated_turn: what it delivered is delivered again.
    """
    return Query(
        WAITING,
        {
            "tenant": address.tenant,
            "owner": address.owner,
            "agent": address.agent,
            "since": since,
            "most": max_messages,
            "asked": repeated_turn.asked,
            "parent": repeated_turn.parent,
        },
    )


def message_of(row: Any) -> InboxMessage:
    """Return the message of a row."""
    return InboxMessage(row.id, row.sender, row.text, row.created_at, row.delivered_at)


def list_page(
    conn: Connection, address: InboxAddress, after: tuple[float, str] | None, limit: int
) -> list[InboxMessage]:
    """List the messages of an inbox, delivered or not, newest first, behind a place."""
    is_addressed = (
        (x.tenant == address.tenant) & (x.owner == address.owner) & (x.agent == address.agent)
    )
    query = select(t.agent_inbox).where(is_addressed).order_by(x.created_at.desc(), x.id.desc())
    if after is not None:
        query = query.where(tuple_(x.created_at, x.id) < tuple_(*map(literal, after)))
    return [message_of(row) for row in conn.execute(query.limit(limit))]


def take_back(conn: Connection, address: InboxAddress, ident: str) -> None:
    """Remove a message. Raises NotFound."""
    removed_count = conn.execute(
        delete(t.agent_inbox).where(
            x.id == ident,
            x.tenant == address.tenant,
            x.owner == address.owner,
            x.agent == address.agent,
        )
    ).rowcount
    if not removed_count:
        raise NotFound(f"there is no message {ident[:64]!r} in this inbox")


def deliver(conn: Connection, idents: Sequence[str], turn: int) -> None:
    """Note that the answer to a turn delivers these messages."""
    delivered_at = func.coalesce(x.delivered_at, clock.now())
    conn.execute(
        update(t.agent_inbox).where(x.id.in_(idents)).values(delivered_at=delivered_at, turn=turn)
    )


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give what a user got and sent to another name."""
    for column in (x.owner, x.said_by):
        is_owned = (x.tenant == source[0]) & (column == source[1])
        values = {"tenant": target[0], column.name: target[1]}
        conn.execute(update(t.agent_inbox).where(is_owned).values(values))


def remove(conn: Connection, user_name: UserName) -> None:
    """Remove what a user who is erased got and sent."""
    is_owned = or_(x.owner == user_name[1], x.said_by == user_name[1])
    conn.execute(delete(t.agent_inbox).where(x.tenant == user_name[0], is_owned))


def expire(conn: Connection, before: float) -> int:
    """Remove so many messages that were sent before a time.

    Returns their number; call again until it is 0.
    """
    expired_ids = select(x.id).where(x.created_at < before).limit(RECORDS)
    return conn.execute(delete(t.agent_inbox).where(x.id.in_(expired_ids))).rowcount
