"""Rows of tickets: found by their digest, gone once their time is over."""

from __future__ import annotations

import pytest

from gateway.storage.tickets import TicketTable, TooManyTickets
from memory import Database
from tests import stores


async def at_once():
    """The database is open."""


@pytest.fixture
async def db(tmp_path):
    found = Database(stores.url_of(tmp_path / "tickets.db"), secret=stores.SECRET)
    await found.open()
    yield found
    await found.close()


async def names(db):
    query = "SELECT name FROM meta WHERE name LIKE 'ticket %' ORDER BY name"
    return [row[0] for row in await db.read(lambda c: list(c.exec_driver_sql(query)))]


async def test_a_row_is_found_until_it_is_removed(db):
    await TicketTable(db, at_once).store(("session", "d1"), "key x y", (5.0, 99.5), 9)
    assert await TicketTable(db, at_once).find(("session", "d1")) == ("key x y", 99.5)
    assert await TicketTable(db, at_once).find(("link", "d1")) is None
    assert [await TicketTable(db, at_once).remove(("session", "d1")) for _ in range(2)] == [
        True,
        False,
    ]
    assert await TicketTable(db, at_once).find(("session", "d1")) is None


async def test_the_next_one_removes_what_is_over_and_nothing_else_of_the_database(db):
    before = await db.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM meta").scalar())
    for number, ends in enumerate((9.0, 10.0, 1_000_000_000.0)):
        await TicketTable(db, at_once).store(("session", f"d{number}"), "a", (1.0, ends), 9)
    await TicketTable(db, at_once).store(("session", "d3"), "a", (9.5, 2_000_000_000.0), 9)
    assert await names(db) == ["ticket session d1", "ticket session d2", "ticket session d3"]
    await TicketTable(db, at_once).store(("link", "d4"), "a", (1_800_000_000.0, 2_000_000_000.0), 9)
    assert await names(db) == ["ticket link d4", "ticket session d3"]
    for key in (("link", "d4"), ("session", "d3")):
        await TicketTable(db, at_once).remove(key)
    after = await db.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM meta").scalar())
    assert after == before


async def test_a_purpose_has_a_bound(db):
    for number in range(2):
        await TicketTable(db, at_once).store(("session", f"d{number}"), "a", (1.0, 9.0), 2)
    with pytest.raises(TooManyTickets):
        await TicketTable(db, at_once).store(("session", "d2"), "a", (1.0, 9.0), 2)
    await TicketTable(db, at_once).store(("link", "d2"), "a", (1.0, 9.0), 2)
