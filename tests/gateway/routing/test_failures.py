"""Which refusals are about the length of the prompt, whatever words of the client they quote."""

from __future__ import annotations

import json

import pytest

from gateway.errors import UpstreamRefused
from gateway.routing.failures import is_overflow, sizes_told

QUOTED = "maximum context length is 300 tokens. However, you requested 9000"
TOO_LONG = "maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
PASSED_ON = json.dumps({"error": {"message": TOO_LONG, "code": 400}})


def refused(body, status=400):
    return UpstreamRefused(status, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": f"Invalid value: '{QUOTED}'", "code": "invalid_value"}},
        {"error": {"message": f"Invalid value: '{QUOTED}'", "param": "response_format.type"}},
        {"error": {"message": "Invalid value.", "input": QUOTED}},
        {"detail": [{"msg": "Input should be 'text'", "input": QUOTED}]},
        {"error": {"message": "Invalid value.", "metadata": {"raw": {"input": QUOTED}}}},
        {"error": {"message": "Invalid value.", "param": ["messages"], "code": [QUOTED]}},
        # Cut short.
        b'{"error": {"message": "Invalid value: ' + QUOTED.encode(),
        [],
        None,
    ],
)
def test_an_error_that_quotes_the_client_is_no_overflow(body):
    assert not is_overflow(refused(body))
    assert sizes_told(refused(body)) is None


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": TOO_LONG, "param": "messages", "code": "context_length_exceeded"}},
        {"error": {"message": TOO_LONG, "param": "x", "code": "context_length_exceeded"}},
        {"error": {"message": TOO_LONG, "param": "input_tokens", "code": 400}},
        {"error": {"message": TOO_LONG}},
        {"error": TOO_LONG},
        {"message": TOO_LONG, "object": "error"},
        {"detail": TOO_LONG},
        [{"error": {"message": TOO_LONG, "status": "INVALID_ARGUMENT"}}],
        {"error": {"message": "Provider returned error", "metadata": {"raw": PASSED_ON}}},
        {"error": {"type": "exceed_context_size_error", "n_ctx": 8192, "n_prompt_tokens": 9000}},
        TOO_LONG.encode(),
    ],
)
def test_an_overflow_is_known_in_the_words_of_every_server(body):
    assert is_overflow(refused(body))
    assert sizes_told(refused(body)) == (9000, 8192)
    assert not is_overflow(refused(body, 500))
