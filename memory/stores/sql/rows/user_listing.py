"""Users as a person looks for them: by last use or size, by name or by what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, or_, select

from memory.scope import KIND_MARK
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.scopes import UserName, VisibleScopes

UserOrder = Literal["name", "used", "size"]
ORDERS: tuple[UserOrder, ...] = ("name", "used", "size")
s = t.scopes.c
p = t.passages.c
b = t.blocks.c
m = t.messages.c


class UserSearch(NamedTuple):
    """Which users are listed. words: a part of their names, or of what is known of them.

    order: by name, by last use, or by the number of messages.
    """

    reach: VisibleScopes
    words: str = ""
    order: UserOrder = "name"
    offset: int = 0
    limit: int = 50


def find_names(conn: Connection, user_search: UserSearch) -> list[UserName]:
    """Return the tenants and names of users. Its cost is linear in what is searched."""
    query = select(s.tenant, s.user).where(
        s.user.is_not(None),
        # These are agents and layers.
        ~s.user.startswith(KIND_MARK),
        *user_search.reach.conditions(),
    )
    if user_search.words:
        query = query.where(_knows(user_search.words))
    if user_search.order == "size":
        sizes = select(m.scope_id, func.count().label("size")).group_by(m.scope_id).subquery()
        query = query.outerjoin(sizes, sizes.c.scope_id == s.id)
        order: Sequence[ColumnElement[int]] = [func.coalesce(func.sum(sizes.c.size), 0).desc()]
    elif user_search.order == "used":
        order = [func.max(s.active_at).desc()]
    else:
        order = []
    query = query.group_by(s.tenant, s.user).order_by(*order, s.tenant, s.user)
    rows = conn.execute(query.offset(user_search.offset).limit(user_search.limit))
    return [(row[0], row[1]) for row in rows]


def _knows(words: str) -> ColumnElement[bool]:
    """Return whether a user's name, a block or a passage has these words."""
    block = select(b.scope_id).where(b.value.icontains(words, autoescape=True))
    passage = select(p.scope_id).where(
        p.deleted_at.is_(None), p.content.icontains(words, autoescape=True)
    )
    if "deleted" in b:
        block = block.where(b.deleted.is_(False))
    return or_(s.user.icontains(words, autoescape=True), s.id.in_(block), s.id.in_(passage))
