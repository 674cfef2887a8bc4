"""Requests of `/v1/responses` and `/v1/messages` that no program should send: they are refused, or
answered, and what the provider gets is what was sent.
"""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.wire_models import MessagesModel, ResponsesModel

CONFIG = {"server.single_user": False, "routing.retries": 0}
DEEP = '{"a":' * 3000 + "1" + "}" * 3000
ODD_PARTS = [1, None, "x", {}, {"type": None}, {"type": ["text"]}, {"type": "text", "text": 5}]
ODD_CALL = {"type": "function_call", "call_id": ["a"], "name": {"x": 1}, "arguments": {"a": 1}}
ODD_OUTPUT = {"type": "function_call_output", "call_id": {"a": 1}, "output": 5}
ODD_TOOLS = [None, 1, "x", {}, {"name": 5}, {"name": ["x"]}, {"name": {"a": 1}}]
ODD_USE = {"type": "tool_use", "id": {"a": 1}, "name": {"x": 1}, "input": "no object"}
ODD_RESULT = {"type": "tool_result", "tool_use_id": {"a": 1}, "content": [None, 7]}


def said(role, content):
    return {"role": role, "content": content}


RESPONSES = [
    {},
    {"input": None},
    {"input": []},
    {"input": ""},
    {"input": 5},
    {"input": [1, None, "x", [], True]},
    {"input": [{"type": {"a": 1}, **said("user", "Hi")}, {"type": ["message"], "role": ["user"]}]},
    {"input": [said("wizard", "Hi"), said(None, None), said("user", 7)]},
    {"input": [said("user", ODD_PARTS), said("assistant", ODD_PARTS)]},
    {"input": [ODD_CALL, ODD_OUTPUT, {"type": "function_call_output"}, {"type": "function_call"}]},
    {"input": [{"type": "item_reference", "id": 5}, {"type": "item_reference"}]},
    {"input": [{"type": "zzz"}, {"type": "zzz_call"}, {"type": "zzz_output", "output": [1]}]},
    {"input": [{"id": "a", **said("user", "Hi")}] * 2},
    {"input": "Hi", "tools": ODD_TOOLS},
    {"input": "Hi", "tools": "all"},
    {"input": "Hi", "tools": {"a": 1}},
    {"input": "Hi", "tool_choice": []},
    {"input": "Hi", "include": {"a": 1}, "store": False, "reasoning": {}},
    {"input": "Hi", "instructions": [said("developer", "Be brief.")]},
    {"input": "Hi", "instructions": 5},
    {"input": "Hi", "text": "json", "prompt": 5, "context_management": 4, "truncation": {}},
    {"input": "Hi", "stream": "true"},
    {"input": "Hi", "max_output_tokens": -5, "n": 3, "background": "yes"},
    {"input": "Hi", "previous_response_id": 5},
    {"input": "Hi", "previous_response_id": "a\0" * 9000},
    {"input": "Hi", "conversation": []},
    {"input": "\u202e\0 \ufeff \ud7ff"},
]
MESSAGES = [
    {"messages": None},
    {"messages": []},
    {"messages": "Hi"},
    {"messages": [1, None]},
    {"messages": [{"content": "Hi"}, {"role": 5}]},
    {"messages": [said("wizard", "Hi")]},
    {"messages": [said("user", ODD_PARTS), said("assistant", ODD_PARTS), said("user", None)]},
    {"messages": [said("user", "Hi"), said("assistant", [ODD_USE]), said("user", [ODD_RESULT])]},
    {"messages": [said("user", [ODD_RESULT, {"type": "tool_result"}])]},
    {"messages": [said("assistant", "Hi")]},
    {"messages": [said("system", "Hi")]},
    {"system": 5},
    {"system": {"a": 1}},
    {"system": [None, 1, {"type": "text", "text": 5}]},
    {"tools": ODD_TOOLS},
    {"tools": "all"},
    {"tool_choice": []},
    {"stream": "true"},
    {"metadata": {"user_id": '{"a":' * 2000}},
    {"metadata": {"user_id": ["x"]}},
    {"metadata": "x", "thinking": "x", "output_config": "x", "context_management": 5},
    {"max_tokens": "5"},
]
RAW = [
    b'{"model":"m","%b":"a \\ud800 b"}',
    b'{"model":"m","%b":"a","\\udc00":1}',
    b'{"model":"m","%b":"\xff\xfe"}',
    b'{"model":"m","%b":[{"role":"user","content":' + DEEP.encode() + b"}]}",
    b'{"model":"m","%b":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"model":"m","%b":"a","%b":"b"}',
    b'{"model":"m","%b":"a","x":' + b"9" * 5000 + b"}",
    b'{"model":"m","%b":"a","x":1e999999,"y":NaN}',
    b'{"model":"m","%b":"a"',
    b"\xef\xbb\xbf[1]",
]
# Members that we may add to.
OURS = ("tools", "instructions", "system", "include")


