"""Tickets: good for one purpose, for a time, until they are given up, and only as issued."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.sessions import MAX_TICKET_CHARACTERS, TicketOffice
from gateway.errors import Unavailable


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def office():
    return TicketOffice(b"s" * 32, Clock())


def test_a_ticket_comes_back_as_it_was_issued(office):
    found = office.check("session", office.issue("session", "key ünï", 60))
    assert (found.name, found.expires_at) == ("key ünï", 1060.0)


def test_it_is_good_for_its_purpose_and_its_time(office):
    text = office.issue("link", "key a", 60)
    assert office.check("session", text) is None
    assert office.check("link", text)
    office._clock.now += 60
    assert office.check("link", text) is None


def test_it_is_refused_once_given_up(office):
    text, other = office.issue("session", "key a", 60), office.issue("session", "key a", 60)
    office.revoke(office.check("session", text))
    assert office.check("session", text) is None
    assert office.check("session", other)


def test_another_server_does_not_take_it(office):
    assert (
        TicketOffice(b"t" * 32, Clock()).check("session", office.issue("session", "a", 60)) is None
    )


@given(st.text(max_size=200))
def test_nothing_else_is_a_ticket(text):
    office = TicketOffice(b"s" * 32, Clock())
    assert office.check("session", text) is None
    assert office.check("session", text + office.issue("session", "a", 60)) is None or not text


def test_what_is_kept_of_tickets_given_up_is_bounded(office):
    for i in range(200):
        office.revoke(office.check("session", office.issue("session", "a", 60)))
        if i % 50 == 49:  # time passes
            office._clock.now += 61
    assert len(office._revoked["session"]) <= 51
    assert office.check("session", "x" * (MAX_TICKET_CHARACTERS + 1)) is None


def test_none_that_was_given_up_is_forgotten_where_they_are_many(office, monkeypatch):
    monkeypatch.setattr("gateway.auth.sessions.MAX_REVOKED", 3)
    monkeypatch.setattr("gateway.auth.sessions.MAX_REVOKED_IN_ALL", 6)
    texts = [office.issue("session", "a", 60) for _ in range(7)]
    tickets = [office.check("session", text) for text in texts]
    for ticket in tickets[:6]:  # who has a ticket may give it up beyond what stops new ones
        office.revoke(ticket)
    with pytest.raises(Unavailable):
        office.revoke(tickets[6])
    with pytest.raises(Unavailable, match="at most 3 are kept"):
        office.issue("session", "a", 60)
    assert [office.check("session", text) for text in texts[:6]] == [None] * 6
    assert office.check("link", office.issue("link", "a", 60))  # links are counted apart
    office._clock.now += 61
    assert office.check("session", office.issue("session", "a", 60))


def test_a_token_for_forms_belongs_to_its_session(office):
    tickets = [office.check("session", office.issue("session", "a", 60)) for _ in range(2)]
    assert office.csrf_token(tickets[0]) == office.csrf_token(tickets[0])
    assert office.csrf_token(tickets[0]) != office.csrf_token(tickets[1])
