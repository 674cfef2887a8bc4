"""What arrives has a bound, whichever side it comes from, and the error names it."""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.e2e.responses.test_conversations import ADA
from tests.models import Model

STORES = {
    "providers": {"openai": {"base_url": "set below", "wires": ["chat", "responses"]}},
    "models": {"*": {"targets": [{"provider": "openai", "stateful": True}]}},
}
MIB = 1 << 20


def object_of(size):
    return b'{"id":"conv_1","object":"conversation","x":"%b"}' % (b"a" * size)


MANY = b"{" + b",".join(b'"a%d":1' % i for i in range(150_000)) + b"}"


def answering(body):
    """A server that answers everything with these bytes."""
    return Model(lambda seen, wire: wire.answer(200, body))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (object_of(9 * MIB), "more than 8 MiB"),
        (
            MANY,
            "100000 members of one object",
        ),
        (b"[" + b"{}," * 600_000 + b"{}]", "500000 JSON values"),
    ],
)
async def test_a_stored_object_of_the_providers_is_read_within_a_limit(data, body, words):
    async with answering(body) as up, running(up.url, data, STORES) as live:
        http = await live.http.post(f"{live.url}/conversations", json={}, headers=ADA)
        assert http.status_code == 502, http.text[:200]
        assert words in http.json()["error"]["message"]


async def test_a_stored_object_of_up_to_8_mib_is_passed_on(data):
    sent = object_of(7 * MIB)
    async with answering(sent) as up, running(up.url, data, STORES) as live:
        http = await live.http.post(f"{live.url}/conversations", json={}, headers=ADA)
        assert (http.status_code, http.json()["id"]) == (200, "conv_1")
