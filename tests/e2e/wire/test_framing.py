"""C.

Stream framing: what leaves the gateway, event by event, whatever way the upstream's bytes came.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conftest import running, said
from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import (
    MODES,
    SHARED,
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
from tests.models import Model

pytestmark = SHARED
ODD = "\u2028a\u0085b\u2029c\u000bd\u000ce\x1cf\x1eg é🙂"
ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}
SHORT = [piece({"role": "assistant", "content": "é🙂"}), piece({"content": "!"}, "stop")]


@row(36)
async def test_a_stream_is_marked_as_one_that_nobody_may_hold_back(line):
    live = line.play("Hello there")
    for memory in ("full", "off"):
        response, _ = await live.stream("hi", {"x-memory": memory})
        assert response.headers["content-type"].startswith("text/event-stream")
        assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == (
            "no-cache",
            "no",
        )
        assert "content-length" not in response.headers
        assert "content-encoding" not in response.headers


@row(31, 33, 35)
@MODES
@pytest.mark.parametrize("end", ENDS)
async def test_the_client_sees_the_same_for_every_split_of_the_bytes(line, mode, end):
    raw = (
        b"\xef\xbb\xbf: hi"
        + ENDS[end] * 2
        + framed(
            {"choices": [{"delta": {"content": "é🙂"}, "finish_reason": "stop"}]}, end=ENDS[end]
        )
    )
    cuts = iter(range(1, len(raw)))

    async def cut(seen, wire):
        at = next(cuts)
        await writing(raw[:at], raw[at:], pause=0.001)(seen, wire)

    async def some(live):
        for _ in range((len(raw) - 1) // 8):
            body = await asked(live, mode)
            if mode == "off":
                assert body == raw
            else:
                found = strict(body)
                assert said(found) == "é🙂"
                assert found[-1] == "[DONE]"

    live = line.play(cut)
    await asyncio.gather(*(some(live) for _ in range(8)))
    assert next(cuts) > len(raw) - 8


@row(31, 32)
@MODES
@pytest.mark.parametrize("end", ENDS)
async def test_one_byte_at_a_time_gives_the_same_events(line, mode, end):
    raw = framed(*hello(ODD), end=ENDS[end])

    async def drip(seen, wire):
        await wire.start_stream()
        for i in range(len(raw)):
            await wire.part(raw[i : i + 1])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await wire.end()

    live = line.play(drip)
    body = await asked(live, mode)
    if mode == "off":
        assert body == raw
    else:
        assert said(strict(body)) == ODD


@row(32, 35)
@MODES
async def test_only_line_ends_end_a_line(line, mode):
    live = line.play(playing(*hello(ODD)))
    assert said(await chunks(live, mode)) == ODD


ONE, TWO = text(SHORT[0]), text(SHORT[1])
HALVES = ONE.index(b'"choices"')
FORMS = {
    "no space": b"data:" + ONE + b"\n\ndata:" + TWO + b"\n\ndata:[DONE]\n\n",
    "CRLF": framed(*SHORT, end=b"\r\n"),
    "CR": framed(*SHORT, end=b"\r"),
    "mixed ends": b"data: " + ONE + b"\r\n\ndata: " + TWO + b"\n\r\ndata: [DONE]\r\r",
    "two data lines": b"data: "
    + ONE[:HALVES]
    + b"\ndata: "
    + ONE[HALVES:]
    + b"\n\ndata: "
    + TWO
    + b"\n\ndata: [DONE]\n\n",
    "pretty": b"".join(
        b"data: " + line + b"\n" for line in json.dumps(SHORT[0], indent=1).encode().split(b"\n")
    )
    + b"\ndata: "
    + TWO
    + b"\n\ndata: [DONE]\n\n",
    "other fields": b"event: message\nid: 7\nretry: 10\nfoo: bar\ndata: "
    + ONE
    + b"\nid: 8\n\nid\ndata: "
    + TWO
    + b"\n\nevent: done\ndata: [DONE]\n\n",
    "BOM": b"\xef\xbb\xbf" + framed(*SHORT),
    "empty data": b"data\n\ndata:\n\ndata: \n\n" + framed(*SHORT),
    "blank lines": b"\n\n\r\n\n" + framed(*SHORT, end=b"\n\n"),
    "no last blank line": framed(*SHORT)[:-2],
    "one last line end": framed(*SHORT)[:-1],
}


@row(33, 35)
@MODES
@pytest.mark.parametrize("form", FORMS)
async def test_every_legal_form_of_an_event_is_read(line, mode, form):
    live = line.play(writing(FORMS[form], then="end"))
    body = await asked(live, mode)
    if mode == "off":
        assert body == FORMS[form]
    else:
        assert strict(body) == [*SHORT, "[DONE]"]


@row(34)
@MODES
@pytest.mark.parametrize("end", ENDS)
async def test_comments_are_never_read_as_events(line, mode, end):
    notes = [
        b":",
        b": OPENROUTER PROCESSING",
        b':{"error":{"message":"no"}}',
        b':data: {"choices":[',
        b": data: [DONE]",
        b":\xff\xfe",
        b": finish_reason",
    ]
    n = ENDS[end]
    events = [b"data: " + text(b) + n for b in [*SHORT, b"[DONE]"]]
    raw = b"".join(
        b"".join(note + n * (1 + i % 2) for i, note in enumerate(notes)) + event + notes[i] + n * 2
        for i, event in enumerate(events)
    )
    live = line.play(writing(raw, then="end"))
    body = await asked(live, mode)
    assert body == raw if mode == "off" else strict(body, comments=True) == [*SHORT, "[DONE]"]


@row(35)
@MODES
async def test_an_event_of_five_megabytes_passes(line, mode):
    big = "é" * (5 << 19)
    raw = framed(*hello(big))
    live = line.play(
        writing(*(raw[i : i + 40_000] for i in range(0, len(raw), 40_000)), then="end")
    )
    found = await chunks(live, mode)
    assert said(found) == big
    assert len(found) == 3


@row(33, 35)
@MODES
@pytest.mark.parametrize("form", ["pretty", "two data lines", "other fields", "CRLF", "BOM"])
async def test_an_edited_event_is_still_one_line(data, mode, form):
    config = {"models": {"m": {"targets": [{"provider": "openai", "model": "theirs"}]}}}
    async with (
        Model(writing(FORMS[form].replace(b'"m"', b'"theirs"'), then="end")) as up,
        running(up.url, data, config) as live,
    ):
        body = await asked(live, mode)
        if mode == "full" or form in ("pretty", "two data lines"):
            assert strict(body) == [*SHORT, "[DONE]"]
        else:
            assert b"theirs" not in body


@row(35)
async def test_text_is_written_as_utf_8_whatever_the_upstream_escaped(line):
    escaped = json.dumps(piece({"role": "", "content": "é🙂\u2028"})).encode()
    live = line.play(playing(escaped, piece(finish="stop")))
    body = await asked(live, "full")
    assert said(strict(body)) == "é🙂\u2028"
    assert body.decode()


@row(37)
@MODES
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
async def test_each_event_is_there_before_the_next_is_sent(line, mode, path):
    """The upstream sends an event only after the client has seen the one before, so that nothing
    can wait for more.
    """
    seen_by_client = asyncio.Semaphore(0)
    chat = path.endswith("chat/completions")
    events = [
        *hello(*"abcdefgh"),
        *([] if chat else [{"type": "response.completed", "sequence_number": 1}]),
    ]

    async def interlocked(seen, wire):
        await wire.start_stream()
        for event in [*events, b"[DONE]"]:
            await wire.event(event)
            await seen_by_client.acquire()
        await wire.end()

    live = line.play(interlocked)
    if path == "/v1/responses":
        # With memory, the last event waits for the record of the turn.
        mode = "off"
    async with client(live.root, mode, path=path) as c:
        assert await c.status() == 200
        for event in events:
            assert strict(await c.part()) == [event]
            seen_by_client.release()
        assert strict(await c.part()) == ["[DONE]"]
        seen_by_client.release()
        assert await c.part() == b""


@row(37)
async def test_the_status_leaves_with_the_first_event(line):
    go = asyncio.Event()

    async def late(seen, wire):
        await wire.start_stream()
        await wire.part(b": thinking\n\n")
        await go.wait()
        await wire.part(framed(*hello()))
        await wire.end()

    live = line.play(late)
    async with client(live.root) as c:
        assert await c.quiet(0.2)
        go.set()
        assert await c.status() == 200
        assert strict(await c.part())[0]["choices"][0]["delta"]["role"] == "assistant"
