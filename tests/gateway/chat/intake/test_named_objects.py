"""What a body names of the provider's is found wherever it stands; what apps say is not."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.intake.named_objects import (
    is_plain_chat,
    may_lead,
    may_name_models,
    may_name_objects,
    models_in,
    names_nothing,
    objects_in,
)
from gateway.errors import BadRequest

NAMES = [
    ({"prompt": {"id": "pmpt_1"}}, ("prompts", "pmpt_1")),
    (
        {"prompt": {"id": "p", "variables": {"x": {"type": "input_file", "file_id": "f"}}}},
        ("files", "f"),
    ),
    ({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}, ("audio", "audio_1")),
    ({"audio": {"voice": {"id": "voice_1"}, "format": "wav"}}, ("audio/voices", "voice_1")),
    ({"voice": {"id": "voice_1"}}, ("audio/voices", "voice_1")),
    ({"images": [{"file_id": "f"}], "mask": {"file_id": "g"}}, ("files", "g")),
    ({"images": [{"file_id": "f"}]}, ("files", "f")),
    ({"document": {"type": "file", "file_id": "f"}}, ("files", "f")),
    ({"input": [{"content": [{"type": "input_file", "File_ID": "f"}]}]}, ("files", "f")),
    (
        {"tools": [{"type": "file_search", "vector_store_ids": ["a", "vs"]}]},
        ("vector_stores", "vs"),
    ),
    ({"tools": [{"type": "document_library", "library_ids": ["l"]}]}, ("libraries", "l")),
    ({"messages": [{"content": [{"source": {"type": "file", "file_id": "f"}}]}]}, ("files", "f")),
    ({"container": {"id": "c", "skills": [{"type": "custom", "skill_id": "s"}]}}, ("skills", "s")),
    ({"container": "c"}, ("containers", "c")),
    ({"input_file_id": "f"}, ("files", "f")),
    ({"x": {"y": [[{"batch_id": "b"}]]}}, ("batches", "b")),
    ({"tools": [{"type": "code_interpreter", "container": {"file_ids": ["f"]}}]}, ("files", "f")),
]
SILENT = [
    {
        "input": [
            {"type": "function_call", "call_id": "c", "id": "fc_1", "arguments": '{"file_id": 1}'}
        ]
    },
    {"messages": [{"role": "tool", "tool_call_id": "file_1", "content": "x"}]},
    {"messages": [{"content": [{"type": "tool_result", "tool_use_id": "t"}]}]},
    {"messages": [{"content": [{"type": "tool_use", "id": "t", "input": {"file_id": "mine"}}]}]},
    {"tools": [{"function": {"parameters": {"properties": {"file_id": {"default": "x"}}}}}]},
    {"tools": [{"input_schema": {"file_id": "x"}, "input_examples": [{"batch_id": "b"}]}]},
    {"response_format": {"json_schema": {"schema": {"file_id": "x"}}}},
    {"text": {"format": {"schema": {"enum": ["x"], "file_id": "x"}}}},
    {"metadata": {"file_id": "x", "user_id": "u", "thread_id": "t"}},
    {"session_id": "s", "chat_id": "c", "user_id": "u", "request_id": "r", "conversation_id": "x"},
    {"stop_token_ids": [1, 2], "prompt": "tell me", "audio": {"voice": "alloy"}, "voice": "alloy"},
    {"prompt": {"id": 1, "variables": {"customer_id": "c", "file_id": "text of a variable"}}},
    {
        "input": [
            {
                "content": [
                    {"annotations": [{"type": "container_file_citation", "file_id": "cfile_1"}]}
                ]
            }
        ]
    },
    {"tools": [{"type": "mcp", "connector_id": "connector_dropbox", "headers": {"x_id": "y"}}]},
    {"messages": [{"content": '"file_id": "f"', "message_id": "m", "parent_id": "p"}]},
    {"input": [{"type": "function_call_output", "call_id": "c", "output": {"file_id": "own"}}]},
]


@pytest.mark.parametrize(("body", "name"), NAMES)
def test_an_object_is_found_wherever_it_is_named(body, name):
    assert name in set(objects_in(body))
    spelt = json.dumps(body)
    assert may_name_objects(spelt.encode())
    assert may_name_objects(
        spelt.replace("_id", "\\u005fid").replace('"id"', '"\\u0069d"').encode()
    )
    deeper = {"a": [{"b": body}]}
    assert name in set(objects_in(deeper))


@pytest.mark.parametrize("body", SILENT)
def test_what_is_the_apps_own_names_nothing(body):
    assert [x for x in objects_in(body) if x[0] != "containers"] == []


def test_the_ids_of_a_tool_loop_are_no_reason_to_read_a_body():
    loop = [{"type": "function_call_output", "call_id": f"c{i}", "output": "é"} for i in range(50)]
    assert not may_name_objects(json.dumps({"input": loop, "previous_response_id": "r"}).encode())


def test_a_body_is_walked_in_linear_time_and_never_too_deep():
    wide = {"input": [{"content": [{"a_id": "x", "b": [1] * 10}]}] * 40_000}
    begun = time.process_time()
    assert len(list(objects_in(wide))) == 40_000
    assert time.process_time() - begun < 2
    deep = "x"
    for _ in range(40):
        deep = {"file_id": deep}
    with pytest.raises(BadRequest, match="deeper"):
        list(objects_in(deep))


def test_a_model_inside_a_built_in_tool_is_found():
    body = {
        "model": "m",
        "tools": [
            {"type": "image_generation", "model": "gpt-image-1"},
            {"type": "x", "a": {"models": ["n", "o"]}},
            {"type": "function", "parameters": {"properties": {"model": "no"}, "model": "no"}},
        ],
        "messages": [{"role": "user", "model": "no", "content": [{"model": "no"}]}],
        "metadata": {"model": "no"},
    }
    assert sorted(models_in(body)) == ["gpt-image-1", "n", "o"]
    assert may_name_models(json.dumps(body).encode())
    assert not may_name_models(b'{"model": "m"}')


WORDS = ["container", "file", "model", "MODELS", "prompt", "call_id", "File_ids", "x", "role"]
SPELT = [*WORDS, '"', "\\", "\\u0041", ":", "{", "}", " ", ",", "[", "]", "previous_response_id"]


@given(st.lists(st.sampled_from(SPELT), max_size=14).map("".join))
def test_a_body_that_certainly_names_nothing_may_name_nothing(text):
    raw = b'{"model":"m","a":' + text.encode() + b"}"
    if names_nothing(raw):
        assert not may_name_objects(raw)
        assert not may_name_models(raw)


def test_a_usual_body_certainly_names_nothing():
    body = {"model": "m", "messages": [{"role": "user", "content": 'my file, a "container"'}]}
    assert not names_nothing(json.dumps({**body, "container": "c"}).encode())
    assert not names_nothing(json.dumps({**body, "x": {"model": "m"}}).encode())
    assert names_nothing(json.dumps({**body, "tools": [{"type": "function"}]}).encode())


MEMBERS = [*WORDS, "messages", "content", "temperature", "stop", "user", "models", "conversation"]
scalars = st.sampled_from([1, None, "text", "file-1", "{", '"', []])
flat_objects = st.lists(st.tuples(st.sampled_from(MEMBERS), scalars), max_size=3)


def spell(pairs):
    """JSON text of an object whose members may be given twice, and hold objects of that kind."""
    return "{%s}" % ",".join(f"{json.dumps(name)}:{value}" for name, value in pairs)


@st.composite
def bodies(draw):
    """JSON text of a request, in which each member may be given twice."""

    def value():
        kind = draw(st.sampled_from(["scalar", "object", "messages", "messages"]))
        if kind == "scalar":
            return json.dumps(draw(scalars))
        if kind == "object":
            return spell([(n, json.dumps(v)) for n, v in draw(flat_objects)])
        plain = [("role", '"user"'), ("content", json.dumps(draw(scalars)))]
        objects = [plain] * draw(st.integers(0, 2))
        objects += [[(n, json.dumps(v)) for n, v in draw(flat_objects)]] * draw(st.integers(0, 1))
        return f"[{','.join(map(spell, objects))}]"

    names = [*draw(st.lists(st.sampled_from(MEMBERS), max_size=2)), "messages"]
    # The last one counts.
    often = [(name, value()) for name in ["temperature", *names] if draw(st.booleans())]
    return spell([("model", '"m"'), *often, *((name, value()) for name in names)])


@given(bodies())
def test_no_member_of_a_plain_chat_may_name_anything_however_often_it_is_given(text):
    names = []

    def note(pairs):
        names.extend(name for name, _ in pairs)
        return dict(pairs)

    body = json.loads(text, object_pairs_hook=note)
    if is_plain_chat(body, text.encode()):
        assert not [n for n in names if n != "content" and may_lead(n)]
        assert not may_name_objects(text.encode())
        assert list(objects_in(body)) == []


def test_a_usual_chat_is_plain():
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}] * 3, "max_tokens": 9}
    assert is_plain_chat(body, json.dumps(body).encode())
    for odd in ({"container": "c"}, {"tools": [{"type": "function"}]}, {"Conversation": "c"}):
        assert not is_plain_chat({**body, **odd}, json.dumps({**body, **odd}).encode())