class Tolerant:
    """An upstream that answers whatever it is sent."""

    def check(self, body):
        return ()

    def reply(self, parts, body):
        return super().reply(parts, {"model": "m", "messages": [], "store": False})

    async def __aexit__(self, *exc):
        self.faults.clear()
        await super().__aexit__(*exc)


class AnyResponse(Tolerant, ResponsesModel):
    pass


class AnyMessage(Tolerant, MessagesModel):
    pass


async def post(live, up, path, content, mode):
    """Post a body. Returns what the upstream got, None for nothing."""
    before = len(up.requests)
    headers = {"x-memory": mode, "content-type": "application/json"}
    http = await live.http.post(f"{live.url}/{path}", content=content, headers=headers)
    assert http.status_code in (200, 400, 403, 404), (content[:200], http.text)
    assert "internal_error" not in http.text, content[:200]
    if http.status_code != 200:
        assert http.json()["error"]["message"]
    return up.requests[-1].body if len(up.requests) > before else None


def check_same(sent, got):
    """What the provider got holds what was sent, and nothing else but what is ours."""
    assert set(got) - set(sent) <= set(OURS), sent
    for name, value in sent.items():
        found = got[name]
        if name in OURS and isinstance(value, list) and isinstance(found, list):
            found = found[: len(value)]
        assert found == value, (name, value)


@pytest.mark.parametrize("mode", ["full", "read", "write", "off"])
@pytest.mark.parametrize(
    ("model", "path", "member", "bodies"),
    [
        (AnyResponse, "responses", b"input", RESPONSES),
        (AnyResponse, "responses/input_tokens", b"input", RESPONSES),
        (AnyMessage, "messages", b"messages", MESSAGES),
        (AnyMessage, "messages/count_tokens", b"messages", MESSAGES),
    ],
)
async def test_a_body_is_refused_or_reaches_the_provider(data, model, path, member, bodies, mode):
    async with model("Hi.") as up, running(up.url, data, CONFIG) as live:
        base = {"model": "m"}
        if model is AnyMessage:
            base["messages"] = [said("user", "Hi")]
        for body in bodies:
            sent = {**base, **body}
            got = await post(live, up, path, json.dumps(sent).encode(), mode)
            if got is not None:
                told = json.loads(got)
                gone = {"stream"} if "tokens" in path and "stream" not in told else set()
                check_same({k: v for k, v in sent.items() if k not in gone}, told)
        for raw in RAW:
            await post(live, up, path, raw.replace(b"%b", member), mode)


async def test_servers_that_keep_nothing_are_sent_no_odd_body_either(data):
    async with AnyResponse("Hi.") as up:
        models = {"*": {"targets": [{"provider": "main", "stateful": False}]}}
        providers = {"main": {"kind": "openai", "base_url": up.url}}
        config = {**CONFIG, "models": models, "providers": providers}
        async with running("", data, config) as live:
            for body in RESPONSES:
                sent = json.dumps({"model": "m", **body}).encode()
                await post(live, up, "responses", sent, "full")
