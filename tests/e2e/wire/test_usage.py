"""C.

Usage in streams: metered once and right wherever the upstream puts it, told only to a client that
asked.
"""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import (
    HEAD,
    SHARED,
    USAGE,
    asked,
    chunks,
    deltas,
    framed,
    hello,
    piece,
    playing,
    strict,
)
from tests.models import Model, call, calls

pytestmark = SHARED
REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
TALK = hello(finish=None)
TOLD = {**HEAD, "choices": [], "usage": USAGE}


def growing(*events):
    """Usage on every chunk, the sum so far; the last is the true one."""
    return [
        {**e, "usage": {**USAGE, "completion_tokens": i, "total_tokens": 5 + i}}
        for i, e in enumerate(events)
    ]


PLACES = {
    "a chunk of its own": [*hello(), TOLD],
    "with nulls before it": [*[{**e, "usage": None} for e in hello()], TOLD],
    "with empty ones around it": [
        *[{**e, "usage": {}} for e in hello()],
        TOLD,
        {**HEAD, "choices": [], "usage": {}},
    ],
    "on the finish": [*TALK, piece(finish="stop", usage=USAGE)],
    "on the finish and after it": [*TALK, piece(finish="stop", usage=USAGE), TOLD],
    "on an empty delta": [*hello(), piece({}, usage=USAGE)],
    "on an empty delta with a role": [
        *hello(),
        piece({"role": "assistant", "content": ""}, usage=USAGE),
    ],
    "on a delta of null": [
        *hello(),
        {**HEAD, "choices": [{"index": 0, "delta": None, "finish_reason": None}], "usage": USAGE},
    ],
    "without choices": [*hello(), {**HEAD, "usage": USAGE}],
    "with choices null": [*hello(), {**HEAD, "choices": None, "usage": USAGE}],
    "cumulative": [*growing(*hello()), TOLD],
    "cumulative, no more": [*growing(*TALK), piece(finish="stop", usage=USAGE)],
    "with the last text": [*TALK[:-1], {**piece({"content": "lo"}, "stop"), "usage": USAGE}],
    "before the text": [{**TALK[0], "usage": USAGE}, *TALK[1:], piece(finish="stop")],
}
ASKS = {
    "asked": {"stream_options": {"include_usage": True}},
    "absent": {},
    "null": {"stream_options": None},
    "empty": {"stream_options": {}},
    "no": {"stream_options": {"include_usage": False}},
    "other": {"stream_options": {"include_obfuscation": False}},
}


async def metered(live, response):
    """The usage of each round in the explain record."""
    token = (live.gateway.settings.data / "token").read_text().strip()
    explained = await live.memory(
        "GET",
        f"/explain/{response.headers['x-memory-explain']}",
        headers={"authorization": f"Bearer {token}"},
    )
    return explained.json()["tokens"]["rounds"]


@row(47, 48, 49)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ask", ["asked", "absent"])
async def test_usage_is_metered_once_and_told_once_wherever_it_comes(line, place, ask):
    live = line.play(playing(*PLACES[place]))
    response = await live.chat("hi", stream=True, user="ada", **ASKS[ask])
    *found, last = strict(response.content)
    assert last == "[DONE]"
    assert all(isinstance(e["choices"], list) for e in found)
    if ask == "asked":
        assert found.pop() == TOLD
    assert "".join(d.get("content") or "" for d in deltas(found)) == "Hello"
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    assert all(e["choices"] and not e.get("usage") for e in found)
    assert await metered(live, response) == [USAGE]


@row(48)
@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(
    "script", [["Hello"], [REMEMBER, "Hello"]], ids=["one round", "two rounds"]
)
async def test_a_usage_chunk_comes_only_to_who_asked(line, ask, script):
    live = line.play(*script)
    response = await live.chat("hi", stream=True, user="bea", **ASKS[ask])
    found = strict(response.content)[:-1]
    told = [e for e in found if "usage" in e and e["usage"] is not None]
    assert len(told) == (ask == "asked")
    assert ask == "asked" or not any("usage" in e for e in found)
    rounds = await metered(live, response)
    assert [r["total_tokens"] for r in rounds] == [110] * len(script)
    if told:
        assert (told[0]["choices"], told[0]["usage"]["total_tokens"], told[0] is found[-1]) == (
            [],
            110 * len(script),
            True,
        )
    for body in line.up.bodies:
        assert body["stream_options"] == {
            **(ASKS[ask].get("stream_options") or {}),
            "include_usage": True,
        }


@row(48)
@pytest.mark.parametrize("asks", [True, False])
async def test_nothing_is_invented_where_the_upstream_tells_nothing(line, asks):
    live = line.play(playing(*hello()))
    assert await chunks(live, "full", stream_options={"include_usage": asks}) == hello()


@row(48)
@pytest.mark.parametrize("ask", ASKS)
async def test_what_is_not_to_be_metered_is_not_asked_for(data, ask):
    config = {"providers": {"openai": {"base_url": "x", "stream_usage": False}}}
    async with Model("Hello") as up, running(up.url, data, config) as live:
        found = await chunks(live, "full", **ASKS[ask])
        assert up.bodies[0].get("stream_options", "absent") == ASKS[ask].get(
            "stream_options", "absent"
        )
        assert sum(bool(e.get("usage")) for e in found) == (ask == "asked")


@row(48, 49)
@pytest.mark.parametrize("place", PLACES)
async def test_off_leaves_usage_where_it_is(line, place):
    live = line.play(playing(*PLACES[place]))
    assert await asked(live, "off") == framed(*PLACES[place])


@row(47)
@pytest.mark.parametrize(
    "event",
    [
        {"x_note": 1},
        {**HEAD, "x_note": 1},
        {**HEAD, "choices": None, "x_note": 1},
        {**HEAD, "choices": [], "x_note": 1},
        {**HEAD, "choices": None, "usage": None},
    ],
)
async def test_choices_are_always_a_list(line, event):
    found = await chunks(line.play(playing(*TALK, event, piece(finish="stop"))), "full")
    assert found == [
        *TALK,
        {**{k: v for k, v in event.items() if k != "usage"}, **HEAD, "choices": []},
        piece(finish="stop"),
    ]


@row(49, 58)
async def test_the_usage_chunk_keeps_what_came_with_it(line):
    told = {**TOLD, "service_tier": "default", "system_fingerprint": "fp", "x_cost": 0.1}
    assert (
        await chunks(
            line.play(playing(*hello(), told)), "full", stream_options={"include_usage": True}
        )
    )[-1] == told


@row(47, 48)
async def test_the_official_client_reads_all_of_them(line, sdk):
    for place in PLACES.values():
        live = line.play(playing(*place))
        async with sdk(live) as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                user="cleo",
                stream_options={"include_usage": True},
            )
            found = [c async for c in stream]
            assert [c.usage.total_tokens for c in found if c.usage and c.usage.total_tokens] == [7]
            assert "".join(ch.delta.content or "" for c in found for ch in c.choices) == "Hello"
