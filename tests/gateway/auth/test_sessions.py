"""Tickets: good for one purpose, for a time, until they are given up, at every process."""

from __future__ import annotations

import random
import string

import pytest

from gateway.auth.sessions import MAX_TICKET_CHARACTERS, OUTAGE_SECONDS, TicketOffice
from gateway.errors import StoreDown, Unavailable
from gateway.storage.tickets import TicketTable
from memory import Database, StoreUnavailable
from tests import stores


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


async def at_once():
    """The database is open."""


def office_of(db):
    return TicketOffice(b"s" * 32, TicketTable(db, at_once), Clock())


@pytest.fixture
async def db(tmp_path):
    found = Database(stores.url_of(tmp_path / "tickets.db"), secret=stores.SECRET)
    await found.open()
    yield found
    await found.close()


@pytest.fixture
def office(db):
    return office_of(db)


class Outage:
    """The database does not answer, until it is over."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch

    def __enter__(self):
        async def fails(self, *_, **__):
            raise StoreUnavailable("down")

        self._context = self._patch.context()
        patch = self._context.__enter__()
        patch.setattr(Database, "read", fails)
        patch.setattr(Database, "write", fails)

    def __exit__(self, *error):
        self._context.__exit__(*error)


async def test_a_ticket_comes_back_as_it_was_issued(office):
    found = await office.check("session", await office.issue("session", "key ünï x", 60))
    assert (found.name, found.expires_at) == ("key ünï x", 1060.0)


async def test_it_is_good_for_its_purpose_and_its_time(office):
    text = await office.issue("link", "key a", 60)
    assert await office.check("session", text) is None
    assert await office.check("link", text)
    office._clock.now += 60
    assert await office.check("link", text) is None


async def test_it_is_refused_everywhere_and_after_a_restart_once_given_up(office, db):
    text, other = await office.issue("session", "a", 60), await office.issue("session", "a", 60)
    elsewhere = office_of(db)
    ticket = await elsewhere.check("session", text)
    assert await office.revoke(ticket)
    for one in (office, elsewhere, office_of(db)):
        assert await one.check("session", text) is None
        assert await one.check("session", other)


async def test_it_is_given_up_once_among_all_who_try(office, db):
    text = await office.issue("link", "a", 60)
    elsewhere = office_of(db)
    tickets = [await one.check("link", text) for one in (office, elsewhere)]
    assert [await office.revoke(tickets[0]), await elsewhere.revoke(tickets[1])] == [True, False]


async def test_nothing_else_is_a_ticket(office):
    issued = await office.issue("session", "a", 60)
    rng = random.Random(7)
    for length in (0, 1, 42, 43, 44, MAX_TICKET_CHARACTERS, MAX_TICKET_CHARACTERS + 1, 5000):
        for letters in ("a", string.ascii_letters, "\0 %_", "ü\ud800"):
            text = "".join(rng.choices(letters, k=length))
            assert await office.check("session", text) is None
            if text:
                assert await office.check("session", text + issued) is None
                assert await office.check("session", issued + text) is None
    for wrong in (issued[:-1], issued.swapcase(), issued[::-1], f" {issued}", f"{issued} "):
        assert await office.check("session", wrong) is None


async def test_neither_the_text_nor_the_database_holds_what_the_other_does(office, db):
    text = await office.issue("session", "key 1234abcd", 60)
    assert "1234" not in text
    rows = await db.read(lambda c: list(c.exec_driver_sql("SELECT name, value FROM meta")))
    assert text not in str(rows)
    assert "1234abcd" in str(rows)


async def test_what_is_kept_is_bounded_and_old_ones_make_room(office, monkeypatch):
    monkeypatch.setattr("gateway.auth.sessions.MAX_TICKETS", 3)
    for _ in range(3):
        await office.issue("session", "a", 60)
    with pytest.raises(Unavailable, match="3 sign-ins last"):
        await office.issue("session", "a", 60)
    # Counted apart.
    assert await office.check("link", await office.issue("link", "a", 60))
    office._clock.now += 61
    assert await office.check("session", await office.issue("session", "a", 60))


async def test_a_short_outage_ends_no_session_and_lets_nobody_in(office, db, monkeypatch):
    text, other = await office.issue("session", "a", 900), await office.issue("session", "b", 900)
    assert await office.check("session", text)
    with Outage(monkeypatch):
        assert (await office.check("session", text)).name == "a"
        for unseen in (other, "invented"):
            with pytest.raises(StoreDown):
                await office.check("session", unseen)
        with pytest.raises(StoreDown):
            await office.issue("session", "c", 60)
        office._clock.now += OUTAGE_SECONDS + 1
        with pytest.raises(StoreDown):
            await office.check("session", text)
    assert await office.check("session", text)


async def test_what_was_given_up_in_an_outage_ends_here_at_once_and_later_everywhere(
    office, db, monkeypatch
):
    text, other = await office.issue("session", "a", 900), await office.issue("session", "b", 900)
    ticket, later = await office.check("session", text), await office.check("session", other)
    with Outage(monkeypatch):
        assert not await office.revoke(ticket)
        assert await office.check("session", text) is None
    assert await office.check("session", text) is None
    assert await office.revoke(later)
    again = office_of(db)
    assert await again.check("session", text) is None


async def test_a_token_for_forms_belongs_to_its_session(office):
    tickets = [
        await office.check("session", await office.issue("session", "a", 60)) for _ in range(2)
    ]
    assert office.csrf_token(tickets[0]) == office.csrf_token(tickets[0])
    assert office.csrf_token(tickets[0]) != office.csrf_token(tickets[1])
