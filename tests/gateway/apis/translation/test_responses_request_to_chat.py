"""A request of the Responses API as a chat completion's: what is carried, and what is refused."""

from __future__ import annotations

import json

import pytest

from gateway.apis.translation.chat_tools import ToolOrigin, custom_input
from gateway.apis.translation.responses_request_to_chat import chat_request
from gateway.errors import BadRequest
from gateway.wire.losses import DROPPED, Losses

PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}


def carried(items="Hi", *, drop=DROPPED, **body):
    losses = Losses("local", drop)
    found, tools = chat_request({"model": "m", "input": items, **body}, losses)
    return found, tools, list(losses.names)


def messages(items, **body):
    return carried(items, **body)[0]["messages"]


def refused(items="Hi", **body):
    with pytest.raises(BadRequest) as e:
        carried(items, **body)
    return e.value


def test_what_both_have_is_carried():
    found, _, lost = carried(
        temperature=0,
        top_p=0.5,
        user="ada",
        metadata={"a": "b"},
        max_output_tokens=9,
        parallel_tool_calls=False,
        tools=[WEATHER],
        tool_choice="required",
        reasoning={"effort": "low", "summary": None},
        drop=(),
    )
    assert found == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0,
        "top_p": 0.5,
        "user": "ada",
        "metadata": {"a": "b"},
        "max_tokens": 9,
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "tool_choice": "required",
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "parameters": {"type": "object"}, "strict": True},
            }
        ],
    }
    assert lost == []


def test_system_text_stands_first_and_once():
    items = [
        {"role": "developer", "content": "B"},
        {"role": "system", "content": [{"type": "input_text", "text": "C"}]},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": "Late."},
    ]
    assert messages(items, instructions="A") == [
        {"role": "system", "content": "A\n\nB\n\nC"},
        {"role": "user", "content": "Hi\n\n<system>\nLate.\n</system>"},
    ]


def test_what_a_model_said_between_two_messages_is_one_message():
    items = [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": ""},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:x", "detail": "low"},
            ],
        },
    ]
    found, _, lost = carried(items)
    assert lost == ["input.reasoning"]
    image = {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}}
    assert found["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"a":1}'},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "weather", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "see\n\n(an image, shown below)"},
        {"role": "user", "content": [image]},
    ]


