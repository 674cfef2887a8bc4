"""C.

Tool calls in streams: fragments keep their call, indexes have no gap, names and ids come once.
"""

from __future__ import annotations

import itertools
import json

import pytest

from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import (
    MODES,
    SHARED,
    asked,
    calls_of,
    chunks,
    framed,
    piece,
    playing,
)

pytestmark = SHARED
TOOLS = [
    {"type": "function", "function": {"name": n, "parameters": {"type": "object"}}}
    for n in ("get_weather", "get_time", "core_lookup")
]
OURS, ARGS = "core_memory_append", '{"label":"human","content":"Likes tea"}'
DONE = playing(piece({"role": "assistant", "content": "ok"}, "stop"))


def begin(index, name, ident=None, arguments="", **more):
    at = {} if index is None else {"index": index}
    return piece(
        {
            "tool_calls": [
                {
                    **at,
                    "id": ident or f"call_{name}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                    **more,
                }
            ]
        }
    )


def more(index, arguments):
    at = {} if index is None else {"index": index}
    return piece({"tool_calls": [{**at, "function": {"arguments": arguments}}]})


def assembled(found):
    """The calls as the official client adds them up: by index, names and arguments concatenated."""
    out = {}
    for delta in calls_of(found):
        call = out.setdefault(delta["index"], {"id": "", "name": "", "arguments": ""})
        call["id"] = call["id"] or delta.get("id") or ""
        for key in ("name", "arguments"):
            call[key] += delta.get("function", {}).get(key) or ""
    return out


async def told(line, events, *script, **body):
    live = line.play(
        playing(piece({"role": "assistant"}), *events, piece(finish="tool_calls")), *script
    )
    return await chunks(live, "full", tools=TOOLS, **body)


START = [begin(0, "get_weather"), begin(1, "get_time")]


@row(51)
@MODES
async def test_interleaved_fragments_keep_their_call(line, mode):
    events = [
        piece({"role": "assistant"}),
        *START,
        *(more(i, part) for part in ('{"a"', ":", "1}") for i in (1, 0)),
        piece(finish="tool_calls"),
    ]
    live = line.play(playing(*events))
    assert await asked(live, mode, tools=TOOLS) == framed(*events)


@row(51)
async def test_several_calls_in_one_chunk_stay_in_it(line):
    both = [c for e in START for c in e["choices"][0]["delta"]["tool_calls"]]
    events = [
        piece({"content": "x", "tool_calls": both}),
        piece(
            {"tool_calls": [more(i, "{}")["choices"][0]["delta"]["tool_calls"][0] for i in (1, 0)]}
        ),
    ]
    assert (await told(line, events))[1:-1] == events


@row(51)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["get_weather", "core_lookup"])
@pytest.mark.parametrize("how", ["repeated", "fragments", "null later", "empty first"])
async def test_names_and_ids_are_neither_doubled_nor_lost(line, name, how, stream):
    """`core_lookup` begins as our own names do, so it is held for a while."""
    if how == "repeated":
        events = [begin(0, name, "c"), *(begin(0, name, "c", part) for part in ("{", "}"))]
    elif how == "fragments":
        events = [
            begin(0, name[:5], "c"),
            piece({"tool_calls": [{"index": 0, "function": {"name": name[5:]}}]}),
            more(0, "{"),
            more(0, "}"),
        ]
    elif how == "null later":
        events = [
            begin(0, name, "c"),
            piece(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": None,
                            "type": None,
                            "function": {"name": None, "arguments": "{}"},
                        }
                    ]
                }
            ),
        ]
    else:
        events = [
            begin(0, "", "c"),
            piece(
                {
                    "tool_calls": [
                        {"index": 0, "id": "", "function": {"name": name, "arguments": "{}"}}
                    ]
                }
            ),
        ]
    wanted = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
    if stream:
        found = await told(line, events)
        assert [{k: v for k, v in d.items() if k != "index"} for d in calls_of(found)] == [
            {k: v for k, v in c.items() if k != "index"} for c in calls_of(events)
        ]
    else:
        live = line.play(playing(*events, piece(finish="tool_calls")))
        body = json.loads(await asked(live, "full", stream=False, tools=TOOLS))
        assert body["choices"][0]["message"]["tool_calls"] == [wanted]


@row(51)
@pytest.mark.parametrize("first", [0, None])
async def test_a_missing_index_goes_on_with_the_last_call(line, first):
    events = [
        begin(first, "get_weather"),
        more(None, '{"a"'),
        more(None, ":1}"),
        begin(None if first is None else 1, "get_time"),
        more(None, "{}"),
    ]
    found = await told(line, events)
    assert assembled(found) == {
        0: {"id": "call_get_weather", "name": "get_weather", "arguments": '{"a":1}'},
        1: {"id": "call_get_time", "name": "get_time", "arguments": "{}"},
    }


@row(52)
async def test_calls_that_all_have_index_0_pass_as_they_came(line):
    events = [
        begin(0, "get_weather", "a"),
        more(0, "{}"),
        begin(0, "get_time", "b"),
        more(0, "{}"),
        begin(0, "get_time", "c", "{}"),
    ]
    assert (await told(line, events))[1:-1] == events


