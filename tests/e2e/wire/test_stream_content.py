"""C. What a stream says: one answer, one identity, every choice and every member of it."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running, said
from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import (
    HEAD,
    MODES,
    SHARED,
    WAYS,
    asked,
    chunks,
    deltas,
    framed,
    hello,
    piece,
    playing,
    strict,
    text,
)
from tests.models import Model, call, calls

pytestmark = SHARED
REMEMBER = calls(
    call("core_memory_append", {"label": "human", "content": "Likes tea"}), content="One moment."
)
IDENTITY = ("id", "object", "created", "model")
EXTRAS = {
    "reasoning_content": "r1",
    "reasoning": "r2",
    "reasoning_details": [{"type": "reasoning.text", "text": "t", "index": 0}],
    "audio": {"id": "a", "data": "AAAA"},
    "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}],
    "refusal": "no",
    "thinking_blocks": [{"signature": "s"}],
    "x_unknown": {"deep": [1, None]},
    "function_call": {"name": "f", "arguments": "{"},
}


@row(46)
async def test_one_identity_through_the_whole_stream(line):
    """Each chunk of the upstream names itself anew, and so does each round."""
    odd = [
        {
            **e,
            "id": f"c{i}",
            "created": i + 1,
            "model": f"m{i % 2}",
            "object": "chat.completion" if i > 1 else "chat.completion.chunk",
        }
        for i, e in enumerate(hello())
    ]
    odd.insert(2, {**HEAD, "id": "bare", "choices": [], "x_note": 1})
    for script in ([playing(*odd)], [REMEMBER, "Done"]):
        found = await chunks(line.play(*script), "full", stream_options={"include_usage": True})
        assert len({tuple(e[k] for k in IDENTITY) for e in found}) == 1


@row(46)
async def test_a_nameless_first_chunk_does_not_name_the_rest(line):
    first = {
        "id": "",
        "object": "",
        "created": 0,
        "model": "",
        "choices": [],
        "prompt_filter_results": [{"prompt_index": 0}],
    }
    found = await chunks(line.play(playing(first, *hello())), "full")
    assert found[0]["prompt_filter_results"] == [{"prompt_index": 0}]
    assert [{k: e[k] for k in IDENTITY} for e in found[1:]] == [HEAD] * 4


ROLES = {
    "missing": [{}, {}, {}],
    "empty": [{"role": ""}, {"role": ""}, {"role": ""}],
    "null": [{"role": None}, {"role": None}, {"role": None}],
    "repeated": [{"role": "assistant"}, {"role": "assistant"}, {"role": "assistant"}],
    "late": [{}, {"role": "assistant"}, {"role": ""}],
}


@row(46)
@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize(
    "finish",
    [{}, {"role": "", "content": ""}, {"role": None, "content": None}, None],
    ids=["bare", "empty", "null", "no delta"],
)
async def test_the_role_is_told_once_and_never_empty(line, roles, finish):
    events = [
        piece({**role, "content": word}) for role, word in zip(ROLES[roles], "abc", strict=True)
    ]
    last = piece(finish="stop")
    last["choices"][0]["delta"] = finish
    found = await chunks(line.play(playing(*events, last)), "full")
    assert said(found) == "abc"
    assert [d["role"] for d in deltas(found) if "role" in d] == ["assistant"]
    assert deltas(found)[0]["role"] == "assistant"


@row(46)
@pytest.mark.parametrize(
    "start",
    [
        {"delta": None},
        {"delta": {}},
        {},
        {"delta": {"role": "assistant", "content": None}},
        {"index": None, "delta": {"content": ""}},
    ],
)
async def test_an_empty_start_is_a_start(line, start):
    found = await chunks(
        line.play(playing({**HEAD, "choices": [{"index": 0, **start}]}, *hello()[1:])), "full"
    )
    assert said(found) == "Hello"
    assert [d.get("role") for d in deltas(found)] == ["assistant", None, None, None]


@row(55)
@pytest.mark.parametrize(
    "late",
    [
        {"content": "more"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"role": "assistant"},
        {},
    ],
)
@pytest.mark.parametrize("finish", [None, "stop", "length"])
async def test_a_choice_says_nothing_after_its_finish(line, late, finish):
    found = await chunks(
        line.play(playing(*hello(), piece(late, finish), piece(late, finish))), "full"
    )
    assert found == hello()


@row(55)
async def test_what_comes_with_the_finish_is_part_of_the_answer(line):
    found = await chunks(
        line.play(
            playing(
                piece({"role": "assistant", "content": "a"}),
                piece({"content": "b", "reasoning": "r"}, "length"),
            )
        ),
        "full",
    )
    assert found[-1] == piece({"content": "b", "reasoning": "r"}, "length")


@row(57)
@MODES
@WAYS
@pytest.mark.parametrize("quirk", [{}, {"role": ""}], ids=["clean", "edited"])
async def test_choices_stay_apart(line, mode, stream, quirk):
    lanes = [2, 0, 1]

    def spoken(lane, word, finish=None):
        extra = {"logprobs": {"content": [{"token": word, "logprob": -lane}]}} if word else {}
        out = piece({**quirk, **({"content": word} if word else {})}, finish, lane)
        return {**out, "choices": [{**out["choices"][0], **extra}]}

    events = [spoken(lane, f"{lane}{letter} ") for letter in "abc" for lane in lanes]
    events += [{**HEAD, "choices": [spoken(1, "x1")["choices"][0], spoken(2, "x2")["choices"][0]]}]
    events += [
        spoken(lane, "", reason)
        for lane, reason in zip((1, 2, 0), ("length", "stop", "content_filter"), strict=True)
    ]
    live = line.play(playing(*events))
    wanted = {0: "0a 0b 0c ", 1: "1a 1b 1c x1", 2: "2a 2b 2c x2"}
    reasons = {0: "content_filter", 1: "length", 2: "stop"}
    if not stream:
        if mode == "off":
            return
        whole = json.loads(await asked(live, mode, n=3, stream=False))["choices"]
        assert {c["index"]: c["message"]["content"] for c in whole} == wanted
        assert {c["index"]: c["finish_reason"] for c in whole} == reasons
        assert [len(c["logprobs"]["content"]) for c in whole] == [3, 4, 4]
        return
    found = await chunks(live, mode, n=3)
    for lane, words in wanted.items():
        mine = [c for e in found for c in e["choices"] if c["index"] == lane]
        assert "".join(c["delta"].get("content") or "" for c in mine) == words
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + [reasons[lane]]
        assert [
            x["logprob"] for c in mine for x in (c.get("logprobs") or {}).get("content", [])
        ] == [-lane] * (len(mine) - 1)
        if mode == "full":
            assert [c["delta"].get("role") for c in mine] == ["assistant"] + [None] * (
                len(mine) - 1
            )


@row(58)
@MODES
@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.parametrize(
    "beside", [{}, {"content": "text"}, {"role": ""}, {"content": "text", "role": None}]
)
async def test_members_that_nobody_knows_pass(line, mode, name, beside):
    """Alone, beside text, and in a chunk that must be edited."""
    events = [
        piece({"role": "assistant"}),
        piece({**beside, name: EXTRAS[name]}),
        piece(finish="stop"),
    ]
    found = await chunks(line.play(playing(*events)), mode)
    assert found[1]["choices"][0]["delta"] == {
        k: v for k, v in events[1]["choices"][0]["delta"].items() if mode == "off" or k != "role"
    }
    assert (found[0], found[2]) == (events[0], events[2])


OUTER = {
    "logprobs": None,
    "content_filter_results": {"hate": {"filtered": False}},
    "native_finish_reason": None,
    "stop_reason": 5,
    "token_ids": [1],
    "matched_stop": "x",
}


@row(58)
@pytest.mark.parametrize("edit", ["alias", "usage", "role", "identity", "none"])
async def test_an_edited_chunk_loses_nothing_else(data, edit):
    """At every level: of the chunk, of the choice, of the delta."""
    top = {
        "system_fingerprint": "fp",
        "service_tier": "default",
        "obfuscation": "x",
        "provider": {"name": "p"},
        **({"usage": None} if edit == "usage" else {}),
    }
    role = {"role": None} if edit == "role" else {}
    events = [
        piece({"role": "assistant", "content": "", "refusal": None}),
        piece({**role, "content": "a"}),
        piece({**role, "tool_calls": None, "content": "b"}),
        piece(role, "stop"),
    ]
    events = [
        {
            **e,
            **top,
            "id": f"c{i}" if edit == "identity" else "c1",
            "model": "theirs" if edit == "alias" else "m",
            "choices": [{**e["choices"][0], **OUTER}],
        }
        for i, e in enumerate(events)
    ]
    config = (
        {"models": {"m": {"targets": [{"provider": "openai", "model": "theirs"}]}}}
        if edit == "alias"
        else {}
    )
    async with Model(playing(*events)) as up, running(up.url, data, config) as live:
        found = await chunks(live, "full")
    first = {"id": "c0"} if edit == "identity" else {}
    for event in events:
        event.update(model="m", **first)
        event.pop("usage", None)
        if event is not events[0]:
            event["choices"][0]["delta"].pop("role", None)
    assert found == events
    assert [list(e) for e in found] == [list(e) for e in events]


@row(58)
async def test_a_hidden_call_takes_nothing_of_the_text_beside_it(line):
    """Reasoning, text and a call of ours in one chunk: only the call goes."""
    ours = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "core_memory_append", "arguments": '{"label":"human","content":"x"}'},
    }
    first = piece(
        {"role": "assistant", "reasoning": "hm", "content": "One.", "tool_calls": [ours]},
        "tool_calls",
    )
    found = await chunks(line.play(playing(first), playing(*hello("Two."))), "full")
    assert said(found) == "One.\n\nTwo."
    assert deltas(found)[0]["reasoning"] == "hm"
    assert "tool_calls" not in json.dumps(found)


@row(59)
@WAYS
async def test_an_answer_is_converted_into_the_mode_asked_for(line, stream):
    """Memory on. The upstream does the opposite of what was asked."""
    tool = {
        "id": "call_9",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"x"}'},
    }
    message = {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "hm",
        "refusal": None,
        "annotations": [],
        "tool_calls": [tool],
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    if stream:

        async def plain(seen, wire):
            choice = {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
            await wire.json(
                {
                    **HEAD,
                    "object": "chat.completion",
                    "choices": [choice],
                    "usage": usage,
                    "service_tier": "default",
                }
            )

        response = await line.play(plain).chat(
            "hi", stream=True, stream_options={"include_usage": True}, user="bea"
        )
        assert response.headers["content-type"].startswith("text/event-stream")
        *found, told, last = strict(response.content)
        assert (told["choices"], told["usage"], last) == ([], usage, "[DONE]")
        assert said(found) == "Hello"
        assert {e["object"] for e in found} == {"chat.completion.chunk"}
        assert [c["index"] for d in deltas(found) for c in d.get("tool_calls", [])] == [0]
        assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        part = {"index": 0, **tool, "function": {**tool["function"], "arguments": ""}}
        rest = {"index": 0, "function": {"arguments": '{"city":"x"}'}}
        events = [
            *hello(finish=None),
            piece({"reasoning_content": "hm", "refusal": None, "annotations": []}),
            piece({"tool_calls": [part]}),
            piece({"tool_calls": [rest]}),
            piece(finish="tool_calls"),
            {**HEAD, "choices": [], "usage": usage},
        ]
        response = await line.play(playing(*events)).chat("hi", stream=False, user="bea")
        assert response.headers["content-type"].startswith("application/json")
        body = response.json()
        assert (body["object"], body["usage"], body["choices"][0]["finish_reason"]) == (
            "chat.completion",
            usage,
            "tool_calls",
        )
        assert body["choices"][0]["message"] == message


@row(59)
@MODES
@WAYS
@pytest.mark.parametrize(
    "kind",
    ["text/event-stream", "Text/Event-Stream; charset=utf-8", "application/json", "text/html"],
)
async def test_the_content_type_always_matches_the_bytes(line, mode, stream, kind):
    events = "event-stream" in kind.lower()
    whole = text(
        {
            **HEAD,
            "object": "chat.completion",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello"},
                    "finish_reason": "stop",
                }
            ],
        }
    )
    sent = framed(*hello()) if events else whole if "json" in kind else b"<p>Hello</p>"

    async def behave(seen, wire):
        await wire.answer(200, sent, content_type=kind)

    response = await line.play(behave).chat("hi", {"x-memory": mode}, stream=stream, user="cleo")
    got = response.headers["content-type"]
    if mode == "off":
        assert (got, response.content) == (kind, sent)
    elif kind == "text/html":
        assert (response.status_code, got, response.json()["error"]["code"]) == (
            502,
            "application/json",
            "upstream_unreachable",
        )
    elif stream:
        assert got.startswith("text/event-stream")
        assert said(strict(response.content)) == "Hello"
    else:
        assert got.startswith("application/json")
        assert response.json()["choices"][0]["message"]["content"] == "Hello"


@row(58, 35)
async def test_a_stream_in_an_encoding_of_its_own_passes_untouched(line):
    """Off: what is compressed holds no lines to read."""
    import gzip

    sent = gzip.compress(framed(*hello()))

    async def behave(seen, wire):
        await wire.answer(200, sent, "content-encoding: gzip", content_type="text/event-stream")

    response = await line.play(behave).chat("hi", {"x-memory": "off"}, stream=True)
    assert response.content == framed(*hello())
