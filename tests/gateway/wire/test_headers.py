"""Which headers cross the gateway: credentials and the connection's own never do."""

from __future__ import annotations

import pytest

from gateway.wire import headers
from gateway.wire.headers import (
    bridge_headers,
    client_headers,
    client_side,
    encode_user_header,
    header_value,
    may_forward,
    merge_headers,
    upstream_headers,
    with_body_idempotency_key,
    with_owners_idempotency_key,
)


def test_a_header_that_is_sent_twice_is_one_list():
    pairs = [(b"accept", b"a"), (b"range", b"x"), (b"accept", b"b"), (b"accept", b"c")]
    assert merge_headers(pairs) == {b"accept": b"a, b, c", b"range": b"x"}
    assert merge_headers(pairs[:2]) == {b"accept": b"a", b"range": b"x"}


@pytest.mark.parametrize(
    "name", sorted(headers.HOP | headers.CREDENTIALS | {b"x-memory", b"proxy-auth"})
)
def test_no_operator_can_let_a_credential_or_a_header_of_the_connection_through(name):
    assert not may_forward(name)
    assert may_forward(b"x-trace")


def test_a_client_sends_what_is_on_the_list_and_what_its_connection_does_not_name():
    client = {
        b"authorization": b"Bearer s",
        b"accept": b"*/*",
        b"range": b"0-1",
        b"openai-project": b"p",
        b"x-trace": b"1",
        b"connection": b"Range, close",
    }
    assert client_side(client) == [(b"accept", b"*/*"), (b"openai-project", b"p")]
    assert client_side(client, own=False) == [(b"accept", b"*/*")]
    assert client_side(client, ["X-Trace"], own=False) == [(b"accept", b"*/*"), (b"x-trace", b"1")]


def test_an_idempotency_key_is_one_tenants_and_one_bodys():
    client = [(b"accept", b"*/*"), (b"idempotency-key", b"k")]

    def key(tenant, body=b""):
        pairs = with_body_idempotency_key(with_owners_idempotency_key(client, b"s", tenant), body)
        assert pairs[0] == client[0]
        return pairs[1]

    assert key("a") == key("a")
    assert len({key("a"), key("b"), key("\ud800"), key("a", b"{}")}) == 4


def test_an_upstream_gets_its_own_credential_and_the_type_of_the_body():
    own = [(b"accept-encoding", b"identity"), (b"user-agent", b"mnemogate")]
    assert upstream_headers([], None, None) == own
    assert upstream_headers([(b"accept", b"*/*")], b"Bearer k") == [
        (b"accept", b"*/*"),
        *own,
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer k"),
    ]


def test_a_client_gets_no_cookie_and_nothing_of_the_other_connection():
    upstream = [
        (b"X-Request-Id", b"r"),
        (b"Set-Cookie", b"c"),
        (b"Connection", b"X-Hop"),
        (b"X-Hop", b"1"),
        (b"X-Memory", b"full"),
        (b"Access-Control-Allow-Origin", b"*"),
    ]
    assert client_headers(upstream) == [(b"x-request-id", b"r")]
    assert client_headers(upstream[:2]) == [(b"x-request-id", b"r")]


@pytest.mark.parametrize("odd", [(b"a b", b""), (b"a", b"\x00"), (b"a", b"x\r\ny")])
def test_a_header_that_no_server_may_send_is_dropped(odd):
    assert client_headers([odd, (b"ok", b"1")]) == [(b"ok", b"1")]


def test_a_text_cannot_end_its_header_line():
    assert header_value("a b; c\r\nd é") == b"a b; c%0D%0Ad %C3%A9"


def test_nobody_and_a_user_called_none_differ():
    assert encode_user_header(None) == b"none"
    assert encode_user_header("none") == b"%6Eone"
    assert encode_user_header("ada/é") == b"ada%2F%C3%A9"


def test_a_bridged_answer_says_its_format_and_what_was_lost():
    assert bridge_headers(None) == []
    assert bridge_headers(("chat", ())) == [(b"x-mnemogate-bridge", b"chat")]
    assert bridge_headers(("chat", ["tools.é", "n"])) == [
        (b"x-mnemogate-bridge", b"chat"),
        (b"x-mnemogate-dropped", b"tools.?, n"),
    ]
    assert bridge_headers(("", ["n"])) == [(b"x-mnemogate-dropped", b"n")]
