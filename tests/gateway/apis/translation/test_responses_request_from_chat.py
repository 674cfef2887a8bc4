"""A chat completion request, as the Responses API has it."""

from __future__ import annotations

import pytest

from gateway.apis.translation.responses_request_from_chat import response_request
from gateway.errors import BadRequest
from gateway.wire.losses import DROPPED, Losses

USER = {"role": "user", "content": "Hi"}


def sent(*messages, drop=(), **body):
    body = {"model": "m", "messages": list(messages) or [USER], **body}
    return response_request(body, Losses("p", drop, "the Responses API"))


def items(*messages, **more):
    return sent(*messages, **more)["input"]


def call(ident, name="weather", arguments="{}"):
    function = {"name": name, "arguments": arguments}
    return {"id": ident, "type": "function", "function": function}


def said(*calls, **members):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **members}


def result(ident, content="rain"):
    return {"role": "tool", "tool_call_id": ident, "content": content}


def thought(ident, position, **more):
    told = {"type": "reasoning", "id": ident, "encrypted_content": "x", "summary": []}
    return {**told, "index": 0, "position": position, **more}


def test_what_stands_first_is_instructions_and_what_comes_later_stays():
    system, later = (
        {"role": "system", "content": [{"type": "text", "text": t}] if t == "b" else t}
        for t in "ab"
    )
    asked = sent(system, later, USER, {"role": "developer", "content": "c"})
    assert asked["instructions"] == "a\n\nb"
    assert asked["input"] == [USER, {"role": "developer", "content": "c"}]
    # The API takes no request without input.
    assert items(system) == [system]
    pictured = {"role": "system", "content": [{"type": "image_url", "image_url": "https://x"}]}
    assert "instructions" not in sent(pictured, USER)
    assert "instructions" not in sent({"role": "system", "content": None}, USER)


@pytest.mark.parametrize(
    ("part", "native"),
    [
        ({"type": "text", "text": "a"}, {"type": "input_text", "text": "a"}),
        ({"type": "refusal", "refusal": "no"}, {"type": "input_text", "text": "no"}),
        (
            {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
            {"type": "input_image", "image_url": "u", "detail": "low"},
        ),
        (
            {"type": "file", "file": {"filename": "a", "file_data": "data:x"}},
            {"type": "input_file", "filename": "a", "file_data": "data:x"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
        ),
    ],
)
def test_parts(part, native):
    assert items({"role": "user", "content": [part]}) == [{"role": "user", "content": [native]}]


def test_a_loop_of_calls_keeps_its_order_and_has_no_item_ids():
    custom = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*"}}
    found = items(
        USER, said(call("c1"), custom, content="So."), result("c2", "ok"), result("c1", None)
    )
    assert found[1:] == [
        {"role": "assistant", "content": "So."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
        {"type": "function_call_output", "call_id": "c1", "output": ""},
    ]


def test_results_of_text_are_one_text_and_others_keep_their_parts():
    texts = [{"type": "text", "text": t} for t in "ab"]
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    found = items(USER, said(call("1"), call("2")), result("1", texts), result("2", [picture]))
    assert [i["output"] for i in found[-2:]] == [
        "a\n\nb",
        [{"type": "input_image", "image_url": "u"}],
    ]


def test_reasoning_stands_before_what_followed_it_in_the_loop_under_way():
    blocks = [thought("r1", 0), thought("r2", 2), {"type": "thinking", "signature": "s"}]
    loop = [said(call("1"), content=[{"type": "text", "text": "So."}], thinking_blocks=blocks)]
    found = items(USER, *loop, result("1"))
    assert [i.get("id") or i.get("type") for i in found[1:]] == [
        "r1",
        None,
        "r2",
        "function_call",
        "function_call_output",
    ]
    assert not {"index", "position"} & set(found[1])
    over = items(USER, *loop, result("1"), USER)
    assert all(i.get("type") != "reasoning" for i in over)


@pytest.mark.parametrize(
    "block",
    [
        # Behind everything: its follower is gone.
        thought("r", 9),
        thought("r", 0, encrypted_content=None),
        thought(None, 0),
        "r",
    ],
)
def test_reasoning_that_cannot_be_read_again_is_left_out(block):
    found = items(USER, said(call("1"), thinking_blocks=[block]), result("1"))
    assert [i.get("type") for i in found[1:]] == ["function_call", "function_call_output"]
    assert items(USER, said(thinking_blocks=[block])) == [USER]


def test_reasoning_without_a_place_goes_first():
    found = items(USER, said(call("1"), thinking_blocks=[thought("r", None)]), result("1"))
    assert found[1]["id"] == "r"


def test_a_refusal_is_what_was_said():
    told = {"role": "assistant", "content": None, "refusal": "No."}
    assert items(USER, told, USER)[1] == {"role": "assistant", "content": "No."}
    assert items(USER, {"role": "assistant", "content": ""}, USER) == [USER, USER]


def test_members_that_both_know():
    asked = sent(
        max_tokens=5,
        n=1,
        frequency_penalty=0,
        modalities=["text"],
        logit_bias={},
        stream=True,
        stream_options={"include_usage": True},
        user="ada",
        reasoning_effort="low",
        response_format={"type": "json_object"},
        tools=[],
        tool_choice="auto",
    )
    assert asked == {
        "model": "m",
        "stream": True,
        "user": "ada",
        "input": [USER],
        "store": False,
        "max_output_tokens": 5,
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_object"}},
    }
    assert "include" not in sent(reasoning_effort="none")
    assert "text" not in sent(response_format={"type": "text"})
    assert sent(max_tokens=5, max_completion_tokens=6)["max_output_tokens"] == 6


def test_tools_are_flat_and_strict_where_they_say_so():
    lark = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}
    asked = sent(
        tools=[
            {"type": "function", "function": {"name": "a", "description": None}},
            {"type": "function", "function": {"name": "b", "parameters": {}, "strict": True}},
            {"type": "custom", "custom": {"name": "c", "format": lark}},
            {"type": "web_search", "name": "d"},
        ],
        parallel_tool_calls=False,
        drop=["tools.web_search"],
    )
    assert asked["tools"] == [
        {"type": "function", "name": "a", "parameters": None, "strict": False},
        {"type": "function", "name": "b", "parameters": {}, "strict": True},
        {
            "type": "custom",
            "name": "c",
            "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
        },
    ]
    assert asked["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("choice", "native"),
    [
        ("none", "none"),
        ({"type": "function", "function": {"name": "a"}}, {"type": "function", "name": "a"}),
        ({"type": "custom", "custom": {"name": "a"}}, {"type": "custom", "name": "a"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "a"}}, "x"],
                },
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "a"}, "x"],
            },
        ),
    ],
)
def test_choices_of_a_tool(choice, native):
    tools = [{"type": "function", "function": {"name": "a"}}]
    assert sent(tools=tools, tool_choice=choice)["tool_choice"] == native


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ("stop", {"stop": ["x"]}),
        ("n", {"n": 2}),
        ("logprobs", {"logprobs": True}),
        ("functions", {"functions": [{}]}),
        ("response_format", {"response_format": {"type": "grammar"}}),
        ("tools[0]", {"tools": [{"type": "web_search"}]}),
        ("tools[0]", {"tools": ["x"]}),
        ("tools[0]", {"tools": [{"type": "function", "function": {}}]}),
        (
            "tools[0].cache_control",
            {"tools": [{"type": "function", "function": {"name": "a", "cache_control": {"t": 1}}}]},
        ),
        (
            "tool_choice",
            {"tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": "x"},
        ),
        ("messages", {"messages": []}),
        ("messages[0]", {"messages": [{"role": "function", "content": "x"}]}),
        ("messages[0].name", {"messages": [{**USER, "name": "Ada"}]}),
        ("messages[0].audio", {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
        ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "x"}]}]}),
        (
            "messages[0].content[0].cache_control",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "cache_control": {1: 2}}]}
                ]
            },
        ),
        ("messages[0].tool_calls[0]", {"messages": [{"role": "assistant", "tool_calls": [5]}]}),
    ],
)
def test_what_cannot_be_carried_is_refused_by_its_name(param, asked):
    with pytest.raises(BadRequest) as refused:
        sent(**asked)
    assert refused.value.param == param


