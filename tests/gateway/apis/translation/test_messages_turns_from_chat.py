"""Chat completions to Anthropic's Messages API and back: what is sent is what the API takes, and a
stream adds up to the whole.
"""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.translation.messages_reply_to_chat import (
    StreamedAnswer,
    WholeAnswer,
    combine_usage,
    completion,
    refusal,
    usage,
)
from gateway.apis.translation.messages_request_from_chat import (
    messages_request,
    thoughts_in_loop,
    with_stale_thinking_dropped,
)
from gateway.apis.translation.messages_turns_from_chat import NO_RESULT, OPENING
from gateway.errors import BadRequest
from gateway.wire.chat import fold
from tests.conftest import events
from tests.contract.messages_server import check, events_of, written

ANY: dict = {}
FACTS = {"max_output": 64000, "thinking": "budget", "structured_outputs": True}
NEWEST = {
    "max_output": 128000,
    "thinking": "always",
    "refuses": ["sampling", "prefill", "forced_tools", "changed_history"],
    "structured_outputs": True,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "d",
        "parameters": {"type": "object", "properties": {}},
    },
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
USER = {"role": "user", "content": "Hi"}


def sent(messages=None, facts=ANY, frozen=False, **body):
    """What is sent for a body, checked as the API would."""
    out = messages_request(
        {"model": "claude-x", "messages": messages or [USER], **body}, facts, 4096, frozen
    )
    check(json.loads(json.dumps(out)))
    return out


def said(text, **more):
    return {"type": "text", "text": text, **more}


def calls(*ids, name="look", **more):
    made = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
        for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(ident, content="done"):
    return {"role": "tool", "tool_call_id": ident, "content": content}


def test_leading_system_messages_are_the_system_and_later_ones_keep_their_place():
    out = sent(
        [
            {"role": "system", "content": "One."},
            {"role": "developer", "content": [said("Two."), said("")]},
            USER,
            {"role": "system", "content": "Three."},
        ]
    )
    assert out["system"] == [said("One."), said("Two.")]
    assert out["messages"] == [
        {"role": "user", "content": [said("Hi"), said("<system>\nThree.\n</system>")]}
    ]


def test_neighbours_of_one_role_are_one_message_and_blank_text_is_none():
    out = sent(
        [
            USER,
            {"role": "user", "content": "there"},
            {"role": "assistant", "content": " \n"},
            {"role": "user", "content": [said(" "), said("now")]},
            {"role": "assistant", "content": "A"},
            {"role": "assistant", "content": "B \n"},
        ]
    )
    assert out["messages"] == [
        {"role": "user", "content": [said("Hi"), said("there"), said("now")]},
        {"role": "assistant", "content": [said("A"), said("B")]},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": "Welcome"}, USER],
        [{"role": "system", "content": "Only rules."}],
        [{"role": "user", "content": ""}],
    ],
)
def test_the_first_message_is_the_users(messages):
    assert sent(messages)["messages"][0]["content"][0] in (said(OPENING), said("Hi"))


def test_results_of_parallel_calls_are_one_message_with_the_users_text_after_them():
    out = sent(
        [
            USER,
            calls("a", "b"),
            result("b"),
            {"role": "system", "content": "Now!"},
            result("a", [said("x"), {"type": "image_url", "image_url": {"url": PIXEL}}]),
            {"role": "system", "content": "Then."},
            USER,
        ],
        tools=[TOOL],
    )
    assert out["messages"][1]["content"] == [
        {"type": "tool_use", "id": i, "name": "look", "input": {"a": 1}} for i in "ab"
    ]
    assert [
        (b["type"], b.get("tool_use_id") or b["text"]) for b in out["messages"][2]["content"]
    ] == [
        ("tool_result", "b"),
        ("tool_result", "a"),
        ("text", "<system>\nNow!\n</system>"),
        ("text", "<system>\nThen.\n</system>"),
        ("text", "Hi"),
    ]
    assert out["messages"][2]["content"][1]["content"][1]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }


def test_a_call_without_a_result_gets_a_stub_and_a_result_without_a_call_becomes_text():
    out = sent(
        [
            USER,
            calls("a"),
            {"role": "assistant", "content": "Never mind."},
            result("zz", "stray"),
            result("a", "late"),
            USER,
            calls("last"),
        ],
        tools=[TOOL],
    )
    stub = {"type": "tool_result", "tool_use_id": "a", "content": NO_RESULT, "is_error": True}
    assert out["messages"][2]["content"] == [stub]
    assert out["messages"][4]["content"] == [said("stray"), said("late"), said("Hi")]
    assert out["messages"][-1]["content"] == [{**stub, "tool_use_id": "last"}]


def test_ids_that_the_api_refuses_are_mapped_alike_and_repeated_ones_numbered():
    history = [
        USER,
        calls("call:1", "call:1", ""),
        result("call:1", "x"),
        result("call:1", "y"),
        result("", "z"),
        USER,
        calls("ok"),
        result("ok"),
        USER,
        calls("ok"),
        result("ok"),
    ]
    out = sent(history, tools=[TOOL])
    assert out == sent(history, tools=[TOOL])
    asked = [b["id"] for m in out["messages"] for b in m["content"] if b["type"] == "tool_use"]
    answered = [
        b["tool_use_id"]
        for m in out["messages"]
        for b in m["content"]
        if b["type"] == "tool_result"
    ]
    assert asked == answered
    assert asked[1] == asked[0] + "_2"
    assert asked[3:] == ["ok", "ok_2"]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        (None, {}),
        ('{"q": "\\u00e6"}', {"q": "æ"}),
        ({"q": 1}, {"q": 1}),
        ('{"q": ', {"unparsed_arguments": '{"q": '}),
        ("[1]", {"unparsed_arguments": "[1]"}),
        ("[" * 5000, {"unparsed_arguments": "[" * 5000}),
    ],
)
def test_arguments_that_do_not_parse_are_kept(arguments, given):
    out = sent(
        [
            USER,
            {
                "role": "assistant",
                "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": arguments}}],
            },
            result("a"),
        ],
        tools=[TOOL],
    )
    assert out["messages"][1]["content"][0]["input"] == given


def test_parts_of_every_kind():
    mark = {"cache_control": {"type": "ephemeral"}}
    out = sent(
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": "https://a/b.png", "detail": "low"},
                        **mark,
                    },
                    {"type": "image_url", "image_url": {"url": PIXEL}},
                    said("T", **mark),
                    {
                        "type": "file",
                        "file": {
                            "filename": "a.pdf",
                            "file_data": "data:application/pdf;base64,JVBE",
                        },
                    },
                    {
                        "type": "file",
                        "file": {"file_data": "data:text/plain;charset=utf-8;base64,w6Y="},
                    },
                    {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
                ],
            }
        ]
    )
    assert out["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}, **mark},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        },
        said("T", **mark),
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "æ"}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"n": 2}, "`n` is 2"),
        ({"functions": [{}]}, "`functions`"),
        ({"function_call": "auto"}, "`function_call`"),
        ({"modalities": ["text", "audio"]}, "audio"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}
                ]
            },
            "'input_audio'",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "ftp://x"}}],
                    }
                ]
            },
            "neither an http",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
                ]
            },
            "file_data",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "file", "file": {"file_data": "data:text/plain;base64,a"}}
                        ],
                    }
                ]
            },
            "base64 cannot be read",
        ),
        ({"messages": [{"role": "user", "content": 3}]}, "`messages[0].content`"),
        ({"messages": [{"role": "narrator"}]}, "'narrator'"),
        ({"messages": 3}, "`messages`"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "`tools[0]`"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "`tool_choice`"),
        ({"model": ""}, "`model`"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(body, told):
    with pytest.raises(BadRequest) as refused:
        messages_request({"model": "m", "messages": [USER], **body}, {}, 1)
    assert told in refused.value.message


def test_a_plain_body_becomes_no_more_than_it_must():
    assert sent(
        user="ada",
        seed=1,
        logprobs=True,
        metadata={"a": "b"},
        presence_penalty=1,
        service_tier="auto",
        store=True,
        parallel_tool_calls=False,
        stop=[" ", "END"],
    ) == {
        "model": "claude-x",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [said("Hi")]}],
        "stop_sequences": ["END"],
    }


