"""A. Messages, tools and schemas reach the upstream in the shape they were written in."""

from __future__ import annotations

import json

import pytest

from tests.e2e.wire.rows import row
from tests.e2e.wire.same import assert_messages, assert_only_memory_added, exact, ordered
from tests.models import call

USER = {"role": "user", "content": "hi"}
PARTS = [
    {"type": "text", "text": "look", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_id": "f-1"}},
    {"type": "text", "text": ""},
    {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
    },
    {"type": "video_url", "video_url": {"url": "https://x/y.mp4", "fps": 2.0}},
    {"type": "x.unknown", "y": [None, {"z": 1.0}]},
    {"no": "type"},
]
RICH = [
    {**USER, "name": "ada"},
    {
        "role": "user",
        "content": "x",
        "cache_control": {"type": "ephemeral"},
        "x_extra": [1, {"a": None}],
    },
    {
        "role": "assistant",
        "content": "y",
        "reasoning_content": "hm",
        "reasoning": None,
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "AA==", "index": 0}],
        "refusal": None,
        "annotations": [],
        "audio": {"id": "audio_1"},
        "thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}],
    },
    {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "but"}],
    },
]
EXTRA_CALL = {
    **call("f", '{"a": 1 }', "c1"),
    "index": 0,
    "extra_content": {"google": {"thought_signature": "AA=="}},
}
CUSTOM = {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls\n"}}
ASSISTANTS = [
    {"role": "assistant", "content": None, "tool_calls": [EXTRA_CALL]},
    {"role": "assistant", "tool_calls": [EXTRA_CALL]},
    {"role": "assistant", "content": "", "tool_calls": [EXTRA_CALL]},
    {"role": "assistant", "content": [], "tool_calls": [EXTRA_CALL]},
    {"tool_calls": [EXTRA_CALL], "content": "let me see", "role": "assistant"},
    {"role": "assistant", "content": None, "tool_calls": [EXTRA_CALL, CUSTOM]},
]
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "z": {"$ref": "#/$defs/Z"},
        "a": {"type": ["string", "null"], "x-ui": {"order": 1}},
    },
    "required": [],
    "additionalProperties": False,
    "$defs": {"Z": {"anyOf": [{"const": None}, {"type": "integer", "exclusiveMinimum": -0.5}]}},
    "unevaluatedProperties": False,
    "patternProperties": {"^x-": True},
    "title": "",
    "default": None,
}
TOOLS = [
    {
        "type": "function",
        "function": {"strict": True, "name": "f", "parameters": SCHEMA, "description": None},
    },
    {"function": {"name": "g"}, "type": "function", "cache_control": {"type": "ephemeral"}},
    {
        "type": "custom",
        "custom": {
            "name": "shell",
            "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: X"}},
        },
    },
    {"type": "web_search_preview"},
]
CHOICES = [
    "none",
    "auto",
    "required",
    {"type": "function", "function": {"name": "f"}},
    {"type": "custom", "custom": {"name": "shell"}},
    None,
    "any",
    {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    },
]
MODES = ["full", "read", "write", "off"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def reached(shared, mode, messages, **body):
    """The body at the upstream, plain and streamed."""
    for stream in (False, True):
        sent = {"model": "m", "messages": messages, **body, "stream": stream}
        assert (await shared.post(json.dumps(sent).encode(), mode)).status_code == 200
        if mode == "off":
            assert exact(shared.up.requests[-1].body) == ordered(sent)
        else:
            assert_only_memory_added(sent, shared.up.bodies[-1])
    return shared.up.bodies[-1]


@row(7)
@pytest.mark.parametrize("mode", MODES)
async def test_every_member_of_a_message_arrives(shared, mode):
    await reached(shared, mode, [*RICH, USER])


@row(7, 11)
@pytest.mark.parametrize("mode", MODES)
async def test_every_member_arrives_from_turn_to_turn(shared, mode):
    """Once the conversation is known its history comes from the client still."""
    shared.up.script = ["one", "two"]
    said = [*RICH, USER]
    for _ in range(2):
        answer = (await shared.live.chat(said, {"x-memory": mode})).json()["choices"][0]["message"]
        said = [
            *said,
            {**answer, "reasoning_content": "r", "x_sig": {"a": 1.0}},
            *ASSISTANTS[1:2],
            {"role": "tool", "tool_call_id": "c1", "content": "r", "name": "f"},
            USER,
        ]
    await shared.live.chat(said, {"x-memory": mode})
    assert_messages(said, shared.up.bodies[-1]["messages"])


@row(8)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("role", ["user", "system", "developer", "tool", "assistant"])
async def test_parts_stay_parts_unknown_ones_too(shared, mode, role):
    extra = {"tool_call_id": "c1"} if role == "tool" else {}
    before = [USER, ASSISTANTS[0]] if role == "tool" else []
    await reached(shared, mode, [*before, {"role": role, "content": PARTS, **extra}, USER])


@row(9)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    "before",
    [
        [{"role": "developer", "content": "Be terse."}],
        [{"role": "developer", "content": [{"type": "text", "text": "Be terse."}], "name": "d"}],
        [
            {"role": "system", "content": "A"},
            {"role": "developer", "content": "B"},
            {"role": "system", "content": "C"},
        ],
        [{"role": "developer", "content": "A"}, {"role": "developer", "content": "B"}],
        [{"role": "system", "content": None}],
        [{"role": "system"}],
        [{"role": "system", "content": ""}],
        [{"role": "x-unknown", "content": "A"}],
    ],
)
async def test_a_developer_message_stays_one(shared, mode, before):
    got = (await reached(shared, mode, [*before, USER]))["messages"]
    assert [m["role"] for m in got][-len(before) - 1 :] == [m["role"] for m in [*before, USER]]
    assert sum(m["role"] == "system" for m in got) - sum(m["role"] == "system" for m in before) <= (
        before[0]["role"] == "x-unknown"
    )


