"""D and G.

Places at a target, and rights to try one: given back by whoever leaves, whatever it was that was
waited for.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.routing.concurrency import ConcurrencyLimiter
from gateway.routing.cooldowns import CooldownPolicy, LocalCooldowns
from gateway.routing.selector import Candidate
from memory.session.session import Session
from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.e2e.wire.test_retries import ERROR, Played, fine, says
from tests.e2e.wire.test_targets import choice_of, pair
from tests.e2e.wire.ways import ask
from tests.sockets import within

ONE_PLACE = {
    "models": {"m": {"targets": [{"provider": "openai", "concurrent": 1}]}},
    "routing.queue_seconds": 0.5,
}


@row(65, 69)
@pytest.mark.parametrize("phase", ["store", "verdict"])
async def test_who_leaves_before_the_first_byte_frees_the_connection_and_the_place(
    data, monkeypatch, phase
):
    waits = asyncio.Event()

    async def for_ever(*_):
        waits.set()
        await asyncio.Event().wait()

    async def begins(seen, wire):
        await wire.start_stream()
        await wire.event(
            {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}
        )
        await seen.gone.wait()

    rest = {"failures": 1, "window": 30, "seconds": 0}
    async with (
        Played(says(ERROR, 500), begins) as up,
        running(
            up.url,
            data,
            {
                **ONE_PLACE,
                "routing.cooldown": rest,
                "routing.retries": 0,
                "memory.read_deadline_ms": 30_000,
            },
        ) as live,
    ):
        await ask(live, "full")
        with monkeypatch.context() as patched:
            patched.setattr(
                *(
                    (Session, "open", for_ever)
                    if phase == "store"
                    else (live.gateway.choice.cooldowns, "record_success", for_ever)
                )
            )
            left = asyncio.ensure_future(ask(live, "full", True))
            await waits.wait()
            while len(up.requests) < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            left.cancel()
            await up.requests[1].leaves()
        up.script[:] = [fine]
        assert (await ask(live, "full")).status_code == 200


async def test_several_workers_share_the_places_of_a_target():
    target, workers = replace(choice_of()[1].targets[0], concurrent=5), 2
    slots = ConcurrencyLimiter(lambda: workers)
    for _ in range(3):
        assert not slots.full(target)
        await slots.take(target, 1)
    assert slots.full(target)
    # The other one ended.
    workers = 1
    assert not slots.full(target)


@row(113)
async def test_a_place_that_comes_free_as_its_waiter_gives_up_goes_to_the_next():
    slots, target = ConcurrencyLimiter(), replace(choice_of()[1].targets[0], concurrent=1)
    await slots.take(target, 1)
    first = asyncio.ensure_future(slots.take(target, 1))
    second = asyncio.ensure_future(slots.take(target, 1))
    await asyncio.sleep(0)
    # As its timer does too.
    first.cancel()
    slots.give(target.label)
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 10)


async def test_a_right_to_try_is_not_kept_by_who_may_not_try_after_all():
    choice, route = choice_of()
    choice.cooldowns = cooldowns = LocalCooldowns(CooldownPolicy(1, 30, 0.0))
    target = route.targets[0]
    names = [target.label, f"{target.label}\x00account"]
    # Its rest is over at once.
    await cooldowns.record_failure(names[0], None)
    await cooldowns.record_failure(names[1], None)
    # Another request tries this account's already.
    assert await cooldowns.probe(names[1], 60)
    candidate = Candidate(target, await cooldowns.find(names))
    assert await choice.start_attempt(candidate, "account", alone=False) is None
    assert not (await cooldowns.find(names))[target.label].probing


@row(113)
async def test_who_finds_the_chosen_target_full_by_now_goes_to_a_free_one(data):
    async def hangs(seen, wire):
        await seen.gone.wait()

    async with Played(hangs) as one, Played(hangs) as two:
        models = {
            "m": {"targets": [{"provider": name, "concurrent": 1} for name in ("one", "two")]}
        }
        # All of one conversation, so of one target.
        config = {
            **pair(one, two),
            "models": models,
            "routing": {"sticky": True},
        }
        async with running(one.url, data, config) as live:
            asked = [asyncio.ensure_future(ask(live, "full")) for _ in range(2)]
            assert await within(2, lambda: (len(one.requests), len(two.requests)) == (1, 1))
            for task in asked:
                task.cancel()
            await asyncio.wait(asked)