@pytest.mark.parametrize(
    ("body", "facts", "limit"),
    [
        ({}, ANY, 4096),
        ({}, FACTS, 64000),
        ({"max_tokens": 7}, FACTS, 7),
        ({"max_completion_tokens": 8, "max_tokens": 7}, FACTS, 8),
    ],
)
def test_there_is_always_a_maximum(body, facts, limit):
    assert sent(facts=facts, **body)["max_tokens"] == limit


@pytest.mark.parametrize(
    ("body", "facts", "kept"),
    [
        ({"temperature": 1.7, "top_p": 0.5, "top_k": 5}, ANY, {"temperature": 1.0, "top_k": 5}),
        ({"temperature": 0}, ANY, {"temperature": 0.0}),
        ({"top_p": 0.5}, ANY, {"top_p": 0.5}),
        ({"temperature": 0.2, "top_p": 0.5, "top_k": 5}, NEWEST, {}),
        ({"temperature": 0.2, "reasoning_effort": "low"}, FACTS, {}),
        ({"temperature": 0.2, "reasoning_effort": "low"}, {"thinking": "asked"}, {}),
        ({"temperature": 0.2, "thinking": {"type": "disabled"}}, FACTS, {"temperature": 0.2}),
    ],
)
def test_sampling_is_what_the_model_takes(body, facts, kept):
    assert {
        k: v for k, v in sent(facts=facts, **body).items() if k in ("temperature", "top_p", "top_k")
    } == kept


@pytest.mark.parametrize(
    ("wanted", "facts", "choice"),
    [
        ({}, ANY, None),
        ({"tool_choice": "auto"}, ANY, {"type": "auto"}),
        ({"tool_choice": "none"}, ANY, {"type": "none"}),
        ({"tool_choice": "required"}, ANY, {"type": "any"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "look"}}},
            ANY,
            {"type": "tool", "name": "look"},
        ),
        ({"parallel_tool_calls": False}, ANY, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": "required"}, NEWEST, {"type": "auto"}),
    ],
)
def test_tool_choice(wanted, facts, choice):
    assert sent(facts=facts, tools=[TOOL], **wanted).get("tool_choice") == choice


def test_tools_are_functions_or_anthropics_own():
    bare = {
        "type": "function",
        "function": {"name": "f", "strict": True, "parameters": {"properties": {}}},
        "cache_control": {"type": "ephemeral"},
    }
    own = {"type": "web_search_20250305", "name": "web_search"}
    assert sent(tools=[TOOL, bare, {"type": "function", "function": {"name": "g"}}, own])[
        "tools"
    ] == [
        {"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "f",
            "input_schema": {"type": "object", "properties": {}},
            "cache_control": {"type": "ephemeral"},
        },
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
        own,
    ]


def test_calls_in_a_history_have_their_tools_declared_though_none_is_offered():
    out = sent([USER, calls("a"), result("a")])
    assert (out["tools"], out["tool_choice"]) == (
        [{"name": "look", "input_schema": {"type": "object"}}],
        {"type": "none"},
    )


