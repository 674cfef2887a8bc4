"""I.

Nothing waits that need not: an upstream that goes on only once the client has seen what it said.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.conftest import events, running, said
from tests.e2e.wire.reading import CLOCK, HEAD, WEATHER, chunk, fragments
from tests.e2e.wire.rows import row
from tests.models import Model, call

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_mem")
OSLO = call("get_weather", {"city": "Oslo"}, "call_w")
NOW = call("get_time", {"zone": "utc"}, "call_t")
WORDS = [
    {"role": "assistant", "content": "One"},
    *({"content": w} for w in (" two", " \n", "three", ".")),
]


class Interlock:
    """An upstream whose every event waits until the client has seen all events before it that it
    may expect to see.
    """

    def __init__(self, *rounds):
        self.rounds, self.seen, self.due = list(rounds), 0, 0
        self.news = asyncio.Condition()

    async def behave(self, seen, wire):
        await wire.start_stream()
        for part, visible in self.rounds.pop(0):
            async with asyncio.timeout(10), self.news:
                await self.news.wait_for(lambda: self.seen >= self.due)
            self.due += visible
            await wire.event(chunk(part))
        await wire.event(b"[DONE]")
        await wire.end()

    async def read(self, live, **body):
        """Reads a stream to its end, telling the upstream of each event. Returns them."""
        text = ""
        request = {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "user": "ada",
            **body,
        }
        async with live.http.stream(
            "POST", f"{live.url}/chat/completions", json=request
        ) as response:
            async for data in response.aiter_raw():
                text += data.decode()
                async with self.news:
                    self.seen = text.count("\n\ndata: {") + text.startswith("data: {")
                    self.news.notify_all()
        return events(text)


def shown(parts):
    return [(p, True) for p in parts]


def hidden(parts):
    return [(p, False) for p in parts]


CASES = {
    "text": [shown([*WORDS, "stop"])],
    "reasoning": [
        shown(
            [
                {"role": "assistant", "reasoning_content": "hm"},
                {"reasoning_content": " so"},
                {"content": "A"},
                {"refusal": "no"},
                "stop",
            ]
        )
    ],
    "text, then a call of the client's": [shown([*WORDS, *fragments(OSLO), "tool_calls"])],
    "two calls of the client's, interleaved": [
        shown([{"role": "assistant", "content": None}, *fragments(OSLO, NOW), "tool_calls"])
    ],
    "text, then a call of ours, then text": [
        [*shown(WORDS), *hidden([*fragments(TEA), "tool_calls"])],
        shown([*WORDS, "stop"]),
    ],
    "text between the pieces of a call of ours": [
        [
            *shown(WORDS[:1]),
            *itertools.chain(
                *zip(
                    hidden(fragments(TEA)),
                    shown([{"content": c} for c in "abcdefghijkl"]),
                    strict=False,
                )
            ),
            *hidden(["tool_calls"]),
        ],
        shown(["stop"]),
    ],
    "a call of the client's beside one of ours": [
        [
            *shown(WORDS),
            *hidden(fragments(TEA)),
            *shown([{"tool_calls": [{"index": 1, **OSLO}]}]),
            *hidden(["tool_calls"]),
        ]
    ],
    "two choices": [
        shown(
            [
                {
                    **HEAD,
                    "choices": [
                        {
                            "index": i % 2,
                            "delta": {"role": "assistant", "content": "a"}
                            if i < 2
                            else {"content": "b"},
                            "finish_reason": None,
                        }
                    ],
                }
                for i in range(6)
            ]
            + [
                {**HEAD, "choices": [{"index": i, "delta": {}, "finish_reason": "stop"}]}
                for i in (0, 1)
            ]
        )
    ],
}


@row(142)
@pytest.mark.parametrize("what", CASES)
async def test_what_is_not_ours_is_on_its_way_before_the_next_event_comes(data, what):
    lock = Interlock(*CASES[what])
    async with Model(lock.behave) as up, running(up.url, data) as live:
        found = await lock.read(
            live, tools=[WEATHER, CLOCK], **({"n": 2} if what == "two choices" else {})
        )
        assert found[-1] == "[DONE]", found[-1]
        assert lock.rounds == []


@row(142)
async def test_a_call_is_held_only_while_its_name_could_become_ours(data):
    """`core_memory_browse` is the client's: its first half is held, and let go with the letter that
    tells it from ours.
    """
    theirs = {
        "type": "function",
        "function": {"name": "core_memory_browse", "parameters": {"type": "object"}},
    }
    start = {
        "role": "assistant",
        "tool_calls": [
            {
                "index": 0,
                "id": "call_c",
                "type": "function",
                "function": {"name": "core_memory_", "arguments": ""},
            }
        ],
    }
    rest = [
        {"tool_calls": [{"index": 0, "function": {"name": "browse"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        "tool_calls",
    ]
    lock = Interlock([*hidden([start]), *shown(rest)])
    async with Model(lock.behave) as up, running(up.url, data) as live:
        found = await lock.read(live, tools=[theirs])
        deltas = [
            d["function"].get("name") or ""
            for e in found[:-1]
            for d in e["choices"][0]["delta"].get("tool_calls") or []
        ]
        assert "".join(deltas) == "core_memory_browse"
        assert "core_memory_append" in [t["function"]["name"] for t in up.bodies[0]["tools"]]


@row(142)
async def test_the_first_text_is_there_though_the_store_is_slow_to_take_the_request(
    data, monkeypatch
):
    """Past its deadline the store is not waited for: text goes out, flagged."""
    from memory.stores.sql.engine.database import Database

    original = Database.write

    async def slow(self, work, **how):
        await asyncio.sleep(1)
        return await original(self, work, **how)

    async with (
        Model("Fine.") as up,
        running(up.url, data, {"memory.read_deadline_ms": 150}) as live,
    ):
        await asyncio.wait_for(live.gateway.memory._ready.wait(), 10)
        monkeypatch.setattr(Database, "write", slow)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with live.http.stream(
            "POST",
            f"{live.url}/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True},
        ) as response:
            parts = response.aiter_raw()
            first = await anext(parts)
            assert loop.time() - begun < 0.9
            assert response.headers["x-memory-status"] == "degraded"
            text = first.decode() + "".join([p.decode() async for p in parts])
        assert said(events(text)) == "Fine."
