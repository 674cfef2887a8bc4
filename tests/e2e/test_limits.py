"""Limits and budgets of keys over the wire: what is admitted, what is refused and how, in one
process and in several.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter

import httpx
import pytest

from gateway.limits.limiter import KeyQuota
from gateway.usage.meter import guess_tokens
from tests.conftest import running
from tests.e2e.wire.child import child
from tests.e2e.wire.rows import row
from tests.e2e.wire.ways import GATEWAY_KEY, PROVIDER_KEY, ask, each_mode, each_way
from tests.models import Model, text
from tests.sockets import RawServer

# USD per million tokens.
PRICED = {
    "targets": [{"provider": "openai"}],
    "price": {"input": 1000, "output": 10_000},
}
# 10,000 take half a minute more.
CALLS = int(os.environ.get("MNEMOGATE_TEST_CALLS", "600"))
MESSAGE = {"role": "assistant", "content": "fine"}


def keyed(models=None, **key):
    """Configuration with one managed key."""
    return {
        "keys": [{"name": "app", "key": GATEWAY_KEY, "tenant": "acme", **key}],
        "models": models or {"*": {"targets": [{"provider": "openai"}]}},
        "providers": {"openai": {"base_url": "x", "api_key": PROVIDER_KEY}},
    }


def completion(usage):
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
        "usage": usage,
    }


async def many(live, count, way="off", **body):
    return await asyncio.gather(*(ask(live, way, **body) for _ in range(count)))


@row(115, 117)
@each_way
async def test_a_hundred_at_once_under_a_limit_of_ten_are_ten(data, way):
    async with (
        Model("fine") as up,
        running(up.url, data, keyed(limits={"rpm": 10}), key=GATEWAY_KEY) as live,
    ):
        found = Counter(a.status_code for a in await many(live, 100, way))
        assert found == {200: 10, 429: 90}
        assert len(up.requests) == 10


@row(115)
@each_mode
async def test_places_at_a_time_are_given_back_however_an_answer_ends(data, stream):
    hold = asyncio.Event()

    async def waits(seen, wire):
        await hold.wait()
        await up._plain(seen, wire, [text("fine")]) if not stream else await up._streamed(
            seen, wire, [text("fine")]
        )

    async with (
        Model(waits) as up,
        running(up.url, data, keyed(limits={"concurrent": 3}), key=GATEWAY_KEY) as live,
    ):
        asked = [
            asyncio.ensure_future(ask(live, "full" if i % 2 else "off", stream)) for i in range(10)
        ]
        while sum(t.done() for t in asked) < 7:
            await asyncio.sleep(0.01)
        refused = [t.result() for t in asked if t.done()]
        assert {(a.status_code, a.headers["retry-after"]) for a in refused} == {(429, "1")}
        hold.set()
        await asyncio.wait(asked)
        assert len(up.requests) == 3
        for script in ((500, {"error": {"message": "no"}}), "fine"):
            up.script[:] = [script]
            assert [a.status_code for a in await many(live, 3)] == [
                200 if script == "fine" else 500
            ] * 3
        hold.clear()
        up.script[:] = [waits]
        left = [asyncio.ensure_future(ask(live, "full", stream)) for _ in range(3)]
        while len(up.requests) < 12:
            await asyncio.sleep(0.01)
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        await asyncio.sleep(0.3)
        up.script[:] = ["fine"]
        assert [a.status_code for a in await many(live, 3)] == [200] * 3


@row(117)
@each_way
async def test_what_is_left_of_the_limits_is_told_with_every_answer(data, way):
    async with (
        Model("fine") as up,
        running(up.url, data, keyed(limits={"rpm": 2, "tpm": 100_000}), key=GATEWAY_KEY) as live,
    ):
        for left in ("1", "0"):
            told = (await ask(live, way)).headers
            assert (told["x-ratelimit-limit-requests"], told["x-ratelimit-remaining-requests"]) == (
                "2",
                left,
            )
            assert told["x-ratelimit-reset-requests"].endswith("s")
            assert (told["x-ratelimit-limit-tokens"], told["x-ratelimit-reset-tokens"][-1]) == (
                "100000",
                "s",
            )
            assert int(told["x-ratelimit-remaining-tokens"]) < 100_000
        refused = await ask(live, way)
        error = refused.json()["error"]
        assert (refused.status_code, error["type"], error["code"]) == (
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
        )
        assert "2 requests per minute" in error["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert len(up.requests) == 2


@row(117)
async def test_the_keys_own_limits_stand_in_for_those_of_the_account_behind_it(data):
    async def answers(seen, wire):
        await wire.json(
            completion(None),
            200,
            "x-ratelimit-limit-requests: 9999",
            "x-ratelimit-remaining-tokens: 77",
        )

    async with (
        RawServer(answers) as up,
        running(up.url, data, keyed(limits={"rpm": 5}), key=GATEWAY_KEY) as live,
    ):
        told = (await live.chat("hi")).headers
        assert told.get_list("x-ratelimit-limit-requests") == ["5"]
        assert told["x-ratelimit-remaining-tokens"] == "77"


@row(115)
@each_way
async def test_tokens_are_counted_as_the_upstream_reports_them(data, way):
    async def answers(seen, wire):
        usage = (
            {"input_tokens": 400, "output_tokens": 200}
            if way == "relay"
            else {"prompt_tokens": 400, "completion_tokens": 200, "total_tokens": 600}
        )
        await wire.json({**completion(usage)})

    async with (
        RawServer(answers) as up,
        running(up.url, data, keyed(limits={"tpm": 5000}), key=GATEWAY_KEY) as live,
    ):
        first = await ask(live, way, max_tokens=10)
        second = await ask(live, way, max_tokens=10)
        used = int(first.headers["x-ratelimit-remaining-tokens"]) - int(
            second.headers["x-ratelimit-remaining-tokens"]
        )
        assert used == 600


@row(116)
@each_mode
async def test_a_budget_ends_where_it_is_spent(data, stream):
    # 100 tokens in and 10 out, at 0.001 and 0.01 USD: 0.2 USD a call.
    async with (
        Model("fine") as up,
        running(
            up.url,
            data,
            keyed({"*": PRICED}, budget={"usd": 1.0, "period": "day"}),
            key=GATEWAY_KEY,
        ) as live,
    ):
        statuses = [(await ask(live, "full", stream, max_tokens=10)).status_code for _ in range(8)]
        assert statuses[:4] == [200] * 4
        assert statuses[-1] == 429
        assert 4 <= len(up.requests) <= 5
        refused = await ask(live, "full", stream, max_tokens=10)
        assert (refused.json()["error"]["code"], refused.headers["x-should-retry"]) == (
            "insufficient_quota",
            "false",
        )
        assert 1 <= int(refused.headers["retry-after"]) <= 86_400


@row(116)
async def test_after_many_mixed_calls_the_budget_is_what_was_used(data):
    """Answers, refusals, broken streams and callers who leave: what the counter holds is what the
    records say, and what the upstream told.
    """
    chance = random.Random(7)
    told = 0.0

    async def behaves(seen, wire):
        nonlocal told
        what = seen.json["messages"][-1]["content"]
        if what == "refuse":
            await wire.json({"error": {"message": "no"}}, 400)
        elif what == "leave":
            # Nobody says what it has cost.
            told += guess_tokens(len(seen.body)) * 1000 / 1e6
            await seen.gone.wait()
        else:
            used = {
                "prompt_tokens": chance.randint(1, 2000),
                "completion_tokens": chance.randint(1, 500),
            }
            told += (used["prompt_tokens"] * 1000 + used["completion_tokens"] * 10_000) / 1e6
            await wire.json(completion({**used, "total_tokens": sum(used.values())}))

    async with (
        RawServer(behaves) as up,
        running(up.url, data, keyed({"*": PRICED}, budget={"usd": 1e9}), key=GATEWAY_KEY) as live,
    ):

        async def one():
            kind = chance.choices(["answer", "refuse", "leave"], [90, 8, 2])[0]
            work = asyncio.ensure_future(live.chat(kind, {"x-memory": "off"}, max_tokens=400))
            if kind == "leave":
                await asyncio.sleep(0.02)
                work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

        for _ in range(CALLS // 20):
            await asyncio.gather(*(one() for _ in range(20)))
        await asyncio.sleep(0.3)
        held = await live.gateway.limits.spent_this_period(KeyQuota("app", usd=1e9))
        assert held == pytest.approx(told, rel=1e-6)
        listed = (await live.memory("GET", "/usage?group_by=key")).json()["data"][0]
        assert listed["cost_usd"] == pytest.approx(told, rel=1e-6)


async def test_what_has_no_price_is_not_called_on_a_budget(data):
    models = {"cheap": PRICED, "*": {"targets": [{"provider": "openai"}]}}

    async def answers(seen, wire):
        await wire.json(completion({"prompt_tokens": 1, "completion_tokens": 1}))

    async with (
        RawServer(answers) as up,
        running(
            up.url, data, keyed(models, budget={"usd": 5}, paths=["/v1/files"]), key=GATEWAY_KEY
        ) as live,
    ):
        refused = await live.chat("hi", model="unheard-of")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "price_unknown")
        assert "unheard-of" in refused.json()["error"]["message"]
        assert not up.requests
        assert (await live.chat("hi", model="cheap")).status_code == 200
        assert (await live.http.get(f"{live.url}/files")).status_code == 200


async def test_a_restart_remembers_what_was_spent(data):
    config = keyed({"*": PRICED}, budget={"usd": 0.3})
    async with Model("fine") as up:
        async with running(up.url, data, config, key=GATEWAY_KEY) as live:
            assert (await ask(live, "off", max_tokens=1)).status_code == 200
        async with running(up.url, data, config, key=GATEWAY_KEY) as live:
            assert (
                # 0.2 of 0.3 are spent, and the estimate just fits.
                await ask(live, "off", max_tokens=5)
            ).status_code == 200
            assert (await ask(live, "off", max_tokens=10)).status_code == 429


async def test_a_made_key_has_its_limits_and_they_end_with_it(data):
    config = {**keyed(admin=True)}
    async with Model("fine") as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        made = (
            await live.memory(
                "POST", "/keys", json={"name": "small", "tenant": "acme", "limits": {"rpm": 1}}
            )
        ).json()
        mine = {"authorization": f"Bearer {made['key']}"}
        assert [(await live.chat("hi", mine)).status_code for _ in range(2)] == [200, 429]
        assert (await live.chat("hi")).status_code == 200
        await live.memory("DELETE", "/keys/small")
        assert (await live.chat("hi", mine)).status_code == 401


FLEET = """
[storage]
redis = "{redis}"
vectors = "none"
[providers.openai]
base_url = "{upstream}"
api_key = "{provider}"
[models."*"]
targets = [{{ provider = "openai" }}]
[[keys]]
name = "app"
key = "{key}"
tenant = "acme"
[keys.limits]
rpm = 10
"""


@row(115, 118)
async def test_four_processes_that_share_a_redis_admit_ten_of_a_hundred(tmp_path, redis_server):
    async with Model("fine") as up:
        text = FLEET.format(
            redis=redis_server.url, upstream=up.url, provider=PROVIDER_KEY, key=GATEWAY_KEY
        )
        async with contextlib.AsyncExitStack() as stack:
            started = await asyncio.gather(
                *(stack.enter_async_context(child(tmp_path / str(i), text)) for i in range(4))
            )
            async with httpx.AsyncClient(
                headers={"authorization": f"Bearer {GATEWAY_KEY}"}, timeout=20
            ) as http:
                body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
                answers = await asyncio.gather(
                    *(
                        http.post(f"{started[i % 4][0].url}/v1/chat/completions", json=body)
                        for i in range(100)
                    )
                )
            assert Counter(a.status_code for a in answers) == {200: 10, 429: 90}
            assert len(up.bodies) == 10
            for process, _ in started:
                assert "sentinel-pw" not in process.said


@row(118)
async def test_a_redis_that_stalls_costs_a_quarter_of_a_second_once_and_limits_go_on_here(
    data, own_server
):
    config = {**keyed(limits={"rpm": 5}), "storage.redis": own_server.url}
    async with Model("fine") as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        assert (await ask(live, "off")).status_code == 200
        own_server.freeze()
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(6):
            begun = loop.time()
            await ask(live, "off")
            times.append(loop.time() - begun)
        assert times[0] < 0.6
        assert sorted(times[1:])[2] < 0.1
        assert (await live.http.get(f"{live.root}/ready")).json()["degraded"] == ["redis"]
        assert (await ask(live, "off")).status_code == 429
        own_server.thaw()
        async with asyncio.timeout(10):
            while (await live.http.get(f"{live.root}/ready")).json()["degraded"]:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("asked", [{"max_tokens": 10**400}, {"max_tokens": 9, "n": 10**400}])
async def test_a_maximum_beyond_all_counting_is_an_estimate_like_any_other(data, asked):
    async with (
        Model("fine") as up,
        running(up.url, data, keyed({"*": PRICED}, budget={"usd": 5}), key=GATEWAY_KEY) as live,
    ):
        assert (await ask(live, "off", **asked)).status_code == 200


@row(118)
async def test_no_clients_number_takes_redis_from_the_others(data, redis_server):
    config = {**keyed(limits={"rpm": 3}), "storage.redis": redis_server.url}
    async with Model("fine") as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        assert [(await ask(live, "off", max_tokens=10**30)).status_code for _ in range(4)] == [
            200
        ] * 3 + [429]
        assert "redis" not in (await live.http.get(f"{live.root}/ready")).json()["degraded"]
