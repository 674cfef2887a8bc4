"""C. How a stream ends: once, and never as if it were whole when it is not."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conftest import running, said
from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import (
    MODES,
    SHARED,
    USAGE,
    WAYS,
    asked,
    chunks,
    client,
    framed,
    hello,
    piece,
    playing,
    strict,
    text,
    writing,
)
from tests.models import Model, call, calls

pytestmark = SHARED
BUSY = {"message": "busy", "type": "server_error", "param": None, "code": "server_overloaded"}
REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
OPEN = hello(finish=None)
RAW = framed(*OPEN, done=False)
ANSWERED = [e["choices"][0] for e in hello()]


def ended(body, code):
    """The chunks before a stream's one error, which is the last thing in it."""
    *found, last = strict(body)
    assert last["error"]["code"] == code
    assert set(last["error"]) >= {"message", "type", "param", "code"}
    assert isinstance(last["error"]["message"], str)
    assert not [e for e in found if e == "[DONE]" or e.get("error")]
    return found


@row(38)
@MODES
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize(
    "script", [["Hello"], [REMEMBER, "Hello"]], ids=["one round", "two rounds"]
)
async def test_a_stream_ends_with_finish_then_usage_then_done_then_nothing(
    line, mode, asks, script
):
    live = line.play(*script[-1 if mode == "off" else 0 :])
    found = await chunks(
        live, mode, **({"stream_options": {"include_usage": True}} if asks else {})
    )
    if asks:
        assert found.pop()["choices"] == []
    assert [e["choices"][0]["finish_reason"] for e in found] == [None] * (len(found) - 1) + ["stop"]
    assert not any(e.get("usage") for e in found)


@row(38)
async def test_nothing_follows_done_whatever_the_upstream_sends_after_it(line):
    more = framed(piece({"content": "late"}), {"error": BUSY})
    live = line.play(writing(framed(*hello()) + more, then="end"))
    assert strict(await asked(live, "full")) == [*hello(), "[DONE]"]


@row(38)
@MODES
@pytest.mark.parametrize("how", ["cut", "reset", "hold"])
async def test_done_is_the_end_however_the_upstream_closes(data, mode, how):
    config = {"providers": {"openai": {"base_url": "x", "timeouts": {"idle": 0.3}}}}
    async with (
        Model(writing(framed(*hello()), then=how, pause=0.05)) as up,
        running(up.url, data, config) as live,
    ):
        assert await asked(live, mode) == framed(*hello())


@row(39)
@MODES
@pytest.mark.parametrize("how", ["end", "close", "cut", "hold"])
@pytest.mark.parametrize("usage", [False, True])
async def test_a_finish_without_done_is_a_success(data, mode, how, usage):
    """Memory adds the mark; off passes bytes on and adds nothing, but calls it no failure
    either.
    """
    raw = framed(
        *hello(), *([{**piece(), "choices": [], "usage": USAGE}] if usage else []), done=False
    )
    config = {"providers": {"openai": {"base_url": "x", "timeouts": {"idle": 0.3}}}}
    async with (
        Model(writing(raw, then=how, pause=0.05)) as up,
        running(up.url, data, config) as live,
    ):
        body = await asked(live, mode, stream_options={"include_usage": usage})
        assert body == raw + (b"data: [DONE]\n\n" if mode == "full" else b"")


@row(40)
@MODES
@pytest.mark.parametrize("how", ["end", "close", "cut", "reset"])
async def test_a_stream_without_finish_is_delivered_then_told_incomplete(line, mode, how):
    live = line.play(writing(RAW, then=how, pause=0.05))
    body = await asked(live, mode)
    assert body.startswith(RAW)
    assert ended(body, "stream_incomplete") == OPEN


@row(40)
@MODES
@pytest.mark.parametrize("how", ["end", "close", "cut"])
@pytest.mark.parametrize(
    "tail",
    [
        b"data: ",
        b"data",
        text(piece({"content": "é"}))[:-9],
        b"data: " + text(piece({"content": "é"}))[:-9],
        b"data: " + text(piece({"content": "é"})).partition(b"\xa9")[0],
        b": note",
        b"event: message\n",
        b"data: {\n",
        b"\r",
    ],
)
async def test_a_cut_inside_an_event_is_told_in_an_event_of_its_own(line, mode, how, tail):
    live = line.play(writing(RAW + tail, then=how, pause=0.05))
    body = await asked(live, mode)
    assert ended(body.replace(b"\n\n\rdata", b"\n\ndata"), "stream_incomplete") == OPEN


@row(40)
@MODES
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("ends", [0, 1])
async def test_a_last_event_without_its_blank_line_is_delivered_before_the_error(
    line, mode, end, ends
):
    live = line.play(
        writing(RAW + b"data: " + text(piece({"content": "!"})) + end * ends, then="end")
    )
    body = (await asked(live, mode)).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    while b"\n\n\n" in body:
        body = body.replace(b"\n\n\n", b"\n\n")
    assert said(ended(body, "stream_incomplete")) == "Hello!"


