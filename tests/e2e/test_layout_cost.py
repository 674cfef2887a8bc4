"""What memory costs in input tokens does not depend on the machine: the bars stand as a test, on
the bodies an upstream received.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.config.settings import Settings
from memory.core.blocks import CoreBlock, compile_core
from memory.core.tool_definitions import tools_to_offer
from tests.bench import layout
from tests.conftest import running
from tests.models import Model
from tests.vocabulary import count_tokens
from tests.wire_models import MessagesModel, ResponsesModel

WIRES = {
    "chat": (Model, "/chat/completions", "messages"),
    "responses": (ResponsesModel, "/responses", "input"),
    "messages": (MessagesModel, "/messages", "messages"),
}
MOST_TOKENS = 700


async def test_the_bill_stays_within_the_bars():
    bills = await asyncio.to_thread(layout.bills)
    found = layout.multipliers(bills)
    assert found["40-turn chat, the layout alone"] <= 1.10
    assert found["40-turn chat, with hidden rounds"] <= 1.30
    assert found["6-step agent loops, the layout alone"] <= 1.055
    for by in bills.values():
        # No prefix is ever read anew.
        assert by["the layout alone"].changed == by["memory off"].changed == 0


def test_what_every_request_pays_for_stays_small():
    defaults = [
        CoreBlock(b.label, b.value, b.description, b.limit, b.read_only)
        for b in Settings().memory.blocks
    ]
    assert len(msgspec.json.encode(tools_to_offer(None, write=True))) <= 2220
    assert len(compile_core(defaults, "0123456789")) <= 600


@pytest.mark.parametrize("wire", WIRES)
async def test_an_empty_memory_adds_at_most_700_tokens(data, wire):
    """In the vocabulary of gpt-4o, in the bodies that the upstream receives, and as reported."""
    model, path, member = WIRES[wire]
    body = {"model": "gpt-4o", member: [{"role": "user", "content": "Hello"}], "max_tokens": 100}
    if wire == "responses":
        body = {"model": "gpt-4o", member: body[member]}
    async with model("Hi.") as up, running(up.url, data) as live:
        for mode in ("off", "full"):
            answer = await live.http.post(
                live.url + path, json=body, headers={"x-memory": mode, "x-memory-user": "ada"}
            )
            assert answer.status_code == 200, answer.text
    off, on = (count_tokens(msgspec.json.encode(sent).decode()) for sent in up.bodies)
    assert 400 < on - off <= MOST_TOKENS
    assert 400 < int(answer.headers["x-memory-injected-tokens"]) <= MOST_TOKENS
