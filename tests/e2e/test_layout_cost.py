"""What memory costs in input tokens does not depend on the machine: the bars stand as a test, on
the bodies an upstream received.
"""

from __future__ import annotations

import asyncio

import msgspec

from gateway.config.settings import Settings
from memory.core.blocks import CoreBlock, compile_core
from memory.core.tool_definitions import tools_to_offer
from tests.bench import layout


async def test_the_bill_stays_within_the_bars():
    bills = await asyncio.to_thread(layout.bills)
    found = layout.multipliers(bills)
    assert found["40-turn chat, the layout alone"] <= 1.10
    assert found["40-turn chat, with hidden rounds"] <= 1.30
    assert found["6-step agent loops, the layout alone"] <= 1.055
    for by in bills.values():
        assert (
            by["the layout alone"].changed == by["memory off"].changed == 0
        )  # no prefix is ever read anew


def test_what_every_request_pays_for_stays_small():
    defaults = [
        CoreBlock(b.label, b.value, b.description, b.limit, b.read_only)
        for b in Settings().memory.blocks
    ]
    assert len(msgspec.json.encode(tools_to_offer(None, write=True))) <= 2310
    assert len(compile_core(defaults, "0123456789")) <= 720
