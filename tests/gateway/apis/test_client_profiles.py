"""Which program a request is of, and what follows from it."""

from __future__ import annotations

import pytest

from gateway.apis.base import RequestFacts
from gateway.apis.client_profiles import ANYONE, ClientProfiles
from gateway.config.settings import parse_settings
from memory import Messages

MINE = {
    "user_agents": ["Mine/"],
    "conversation_headers": ["x-mine-chat", "x-mine-thread"],
    "utility": [{"header": "x-mine-call", "contains": '"kind": "title"', "max_tokens": 9}],
}
PROFILES = ClientProfiles(parse_settings({"clients": {"mine": MINE}}))
FACTS = RequestFacts(Messages.of([]))


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({b"user-agent": b"mine/2.0"}, True),
        ({b"user-agent": b"Not mine/2.0"}, False),
        ({b"x-mine-thread": b"t"}, True),
        ({b"x-mine-call": b"{}"}, True),
        ({}, False),
    ],
)
def test_a_program_is_known_by_its_agent_or_by_a_header(headers, known):
    assert (PROFILES.find(headers) is not ANYONE) == known


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({b"x-mine-chat": b"a", b"x-mine-thread": b"b"}, "a"),
        ({b"x-mine-chat": b"", b"x-mine-thread": b"b"}, "b"),
        ({b"x-mine-chat": b"New"}, ""),
        ({b"x-mine-chat": b"undefined"}, ""),
        ({b"x-mine-chat": b"{{LIBRECHAT_BODY_CONVERSATIONID}}"}, ""),
        ({b"x-mine-chat": "é".encode() * 400}, "é" * 256),
        ({b"x-mine-chat": b"\xff"}, "\ufffd"),
    ],
)
def test_the_first_header_that_names_a_conversation_counts(headers, name):
    assert PROFILES.find(headers).conversation(headers) == name


@pytest.mark.parametrize(
    ("value", "body", "own"),
    [
        (b'{"kind":"title"}', {"max_tokens": 9}, True),
        (b'{ "kind" : "title" }', {"max_output_tokens": 9}, True),
        (b'{"kind":"title"}', {"max_tokens": 10}, False),
        (b'{"kind":"turn"}', {"max_tokens": 9}, False),
    ],
)
def test_all_members_of_a_rule_have_to_hold(value, body, own):
    headers = {b"x-mine-call": value}
    assert PROFILES.find(headers).asks_for_itself(headers, body, FACTS) == own