def test_content_of_every_kind_that_chat_has():
    content = [
        {"type": "input_text", "text": "See"},
        {"type": "input_image", "image_url": "https://x/y.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    said = [{"type": "refusal", "refusal": "No."}]
    found = messages([{"role": "user", "content": content}, {"role": "assistant", "content": said}])
    assert [p["type"] for p in found[0]["content"]] == ["text", "image_url", "file", "input_audio"]
    assert found[1] == {"role": "assistant", "content": "No."}


def test_a_custom_tool_is_a_function_of_one_text_and_back():
    call = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Go"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}
    found, tools, _ = carried([{"role": "user", "content": "x"}, call, output], tools=[PATCH])
    (tool,) = found["tools"]
    assert tool["function"]["parameters"]["required"] == ["input"]
    assert 'start: "x"' in tool["function"]["description"]
    (made,) = found["messages"][1]["tool_calls"]
    assert custom_input(made["function"]["arguments"]) == "*** Go"
    assert tools.origin_of("apply_patch") == ToolOrigin("apply_patch", "", is_custom=True)


@pytest.mark.parametrize("arguments", ["plain", "[1]", '{"input": 1}', "{"])
def test_what_is_no_input_is_the_input(arguments):
    assert custom_input(arguments) == arguments


def test_tools_that_an_item_adds_are_offered_with_the_others():
    added = {"type": "additional_tools", "role": "developer", "tools": [PATCH, WEATHER]}
    told = {"role": "user", "content": "Hi"}
    found, tools, lost = carried([added, told], tools=[{**WEATHER, "name": "time"}])
    assert [tool["function"]["name"] for tool in found["tools"]] == [
        "time",
        "apply_patch",
        "weather",
    ]
    assert found["messages"] == [{"role": "user", "content": "Hi"}]
    assert tools.origin_of("apply_patch") == ToolOrigin("apply_patch", "", is_custom=True)
    assert lost == []
    assert refused([{**added, "tools": [{"type": "computer"}]}, told]).param == "input[0].tools[0]"
    for nothing in (None, 5, [], [7]):
        assert messages([{**added, "tools": nothing}, told], drop=("tools.None",))


def test_a_namespace_is_in_the_name_and_comes_out_again():
    inner = {"type": "function", "name": "open", "parameters": None}
    spaces = [
        {"type": "namespace", "name": "mcp__files__", "tools": [inner]},
        {"type": "namespace", "name": "a b" * 40, "tools": [inner]},
        {"type": "namespace", "name": "files", "tools": [inner, {"type": "mcp"}]},
    ]
    call = {
        "type": "function_call",
        "namespace": "files",
        "name": "open",
        "call_id": "c",
        "arguments": "{}",
    }
    found, tools, lost = carried(
        [{"role": "user", "content": "x"}, call], tools=spaces, drop=("tools.namespace",)
    )
    names = [t["function"]["name"] for t in found["tools"]]
    assert names[0] == "mcp__files__open"
    assert names[2] == "files__open"
    assert len(names[1]) <= 64
    assert tools.origin_of(names[1]) == ToolOrigin("open", "a b" * 40)
    assert found["messages"][1]["tool_calls"][0]["function"]["name"] == "files__open"
    assert lost == ["tools.namespace"]


def test_two_tools_never_have_one_name():
    tools = [
        {"type": "function", "name": "a__b"},
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b"}]},
    ]
    found, made, _ = carried(tools=tools)
    assert [t["function"]["name"] for t in found["tools"]] == ["a__b", "a__b_"]
    assert made.origin_of("a__b_") == ToolOrigin("b", "a")


CHOICES = [
    (
        {"type": "function", "name": "weather"},
        {"type": "function", "function": {"name": "weather"}},
    ),
    (
        {"type": "custom", "name": "apply_patch"},
        {"type": "function", "function": {"name": "apply_patch"}},
    ),
    ("none", "none"),
    (None, None),
]


@pytest.mark.parametrize(("told", "wanted"), CHOICES)
def test_a_choice_of_tools(told, wanted):
    found, _, _ = carried(tools=[WEATHER, PATCH], tool_choice=told)
    assert found.get("tool_choice") == wanted


@pytest.mark.parametrize(("mode", "wanted"), [("required", "required"), (None, "auto")])
def test_tools_that_are_not_allowed_are_not_offered(mode, wanted):
    told = {
        "type": "allowed_tools",
        "mode": mode,
        "tools": [{"type": "function", "name": "weather"}],
    }
    found, _, _ = carried(tools=[WEATHER, PATCH], tool_choice=told)
    assert [t["function"]["name"] for t in found["tools"]] == ["weather"]
    assert found["tool_choice"] == wanted


@pytest.mark.parametrize("told", [{"type": "file_search"}, {"type": "allowed_tools"}, 7])
def test_a_choice_that_cannot_be_carried_is_refused(told):
    assert refused(tools=[WEATHER], tool_choice=told).param == "tool_choice"


FORMATS = [
    ({"type": "text"}, None),
    ({"type": "json_object"}, {"type": "json_object"}),
    (
        {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
        {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
    ),
]


@pytest.mark.parametrize(("told", "wanted"), FORMATS)
def test_a_form_of_the_answer(told, wanted):
    found, _, _ = carried(text={"format": told, "verbosity": None})
    assert found.get("response_format") == wanted


REFUSED = [
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "x"}}, "prompt"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format"),
    ({"text": {"shape": 1}}, "text.shape"),
    ({"reasoning": {"mode": "x"}}, "reasoning.mode"),
    ({"tools": [{"type": "file_search"}]}, "tools[0]"),
    ({"tools": ["x"]}, "tools[0]"),
    ({"items": [{"type": "compaction"}]}, "input[0]"),
    ({"items": ["x"]}, "input[0]"),
    ({"items": 7}, "input"),
    (
        {"items": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0]",
    ),
    ({"items": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]"),
    (
        {"items": [{"role": "system", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input[0].content",
    ),
    ({"previous_response_id": "resp_x"}, "previous_response_id"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_what_cannot_be_carried_is_refused_by_its_name(body, param):
    error = refused(**body)
    assert error.status == 400
    assert error.param == param
    assert f"`{param}`" in error.message or error.code == "previous_response_not_found"


def test_what_the_settings_drop_is_dropped_and_told():
    found, _, lost = carried(
        truncation="auto",
        temperature=1,
        reasoning={"effort": "low"},
        tools=[{"type": "web_search_2025_08_26"}],
        include=["x"],
        tool_choice="auto",
        store=True,
        drop=("truncation", "temperature", "reasoning.effort", "include", "tools.web_search"),
    )
    assert found == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert sorted(lost) == [
        "include",
        "reasoning.effort",
        "temperature",
        "tools.web_search_2025_08_26",
        "truncation",
    ]


def test_what_has_no_effect_is_no_loss():
    found, _, lost = carried(
        background=False, truncation="disabled", include=[], store=False, drop=(), prompt=None
    )
    assert set(found) == {"model", "messages"}
    assert lost == []


def test_what_codex_sends_is_carried_with_the_settings_as_they_come():
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "P"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "env"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]
    tools = [WEATHER, PATCH, {"type": "tool_search"}, {"type": "web_search"}]
    found, _, lost = carried(
        items,
        tools=tools,
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": "medium", "summary": "auto"},
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="t",
        client_metadata={"a": "b"},
        text={"verbosity": "low"},
    )
    assert [m["role"] for m in found["messages"]] == ["system", "user", "assistant", "tool"]
    assert len(found["tools"]) == 2
    assert len(lost) == 8
    json.dumps(found)
