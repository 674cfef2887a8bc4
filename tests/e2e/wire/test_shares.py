"""G and H.

In own-key mode no account takes all connections to a provider, and one alone takes nearly all.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.errors import Unavailable
from gateway.routing.account_shares import AccountShares
from tests.conftest import running
from tests.e2e.wire.ways import each_way, provider
from tests.models import Model


def by(key, way):
    return {"authorization": f"Bearer {key}", "x-memory": way}


async def until(true):
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


@each_way
async def test_one_account_never_takes_all_connections(data, way):
    hold = asyncio.Event()

    async def waits(seen, wire):
        if "greedy" in seen.header("authorization"):
            await hold.wait()
        return "fine"

    async def ask(live, key):
        if way == "relay":
            return await live.http.post(
                f"{live.url}/completions",
                json={"model": "m", "prompt": "x"},
                headers=by(key, "full"),
            )
        return await live.chat(f"hi {random.random()}", by(key, way))

    config = {
        **provider(max_connections=3, timeouts={"connect": 1}),
        "server.single_user": False,
        "routing.retries": 0,
    }
    async with Model(waits) as up, running(up.url, data, config, key="") as live:
        for _ in range(2):
            hold.clear()
            asked = [asyncio.ensure_future(ask(live, "greedy")) for _ in range(3)]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=20)
            refused = done.pop().result()
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "2 of the 3 connections" in refused.json()["error"]["message"]
            assert [(await ask(live, f"modest-{i}")).status_code for i in range(3)] == [200] * 3
            waiting = asyncio.ensure_future(ask(live, "greedy"))
            await asyncio.sleep(0.1)
            hold.set()
            assert sorted(t.status_code for t in await asyncio.gather(*asked)) == [200, 200, 503]
            # A place of its own came free in time.
            assert (await waiting).status_code == 200


async def test_in_single_user_mode_there_is_nobody_to_keep_places_for(data):
    hold = asyncio.Event()

    async def waits(seen, wire):
        await hold.wait()
        return "fine"

    async with Model(waits) as up, running(up.url, data, provider(max_connections=3)) as live:
        asked = [asyncio.ensure_future(live.chat(f"hi {i}", {"x-memory": "off"})) for i in range(3)]
        await until(lambda: len(up.requests) == 3)
        hold.set()
        assert [t.status_code for t in await asyncio.gather(*asked)] == [200] * 3


async def test_one_alone_has_nearly_all_and_several_share():
    async def taken(shares, account):
        count = 0
        while True:
            try:
                await shares.take("p", account, 1000, 0.001)
            except Unavailable:
                return count
            count += 1

    shares = AccountShares()
    assert 870 <= await taken(shares, "a") <= 900
    await shares.take("p", "b", 1000, 0.001)
    rest = await taken(shares, "b")
    assert 80 <= rest <= 120
    await shares.take("p", "newcomer", 1000, 0.001)


async def test_places_come_back_whoever_gives_up():
    shares, rng = AccountShares(), random.Random(5)

    async def one(account):
        try:
            await shares.take("p", account, 5, rng.random() / 20)
        except Unavailable:
            return
        try:
            await asyncio.sleep(rng.random() / 50)
        finally:
            shares.give("p", account)

    tasks = [asyncio.ensure_future(one(rng.choice("abc"))) for _ in range(200)]
    for task in rng.sample(tasks, 60):
        await asyncio.sleep(0.001)
        task.cancel()
    await asyncio.wait(tasks)
    left = shares._providers["p"]
    assert (left.taken_slots, dict(left.slots_by_account), left.waiters_by_account) == (0, {}, {})


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_who_has_none_is_never_held_up(most):
    shares = AccountShares()
    for account in "abcdef":
        await shares.take("p", account, most, 0.001)
    with pytest.raises(Unavailable, match="1 of the"):
        await shares.take("p", "a", most, 0.001)


FOUR = {"keys": [{"name": n, "key": f"k-{n}-0123456789", "tenant": n} for n in ("ada", "bob")]}
LIMITS = {
    "connections": {**provider(max_connections=4, timeouts={"connect": 4})},
    "a target's places": {
        **provider(),
        "models": {"*": {"targets": [{"provider": "openai", "concurrent": 4}]}},
        "routing": {"queue_seconds": 1, "retries": 0},
    },
}


def fails_fast(config):
    return {"routing": {"retries": 0}, **config}


@each_way
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("made", [False, True], ids=["configured", "made"])
async def test_with_managed_keys_no_tenant_takes_all_places(data, way, limit, made):
    """Eight slow requests of one tenant, of whom the other knows nothing."""
    hold = asyncio.Event()

    async def waits(seen, wire):
        if "slow" in str(seen.json):
            await hold.wait()
        return "fine"

    async def ask(live, tenant, words):
        key = keys[tenant]
        if way == "relay":
            return await live.http.post(
                f"{live.url}/completions",
                json={"model": "m", "prompt": words},
                headers=by(key, "full"),
            )
        return await live.chat(f"{words} {random.random()}", by(key, way))

    first = [{"name": "ops", "key": "k-ops-0123456789", "tenant": "ops", "admin": True}]
    config = {**fails_fast(limit), **({"keys": first} if made else FOUR)}
    async with Model(waits) as up, running(up.url, data, config, key="") as live:
        keys = {name: f"k-{name}-0123456789" for name in ("ada", "bob")}
        if made:
            admin = {"authorization": "Bearer k-ops-0123456789"}
            for name in keys:
                body = {"name": name, "tenant": name}
                answer = await live.memory("POST", "/keys", json=body, headers=admin)
                keys[name] = answer.json()["key"]
        slow = [asyncio.ensure_future(ask(live, "ada", "slow")) for _ in range(8)]
        await until(lambda: len(up.requests) == 3)
        begun = asyncio.get_running_loop().time()
        found = [(await ask(live, "bob", "quick")).status_code for _ in range(5)]
        assert found == [200] * 5
        assert asyncio.get_running_loop().time() - begun < 20
        hold.set()
        codes = sorted([answer.status_code for answer in await asyncio.gather(*slow)])
        assert codes[:3] == [200] * 3
        assert set(codes) <= {200, 503}
        providers = live.gateway.choice.shares._providers.values()
        assert all(not shares.taken_slots for shares in providers)


async def test_one_tenant_with_managed_keys_has_all_places(data):
    hold = asyncio.Event()

    async def waits(seen, wire):
        await hold.wait()
        return "fine"

    keys = [{"name": n, "key": f"k-{n}-0123456789", "tenant": "t"} for n in ("ada", "bob")]
    config = {**provider(max_connections=3), "keys": keys}
    async with Model(waits) as up, running(up.url, data, config, key="k-ada-0123456789") as live:
        asked = [asyncio.ensure_future(live.chat(f"hi {i}", {"x-memory": "off"})) for i in range(3)]
        await until(lambda: len(up.requests) == 3)
        hold.set()
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 3