def test_what_is_dropped_is_noted():
    losses = Losses("p", DROPPED)
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "system", "content": [marked]},
        {"role": "user", "content": [marked], "name": "Ada"},
        {"role": "assistant", "content": "b", "reasoning_content": "Hm."},
    ]
    response_request({"model": "m", "messages": messages, "store": True, "metadata": {}}, losses)
    assert list(losses.names) == ["store", "metadata", "cache_control", "messages.name"]


def test_an_answer_may_be_asked_for_as_any_json_object_or_as_text():
    assert sent(response_format={"type": "json_object"})["text"] == {
        "format": {"type": "json_object"}
    }
    assert "text" not in sent(response_format={"type": "text"})
    with pytest.raises(BadRequest):
        sent(response_format={"type": "odd"})


def test_tools_without_a_choice_are_carried_without_one():
    tool = {"type": "function", "function": {"name": "f"}}
    assert "tool_choice" not in sent(tools=[tool])


def test_a_message_of_no_known_role_is_refused():
    with pytest.raises(BadRequest, match="odd"):
        items(USER, {"role": "odd", "content": "x"})


def test_instructions_that_are_no_text_are_refused():
    with pytest.raises(BadRequest):
        items({"role": "system", "content": {"type": "text"}}, USER)


def test_a_schema_of_the_answer_is_carried_flat():
    schema = {"name": "s", "schema": {"type": "object"}, "strict": None}
    found = sent(response_format={"type": "json_schema", "json_schema": schema})
    assert found["text"]["format"] == {
        "type": "json_schema",
        "name": "s",
        "schema": {"type": "object"},
    }


def test_a_custom_tool_is_carried_with_or_without_a_grammar():
    plain = {"type": "custom", "custom": {"name": "p"}}
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}
    ruled = {"type": "custom", "custom": {"name": "g", "format": grammar}}
    assert sent(tools=[plain, ruled])["tools"] == [
        {"type": "custom", "name": "p"},
        {
            "type": "custom",
            "name": "g",
            "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
        },
    ]
