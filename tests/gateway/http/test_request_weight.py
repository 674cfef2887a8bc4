"""Long requests: memory handles what it can in time and stands aside from the rest; the bytes go
through.
"""

import gzip
import json

import pytest

from gateway.errors import BadRequest
from gateway.http import request_weight
from gateway.http.request_weight import (
    MESSAGES,
    TEXT_BYTES,
    TooHeavy,
    check_values,
    check_weight,
    read_routing_members,
)
from tests.conftest import running
from tests.models import Model


def user(content):
    return {"role": "user", "content": content}


def part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def body(messages, **more):
    return json.dumps({"model": "m", "user": "ann", "messages": messages, **more}).encode()


@pytest.mark.parametrize(
    "messages",
    [
        [user("a")] * MESSAGES,
        [user("a" * TEXT_BYTES)],
        [user([part("data:" + "a" * (TEXT_BYTES * 2))])],
        [user("😀" * (TEXT_BYTES // 4))],
    ],
)
def test_what_is_promised_is_looked_at(messages):
    check_weight(len(json.dumps(messages)), messages)


@pytest.mark.parametrize(
    "messages",
    [
        [user("a")] * (MESSAGES + 1),
        [user("a" * (TEXT_BYTES + 1))],
        [user("a" * TEXT_BYTES), user("bc")],
        [
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "f", "arguments": "a" * (TEXT_BYTES + 1)}}],
            }
        ],
    ],
)
def test_what_is_more_is_told_with_its_limit(messages):
    with pytest.raises(TooHeavy, match="memory handles"):
        check_weight(len(json.dumps(messages)), messages)


def test_too_many_values_are_not_decoded():
    with pytest.raises(TooHeavy, match="500000"):
        check_values(b"[" + b"{}," * 600_000 + b"1]")


def test_only_what_routing_needs_is_read_of_a_body():
    found = read_routing_members(body([user("hi")], stream=True, n=2, tools=[{}], max_tokens=5))
    assert found == {"model": "m", "user": "ann", "stream": True, "n": 2, "max_tokens": 5}
    assert read_routing_members(rb'{"model":"m","x":"\ud83d"}') == {"model": "m"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[]", "must be a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"model":3}', "`model`"),
        (b"{}", "`model`"),
        (b'{"model":"m","user":"' + b"u" * 70_000 + b'"}', "`user` has 70002 bytes"),
    ],
)
def test_what_cannot_be_routed_is_a_400_that_says_why(text, said):
    with pytest.raises(BadRequest, match=said):
        read_routing_members(text)


MANY = [user(f"question {i}") for i in range(MESSAGES + 1)]


@pytest.mark.parametrize("stream", [False, True])
async def test_memory_stands_aside_and_the_bytes_go_through(tmp_path, stream):
    async with Model("Yes.") as up, running(up.url, tmp_path) as live:
        sent = body(MANY, stream=stream)
        response = await live.http.post(f"{live.url}/chat/completions", content=sent)
        assert response.status_code == 200
        assert response.headers["x-memory-status"] == "degraded"
        assert (
            response.headers["x-memory-reason"]
            == f"degraded: {len(MANY)} messages; memory handles {MESSAGES}"
        )
        assert up.requests[-1].body == sent


async def test_a_long_request_within_the_limits_has_its_memory(tmp_path):
    history = [
        m
        for i in range(1500)
        for m in (
            user(f"question {i} " + "about tea " * 40),
            {"role": "assistant", "content": f"answer {i}"},
        )
    ]
    async with Model("Yes.") as up, running(up.url, tmp_path) as live:
        sent = gzip.compress(body([*history, user("My name is Ann.")]))
        response = await live.http.post(
            f"{live.url}/chat/completions", content=sent, headers={"content-encoding": "gzip"}
        )
        assert response.headers["x-memory-status"] == "ok"
        assert "memory_blocks" in json.dumps(up.bodies[-1]["messages"][0])
        again = await live.http.post(
            f"{live.url}/chat/completions",
            content=body(
                [
                    *history,
                    user("My name is Ann."),
                    {"role": "assistant", "content": "Yes."},
                    user("And?"),
                ]
            ),
        )
        assert again.headers["x-memory-conversation"] == response.headers["x-memory-conversation"]


@pytest.mark.parametrize(
    ("headers", "settings"),
    [({"x-memory-conversation": "c"}, {}), ({}, {"memory.on_error": "fail"})],
)
async def test_a_request_that_needs_its_memory_is_refused_with_the_limit(
    tmp_path, headers, settings
):
    async with Model("Yes.") as up, running(up.url, tmp_path, settings) as live:
        response = await live.http.post(
            f"{live.url}/chat/completions", content=body(MANY), headers=headers
        )
        assert response.status_code == 400
        assert f"memory handles {request_weight.MESSAGES}" in response.json()["error"]["message"]
        assert up.requests == []


LONG = b" " * request_weight.SKIMMED_BYTES


def test_of_a_long_body_only_what_routing_needs_is_decoded():
    sent = b'{"messages":[],"n":2,"model":"m","stream":true,"user":"ann"' + LONG + b"}"
    assert read_routing_members(sent) == {"n": 2, "model": "m", "stream": True, "user": "ann"}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"[" + LONG + b"]", "no JSON object"),
        (b'{"model":"m","user":nothing' + LONG + b"}", "`user` is no JSON value"),
        (b'{"user":"' + b"a" * 70_000 + b'"' + LONG + b"}", "at most 65536 bytes"),
        (b'{"n":1' + LONG + b"}", "`model` must be"),
    ],
)
def test_a_long_body_whose_members_cannot_be_read_is_refused(sent, words):
    with pytest.raises(BadRequest, match=words):
        read_routing_members(sent)