@pytest.mark.parametrize(
    ("effort", "facts", "thinking", "told"),
    [
        ("low", ANY, None, None),
        ("low", FACTS, {"type": "enabled", "budget_tokens": 2048}, None),
        ("none", FACTS, None, None),
        ("high", {**FACTS, "max_output": 8000}, {"type": "enabled", "budget_tokens": 4000}, None),
        ("high", {**FACTS, "max_output": 2000}, None, None),
        ("high", {"thinking": "asked"}, {"type": "adaptive", "display": "summarized"}, "high"),
        ("minimal", {"thinking": "asked"}, None, None),
        ("none", {"thinking": "default"}, {"type": "disabled"}, None),
        ("none", NEWEST, {"type": "adaptive", "display": "summarized"}, "low"),
        ("xhigh", NEWEST, {"type": "adaptive", "display": "summarized"}, "xhigh"),
    ],
)
def test_reasoning_effort_is_thinking_as_the_model_takes_it(effort, facts, thinking, told):
    out = sent(facts=facts, reasoning_effort=effort)
    assert (out.get("thinking"), out.get("output_config", {}).get("effort")) == (thinking, told)


def test_thinking_of_the_clients_own_goes_as_it_is():
    own = {"type": "enabled", "budget_tokens": 1500}
    assert sent(facts=NEWEST, thinking=own, reasoning_effort="low")["thinking"] == own


def test_a_strict_schema_is_the_models_own_format_and_any_other_an_instruction():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    strict = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    assert sent(facts=FACTS, response_format=strict)["output_config"] == {
        "format": {"type": "json_schema", "schema": schema}
    }
    assert sent(facts=NEWEST, response_format=strict, reasoning_effort="low")["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": schema},
    }
    for facts, wanted in (
        (ANY, strict),
        (FACTS, {"type": "json_object"}),
        (FACTS, {"type": "json_schema", "json_schema": {"schema": schema}}),
    ):
        out = sent(facts=facts, response_format=wanted)
        assert "output_config" not in out
        assert "JSON" in out["system"][-1]["text"]
    assert "system" not in sent(response_format={"type": "text"})


def test_a_model_that_goes_on_with_no_answer_is_asked_to():
    assert (
        sent([USER, {"role": "assistant", "content": "A:"}], NEWEST)["messages"][-1]["role"]
        == "user"
    )
    assert (
        sent([USER, {"role": "assistant", "content": "A:"}], FACTS)["messages"][-1]["role"]
        == "assistant"
    )


MARK = {"type": "ephemeral"}
MARKED = {"role": "user", "content": [said("x", cache_control=MARK)]}


def marked(out):
    return [
        b["text"]
        for part in (out.get("system", []), *(m["content"] for m in out["messages"]))
        for b in part
        if b.get("cache_control")
    ]


def test_frozen_text_is_marked_at_the_end_of_the_first_system_message():
    system = [
        {"role": "system", "content": [said("Rules."), said("Core.")]},
        {"role": "developer", "content": "More."},
    ]
    assert marked(sent([*system, USER], frozen=True)) == ["Core."]
    assert marked(sent([*system, USER])) == []
    assert marked(sent([USER, system[0]], frozen=True)) == ["<system>\nCore.\n</system>"]


def test_the_clients_own_marks_stay_and_ours_takes_no_fifth():
    system = {"role": "system", "content": "Core."}
    assert marked(sent([system, MARKED, MARKED, MARKED], frozen=True)) == ["Core.", "x", "x", "x"]
    assert marked(sent([system, MARKED, MARKED, MARKED, MARKED], frozen=True)) == ["x"] * 4
    assert (
        marked(sent([system, MARKED, MARKED, MARKED], frozen=True, cache_control=MARK)) == ["x"] * 3
    )
    own = {
        "role": "system",
        "content": [said("Core.", cache_control={"type": "ephemeral", "ttl": "5m"})],
    }
    assert sent([own, USER], frozen=True)["system"] == own["content"]


def test_no_short_mark_stands_before_a_long_one():
    long = {
        "role": "user",
        "content": [said("x", cache_control={"type": "ephemeral", "ttl": "1h"})],
    }
    assert marked(sent([{"role": "system", "content": "Core."}, long], frozen=True)) == ["x"]


def thought(n, position=None):
    return {
        "type": "thinking",
        "thinking": f"t{n}",
        "signature": f"s{n}",
        **({} if position is None else {"index": n, "position": position}),
    }


