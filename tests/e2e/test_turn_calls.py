"""How many Python calls a warm turn takes: a bound that no machine's speed moves."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.chat.turn import opening
from tests.conftest import running
from tests.models import Model

ROOT = Path(__file__).parents[2]
OURS = (str(ROOT / "gateway"), str(ROOT / "memory"))
# The second with the default settings, which recall.
MOST_CALLS, MOST_DEFAULT_CALLS = 580, 635
# More, where ten tools are granted.
MOST_TOOL_CALLS = 50
WARM, COUNTED = 4, 30
CONFIG = {
    "keys": [{"name": "app", "key": "key-of-the-app-0123456789", "tenant": "t", "trusted": True}],
    "providers": {"up": {"api_key": "provider-key"}},
    "models": {"*": {"targets": [{"provider": "up"}], "context_window": 128_000}},
    "memory": {"extract": "off", "recall": "tools"},
}


@contextmanager
def counting():
    """Count the calls of functions of ours, by where they stand."""
    calls = Counter()

    def count(frame, event, _):
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(OURS):
                calls[f"{code.co_filename[len(str(ROOT)) + 1 :]}:{code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def warm_turns(live, count):
    """Play a conversation that resends its history; return the calls of the cheapest later turn.

    What is done behind the answers falls into one turn or another.
    """
    messages = [{"role": "system", "content": "You are a helpful assistant."}]
    turns = []
    for turn in range(WARM + count):
        messages.append({"role": "user", "content": f"{turn}: " + "what is next to do here? " * 12})
        with counting() as calls:
            answer = await live.chat(messages, {"x-memory-user": "ada"}, max_tokens=512)
        assert answer.status_code == 200
        assert answer.headers["x-memory-status"] == "ok"
        messages.append(answer.json()["choices"][0]["message"])
        if turn >= WARM:
            turns.append(calls)
    return min(turns, key=Counter.total)


TOOL = {
    "kind": "http",
    "url": "http://127.0.0.1:9/{item}",
    "parameters": {"item": {"type": "string", "description": "The item's number"}},
    "required": ["item"],
}
GRANTED = {
    "keys": [{**CONFIG["keys"][0], "tools": ["*"]}],
    "tools": {f"tool_{number}": TOOL for number in range(10)},
}


async def cheapest_turn(data, config, count):
    async with Model(lambda seen, wire: "This is to be done next. " * 20) as up:
        config = {**config, "providers": {"up": {**CONFIG["providers"]["up"], "base_url": up.url}}}
        async with running("", data, config, key="key-of-the-app-0123456789") as live:
            await live.gateway.memory.wait_until_ready()
            # What it does at the start takes several turns.
            await live.gateway.worker.drain()
            calls = await warm_turns(live, count)
        return calls, up.bodies[-1]


@pytest.fixture(autouse=True)
def _steady(caplog, monkeypatch):
    # The answer comes within moments, however busy this machine is.
    monkeypatch.setattr(opening, "TOGETHER_SECONDS", 30.0)
    # Its own thread makes the lines.
    caplog.set_level(logging.WARNING, "mnemogate.access")


async def test_a_warm_turn_takes_a_bounded_number_of_calls(data):
    calls, _ = await cheapest_turn(data, CONFIG, COUNTED)
    listed = "\n".join(f"{count:4} {name}" for name, count in calls.most_common())
    assert calls.total() <= MOST_CALLS, listed


async def test_the_default_settings_add_few_calls_where_nothing_is_to_be_recalled(data):
    config = {name: value for name, value in CONFIG.items() if name != "memory"}
    calls, _ = await cheapest_turn(data, config, COUNTED)
    listed = "\n".join(f"{count:4} {name}" for name, count in calls.most_common())
    assert calls.total() <= MOST_DEFAULT_CALLS, listed


async def test_t_p1_granted_tools_that_nobody_calls_take_few_more_calls(data):
    calls, sent = await cheapest_turn(data, {**CONFIG, **GRANTED}, COUNTED // 2)
    assert {tool["function"]["name"] for tool in sent["tools"]} >= set(GRANTED["tools"])
    listed = "\n".join(f"{count:4} {name}" for name, count in calls.most_common())
    assert calls.total() <= MOST_CALLS + MOST_TOOL_CALLS, listed
