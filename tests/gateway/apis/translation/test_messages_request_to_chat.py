"""A request of Anthropic's Messages API as a chat completion's."""

from __future__ import annotations

import pytest

from gateway.apis.translation.messages_request_to_chat import chat_request
from gateway.errors import BadRequest
from gateway.wire.losses import DROPPED, Losses

WEATHER = {"name": "weather", "description": "W", "input_schema": {"type": "object"}}
MARK = {"cache_control": {"type": "ephemeral"}}


def carried(messages=None, *, drop=DROPPED, **body):
    losses = Losses("local", drop)
    told = [{"role": "user", "content": "Hi"}] if messages is None else messages
    found, _ = chat_request({"model": "m", "max_tokens": 9, "messages": told, **body}, losses)
    return found, list(losses.names)


def refused(messages=None, **body):
    with pytest.raises(BadRequest) as e:
        carried(messages, **body)
    return e.value


def test_what_both_have_is_carried():
    found, lost = carried(
        system="Be brief.",
        temperature=0,
        stop_sequences=["x"],
        stream=True,
        tools=[WEATHER, {"name": "plain", "type": "custom", "input_schema": None}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        output_config={"effort": "low", "format": None},
        drop=(),
    )
    assert lost == []
    assert found["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert found["max_tokens"] == 9
    assert found["stop"] == ["x"]
    assert found["reasoning_effort"] == "low"
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("required", False)
    assert [t["function"]["name"] for t in found["tools"]] == ["weather", "plain"]


def test_a_tool_turn():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", **MARK}]},
        {"role": "system", "content": "Reminder."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "s"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "weather", "input": "broken"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "rain"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "is_error": True,
                    "content": [{"type": "text", "text": "bad"}, image],
                },
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    found, lost = carried(messages, tools=[{**WEATHER, **MARK}])
    assert lost == ["cache_control", "messages.thinking"] or sorted(lost) == sorted(
        ["cache_control", "messages.thinking"]
    )
    user, said, first, second, after = found["messages"]
    assert user["content"] == "Weather?\n\n<system>\nReminder.\n</system>"
    assert said["content"] == "Let me see."
    assert [c["function"]["arguments"] for c in said["tool_calls"]] == ['{"a":1}', "{}"]
    assert first == {"role": "tool", "tool_call_id": "t1", "content": "rain"}
    assert second["content"] == "Error:\n\nbad\n\n(an image, shown below)"
    assert [p["type"] for p in after["content"]] == ["image_url", "text"]


def test_content_of_every_kind_that_chat_has():
    blocks = [
        {"type": "image", "source": {"type": "url", "url": "https://x"}},
        {"type": "document", "source": {"type": "text", "data": "words"}},
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
        },
    ]
    found, _ = carried([{"role": "user", "content": blocks}])
    parts = found["messages"][0]["content"]
    assert parts[1] == {"type": "text", "text": "words"}
    assert parts[2]["file"]["file_data"] == "data:application/pdf;base64,AA"


CHOICES = [
    ({"type": "auto"}, "auto"),
    ({"type": "none"}, "none"),
    ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    (None, None),
]


@pytest.mark.parametrize(("told", "wanted"), CHOICES)
def test_a_choice_of_tools(told, wanted):
    found, _ = carried(tools=[WEATHER], tool_choice=told)
    assert found.get("tool_choice") == wanted


def test_a_form_of_the_answer():
    form = {"type": "json_schema", "schema": {"type": "object"}}
    found, _ = carried(output_config={"format": form})
    assert found["response_format"]["json_schema"]["schema"] == {"type": "object"}


def of(block, role="user"):
    return [{"role": role, "content": [block]}]


FILE = {"type": "file", "file_id": "f"}
REFUSED = [
    ({"top_k": 5}, "top_k"),
    ({"mcp_servers": [{}]}, "mcp_servers"),
    ({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "tools[0]"),
    ({"tools": [{**WEATHER, "other": True}]}, "tools[0].other"),
    ({"tools": [WEATHER], "tool_choice": {"type": "x"}}, "tool_choice"),
    ({"output_config": {"format": {"type": "x"}}}, "output_config.format"),
    ({"messages": of({"type": "image", "source": FILE})}, "messages[0].content[0]"),
    (
        {"messages": of({"type": "other", "source": {"type": "base64"}})},
        "messages[0].content[0]",
    ),
    ({"messages": of({"type": "server_tool_use"}, "assistant")}, "messages[0].content[0]"),
    ({"messages": of("x")}, "messages[0].content[0]"),
    ({"messages": ["x"]}, "messages[0]"),
    (
        {"system": [{"type": "image", "source": {"type": "url", "url": "x"}}]},
        "system",
    ),
    (
        {"messages": of({"type": "image", "source": {"type": "url", "url": "x"}}, "system")},
        "messages[0].content",
    ),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_what_cannot_be_carried_is_refused_by_its_name(body, param):
    error = refused(**body)
    assert (error.status, error.param) == (400, param)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        ("eager_input_streaming", True),
        ("defer_loading", True),
        ("input_examples", [{"city": "Oslo"}]),
        ("allowed_callers", ["direct"]),
    ],
)
def test_a_hint_on_a_tool_is_dropped_and_told(hint, value):
    found, lost = carried(tools=[{**WEATHER, hint: value}])
    assert lost == [hint]
    assert hint not in str(found)
    assert refused(tools=[{**WEATHER, hint: value}], drop=()).param == f"tools[0].{hint}"
    assert carried(tools=[{**WEATHER, hint: None}], drop=())[1] == []


def test_what_the_settings_drop_is_dropped_and_told():
    found, lost = carried(
        top_k=5,
        thinking={"type": "adaptive"},
        output_config={"effort": "low"},
        tools=[{"type": "web_search_20250305", "name": "web_search"}],
        context_management={"edits": []},
        metadata={"user_id": "ada"},
        drop=(*DROPPED, "top_k", "output_config.effort"),
    )
    assert set(found) == {"model", "messages", "max_tokens"}
    assert "ada" not in str(found)
    assert set(lost) == {
        "context_management",
        "metadata",
        "output_config.effort",
        "thinking",
        "tools.web_search_20250305",
        "top_k",
    }


def test_what_has_no_effect_is_no_loss():
    found, lost = carried([], system=None, tools=[], container=None, stop_sequences=None, drop=())
    assert found == {"model": "m", "messages": [], "max_tokens": 9}
    assert lost == []


def test_a_request_without_a_limit_and_a_turn_without_text_are_carried():
    losses = Losses("local", ())
    found, _ = chat_request({"model": "m", "messages": [{"role": "user", "content": []}]}, losses)
    assert found == {"model": "m", "messages": []}


def test_system_text_of_blanks_is_left_out():
    found, _ = carried([{"role": "system", "content": " "}, {"role": "user", "content": "Hi"}])
    assert found["messages"] == [{"role": "user", "content": "Hi"}]