def shape(out):
    return [
        [b.get("signature") or b["type"] for b in m["content"]]
        for m in out["messages"]
        if m["role"] == "assistant"
    ]


def test_thinking_of_the_loop_under_way_goes_back_where_it_stood():
    history = [
        USER,
        calls("a", "b", content="Well", thinking_blocks=[thought(0), thought(1, 2)]),
        result("a"),
        result("b"),
        calls(
            "c",
            thinking_blocks=[
                thought(2),
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "thinking", "thinking": "unsigned"},
            ],
        ),
        result("c"),
    ]
    out = sent(history, tools=[TOOL])
    assert shape(out) == [
        ["s0", "text", "s1", "tool_use", "tool_use"],
        ["s2", "redacted_thinking", "tool_use"],
    ]
    assert out["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "t0",
        "signature": "s0",
    }
    assert thoughts_in_loop({"messages": history}) == 5


def test_thinking_of_earlier_turns_and_of_tools_no_longer_offered_stays_away():
    history = [USER, calls("a", thinking_blocks=[thought(0)]), result("a")]
    assert shape(sent([*history, USER], tools=[TOOL])) == [["tool_use"]]
    assert shape(sent(history)) == [["tool_use"]]
    assert shape(
        sent([USER, {"role": "assistant", "content": "x", "reasoning_content": "hm"}])
    ) == [["text"]]


def test_a_model_that_checks_the_history_is_asked_to_drop_thinking_that_no_longer_fits():
    checks = {"thinking": "always", "refuses": ["changed_history"]}
    history = [USER, calls("a", thinking_blocks=[thought(0)]), result("a")]
    drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert sent(history, checks, tools=[TOOL])["thinking"] == drop
    assert sent(history, checks, tools=[TOOL], reasoning_effort="low")["thinking"] == {
        **drop,
        "display": "summarized",
    }
    assert "thinking" not in sent([USER, calls("a"), result("a")], checks, tools=[TOOL])
    assert "thinking" not in sent(history, tools=[TOOL])