@row(52, 54)
async def test_calls_at_index_0_are_routed_by_id_when_one_is_ours(line):
    events = [
        begin(0, "get_weather", "a"),
        more(0, "{}"),
        begin(0, OURS, "b"),
        more(0, ARGS),
        begin(0, "get_time", "c"),
        more(0, "[]"),
    ]
    found = await told(line, events)
    assert assembled(found) == {
        0: {"id": "a", "name": "get_weather", "arguments": "{}"},
        1: {"id": "c", "name": "get_time", "arguments": "[]"},
    }
    assert OURS not in json.dumps(found)


@row(54)
@pytest.mark.parametrize("indexes", [(1, 2), (1, 3), (5, 2), (0, 2)])
async def test_gaps_of_the_upstreams_own_are_closed(line, indexes):
    one, two = indexes
    found = await told(
        line, [begin(one, "get_weather"), begin(two, "get_time"), more(two, "2"), more(one, "1")]
    )
    assert assembled(found) == {
        0: {"id": "call_get_weather", "name": "get_weather", "arguments": "1"},
        1: {"id": "call_get_time", "name": "get_time", "arguments": "2"},
    }


ORDERS = list(itertools.permutations([OURS, "get_weather", "core_lookup"]))


@row(51, 54)
@pytest.mark.parametrize("names", ORDERS, ids=["-".join(o) for o in ORDERS])
@pytest.mark.parametrize("way", ["one by one", "begun together", "in one chunk"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_hidden_call_leaves_no_gap_wherever_it_stands(line, names, way, stream):
    """Begun together: whether the first is ours is known only when its arguments come, and the
    others wait for that.
    """
    parts = [(begin(i, n), more(i, ARGS if n == OURS else f'"{n}"')) for i, n in enumerate(names)]
    events = [e for pair in parts for e in pair]
    if way == "begun together":
        events = [*(a for a, _ in parts), *(b for _, b in reversed(parts))]
    elif way == "in one chunk":
        events = [
            piece({"tool_calls": [c for e in (a, b) for c in calls_of([e])]}) for a, b in parts
        ]
        events = [piece({"content": "x", "tool_calls": [c for e in events for c in calls_of([e])]})]
    theirs = [n for n in names if n != OURS]
    wanted = {
        i: {"id": f"call_{n}", "name": n, "arguments": f'"{n}"'} for i, n in enumerate(theirs)
    }
    if stream:
        found = await told(line, events)
        assert assembled(found) == wanted
        order = list(dict.fromkeys(d["index"] for d in calls_of(found)))
        assert order == [0, 1]
        assert OURS not in json.dumps(found)
        assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        live = line.play(playing(*events, piece(finish="tool_calls")))
        body = json.loads(await asked(live, "full", stream=False, tools=TOOLS))
        message = body["choices"][0]["message"]
        assert [
            (c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in message["tool_calls"]
        ] == [(f"call_{n}", n, f'"{n}"') for n in theirs]


@row(51)
@pytest.mark.parametrize("how", ["fragments", "repeated", "no index", "no id"])
async def test_our_own_call_is_known_in_every_dialect(line, how):
    if how == "fragments":
        events = [
            begin(0, OURS[:4], "c"),
            *(
                piece({"tool_calls": [{"index": 0, "function": {"name": part}}]})
                for part in (OURS[4:12], OURS[12:])
            ),
            more(0, ARGS),
        ]
    elif how == "repeated":
        events = [
            begin(0, OURS, "c"),
            *(begin(0, OURS, "c", part) for part in (ARGS[:9], ARGS[9:])),
        ]
    elif how == "no index":
        events = [begin(None, OURS, "c"), more(None, ARGS[:9]), more(None, ARGS[9:])]
    else:
        events = [
            piece(
                {"tool_calls": [{"index": 0, "function": {"name": OURS, "arguments": ARGS[:9]}}]}
            ),
            more(0, ARGS[9:]),
        ]
    found = await told(line, events, DONE)
    assert calls_of(found) == []
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    result = line.up.bodies[1]["messages"][-1]
    assert result["role"] == "tool"
    assert "error" not in result["content"].lower()
    assert line.up.bodies[1]["messages"][-2]["tool_calls"][0]["function"] == {
        "name": OURS,
        "arguments": ARGS,
    }


@row(51, 52, 54)
async def test_the_official_stream_helper_adds_them_up(line, sdk):
    live = line.play(
        playing(
            piece({"role": "assistant"}),
            begin(1, OURS),
            begin(2, "get_weather"),
            more(2, "{}"),
            more(1, ARGS),
            begin(3, "get_time", None, "{}"),
            piece(finish="tool_calls"),
        )
    )
    async with sdk(live) as client:
        async with client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "hi"}], tools=TOOLS, user="dora"
        ) as stream:
            final = await stream.get_final_completion()
    assert [
        (c.function.name, c.function.arguments) for c in final.choices[0].message.tool_calls
    ] == [("get_weather", "{}"), ("get_time", "{}")]
