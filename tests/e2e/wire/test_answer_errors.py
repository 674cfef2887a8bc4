"""B. An upstream's error page becomes an error in shape; its JSON errors stay its own."""

from __future__ import annotations

import json

import pytest

from tests.e2e.wire.rows import row

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGE = (
    "<!DOCTYPE html><html><head><title>502 Bad "
    "Gateway</title><style>body{color:red}</style><script>var x = "
    "'<p>';</script></head><body><h1>502 Bad Gateway</h1>"
    + "<p>nginx ☃</p>" * 15_000
    + "</body></html>"
)
BODIES = [
    (PAGE.encode(), "text/html"),
    (b"upstream connect error", "text/plain"),
    (b"", "text/plain"),
    (b"", "application/json"),
    (b"{broken", "application/json"),
    (b"\xff\xfe\x00" * 70_000, "application/octet-stream"),
    (PAGE.encode(), "application/json"),
    (b"[" * 100_000, "application/json"),
    (b"<error><code>x</code></error>", "application/xml"),
]
CALLS = [
    ("full", "/chat/completions", b""),
    ("full", "/chat/completions", b',"stream":true'),
    ("off", "/chat/completions", b""),
    ("off", "/chat/completions", b',"stream":true'),
    ("full", "/embeddings", b""),
]


@row(30)
@pytest.mark.parametrize(("mode", "path", "more"), CALLS)
@pytest.mark.parametrize("status", [400, 503])
async def test_what_is_no_json_becomes_a_json_error_of_the_same_status(
    shared, mode, path, more, status
):
    for body, kind in BODIES:
        shared.play(
            lambda seen, wire, body=body, kind=kind: wire.answer(
                status, body, "retry-after: 7", "x-request-id: r1", content_type=kind
            )
        )
        response = await shared.post(
            b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}' % more, mode, path
        )
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert (response.headers["retry-after"], response.headers["x-request-id"]) == ("7", "r1")
        assert int(response.headers["content-length"]) == len(response.content) < 2000
        error = response.json()["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert str(status) in error["message"]
        assert "<" not in error["message"]


@row(30)
async def test_the_words_of_a_page_are_in_the_message(shared):
    shared.up.script = [
        lambda seen, wire: wire.answer(502, PAGE.encode(), content_type="text/html")
    ]
    message = (
        await shared.post(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}')
    ).json()["error"]["message"]
    assert "502 Bad Gateway" in message
    assert "color:red" not in message
    assert "var x" not in message


@row(30)
@pytest.mark.parametrize(("mode", "path", "more"), CALLS)
@pytest.mark.parametrize(
    "body",
    [
        {
            "error": {
                "message": "no",
                "type": "t",
                "param": None,
                "code": "c",
                "x": {"b": 1, "a": 1.0},
            }
        },
        {"error": "text"},
        {"detail": [{"loc": ["body"], "msg": "x"}]},
        {"message": "x"},
        [],
        "text",
        None,
        {"error": {"message": "é\u2028", "code": 429}},
    ],
)
async def test_json_errors_stay_as_they_came(shared, mode, path, more, body):
    shared.up.script = [lambda seen, wire: wire.json(body, 422)]
    response = await shared.post(
        b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}' % more, mode, path
    )
    assert (response.status_code, response.content) == (422, json.dumps(body).encode())