def test_a_budget_is_not_asked_for_in_a_loop_that_began_without_thinking():
    history = [USER, calls("a"), result("a")]
    assert "thinking" not in sent(history, FACTS, tools=[TOOL], reasoning_effort="high")
    with_it = sent(
        [USER, calls("a", thinking_blocks=[thought(0)]), result("a")],
        FACTS,
        tools=[TOOL],
        reasoning_effort="high",
    )
    assert with_it["thinking"]["type"] == "enabled"


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ids = st.sampled_from(["a", "b", "call:1", ""])
contents = (
    st.none()
    | words
    | st.lists(
        st.one_of(
            words.map(said),
            st.just({"type": "image_url", "image_url": {"url": PIXEL}}),
            words.map(lambda t: {"type": "refusal", "refusal": t}),
        ),
        max_size=3,
    )
)
made = st.builds(
    lambda i, n, a: {"id": i, "type": "function", "function": {"name": n, "arguments": a}},
    ids,
    st.sampled_from(["look", "a b", ""]),
    words,
)
spoken = st.builds(
    lambda r, c: {"role": r, "content": c}, st.sampled_from(["user", "assistant"]), contents
)
rules = st.builds(lambda c: {"role": "system", "content": c}, words)
results = st.builds(lambda i, c: {"role": "tool", "tool_call_id": i, "content": c}, ids, contents)
asking = st.builds(
    lambda c, t: {"role": "assistant", "content": c, "tool_calls": t},
    words,
    st.lists(made, min_size=1, max_size=3),
)
loops = st.builds(lambda a, after: [a, *after], asking, st.lists(results | rules, max_size=4))
messages = st.lists(
    loops | st.lists(st.one_of(spoken, rules, results, asking), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
).map(lambda parts: [m for p in parts for m in p])


@given(messages, st.booleans(), st.sampled_from([ANY, FACTS, NEWEST]), st.booleans())
def test_any_history_becomes_a_request_that_the_api_takes_and_the_same_each_time(
    history, offered, facts, frozen
):
    extra = {"tools": [TOOL]} if offered else {}
    assert sent(history, facts, frozen, **extra) == sent(
        json.loads(json.dumps(history)), facts, frozen, **extra
    )


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | words,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "image_url",
                    "url",
                    "thinking_blocks",
                    "signature",
                    "position",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "tools",
                "tool_choice",
                "stop",
                "n",
                "modalities",
                "thinking",
                "output_config",
                "response_format",
                "reasoning_effort",
                "max_tokens",
                "temperature",
                "stream_options",
                "cache_control",
            ]
        ),
        junk,
        max_size=4,
    ),
    st.lists(
        st.builds(
            lambda r, more: {"content": "x", **more, "role": r},
            st.sampled_from(["user", "assistant", "tool", "system"]),
            st.dictionaries(
                st.sampled_from(
                    ["content", "tool_calls", "tool_call_id", "thinking_blocks", "refusal"]
                ),
                junk,
                max_size=2,
            ),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_a_shape_that_nobody_expects_is_translated_or_refused(body, history):
    body = {"model": "m", "messages": history, **body}
    with contextlib.suppress(BadRequest):
        json.dumps(messages_request(body, FACTS, 4096, frozen=True))
    assert thoughts_in_loop(body) >= 0


texts = st.builds(lambda t: {"type": "text", "text": t}, words)
thoughts = st.builds(
    lambda t, s: {"type": "thinking", "thinking": t, "signature": s},
    words,
    st.text("abc", min_size=1, max_size=9),
)
uses = st.builds(
    lambda i, given: {"type": "tool_use", "id": f"toolu_{i}", "name": f"f{i}", "input": given},
    st.integers(0, 99),
    st.dictionaries(words, words, max_size=2),
)
others = st.just({"type": "redacted_thinking", "data": "eHg="}) | st.just(
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
)
counts = st.integers(0, 10**6)


@st.composite
def answers(draw):
    told = {
        k: draw(counts)
        for k in (
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        )
    }
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": draw(st.lists(texts | thoughts | uses | others, max_size=5)),
        "stop_reason": draw(
            st.sampled_from(
                [
                    "end_turn",
                    "tool_use",
                    "max_tokens",
                    "refusal",
                    "pause_turn",
                    "stop_sequence",
                    "model_context_window_exceeded",
                    "new_reason",
                ]
            )
        ),
        "usage": told,
    }


@given(answers(), st.integers(1, 5), st.booleans(), st.lists(st.integers(1, 60), max_size=20))
def test_a_stream_in_any_pieces_adds_up_to_the_whole(message, size, ping, cuts):
    data = b"".join(written(e) for e in events_of(message, size, ping))
    into, out = StreamedAnswer(7, thoughts=2, usage=True), b""
    for cut in [*cuts, len(data)]:
        out += into.feed(data[:cut])
        data = data[cut:]
    found = events((out + into.end()).decode().replace(": ping\n\n", ""))
    assert found[-1] == "[DONE]"
    assert fold(found[:-1]) == completion(message, 7, 2)


def test_thinking_is_told_as_text_and_as_blocks_that_can_go_back():
    message = {
        "id": "msg_1",
        "model": "m",
        "content": [
            thought(0),
            said("A"),
            thought(1),
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {},
    }
    told = completion(message, 7, thoughts=3)["choices"][0]["message"]
    assert told == {
        "role": "assistant",
        "content": "A",
        "reasoning_content": "t0t1",
        "thinking_blocks": [
            {**thought(0), "index": 3, "position": 0},
            {**thought(1), "index": 4, "position": 2},
        ],
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    }
    back = sent([USER, told, result("toolu_1")], tools=[TOOL])["messages"][1]["content"]
    assert back == [{k: v for k, v in b.items() if k != "index"} for b in message["content"]]


def test_usage_counts_the_cached_tokens_as_the_prompts():
    told = usage(
        {
            "input_tokens": 80,
            "cache_read_input_tokens": 15,
            "cache_creation_input_tokens": 5,
            "output_tokens": 10,
        }
    )
    assert told == {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "prompt_tokens_details": {"cached_tokens": 15, "cache_creation_tokens": 5},
    }
    assert usage(None)["total_tokens"] == 0


@pytest.mark.parametrize(
    ("start", "end", "prompt"),
    [
        (
            {"input_tokens": 27, "output_tokens": 1},
            {"input_tokens": 27, "cache_read_input_tokens": 0, "output_tokens": 9},
            27,
        ),
        (
            {"input_tokens": 25, "cache_read_input_tokens": 5, "output_tokens": 1},
            {"output_tokens": 9},
            30,
        ),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 40, "output_tokens": 9}, 40),
        (
            {"input_tokens": 8834, "output_tokens": 0},
            {"input_tokens": 18, "cache_read_input_tokens": 8816, "output_tokens": 9},
            8834,
        ),
        (
            {"input_tokens": 30, "output_tokens": 1},
            {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 9},
            30,
        ),
    ],
)
def test_running_totals_are_never_added_up(start, end, prompt):
    told = usage(combine_usage(combine_usage({}, start), end))
    assert (told["prompt_tokens"], told["completion_tokens"]) == (prompt, 9)


