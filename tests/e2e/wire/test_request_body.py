"""A.

What a client writes reaches the upstream: members, numbers, order; with memory off, byte for byte.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.wire.rows import row
from tests.e2e.wire.same import assert_only_memory_added, exact

MESSAGES = [{"role": "user", "content": "hi"}]
UNKNOWN = {
    "zeta": None,
    "x_vendor": {"deep": [{"er": [[], {}, "", 0, False, None]}]},
    "Ärger ☃": "\u2028\u0000\x7f",
    "": {"": ""},
    "alpha": [],
    "__proto__": {"a": 1},
}
KNOWN = {
    "reasoning_effort": "minimal",
    "verbosity": "low",
    "service_tier": "flex",
    "prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]},
    "modalities": ["text", "audio"],
    "audio": {"voice": {"id": "v"}, "format": "pcm16"},
    "store": False,
    "metadata": {"b": "2", "a": "1"},
    "user": "ada",
    "safety_identifier": "s-1",
    "prompt_cache_key": "k",
    "web_search_options": {
        "user_location": {"type": "approximate", "approximate": {"city": "Rīga"}}
    },
    "seed": -9_223_372_036_854_775_808,
    "logit_bias": {"50256": -100, "1": 1.5},
    "parallel_tool_calls": False,
    "stream_options": {"include_obfuscation": False},
    "logprobs": True,
    "top_logprobs": 20,
    "stop": ["\n", "END"],
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "temperature": 0,
    "top_p": 1.0,
    "presence_penalty": -2.0,
    "frequency_penalty": 0.0,
}
NUMBERS = [
    "9007199254740993",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "123456789012345678901234567890",
    "1e-7",
    "1E5",
    "0.1",
    "1.0",
    "-0.0",
    "0",
    "-0",
    "5e-324",
    "1.7976931348623157e308",
    "0.30000000000000004",
    "100000000000000000000.0",
    "1e22",
]
MODES = ["full", "read", "write", "off"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@row(1)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_members_nobody_knows_arrive_equal_and_in_order(shared, mode, stream):
    body = {
        **UNKNOWN,
        "model": "m",
        "messages": MESSAGES,
        "user": "ada",
        "stream": stream,
        "another": UNKNOWN,
    }
    assert (await shared.post(json.dumps(body).encode(), mode)).status_code == 200
    got = json.loads(shared.up.requests[-1].body)
    assert_only_memory_added(
        body,
        got
        if mode != "off"
        else {**got, **({"stream_options": {"include_usage": True}} if stream else {})},
    )


@row(2)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("name", [*KNOWN, "n"])
async def test_each_member_of_the_api_arrives_unchanged(shared, name, mode):
    value = KNOWN.get(name, 2)
    for stream in (False, True):
        assert (
            await shared.live.chat("hi", {"x-memory": mode}, **{"stream": stream, name: value})
        ).status_code == 200
        expected = (
            {**value, "include_usage": True}
            if name == "stream_options" and stream and mode == "full"
            else value
        )
        assert exact(json.dumps(shared.up.bodies[-1][name])) == exact(json.dumps(expected))


@row(2, 3)
@pytest.mark.parametrize("mode", ["full", "read", "write"])
@pytest.mark.parametrize("stream", [False, True])
async def test_with_memory_on_only_what_is_documented_is_added(shared, mode, stream):
    body = {"stream": stream, **KNOWN, "messages": MESSAGES, "model": "m"}
    assert (await shared.post(json.dumps(body).encode(), mode)).status_code == 200
    assert_only_memory_added(body, shared.up.bodies[-1])
    offered = {t["function"]["name"] for t in shared.up.bodies[-1].get("tools", [])}
    assert {
        "full": len(offered) > 3,
        "read": offered and all("search" in n for n in offered),
        "write": not offered,
    }[mode]


@row(3)
@pytest.mark.parametrize(
    "several",
    [{"n": 2}, {"functions": [{"name": "f", "parameters": {}}]}, {"function_call": "none"}],
)
async def test_where_no_tools_are_offered_no_member_is_made(shared, several):
    await shared.live.chat("hi", user="ada", **several)
    assert list(shared.up.bodies[-1]) == ["model", "messages", "user", *several]


@row(3, 5)
@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"m","messages":[{"role":"user","content":"hi"}]}',
        b' \r\n\t{ "model" : "m" ,\n "messages" : [ { "role":"user" , "content" : '
        b'"\\u00e9\\/\\ud83d\\ude00 \xc3\xa9" } ] } \n',
        b'{"messages":[{"role":"user","content":"hi"}],"a":1,"a":2,"model":"m","n":1e0,'
        b'"x":1.10,"seed":-0,"y":1E+2,"huge":' + b"9" * 4000 + b"}",
        b'{"model":"m","messages":[{"role":"user","content":"cut '
        b'\\ud83d"},{"role":"assistant","content":"\\ude00"},{"role":"user","content":"x",'
        b'"y":"\\uDFFF"}]}',
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_with_memory_off_the_bytes_are_the_clients(shared, raw, streamed):
    raw = raw.replace(b'"model"', b'"stream":true,"model"', 1) if streamed else raw
    shared.up.script = [lambda seen, wire: wire.json({"choices": []})]
    assert (await shared.post(raw, "off")).status_code == 200
    assert shared.up.requests[-1].body == raw


@row(5)
@pytest.mark.parametrize("mode", MODES)
async def test_numbers_arrive_as_the_numbers_they_are(shared, mode):
    raw = (
        f'{{"model":"m","messages":[{{"role":"user","content":"hi",'
        f'"of":[{",".join(NUMBERS)}]}}],"seed":{NUMBERS[0]},'
        f'"x":{{"y":[{",".join(NUMBERS)}]}}}}'
    ).encode()
    assert (await shared.post(raw, mode)).status_code == 200
    got = json.loads(shared.up.requests[-1].body)
    wanted = json.loads(raw)
    assert repr(got["x"]) == repr(wanted["x"])
    assert repr(got["messages"][-1]) == repr(wanted["messages"][0])
    assert got["seed"] == 9007199254740993


@row(15)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_an_alias_changes_the_model_and_nothing_else(shared, mode, stream):
    body = {
        "zeta": {"model": "alias"},
        "messages": [{"role": "user", "content": "hi", "model": "alias"}],
        "model": "alias",
        **UNKNOWN,
        "stream": stream,
    }
    assert (await shared.post(json.dumps(body).encode(), mode)).status_code == 200
    got = shared.up.bodies[-1]
    assert got["model"] == "real"
    if mode == "off":
        assert exact(shared.up.requests[-1].body) == exact(json.dumps({**body, "model": "real"}))
    else:
        assert_only_memory_added(body, got)


@row(5, 15)
async def test_an_alias_leaves_the_spelling_of_numbers_alone_when_memory_is_off(shared):
    raw = (
        b'{"seed":18446744073709551616,"t":1.10,"u":1E+2,"v":-0,"w":1e-7,"model":"alias",'
        b'"messages":[{"role":"user","content":"\\u00e9\\/"}]}'
    )
    assert (await shared.post(raw, "off")).status_code == 200
    assert shared.up.requests[-1].body == raw.replace(b'"alias"', b'"real"')


@row(1, 15)
@pytest.mark.parametrize(
    "path",
    [
        "/embeddings",
        "/completions",
        "/responses",
        "/moderations",
        "/messages",
        "/images/generations",
    ],
)
async def test_a_relayed_body_is_the_clients_save_for_an_alias(shared, path):
    raw = (
        b'{ "z":1.10,"a":1,"model":"%s","input":["\\u00e9",[1,2]],"seed":18446744073709551616 , '
        b'"x":{"model":"alias"}}'
    )
    shared.up.script = [lambda seen, wire: wire.json({"ok": 1})]
    await shared.post(raw % b"m", path=path)
    assert shared.up.requests[-1].body == raw % b"m"
    await shared.post(raw % b"alias", path=path)
    assert exact(shared.up.requests[-1].body) == exact(raw % b"real")
