"""Who is tried first, who rests, and what a try tells of its target."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from gateway.config.settings import ProviderSettings, RoutingSettings
from gateway.errors import BadRequest, UpstreamRefused, UpstreamTimeout, UpstreamUnreachable
from gateway.routing import selector as selecting
from gateway.routing.cooldowns import CooldownPolicy, LocalCooldowns
from gateway.routing.router import Route, Target
from gateway.routing.selector import LONGEST_REST, TargetSelector, weighted_shuffle

SETTINGS = ProviderSettings(base_url="http://up/v1")


def target(name, weight=1.0, concurrent=0):
    return Target(name, "m", None, SETTINGS, weight, concurrent)


A, B, C = target("a"), target("b"), target("c")
TIERS = Route(((A,), (B,), (C,)), "m")
ONE_TIER = Route(((A, B, C),), "m")


class Clock:
    """The time of the selector and of its cooldowns."""

    def __init__(self):
        self.now = time.monotonic()

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(selecting, "time", found)
    return found


@pytest.fixture
def cooldowns(clock):
    return LocalCooldowns(CooldownPolicy(2, 30, 30), clock.monotonic)


def choosing(cooldowns, **rules):
    return TargetSelector(cooldowns, RoutingSettings(**rules))


@pytest.fixture
def selector(cooldowns):
    return choosing(cooldowns)


async def order(selector, route=TIERS, account="", conversation=b""):
    return [c.target.provider for c in await selector.candidates(route, account, conversation)]


async def attempt(selector, wanted, account="", *, alone=False):
    found = await selector.candidates(Route(((wanted,),), "m"), account, b"")
    return await selector.start_attempt(found[0], account, alone=alone)


def refused(status, *headers):
    return UpstreamRefused(status, b"{}", list(headers))


async def fail(selector, wanted, error=None, account=""):
    trial = await attempt(selector, wanted, account, alone=True)
    await trial.fail(error or UpstreamUnreachable("refused"))


async def test_targets_come_before_their_fallbacks(selector):
    assert await order(selector) == ["a", "b", "c"]


async def test_what_failed_too_often_comes_last(selector):
    await fail(selector, A)
    assert await order(selector) == ["a", "b", "c"]
    await fail(selector, A)
    assert await order(selector) == ["b", "c", "a"]


async def test_what_rests_on_its_own_word_is_left_alone_while_another_is_there(selector):
    await fail(selector, A, refused(503, (b"retry-after", b"20")))
    assert await order(selector) == ["b", "c"]
    assert await order(selector, Route(((A,),), "m")) == ["a"]


async def test_where_all_rest_the_one_that_recovers_soonest_is_tried(selector):
    for wanted, seconds in ((A, b"30"), (B, b"10"), (C, b"20")):
        await fail(selector, wanted, refused(429, (b"retry-after", seconds)))
    assert (await order(selector))[0] == "b"


async def test_no_word_of_an_upstream_lasts_for_ever(selector, clock):
    await fail(selector, A, refused(429, (b"retry-after", b"999999")))
    clock.now += LONGEST_REST + 1
    assert (await order(selector))[0] == "a"


async def test_a_429_of_one_account_rests_the_target_for_that_account_alone(selector):
    await fail(selector, A, refused(429, (b"retry-after", b"20")), account="own-1")
    assert await order(selector, account="own-1") == ["b", "c"]
    assert await order(selector, account="own-2") == ["a", "b", "c"]


async def test_a_503_of_one_account_is_about_the_target(selector):
    await fail(selector, A, refused(503, (b"retry-after", b"20")), account="own-1")
    assert await order(selector, account="own-2") == ["b", "c"]


@pytest.mark.parametrize(
    "error",
    [refused(400), refused(404), BadRequest("no"), UpstreamTimeout("t", code="total_timeout")],
)
async def test_a_requests_own_fault_is_no_verdict(selector, error):
    for _ in range(5):
        await fail(selector, A, error)
    assert await order(selector) == ["a", "b", "c"]


async def test_after_its_rest_one_request_tries_it(selector, clock):
    await fail(selector, A)
    await fail(selector, A)
    clock.now += 31
    first = await attempt(selector, A)
    assert first is not None
    assert await attempt(selector, A) is None
    assert await order(selector) == ["b", "c", "a"]
    assert await attempt(selector, A, alone=True) is not None
    await first.succeed()
    assert await order(selector) == ["a", "b", "c"]


async def test_a_probe_that_fails_rests_it_again(selector, clock):
    await fail(selector, A)
    await fail(selector, A)
    clock.now += 31
    await fail(selector, A)
    assert await order(selector) == ["b", "c", "a"]


async def test_a_probe_that_is_abandoned_tells_nothing(selector, clock):
    await fail(selector, A)
    await fail(selector, A)
    clock.now += 31
    await (await attempt(selector, A)).abandon()
    assert await attempt(selector, A) is not None


async def test_what_has_no_free_place_comes_after_what_has_one(selector):
    full = target("full", concurrent=1)
    route = Route(((full,), (B,)), "m")
    assert await order(selector, route) == ["full", "b"]
    await selector.slots.take(full, 1.0)
    assert await order(selector, route) == ["b", "full"]


async def test_a_sticky_conversation_stays_with_its_target(cooldowns):
    selector = choosing(cooldowns, sticky=True)
    conversations = [str(i).encode() for i in range(60)]
    firsts = [(await order(selector, ONE_TIER, conversation=c))[0] for c in conversations]
    again = [(await order(selector, ONE_TIER, conversation=c))[0] for c in conversations]
    assert firsts == again
    assert set(firsts) == {"a", "b", "c"}


async def test_a_target_less_moves_only_its_own_conversations(cooldowns):
    selector = choosing(cooldowns, sticky=True)
    fewer = Route(((A, B),), "m")
    for i in range(60):
        conversation = str(i).encode()
        before = (await order(selector, ONE_TIER, conversation=conversation))[0]
        after = (await order(selector, fewer, conversation=conversation))[0]
        assert before in (after, "c")


async def test_the_quickest_comes_first_once_all_were_seen(cooldowns, clock):
    selector = choosing(cooldowns, choice="least_latency")
    seen = {(await order(selector, ONE_TIER))[0] for _ in range(3)}
    assert seen == {"a", "b", "c"}
    for wanted, seconds in ((A, 0.3), (B, 0.1), (C, 0.2)):
        selector.record_latency(wanted.label, seconds)
    assert await order(selector, ONE_TIER) == ["b", "c", "a"]
    clock.now += selecting.FRESH + 1
    assert (await order(selector, ONE_TIER))[0] == "b"
    assert (await order(selector, ONE_TIER))[0] == "c"


def test_weights_are_chances():
    import random

    dice = random.Random(7)
    tier = [target("heavy", 3.0), target("light", 1.0)]
    firsts = Counter(
        weighted_shuffle(tier, lambda _: dice.random())[0].provider for _ in range(4000)
    )
    assert firsts["heavy"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_the_smallest_weights_still_have_an_order():
    tier = [target("x", 1e-300), target("y", 1.0)]
    assert [t.provider for t in weighted_shuffle(tier, lambda _: 0.5)] == ["y", "x"]


async def test_a_reload_changes_the_rules_of_new_requests_alone(selector):
    other = selector.with_rules(RoutingSettings(sticky=True))
    assert (selector.rules.sticky, other.rules.sticky) == (False, True)
    assert other.slots is selector.slots
    assert other.cooldowns is selector.cooldowns