def test_an_input_told_at_the_start_of_a_block_is_not_lost():
    into = StreamedAnswer(7)
    block = {"type": "tool_use", "id": "t", "name": "look", "input": {"q": 1}}
    told = [
        {"type": "message_start", "message": {"id": "m", "model": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "novelty", "x": 1},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "T"}},
    ]
    found = events(b"".join(into.feed(written(e)) for e in told).decode())
    message = fold(found)["choices"][0]["message"]
    assert (message["tool_calls"][0]["function"]["arguments"], message["content"]) == (
        '{"q":1}',
        "T",
    )
    assert into.end() == b""


@pytest.mark.parametrize(
    ("kind", "message", "code"),
    [
        ("authentication_error", "invalid x-api-key", "invalid_api_key"),
        ("rate_limit_error", "slow", "rate_limit_exceeded"),
        ("not_found_error", "model: claude-9", "model_not_found"),
        (
            "invalid_request_error",
            "Your credit balance is too low to access the API.",
            "insufficient_quota",
        ),
        ("overloaded_error", "Overloaded", None),
        (
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
            "context_length_exceeded",
        ),
    ],
)
def test_an_error_keeps_its_words_and_gets_the_code_that_clients_know(kind, message, code):
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    assert json.loads(refusal(json.dumps(body).encode())) == {
        "error": {"message": message, "type": kind, "param": None, "code": code, "upstream": body}
    }


def test_nothing_follows_the_end_of_a_stream():
    into = StreamedAnswer(7)
    end = written({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert json.loads(into.feed(end)[6:]) == {
        "error": {
            "message": "Overloaded",
            "type": "overloaded_error",
            "param": None,
            "code": None,
            "status": 529,
        }
    }
    assert into.feed(written({"type": "message_stop"})) == b""


def test_a_whole_answer_is_translated_at_its_end():
    answer = WholeAnswer(bytes.upper, 3)
    assert answer.feed(b"ab") == answer.feed(b"cd") == answer.feed(b"beyond the limit") == b""
    assert answer.waiting == 4
    assert answer.end() == b"ABCD"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "hi"}]},
        {"thinking": {"type": "adaptive", "block_binding": {}}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    ],
)
def test_a_request_that_says_how_it_thinks_or_does_not_is_left_as_it_is(body):
    assert with_stale_thinking_dropped(body) is None


@pytest.mark.parametrize(
    "body",
    [
        {"thinking": {"type": "adaptive"}},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]},
    ],
)
def test_a_request_that_thinks_may_have_stale_thinking_dropped(body):
    found = with_stale_thinking_dropped(body)
    assert found["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