@row(40)
@MODES
async def test_one_choice_that_ended_does_not_end_the_others(line, mode):
    events = [
        piece({"role": "assistant", "content": "a"}),
        piece({"role": "assistant", "content": "b"}, lane=1),
        piece(finish="stop"),
    ]
    live = line.play(playing(*events, done=False))
    assert ended(await asked(live, mode, n=2), "stream_incomplete") == events


@row(40)
@MODES
@pytest.mark.parametrize(
    "delta",
    [{"content": '{"error": 1}'}, {"content": "finish_reason"}, {"error": {"message": "x"}}],
)
async def test_words_in_the_text_are_no_ending(line, mode, delta):
    live = line.play(playing(piece(delta, error=None), done=False))
    assert len(ended(await asked(live, mode), "stream_incomplete")) == 1


@row(40)
@MODES
async def test_all_that_arrived_before_a_cut_is_delivered_however_busy_the_gateway_is(line, mode):
    """Everything and the cut arrive at once, while the gateway still does something else."""
    raw = framed(*hello(*["word "] * 400), done=False).removesuffix(
        framed(piece(finish="stop"), done=False)
    )
    live = line.play(writing(raw, then="cut"))
    assert said(ended(await asked(live, mode), "stream_incomplete")) == "word " * 400


@row(40)
@MODES
@pytest.mark.parametrize("path", ["/v1/completions", "/u/ada/v1/completions"])
async def test_a_relayed_stream_that_breaks_ends_with_an_error(line, mode, path):
    live = line.play(writing(RAW + b'data: {"cut', then="cut", pause=0.05))
    response = await live.http.post(
        live.root + path, json={"model": "m", "stream": True}, headers={"x-memory": mode}
    )
    *found, last = strict(response.content)
    assert (found, last["error"]["code"]) == (OPEN, "stream_incomplete")


@row(40)
async def test_a_whole_answer_from_a_cut_stream_is_a_502(line):
    live = line.play(writing(RAW, then="end"))
    response = await live.chat("hi", user="ada")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "stream_incomplete")


@row(42, 43)
@MODES
@pytest.mark.parametrize("how", ["end", "cut", "hold"])
@pytest.mark.parametrize("more", [b"", framed(), framed(*hello("late"))], ids=["", "done", "more"])
async def test_an_upstreams_error_is_passed_on_as_the_last_event(line, mode, how, more):
    if mode == "off" and (more or how == "hold"):
        # Off passes on whatever follows.
        more, how = b"", "end"
    live = line.play(
        writing(RAW + framed({"error": BUSY}, done=False) + more, then=how, pause=0.05)
    )
    async with asyncio.timeout(10):
        body = await asked(live, mode)
    assert ended(body, "server_overloaded") == OPEN
    assert strict(body)[-1]["error"] == BUSY


@row(42)
@pytest.mark.parametrize(
    "error",
    [{"message": "m"}, {"message": "m", "code": 529, "metadata": {"a": [1]}}, "plain words"],
)
async def test_an_upstreams_error_keeps_all_its_members(line, error):
    event = {**piece({"content": ""}, "error"), "error": error}
    live = line.play(playing(*OPEN, event))
    assert strict(await asked(live, "full")) == [*OPEN, {"error": error}]


@row(44)
@MODES
@WAYS
@pytest.mark.parametrize("status", [400, 404, 418, 429, 500, 503])
async def test_a_refusal_is_a_status_and_json_in_both_ways(line, mode, stream, status):
    live = line.play((status, {"error": BUSY}, "x-should-retry: false"))
    response = await live.chat("hi", {"x-memory": mode}, stream=stream, user="ada")
    assert (response.status_code, response.json()) == (status, {"error": BUSY})
    assert response.headers["content-type"] == "application/json"


@row(44)
async def test_an_error_as_the_first_event_is_a_status(line):
    live = line.play(playing({"error": {**BUSY, "code": 429}}))
    response = await live.chat("hi", {"x-memory": "full"}, stream=True, user="ada")
    assert (response.status_code, response.json()["error"]["message"]) == (429, "busy")


@row(42, 61)
@pytest.mark.parametrize(
    "refusal",
    [
        json.dumps({"error": BUSY}, indent=2).encode(),
        json.dumps({"error": BUSY}, indent=2).replace("\n", "\r\n").encode(),
        b'{"detail": "server_overloaded"}',
        b'["server_overloaded"]',
        b"<html>\n<b>server_overloaded</b>\n</html>",
        b"",
    ],
)
async def test_a_refusal_after_the_status_left_is_one_error_event(data, refusal):
    async def late(seen, wire):
        await asyncio.sleep(0.3)
        await wire.answer(429, refusal, "x-should-retry: false")

    async with Model(late) as up, running(up.url, data, {"server.commit_seconds": 0.1}) as live:
        async with client(live.root) as c:
            assert await c.status() == 200
            body = b""
            while part := await c.part():
                body += part
        *before, last = strict(body, comments=True)
        assert before == []
        assert isinstance(last["error"]["message"], str)
        assert not refusal or "server_overloaded" in json.dumps(last)
        assert not refusal.startswith(b'{\n  "error"') or last["error"] == BUSY
