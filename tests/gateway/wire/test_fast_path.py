"""A template matches the events that differ in their text alone, and is made of no others."""

from __future__ import annotations

import json

import pytest

from gateway.wire import fast_path
from gateway.wire.chat import ChunkIdentity, parse_chunk
from gateway.wire.fast_path import PAD, TEXT, make_template

HEAD = {"id": "c", "object": "chat.completion.chunk"}


def event(delta, **more):
    return json.dumps({**HEAD, "choices": [{"index": 0, "delta": delta}], **more}).encode()


def template(payload, *, model=None, roles=(0,)):
    return make_template(parse_chunk(payload), ChunkIdentity(model), set(roles), False)


def framed(payload):
    return b"data: " + payload + b"\n\n"


@pytest.mark.parametrize("member", ["content", "reasoning_content", "reasoning"])
def test_an_event_with_another_text_is_shown_as_it_came(member):
    made = template(event({member: "a"}))
    raw = framed(event({member: 'b "quoted"'}))
    assert made.match(raw) == raw
    assert made.texts == ['b "quoted"']
    assert made.delta("x") == {member: "x"}


def test_a_piece_of_arguments_is_a_text_too():
    def piece(text):
        return event({"tool_calls": [{"index": 1, "function": {"arguments": text}}]})

    made = template(piece("a"))
    assert made.match(framed(piece("{"))) == framed(piece("{"))
    assert made.texts == ["{"]


def test_an_event_is_shown_under_the_clients_name_of_the_model():
    made = template(event({"content": "a"}, model="m"), model="alias")
    shown = made.match(framed(event({"content": "b"}, model="m")))
    assert json.loads(shown[6:])["model"] == "alias"
    assert made.match(framed(event({"content": "b"}, model="n"))) == b""


@pytest.mark.parametrize("model", [None, "alias"])
def test_padding_may_differ_as_well(model):
    made = template(event({"content": "a"}, obfuscation="xyz"), model=model)
    shown = json.loads(made.match(framed(event({"content": "b"}, obfuscation="r2")))[6:])
    assert (shown["obfuscation"], shown["choices"][0]["delta"]) == ("r2", {"content": "b"})
    assert made.match(framed(event({"content": "b"}, obfuscation="!"))) == b""


@pytest.mark.parametrize(
    "raw",
    [
        framed(event({"content": ""})),
        framed(event({"content": "b", "refusal": "x"})),
        framed(event({"content": "b"}, usage={"n": 1})),
        framed(event({"content": "b"}).replace(b'"b"', b'"\xff"')),
        framed(event({"content": "b"}).replace(b'"b"', b'3, "b"')),
        b": comment\n\n",
    ],
)
def test_what_says_anything_else_has_to_be_read(raw):
    assert template(event({"content": "a"})).match(raw) == b""


@pytest.mark.parametrize(
    "payload",
    [
        event({"content": "a"}, usage={"n": 1}),
        event({"content": "a", "reasoning": ""}),
        event({"content": "a"}, x={"content": "b"}),
        event({"content": TEXT}),
        event({"content": "a"}, x=PAD),
        event({"content": "a"}, obfuscation=PAD).replace(PAD.encode(), b"\\u006dnemogatepad"),
        event({"content": "a"}, **{'x"obfuscation': "b"}),
        event({"content": ["a"]}),
        event({"content": "a", "x": 1}),
        event({"x": "a"}),
        event({}),
        json.dumps({**HEAD, "choices": []}).encode(),
        event({"content": "a"}).replace(b'"delta"', b'"logprobs": {}, "delta"'),
        event({"content": "a"}).replace(b": ", b":\n"),
        event({"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": "a"}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}),
        event({"content": "a" * fast_path.MAX_TEMPLATE_BYTES}),
        event({"content": "a"}).replace(b"content", b"\\u0063ontent"),
    ],
)
def test_what_could_say_more_the_next_time_makes_no_template(payload):
    assert template(payload) is None


def test_an_event_whose_shown_text_is_not_in_one_place_makes_no_template():
    assert template(event({"content": "a"}, model="m"), model=TEXT) is None