@row(9)
async def test_a_developer_message_later_on_stays_where_it_is(shared):
    await reached(
        shared,
        "full",
        [
            USER,
            {"role": "assistant", "content": "x"},
            {"role": "developer", "content": "Now in French."},
            USER,
        ],
    )


@row(11)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("said", ASSISTANTS)
@pytest.mark.parametrize(
    "result", ["", [{"type": "text", "text": "a"}, {"type": "text", "text": ""}], None]
)
async def test_turns_with_calls_keep_their_shape(shared, mode, said, result):
    results = [
        {"role": "tool", "tool_call_id": c["id"], "content": result, "x": 1}
        for c in said["tool_calls"]
    ]
    await reached(shared, mode, [USER, said, *results])


@row(11)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": ""},
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "user", "content": []},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": []},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": None,
            "function_call": {"name": "f", "arguments": "{}"},
        },
        {"role": "function", "name": "f", "content": "1"},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"a": 1}},
        {"role": "", "content": "x"},
    ],
)
async def test_empty_null_and_missing_content_stay_that(shared, mode, message):
    await reached(shared, mode, [USER, message, USER])


@row(12)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    "members",
    [
        {"tools": TOOLS},
        {"functions": [{"name": "f", "parameters": SCHEMA}], "function_call": {"name": "f"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "strict": True, "schema": SCHEMA, "description": ""},
            }
        },
        {"response_format": {"type": "json_object"}},
        {"tools": []},
        {"tools": None},
    ],
)
async def test_schemas_arrive_equal_in_order(shared, mode, members):
    await reached(shared, mode, [USER], **members)


@row(13)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("choice", CHOICES)
async def test_tool_choice_arrives_as_written(shared, mode, choice):
    got = await reached(
        shared, mode, [USER], tools=TOOLS, tool_choice=choice, parallel_tool_calls=True
    )
    assert json.dumps(got["tool_choice"]) == json.dumps(choice)
