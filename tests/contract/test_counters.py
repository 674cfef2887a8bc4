"""One contract for the counters of a process and of a fleet."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.settings import ConfigError
from gateway.limits.counters import LocalCounters, ReservationRequest
from gateway.limits.redis_counters import RedisCounters
from gateway.redis_client import RedisClient, RedisUnavailable, Script, cluster_key
from tests.contract.conftest import HandFed, eventually
from tests.redis_server import PASSWORD

ROOT = Path(__file__).parents[2]


def claim(tokens=0, nano=0, key="app", **limits):
    rest = {
        "rpm": 0,
        "tpm": 0,
        "concurrent": 0,
        "budget": 0,
        "lease": 600.0,
        "period": "p1",
        "seconds_left": 1000.0,
        "begin": True,
    }
    return ReservationRequest(key=key, tokens=tokens, nano=nano, **{**rest, **limits})


class Stage:
    """Counters and the clock they go by."""

    def __init__(self, url=None):
        self.shared = HandFed(url) if url else None
        self.time = 1_800_000_000.0
        self.counters = (
            RedisCounters(self.shared, ticket=math.inf) if url else LocalCounters(lambda: self.time)
        )

    def pass_time(self, seconds):
        self.time += seconds
        if self.shared:
            self.shared.now = self.time

    async def __aenter__(self):
        if self.shared:
            await self.shared.open()
            await self.shared.run(Script("redis.call('FLUSHALL')"), ["mnemogate:{all}"], [])
        return self

    async def __aexit__(self, *_):
        if self.shared:
            assert not self.shared.degraded
            await self.shared.close()

    async def refused(self, asked):
        standing = await self.counters.reserve(asked)
        assert (standing.hold is None) == bool(standing.refusal)
        return standing.refusal


@pytest.fixture(params=["local", "redis"])
def url(request):
    return request.getfixturevalue("shared_server").url if request.param == "redis" else None


@pytest.fixture
async def stage(url):
    async with Stage(url) as made:
        yield made


@asynccontextmanager
async def connected(url, **options):
    shared = RedisClient(url, **options)
    await shared.open()
    try:
        yield shared, RedisCounters(shared)
    finally:
        await shared.close()


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        ({"rpm": 10}, "rpm"),
        ({"tpm": 100}, "tpm"),
        ({"concurrent": 10}, "concurrent"),
        ({"budget": 100}, "held"),
    ],
)
async def test_of_a_hundred_at_once_ten_are_admitted(stage, limit, name):
    asked = claim(10, 10, **limit)
    assert Counter(await asyncio.gather(*(stage.refused(asked) for _ in range(100)))) == {
        "": 10,
        name: 90,
    }


async def test_a_refused_claim_changes_no_counter(stage):
    generous = {"rpm": 5, "tpm": 100, "concurrent": 5, "budget": 100}
    for short in ({"rpm": 1}, {"tpm": 15}, {"concurrent": 1}, {"budget": 15}):
        asked = claim(10, 10, key=str(short), **{**generous, **short})
        first = await stage.counters.reserve(asked)
        for _ in range(20):
            assert await stage.refused(asked)
        assert await stage.counters.balance(asked, None) == 10
        more = await stage.counters.reserve(claim(10, 10, key=str(short), **generous))
        assert (first.requests, more.requests, more.tokens) == (1, 2, 20)


async def test_what_is_waited_for_longest_is_named(stage):
    asked = claim(10, 10, rpm=1, tpm=10, concurrent=1, budget=10, seconds_left=5.0)
    hold = (await stage.counters.reserve(asked)).hold
    assert (await stage.counters.reserve(asked)).refusal == "rpm"
    await stage.counters.settle(hold, 10, 10)
    standing = await stage.counters.reserve(asked._replace(rpm=0, tpm=0))
    assert (standing.refusal, standing.wait) == ("budget", 5.0)


async def test_settling_books_what_was_used_and_frees_the_place(stage):
    asked = claim(50, 50, tpm=100, concurrent=1, budget=100)
    hold = (await stage.counters.reserve(asked)).hold
    assert await stage.refused(asked) == "concurrent"
    await stage.counters.settle(hold, 80, 90)
    standing = await stage.counters.reserve(asked._replace(tokens=20, nano=10))
    assert (standing.refusal, standing.tokens) == ("", 100)
    assert await stage.counters.balance(asked, None) == 100


async def test_usage_above_the_limit_is_booked_in_full(stage):
    asked = claim(10, 10, tpm=10, budget=10)
    await stage.counters.settle((await stage.counters.reserve(asked)).hold, 70, 70)
    assert await stage.counters.balance(asked, None) == 70
    standing = await stage.counters.reserve(asked)
    assert (standing.refusal, standing.tokens, standing.wait) == ("budget", 70, 1000.0)


async def test_a_failed_request_still_counts_as_a_request(stage):
    asked = claim(10, 10, rpm=1, tpm=10, budget=10)
    await stage.counters.settle((await stage.counters.reserve(asked)).hold, 0, 0)
    assert await stage.counters.balance(asked, None) == 0
    assert await stage.refused(asked) == "rpm"
    assert await stage.refused(asked._replace(rpm=2)) == ""


@pytest.mark.parametrize("limit", [{"tpm": 10}, {"budget": 10}])
async def test_what_is_used_up_refuses_even_what_is_estimated_at_nothing(stage, limit):
    await stage.counters.settle((await stage.counters.reserve(claim(10, 10, **limit))).hold, 10, 10)
    assert await stage.refused(claim(0, 0, **limit)) == next(iter(limit)).replace("usd", "budget")


async def test_what_others_hold_of_a_budget_is_not_called_spent(stage):
    asked = claim(0, 60, budget=100)
    hold = (await stage.counters.reserve(asked)).hold
    standing = await stage.counters.reserve(asked)
    assert (standing.refusal, standing.wait) == ("held", 1.0)
    await stage.counters.settle(hold, 0, 60)
    assert await stage.refused(asked._replace(nano=10)) == ""
    assert await stage.refused(asked._replace(nano=40)) == "held"
    standing = await stage.counters.reserve(asked._replace(nano=41))
    assert (standing.refusal, standing.wait) == ("budget", 1000.0)


async def test_a_lease_that_is_over_gives_place_and_money_back(stage):
    asked = claim(0, 60, concurrent=1, budget=100, lease=5.0)
    hold = (await stage.counters.reserve(asked)).hold
    stage.pass_time(4.9)
    assert await stage.refused(asked) == "concurrent"
    stage.pass_time(0.2)
    assert await stage.refused(asked) == ""
    assert await stage.counters.balance(asked, None) == 60
    # Late, but it was used.
    await stage.counters.settle(hold, 0, 5)
    assert await stage.counters.balance(asked, None) == 65


async def test_a_settlement_after_its_window_leaves_the_window_alone(stage):
    asked = claim(10, 10, tpm=100, budget=100)
    hold = (await stage.counters.reserve(asked)).hold
    stage.pass_time(61)
    assert (await stage.counters.reserve(asked)).tokens == 10
    await stage.counters.settle(hold, 90, 30)
    assert (await stage.counters.reserve(asked)).tokens == 20
    assert await stage.counters.balance(asked, None) == 50


async def test_a_new_period_begins_at_what_the_first_who_knows_says(stage):
    asked = claim(0, 10, budget=100, begin=False)
    assert await stage.counters.balance(asked, None) is None
    assert await stage.refused(asked) == "unknown"
    assert [await stage.counters.balance(asked, first) for first in (85, 40, None)] == [85, 85, 85]
    hold = (await stage.counters.reserve(asked)).hold
    assert await stage.refused(asked) == "held"
    other = asked._replace(period="p2")
    assert await stage.refused(other) == "unknown"
    assert await stage.refused(other._replace(begin=True)) == ""
    await stage.counters.settle(hold, 0, 99)
    assert await stage.counters.balance(other, None) == 10


async def test_keys_do_not_share(stage):
    for key in ("a", "b", "a}b", "{", "", "ключ x"):
        assert await stage.refused(claim(key=key, rpm=1)) == ""
        assert await stage.refused(claim(key=key, rpm=1)) == "rpm"


OPS = st.lists(
    st.tuples(
        st.floats(0, 40).map(lambda x: round(x, 3)) | st.just(0.0),
        st.integers(1, 30),
        st.none() | st.integers(0, 60),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("examples", [{"local": 150, "redis": 25}])
def test_no_sixty_seconds_hold_more_than_the_limit_and_room_is_used(url, examples):
    """Against every request on record, added up again for each claim.

    An op: time passes, a request, its usage when it is settled.
    """

    @settings(
        max_examples=examples["redis" if url else "local"],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(OPS, st.integers(1, 4), st.integers(30, 60))
    def law(ops, rpm, tpm):
        asyncio.run(replay(ops, rpm, tpm))

    async def replay(ops, rpm, tpm):
        async with Stage(url) as stage:
            # [time, tokens] of the admitted.
            log = []
            for seconds, tokens, used in ops:
                stage.pass_time(seconds)
                asked = claim(tokens, rpm=rpm, tpm=tpm)
                standing = await stage.counters.reserve(asked)
                assert (standing.refusal == "") == fits(log, stage.time, asked), (log, asked)
                if standing.hold is None:
                    later = stage.time + standing.wait
                    assert fits(log, later + 1e-4, asked)
                    assert not fits(log, later - 1e-3, asked)
                    continue
                log.append([stage.time, tokens])
                assert (standing.requests, standing.tokens) == counted(log, stage.time)
                if used is not None:
                    await stage.counters.settle(standing.hold, used, 0)
                    log[-1][1] = used
                last = [t for t, _ in log if stage.time - 60 < t]
                assert len(last) <= rpm

    def counted(log, now):
        live = [x for t, x in log if math.floor(t) + 61 > now]
        return len(live), sum(live)

    def fits(log, now, asked):
        requests, tokens = counted(log, now)
        return requests + 1 <= asked.rpm and tokens + asked.tokens <= asked.tpm

    law()


async def test_ten_thousand_mixed_calls_leave_no_drift(stage):
    """Settled, failed, abandoned while they are admitted, refused: what is booked is what was used,
    to the nano-USD.
    """
    rng, used, calls = random.Random(7), 0, 10_000
    asked = claim(10, 1_000, concurrent=40, budget=10**15)

    async def one():
        nonlocal used
        task = asyncio.create_task(stage.counters.reserve(asked))
        if rng.random() < 0.15:
            await asyncio.sleep(rng.choice((0, 0.001, 0.002, 0.004)))
            task.cancel()
        try:
            hold = (await task).hold
        except asyncio.CancelledError:
            return
        if hold is None:
            return
        await asyncio.sleep(0)
        spent = rng.choice((0, 1, 997, 5_003))
        used += spent
        settling = asyncio.create_task(stage.counters.settle(hold, spent, spent))
        if rng.random() < 0.1:
            await asyncio.sleep(0)
            settling.cancel()
        await asyncio.wait({settling})

    for _ in range(calls // 50):
        await asyncio.gather(*(one() for _ in range(50)))
    if stage.shared:
        await eventually(lambda: not stage.shared._tasks)
    assert used > 0
    assert await stage.counters.balance(asked, None) == used
    standings = [await stage.counters.reserve(asked) for _ in range(41)]
    assert [s.refusal for s in standings] == [""] * 40 + ["concurrent"]


async def test_the_places_of_a_process_that_is_killed_are_free_after_thirty_seconds(redis_server):
    shared = HandFed(redis_server.url)
    shared.now = 1_800_000_000.0
    await shared.open()
    one, other = RedisCounters(shared), RedisCounters(shared)
    asked = claim(concurrent=1, lease=600.0)
    assert (await one.reserve(asked)).hold
    # While it lives.
    for _ in range(10):
        shared.now += 20
        await one._renew()
        assert (await other.reserve(asked)).refusal == "concurrent"
    shared.now += 29
    assert (await other.reserve(asked)).refusal == "concurrent"
    shared.now += 2
    assert (await other.reserve(asked)).hold
    await shared.close()


async def test_without_redis_each_process_has_its_share_of_a_limit(own_server):
    own_server.stop()
    shared = RedisClient(own_server.url)
    await shared.open()
    for limits in ({"rpm": 10}, {"concurrent": 10}, {"tpm": 10}):
        counters = RedisCounters(shared, sharers=lambda: 3)
        asked = claim(1 if "tpm" in limits else 0, **limits)
        refused = [(await counters.reserve(asked)).refusal for _ in range(6)]
        assert refused == [""] * 4 + [next(iter(limits))] * 2
    await shared.close()


FOUR = """
import asyncio, sys
from gateway.limits.counters import ReservationRequest
from gateway.redis_client import RedisClient
from gateway.limits.redis_counters import RedisCounters

