"""G.

Which target is tried: weights, conversations that stay, the quickest, rests and probes, places at a
time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from email.utils import formatdate

import pytest

from gateway.config.loader import load
from gateway.models.facts import ModelFacts
from gateway.routing.cooldowns import CooldownPolicy, LocalCooldowns
from gateway.routing.router import Router
from gateway.routing.selector import TargetSelector
from gateway.upstream.scripted import ScriptedUpstream, completion
from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.e2e.wire.test_retries import ERROR, Played, fine, reset, says
from tests.e2e.wire.ways import ask, each_way
from tests.sockets import within

REST = {"failures": 3, "window": 30, "seconds": 0.6}


def pair(first, second, weights=(1, 1), **routing):
    """Configuration of a model `m` with two targets, at two providers."""
    targets = [
        {"provider": name, "weight": w} for name, w in zip(("one", "two"), weights, strict=True)
    ]
    return {
        "providers": {"one": {"base_url": first.url}, "two": {"base_url": second.url}},
        "models": {"m": {"targets": targets}},
        "routing": {"cooldown": REST, **routing},
    }


def first_of(first, second, **routing):
    """The same with the first always before the second."""
    return {
        **pair(first, second, **routing),
        "models": {
            "m": {"targets": [{"provider": "one"}], "fallbacks": ["n"]},
            "n": {"targets": [{"provider": "two", "model": "m"}]},
        },
    }


def choice_of(**routing):
    """A choice over three targets with the weights 5, 3 and 2, and the route."""
    names = {"a": 5, "b": 3, "c": 2}
    settings = load(
        None,
        {},
        {
            "providers": {n: {"base_url": "http://x/v1"} for n in names},
            "routing": routing,
            "models": {"m": {"targets": [{"provider": n, "weight": w} for n, w in names.items()]}},
        },
    )
    router = Router(
        settings,
        dict.fromkeys(names, ScriptedUpstream([completion({"content": "ok"})])),
        ModelFacts({}),
    )
    return TargetSelector(
        LocalCooldowns(CooldownPolicy(3, 30, 30)), settings.routing
    ), router._build_route("m")


@row(112)
@pytest.mark.parametrize("sticky", [False, True])
async def test_ten_thousand_picks_keep_to_the_weights(sticky):
    choice, route = choice_of(sticky=sticky)
    picks = Counter(
        [
            (await choice.candidates(route, "", b"talk-%d" % i))[0].target.provider
            for i in range(10_000)
        ]
    )
    for name, share in {"a": 0.5, "b": 0.3, "c": 0.2}.items():
        assert abs(picks[name] / 10_000 - share) < 0.02


@row(112)
async def test_a_conversation_stays_with_its_target_and_comes_back_to_it():
    choice, route = choice_of(sticky=True)

    async def order():
        return [c.target.provider for c in await choice.candidates(route, "", b"talk")]

    usual = await order()
    assert all([await order() == usual for _ in range(50)])
    for _ in range(3):
        await choice.cooldowns.record_failure(f"{usual[0]}/m", None)
    assert await order() == [*usual[1:], usual[0]]
    await choice.cooldowns.record_success(f"{usual[0]}/m")
    assert await order() == usual


async def test_a_conversation_keeps_its_target_over_the_wire(data):
    async with (
        Played(fine) as one,
        Played(fine) as two,
        running(one.url, data, pair(one, two, sticky=True)) as live,
    ):
        for i in range(12):
            past = [
                {"role": "user", "content": f"talk {i}"},
                {"role": "assistant", "content": "fine"},
            ]
            for turn in range(1, 4):
                await live.chat(
                    [*past * turn, {"role": "user", "content": "on"}], {"x-memory": "off"}
                )
        served = [{r.json["messages"][0]["content"] for r in up.requests} for up in (one, two)]
        assert not served[0] & served[1]
        assert all(served)


async def test_the_quickest_target_is_chosen_once_each_was_seen():
    choice, route = choice_of(choice="least_latency")
    seen = [(await choice.candidates(route, "", b""))[0].target.provider for _ in range(3)]
    assert sorted(seen) == ["a", "b", "c"]
    for name, seconds in {"a": 0.5, "b": 0.1, "c": 0.9}.items():
        choice.record_latency(f"{name}/m", seconds)
    assert [c.target.provider for c in await choice.candidates(route, "", b"")] == ["b", "a", "c"]
    for _ in range(10):
        choice.record_latency("b/m", 2.0)
    assert (await choice.candidates(route, "", b""))[0].target.provider == "a"


@row(106)
@each_way
async def test_a_target_that_keeps_failing_rests_and_one_request_finds_it_well(data, way):
    async with (
        Played(says(500)) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        for n in range(1, 6):
            assert (await ask(live, way)).status_code == 200
            assert len(one.requests) == min(n, 3)
        await asyncio.sleep(0.65)
        started = asyncio.Event()

        async def slow(seen, wire):
            started.set()
            await asyncio.sleep(0.3)
            await fine(seen, wire)

        one.script[:] = [slow]
        answers = await asyncio.gather(*(ask(live, way) for _ in range(10)))
        assert [a.status_code for a in answers] == [200] * 10
        assert len(one.requests) == 4
        await ask(live, way)
        assert len(one.requests) == 5


@row(106)
async def test_a_probe_that_fails_rests_the_target_again(data):
    async with (
        Played(says(500)) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        for _ in range(3):
            await ask(live, "off")
        await asyncio.sleep(0.65)
        for _ in range(4):
            assert (await ask(live, "off")).status_code == 200
        assert len(one.requests) == 4


@row(83, 106)
@each_way
async def test_the_last_target_is_tried_however_often_it_failed(data, way):
    async with (
        Played(says(500)) as up,
        running(up.url, data, {"routing": {"cooldown": REST, "retries": 0}}) as live,
    ):
        for n in range(1, 7):
            assert (await ask(live, way)).status_code == 500
            assert len(up.requests) == n


@row(83, 104)
@each_way
@pytest.mark.parametrize("line", ["retry-after: 20", "retry-after-ms: 15000", "date"])
async def test_a_models_last_live_target_is_tried_while_it_rests_on_its_own_word(data, way, line):
    """The gateway never refuses by itself what the upstream might answer; its refusal comes as it
    is.
    """
    if line == "date":
        line = f"retry-after: {formatdate(time.time() + 30, usegmt=True)}"
    name, _, value = line.partition(": ")
    async with (
        Played(says(429, line), says(429, line), fine) as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        for n in (1, 2):
            told = await ask(live, way)
            assert (told.status_code, told.json(), told.headers[name], len(up.requests)) == (
                429,
                ERROR,
                value,
                n,
            )
        assert "fine" in (await ask(live, way)).text


@row(83)
async def test_of_targets_that_all_rest_the_one_that_recovers_soonest_is_tried():
    choice, route = choice_of()
    for name, seconds in {"a": 40, "b": 20, "c": 30}.items():
        await choice.cooldowns.record_failure(f"{name}/m", seconds)
    assert [c.target.provider for c in await choice.candidates(route, "", b"")] == ["b"]
    for _ in range(3):
        await choice.cooldowns.record_failure("c/m", None)
    (first, *_) = await choice.candidates(route, "", b"")
    assert await choice.start_attempt(first, "", alone=False) is not None


async def test_a_target_left_alone_on_its_own_word_is_not_called_while_another_lives(data):
    async with (
        Played(says(429, "retry-after: 30")) as one,
        Played(says(500)) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        for _ in range(3):
            assert (await ask(live, "off")).status_code == 500
        assert len(one.requests) == 1


@row(106)
async def test_a_second_failure_never_shortens_a_rest(data):
    async with (
        Played(says(429, "retry-after: 30"), says(429, "retry-after: 1")) as up,
        Played(fine) as two,
        running(up.url, data, first_of(up, two)) as live,
    ):
        await asyncio.gather(ask(live, "off"), ask(live, "off"))
        await asyncio.sleep(1.1)
        await ask(live, "off")
        assert len(up.requests) <= 2


@each_way
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_requests_own_fault_rests_nobody(data, way, status):
    async with (
        Played(says(status)) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        for _ in range(5):
            assert (await ask(live, way)).status_code == status
        assert not two.requests


@pytest.mark.parametrize("phase", ["status", "stream"])
async def test_a_caller_who_leaves_rests_nobody(data, phase):
    async def hangs(seen, wire):
        if phase == "stream":
            await wire.start_stream()
            await wire.event({"choices": [{"index": 0, "delta": {"content": "x"}}]})
        await seen.gone.wait()

    async with (
        Played(hangs) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        for n in range(1, 6):
            asked = asyncio.ensure_future(ask(live, "full" if n % 2 else "off", phase == "stream"))
            while len(one.requests) < n:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            asked.cancel()
            await asyncio.wait([asked])
        one.script[:] = [fine]
        assert (await ask(live, "off")).status_code == 200
        assert (len(one.requests), len(two.requests)) == (6, 0)


async def test_an_answer_that_breaks_off_speaks_against_its_target(data):
    async def breaks(seen, wire):
        await wire.start_stream()
        await wire.event({"choices": [{"index": 0, "delta": {"content": "x"}}]})
        await asyncio.sleep(0.02)
        wire.reset()

    async with (
        Played(breaks) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        for way in ("full", "off", "full"):
            assert "stream_incomplete" in (await ask(live, way, True)).text
        assert "fine" in (await ask(live, "full", True)).text
        assert len(one.requests) == 3


async def test_in_own_key_mode_one_accounts_quota_is_its_own(data):
    async def busy(seen, wire):
        await (
            wire.json(ERROR, 429, "retry-after: 5")
            if seen.header("authorization") == "Bearer sk-a"
            else fine(seen, wire)
        )

    own = {"server.single_user": False, "routing.retries": 0}
    async with Played(busy) as up, running(up.url, data, own) as live:
        for key, status, seen in (
            ("sk-a", 429, 1),
            ("sk-b", 200, 2),
            ("sk-b", 200, 3),
            ("sk-a", 429, 4),
        ):
            answer = await ask(live, "off", headers={"authorization": f"Bearer {key}"})
            assert (answer.status_code, len(up.requests)) == (status, seen)


@row(113)
@each_way
async def test_more_requests_than_a_target_takes_wait_their_turn(data, way):
    running_now, most = 0, 0

    async def counted(seen, wire):
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0.05)
        running_now -= 1
        await fine(seen, wire)

    config = {"models": {"m": {"targets": [{"provider": "openai", "concurrent": 2}]}}}
    async with Played(counted) as up, running(up.url, data, config) as live:
        answers = await asyncio.gather(*(ask(live, way, i % 2 == 0) for i in range(10)))
        assert [a.status_code for a in answers] == [200] * 10
        assert most == 2


@row(113)
@each_way
async def test_a_wait_for_a_place_ends_and_says_when_to_come_again(data, way):
    async def hangs(seen, wire):
        await seen.gone.wait()

    config = {
        "models": {"m": {"targets": [{"provider": "openai", "concurrent": 1}]}},
        "routing.queue_seconds": 0.2,
    }
    async with Played(hangs) as up, running(up.url, data, config) as live:
        held = asyncio.ensure_future(ask(live, way))
        while not up.requests:
            await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(ask(live, way))
        assert await within(2, waiting.done)
        told = await waiting
        assert (told.status_code, told.headers["retry-after"], len(up.requests)) == (503, "1", 1)
        # Whoever leaves frees the place.
        held.cancel()
        await asyncio.wait([held])
        up.script[:] = [fine]
        await asyncio.sleep(0.1)
        assert (await ask(live, way)).status_code == 200


async def test_a_target_with_a_free_place_comes_before_a_full_one(data):
    async def hangs(seen, wire):
        await seen.gone.wait()

    async with Played(hangs) as one, Played(fine) as two:
        config = first_of(one, two)
        config["models"]["m"]["targets"][0]["concurrent"] = 1
        async with running(one.url, data, config) as live:
            held = asyncio.ensure_future(ask(live, "off"))
            while not one.requests:
                await asyncio.sleep(0.01)
            for _ in range(3):
                assert (await ask(live, "off")).status_code == 200
            assert (len(one.requests), len(two.requests)) == (1, 3)
            held.cancel()
            await asyncio.wait([held])


@row(101)
@each_way
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "insufficient_quota"),
        (403, "insufficient_quota"),
        (404, "model_not_found"),
        (429, "insufficient_quota"),
    ],
)
async def test_a_spent_account_or_a_missing_model_may_be_anothers_luck(data, way, status, code):
    async def spent(seen, wire):
        await wire.json({"error": {"message": "no", "type": "t", "code": code}}, status)

    async with (
        Played(spent) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        answer = await ask(live, way)
        assert (answer.status_code, len(one.requests), len(two.requests)) == (200, 1, 1)


@row(101)
async def test_whether_such_refusals_go_elsewhere_is_the_operators_to_say(data):
    async def missing(seen, wire):
        await wire.json({"error": {"message": "no", "type": "t", "code": "model_not_found"}}, 404)

    async with Played(missing) as one, Played(fine) as two:
        async with running(one.url, data, first_of(one, two, failover_codes=[])) as live:
            assert (await ask(live, "off")).status_code == 404
            assert not two.requests


@row(100)
async def test_what_an_upstream_says_is_in_vain_goes_nowhere_else(data):
    async with (
        Played(says(429, "x-should-retry: false")) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        assert (await ask(live, "off")).status_code == 429
        assert not two.requests


@row(102)
@pytest.mark.parametrize("retries", [0, 1, 2, 5])
async def test_over_several_targets_attempts_keep_to_the_total(data, retries):
    async with (
        Played(reset) as one,
        Played(says(503)) as two,
        running(one.url, data, first_of(one, two, retries=retries)) as live,
    ):
        assert (await ask(live, "full")).status_code in (502, 503)
        assert len(one.requests) + len(two.requests) == retries + 1
        assert bool(two.requests) == (retries > 0)


@row(109)
async def test_after_a_round_has_begun_with_one_target_a_failing_next_round_may_go_to_another(data):
    def remembers(seen, wire):
        return wire.json(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [
                                {
                                    "id": "c1",
                                    "type": "function",
                                    "function": {
                                        "name": "core_memory_append",
                                        "arguments": '{"label": "human", "content": "Ada"}',
                                    },
                                }
                            ],
                        },
                    }
                ],
            }
        )

    async with (
        Played(remembers, says(500)) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two)) as live,
    ):
        answer = await live.chat("I am Ada", {"x-memory-user": "ada"})
        assert (
            answer.json()["choices"][0]["message"]["content"],
            answer.headers["x-mnemogate-upstream"],
            answer.headers["x-mnemogate-attempts"],
        ) == ("fine", "two/m", "3")
        assert [m["role"] for m in two.requests[0].json["messages"]][-2:] == ["assistant", "tool"]


async def test_a_reload_keeps_rests_and_takes_new_rules(data):
    # Longer than any of this takes.
    rest = {"failures": 3, "window": 600, "seconds": 600}
    async with (
        Played(says(500)) as one,
        Played(fine) as two,
        running(one.url, data, first_of(one, two, cooldown=rest)) as live,
    ):
        for _ in range(3):
            await ask(live, "off")
        wanted = load(
            None,
            {},
            {
                "storage.data": str(data),
                "storage.vectors": "none",
                "upstream": one.url,
                **first_of(one, two, cooldown=rest, failover_codes=["x"]),
            },
        )
        live.app.reload(wanted)
        await ask(live, "off")
        assert len(one.requests) == 3
        assert live.gateway.choice.rules.failover_codes == ("x",)


async def test_a_reload_leaves_the_rules_of_requests_under_way_alone(data):
    reached, go = asyncio.Event(), asyncio.Event()

    async def fails_late(seen, wire):
        reached.set()
        await go.wait()
        await wire.json(ERROR, 503, "retry-after-ms: 1")

    async with (
        Played(fails_late, fine) as up,
        running(up.url, data, {"routing.retries": 1}) as live,
    ):
        asked = asyncio.ensure_future(ask(live, "off"))
        await reached.wait()
        live.app.reload(
            load(
                None,
                {},
                {
                    "storage.data": str(data),
                    "storage.vectors": "none",
                    "upstream": up.url,
                    "routing": {"retries": 0, "failover_codes": []},
                },
            )
        )
        go.set()
        assert (await asked).status_code == 200
        assert live.gateway.choice.rules.failover_codes == ()


async def test_weights_are_proportions_however_small():
    choice, route = choice_of()
    tier = tuple(replace(t, weight=t.weight / 1e6) for t in route.targets)
    picks = Counter(
        [
            (await choice.candidates(replace(route, tiers=(tier,)), "", b""))[0].target.provider
            for _ in range(5_000)
        ]
    )
    assert [round(picks[n] / 5_000, 1) for n in "abc"] == [0.5, 0.3, 0.2]
