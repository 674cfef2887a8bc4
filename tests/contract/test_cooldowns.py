"""One contract for the rests of targets, kept by a process or by a fleet."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.redis_client import RedisClient, Script
from gateway.routing.cooldowns import Cooldown, CooldownPolicy, LocalCooldowns
from gateway.routing.redis_cooldowns import RedisCooldowns
from tests.contract.conftest import HandFed


class Stage:
    """Cooldowns and the clock they go by; ends of rests are told in seconds from its beginning."""

    def __init__(self, rules, url):
        self.shared = HandFed(url) if url else None
        self.begin = self.time = 1_800_000_000.0
        self.cooldowns = (
            RedisCooldowns(self.shared, rules, lambda: self.time)
            if url
            else LocalCooldowns(rules, lambda: self.time)
        )

    def pass_time(self, seconds):
        self.time += seconds
        if self.shared:
            self.shared.now = self.time

    async def rest(self, name="m"):
        found = (await self.cooldowns.find([name])).get(name)
        return found and (round(found.until - self.begin, 3), found.asked, found.probing)


@pytest.fixture(params=["local", "redis"])
async def staged(request):
    url = request.getfixturevalue("shared_server").url if request.param == "redis" else None
    opened = []

    async def make(failures=3, window=30, seconds=30):
        stage = Stage(CooldownPolicy(failures, window, seconds), url)
        if stage.shared:
            opened.append(stage.shared)
            await stage.shared.open()
            await stage.shared.run(Script("redis.call('FLUSHALL')"), ["mnemogate:{all}"], [])
        return stage

    yield make
    for shared in opened:
        assert not shared.degraded
        await shared.close()


async def test_enough_failures_within_the_window_rest_a_target(staged):
    stage = await staged()
    for _ in range(2):
        await stage.cooldowns.record_failure("m", None)
        stage.pass_time(10)
    assert await stage.rest() is None
    await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() == (50, False, False)
    assert await stage.rest("other") is None
    assert not await stage.cooldowns.probe("m", 5)


async def test_failures_further_apart_do_not(staged):
    stage = await staged()
    for _ in range(9):
        await stage.cooldowns.record_failure("m", None)
        stage.pass_time(15)
    assert await stage.rest() is None


async def test_what_the_upstream_asks_for_rests_at_once_and_decides_alone(staged):
    stage = await staged()
    for _ in range(5):
        await stage.cooldowns.record_failure("m", 2.5)
    assert await stage.rest() == (2.5, True, False)
    stage.pass_time(3)
    await stage.cooldowns.record_failure("m", 1.0)
    assert await stage.rest() == (4, True, False)


async def test_with_no_failures_set_only_what_is_asked_for_rests(staged):
    stage = await staged(failures=0)
    for _ in range(20):
        await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() is None
    await stage.cooldowns.record_failure("m", 4)
    await stage.cooldowns.record_failure("m", None)
    stage.pass_time(5)
    await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() == (4, False, False)


async def test_a_longer_rest_is_never_shortened(staged):
    stage = await staged(failures=1)
    await stage.cooldowns.record_failure("m", 100)
    await stage.cooldowns.record_failure("m", 10)
    assert await stage.rest() == (100, True, False)
    await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() == (100, True, False)
    stage.pass_time(90)
    await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() == (120, True, False)
    stage.pass_time(15)
    assert await stage.rest() == (120, False, False)


async def test_after_its_rest_one_request_at_a_time_may_probe(staged):
    stage = await staged(failures=1)
    await stage.cooldowns.record_failure("m", None)
    stage.pass_time(30)
    assert await stage.rest() == (30, False, False)
    assert sorted(await asyncio.gather(*(stage.cooldowns.probe("m", 5) for _ in range(10)))) == [
        False
    ] * 9 + [True]
    assert await stage.rest() == (30, False, True)
    for name in ("m", "nobody"):
        await stage.cooldowns.release_probe(name)
    assert await stage.rest() == (30, False, False)
    assert await stage.rest("nobody") is None
    assert await stage.cooldowns.probe("m", 5)
    stage.pass_time(5)
    assert await stage.rest() == (30, False, False)
    assert await stage.cooldowns.probe("m", 5)


async def test_a_failed_probe_rests_again_and_a_good_one_ends_it(staged):
    stage = await staged()
    for _ in range(3):
        await stage.cooldowns.record_failure("m", None)
    stage.pass_time(40)
    assert await stage.cooldowns.probe("m", 5)
    await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() == (70, False, False)
    stage.pass_time(30)
    assert await stage.cooldowns.probe("m", 5)
    await stage.cooldowns.record_success("m")
    assert await stage.rest() is None
    assert await stage.cooldowns.probe("m", 5)
    for _ in range(2):
        await stage.cooldowns.record_failure("m", None)
    assert await stage.rest() is None, "the failures of before are gone too"


async def test_what_is_on_record_is_told_for_all_names_at_once(staged):
    stage = await staged()
    await stage.cooldowns.record_failure("a:b/{c}", 5)
    await stage.cooldowns.record_failure("c", 7)
    await stage.cooldowns.record_failure("d", None)
    found = await stage.cooldowns.find(["x", "a:b/{c}", "d", "c"])
    assert {n: round(r.until - stage.begin, 3) for n, r in found.items()} == {"a:b/{c}": 5, "c": 7}
    assert await stage.cooldowns.find([]) == {}


async def test_a_clock_that_is_set_back_makes_no_rest_longer(monkeypatch):
    cooldowns = LocalCooldowns(CooldownPolicy(1, 30, 30))
    await cooldowns.record_failure("m", 5)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    await cooldowns.record_failure("m", 5)
    assert 4 < (await cooldowns.find(["m"]))["m"].until - time.monotonic() <= 5


async def test_a_record_nobody_tries_is_forgotten_an_hour_later():
    now = 1_800_000_000.0
    cooldowns = LocalCooldowns(CooldownPolicy(1, 30, 30), lambda: now)
    await cooldowns.record_failure("m", None)
    now += 3629
    assert await cooldowns.find(["m"])
    now += 2
    assert await cooldowns.find(["m"]) == {}
    assert await cooldowns.probe("m", 5)


async def test_names_clients_invent_do_not_pile_up():
    cooldowns = LocalCooldowns(CooldownPolicy(3, 30, 30))
    for i in range(5000):
        await cooldowns.record_failure(f"m{i}", 100)
    assert 0 < cooldowns.records.byte_count <= cooldowns.records.max_bytes
    assert len(cooldowns.records) < 5000
    assert list(await cooldowns.find(["m0", "m4999"])) == ["m4999"]


async def test_shared_records_expire(redis_server):
    shared = RedisClient(redis_server.url, wait=5)
    await shared.open()
    cooldowns = RedisCooldowns(shared, CooldownPolicy(2, 30, 30))
    await cooldowns.record_failure("m", 10)
    await cooldowns.record_failure("m", None)
    script = Script(
        "local out = {} for _, k in ipairs(redis.call('KEYS', 'mnemogate:{rests*')) do "
        "out[#out+1] = {k, redis.call('TTL', k)} end return out"
    )
    ttl = dict(map(tuple, await shared.run(script, ["x"], [])))
    assert 3600 <= ttl[b"mnemogate:{rests:}:rest:m"] <= 3610
    assert 0 < ttl[b"mnemogate:{rests:}:failures:m"] <= 31
    await shared.close()


async def test_what_one_process_learns_holds_for_the_next_request_of_another(redis_server):
    one, two = RedisClient(redis_server.url, wait=5), RedisClient(redis_server.url, wait=5)
    await asyncio.gather(one.open(), two.open())
    rules = CooldownPolicy(1, 30, 30)
    await RedisCooldowns(one, rules).record_failure("m", None)
    rest = (await RedisCooldowns(two, rules).find(["m"]))["m"]
    assert abs(rest.until - time.monotonic() - 30) < 2
    await asyncio.gather(one.close(), two.close())


async def test_without_redis_a_process_keeps_what_it_saw_itself(own_server):
    shared = RedisClient(own_server.url, pause=60)
    await shared.open()
    cooldowns = RedisCooldowns(shared, CooldownPolicy(1, 30, 30))
    await cooldowns.record_failure("m", 0.05)
    own_server.stop()
    assert list(await cooldowns.find(["m"])) == ["m"]
    assert shared.degraded
    await asyncio.sleep(0.06)
    assert await cooldowns.probe("m", 5)
    assert not await cooldowns.probe("m", 5)
    await cooldowns.release_probe("m")
    assert await cooldowns.probe("m", 5)
    assert isinstance((await cooldowns.find(["m"]))["m"], Cooldown)
    await cooldowns.record_success("m")
    assert await cooldowns.find(["m"]) == {}
    await shared.close()