async def main():
    shared = RedisClient(sys.argv[1], wait=10)
    await shared.open()
    counters = RedisCounters(shared)
    print("ready", flush=True)
    sys.stdin.readline()
    asked = ReservationRequest("app", 10, 0, 0, 0, 0, 0, 60.0, "", 0.0, True)
    got = await asyncio.gather(*(counters.reserve(asked) for _ in range(25)))
    assert not shared.degraded
    print(sum(s.hold is not None for s in got), flush=True)
    await shared.close()

asyncio.run(main())
"""


async def test_four_processes_share_one_limit(redis_server):
    command = [sys.executable, "-c", FOUR, redis_server.url]
    children = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        assert sum(int(child.communicate(timeout=60)[0]) for child in children) == 10
    finally:
        for child in children:
            child.kill()
            child.communicate()


async def test_every_key_expires_and_shares_one_slot(redis_server):
    async with connected(redis_server.url, wait=5) as (shared, counters):
        asked = claim(10, 10, key="a}b{", tpm=100, budget=100, lease=30.0)
        await counters.reserve(asked)
        await counters.reserve(asked._replace(lease=3.0))
        found = await shared.run(
            Script(
                "local out = {} for _, k in ipairs(redis.call('KEYS', 'mnemogate:{key*')) do "
                "out[#out+1] = {k, redis.call('TTL', k)} end return out"
            ),
            ["x"],
            [],
        )
    ttl = {k.decode().split(":")[-2 if b"usd" in k else -1]: s for k, s in found}
    assert ttl.keys() == {"window", "tickets", "usd"}
    assert 55 < ttl["window"] <= 62
    assert 28 < ttl["tickets"] <= 31
    assert 87_000 < ttl["usd"] <= 87_400
    assert {k.split(b"{")[1].split(b"}")[0] for k, _ in found} == {b"key:a%7Db%7B"}


async def test_a_redis_emptied_under_its_tickets_owes_nobody(shared_server):
    async with Stage(shared_server.url) as stage:
        asked = claim(50, 50, tpm=100, budget=100, begin=False)
        await stage.counters.balance(asked, 0)
        hold, other = [(await stage.counters.reserve(asked)).hold for _ in range(2)]
        await stage.shared.run(Script("redis.call('FLUSHALL')"), ["mnemogate:{all}"], [])
        await stage.counters.settle(hold, 0, 9)
        assert await stage.counters.balance(asked, None) is None, (
            "what is read from the usage table has it"
        )
        await stage.counters.balance(asked, 20)
        await stage.counters.reserve(asked._replace(tokens=5, nano=0))
        await stage.counters.settle(other, 0, 9)
        standing = await stage.counters.reserve(asked._replace(tokens=1, nano=0))
        assert (standing.requests, standing.tokens) == (2, 1)
        assert await stage.counters.balance(asked, None) == 29


# Away and back


async def timed(awaitable):
    begun = time.perf_counter()
    await awaitable
    return time.perf_counter() - begun


async def test_a_dead_redis_is_replaced_by_this_process_alone(caplog, redis_binary):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"redis://:{PASSWORD}@127.0.0.1:{s.getsockname()[1]}/0"
    async with connected(url, pause=0.02) as (shared, counters):
        assert shared.degraded
        got = [await counters.reserve(claim(rpm=3)) for _ in range(5)]
        assert [g.refusal for g in got] == ["", "", "", "rpm", "rpm"]
        assert not got[0].hold.shared
        assert [await counters.balance(claim(budget=9), first) for first in (None, 7, 8)] == [
            None,
            7,
            7,
        ]
        await asyncio.sleep(0.1)
    assert len([r for r in caplog.records if r.name == "mnemogate"]) == 1
    assert PASSWORD not in caplog.text


async def test_a_stalled_redis_costs_one_wait_and_then_nothing(redis_binary):
    heard = []

    async def silent(reader, writer):
        heard.append(writer)
        await asyncio.sleep(30)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    try:
        async with connected(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}") as (
            shared,
            counters,
        ):
            assert shared.degraded
            assert heard
            assert (
                await timed(asyncio.gather(*(counters.reserve(claim(rpm=1)) for _ in range(50))))
                < 0.2
            )
    finally:
        server.close()
        for writer in heard:
            writer.close()


async def test_a_redis_that_freezes_costs_250_ms_once_and_loses_nothing(own_server, caplog):
    caplog.set_level(logging.INFO, "mnemogate")
    async with connected(own_server.url, pause=0.05) as (shared, counters):
        asked = claim(10, 100, concurrent=3, budget=10_000)
        first = (await counters.reserve(asked)).hold
        own_server.freeze()
        waits = await asyncio.gather(
            *(timed(counters.reserve(asked._replace(concurrent=0))) for _ in range(40))
        )
        assert 0.2 < max(waits) < 0.7
        assert shared.degraded
        assert await timed(counters.reserve(asked)) < 0.2
        assert await timed(counters.settle(first, 10, 70)) < 0.2
        own = await counters.reserve(claim(0, 100, key="other", budget=10_000))
        await counters.settle(own.hold, 0, 33)
        own_server.thaw()
        await eventually(lambda: not shared.degraded and not counters._owed_amounts)
        assert await counters.balance(asked, None) == 70, (
            "the settlement of before, and no reservation nobody heard of"
        )
        assert [bool((await counters.reserve(asked)).hold) for _ in range(4)] == [
            True,
            True,
            True,
            False,
        ]
    said = [r.getMessage() for r in caplog.records if r.name == "mnemogate"]
    assert [("does not answer" in m, "is back:" in m) for m in said] == [
        (True, False),
        (False, True),
    ]
    assert PASSWORD not in caplog.text


async def test_a_settlement_redis_did_without_answering_is_not_done_again(own_server):
    async with connected(own_server.url, pause=0.05) as (shared, counters):
        asked = claim(0, 100, concurrent=1, budget=10_000)
        # Redis knows both scripts now.
        await counters.settle((await counters.reserve(asked)).hold, 0, 2)
        hold = (await counters.reserve(asked)).hold
        own_server.freeze()
        await counters.settle(hold, 0, 40)
        assert shared.degraded
        own_server.thaw()
        await eventually(lambda: not shared.degraded and not counters._owed_amounts)
        assert await counters.balance(asked, None) == 42
        assert (await counters.reserve(asked)).hold


async def test_what_was_spent_while_redis_was_away_is_booked_when_it_is_back(own_server):
    async with connected(own_server.url, pause=0.05) as (shared, counters):
        asked = claim(0, 100, budget=10_000)
        await counters.settle((await counters.reserve(asked)).hold, 0, 40)
        own_server.freeze()
        for _ in range(3):
            await counters.settle((await counters.reserve(asked)).hold, 0, 7)
        open_still = (await counters.reserve(asked)).hold
        # Too early.
        await counters._repay()
        own_server.thaw()
        await eventually(lambda: not shared.degraded and not counters._owed_amounts)
        assert await counters.balance(asked, None) == 61
        await counters.settle(open_still, 0, 9)
        assert await counters.balance(asked, None) == 70
        own_server.freeze()
        assert (await counters.reserve(asked._replace(begin=False))).refusal == "unknown", (
            "the ledger knows better than the outage before"
        )
        assert await counters.balance(asked, 70) == 70
        unlimited = await counters.reserve(claim(rpm=5, period=""))
        owed = dict(counters._owed_amounts)
        await counters.settle(unlimited.hold, 1, 1)
        assert counters._owed_amounts == owed


async def test_a_redis_that_comes_back_empty_is_used_again(own_server):
    async with connected(own_server.url, pause=0.05) as (shared, counters):
        asked = claim(0, 100, concurrent=1, budget=10_000)
        hold = (await counters.reserve(asked)).hold
        own_server.stop()
        await counters.settle(hold, 0, 40)
        assert shared.degraded
        own_server.start()
        await eventually(lambda: not shared.degraded)
        assert await counters.balance(asked, None) is None
        assert (await counters.reserve(asked)).hold.shared


async def test_connections_redis_closed_meanwhile_are_no_outage(own_server, caplog):
    async with connected(own_server.url, wait=5) as (shared, counters):
        await asyncio.gather(*(counters.reserve(claim(rpm=100)) for _ in range(5)))
        await shared._client.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.05)
        got = await asyncio.gather(*(counters.reserve(claim(rpm=100)) for _ in range(5)))
        assert all(g.hold.shared for g in got)
        assert not shared.degraded


async def test_closing_waits_for_a_settlement_whose_caller_left(redis_server):
    asked = claim(0, 100, budget=10_000)
    async with connected(redis_server.url, wait=5) as (_, counters):
        hold = (await counters.reserve(asked)).hold
        leaving = asyncio.create_task(counters.settle(hold, 0, 40))
        await asyncio.sleep(0)
        leaving.cancel()
    async with connected(redis_server.url, wait=5) as (_, counters):
        assert await counters.balance(asked, None) == 40


async def test_a_redis_that_refuses_our_password_counts_as_away(redis_server, caplog):
    async with connected(redis_server.url.replace(PASSWORD, "wrong-" + PASSWORD)) as (
        shared,
        counters,
    ):
        assert shared.degraded
        with pytest.raises(RedisUnavailable):
            await shared.run(Script(""), ["k"], [])
        assert (await counters.reserve(claim(rpm=1))).hold
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@h",
        f"redis://:{PASSWORD}/x@h:1",
        f"redis://:{PASSWORD}#x@h:1",
        f"redis://u:{PASSWORD}@",
        "redis://h:99999",
        "unix://",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(url):
    with pytest.raises(ConfigError, match=r"storage\.redis is not a Redis URL") as caught:
        RedisClient(url)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__context__ is None


async def test_a_socket_that_is_not_there_is_named(caplog, tmp_path):
    async with connected(f"unix://:{PASSWORD}@{tmp_path}/redis.sock") as (shared, _):
        assert shared.degraded
    assert f"Redis at {tmp_path}/redis.sock does not answer" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[redis\]'"):
        RedisClient("redis://h")


def test_keys_name_the_key_and_one_slot():
    assert cluster_key("key", "a/b", "x", "y") == [
        "mnemogate:{key:a%2Fb}:x",
        "mnemogate:{key:a%2Fb}:y",
    ]
