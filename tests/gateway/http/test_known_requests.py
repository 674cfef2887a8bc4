"""Which requests have one name: those that differ in nothing that decides how they are read."""

from __future__ import annotations

from gateway.http.known_requests import MEMBERS_BYTES, VARYING, KnownRequests

HEADERS = [(b"authorization", b"Bearer k"), (b"x-memory-user", b"ada")]
MEMBERS = b'{"model":"m","messages":[],"max_tokens":9}'


def test_each_header_and_member_makes_another_name():
    requests = KnownRequests()
    names = {
        requests.name(pairs, members)
        for members in (MEMBERS, MEMBERS + b" ")
        for pairs in (HEADERS, HEADERS[:1], [*HEADERS, (b"x-memory", b"read")], HEADERS[::-1])
    }
    assert len(names) == 8


def test_what_says_which_request_it_is_makes_none():
    requests = KnownRequests()
    varied = [*HEADERS, *((name, b"1") for name in VARYING)]
    assert requests.name(varied, MEMBERS) == requests.name(HEADERS, MEMBERS) != 0


def test_long_members_have_no_name():
    requests = KnownRequests()
    assert requests.name(HEADERS, b"x" * (MEMBERS_BYTES + 1)) == 0
    assert requests.name(HEADERS, b"") == 0
