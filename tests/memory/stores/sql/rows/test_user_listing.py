"""Users by use, size and name, and by what is known of them."""

from __future__ import annotations

import pytest

from memory.scope import AGENT_KIND, Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import blocks, passages, scopes
from memory.stores.sql.rows.scopes import VisibleScopes
from memory.stores.sql.rows.user_listing import ORDERS, UserSearch, find_names

SECRET = b"s" * 32
USERS = {"ada": ("I like tea", 30.0), "bob": ("I like 100% coffee", 20.0), "eve": ("", 10.0)}


@pytest.fixture
async def filled(db):
    def work(conn):
        for name, (known, used) in USERS.items():
            owner = scopes.current_owner(conn, Scope("t", name, "default", SECRET))
            key = scopes.get_or_create(conn, owner)
            conn.execute(t.scopes.update().where(t.scopes.c.id == key).values(active_at=used))
            if known:
                passages.add(conn, key, passages.NewPassage(known))
        other = scopes.current_owner(conn, Scope("other", "ada", "default", SECRET))
        key = scopes.get_or_create(conn, other)
        blocks.BlockSet(key, {})
        agent = scopes.current_owner(conn, Scope("t", f"{AGENT_KIND}helper", "default", SECRET))
        scopes.get_or_create(conn, agent)

    await db.write(work)
    return db


async def names(db, tenant="t", **wanted):
    search = UserSearch(VisibleScopes(tenant, None), **wanted)
    return [name for _, name in await db.read(lambda conn: find_names(conn, search))]


async def test_users_are_sorted_by_name_use_and_size(filled):
    assert await names(filled) == ["ada", "bob", "eve"]
    assert await names(filled, order="used") == ["ada", "bob", "eve"]
    assert await names(filled, order="size") == ["ada", "bob", "eve"]
    assert await names(filled, tenant=None) == ["ada", "ada", "bob", "eve"]


@pytest.mark.parametrize("order", ORDERS)
async def test_pages_of_any_order_hold_each_user_once(filled, order):
    pages = [await names(filled, order=order, offset=i, limit=1) for i in range(4)]
    assert sorted(name for page in pages for name in page) == ["ada", "bob", "eve"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("TEA", ["ada"]),
        ("like", ["ada", "bob"]),
        ("100%", ["bob"]),
        ("%", ["bob"]),
        ("_", []),
        ("ev", ["eve"]),
        ("helper", []),
        ("nothing", []),
    ],
)
async def test_users_are_found_by_what_is_known_of_them(filled, words, found):
    assert await names(filled, words=words) == found


async def test_what_is_set_aside_is_no_longer_known(filled):
    await filled.write(
        lambda conn: conn.execute(t.passages.update().values(deleted_at=1.0)) and None
    )
    assert await names(filled, words="tea") == []
