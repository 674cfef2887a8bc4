"""Limits and budgets of keys, as a client sees them: what is refused, what the refusal says, and
when a period begins.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

from gateway.errors import BudgetSpent, RateLimited
from gateway.limits.counters import LocalCounters
from gateway.limits.limiter import KeyQuota, Limiter, duration, span

NOON = datetime(2026, 11, 18, 12, 30, tzinfo=UTC).timestamp()


class Clock:
    now = NOON

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limits(clock):
    return Limiter(LocalCounters(clock), clock=clock)


async def refusal(limits, allowance, tokens=0, usd=0.0):
    with pytest.raises(RateLimited) as caught:
        await limits.admit(allowance, tokens, usd, 60)
    return caught.value, dict(caught.value.headers)


async def test_a_key_without_limits_is_not_counted(limits):
    free = KeyQuota("app")
    assert not free.limited
    ticket = await limits.admit(free, 10**9, 10**9, 60)
    assert ticket.headers() == []
    await limits.settle(ticket, 10**9, 10**9)
    await limits.seed(free, 3)
    paced = KeyQuota("app", rpm=1)
    await limits.settle(await limits.admit(paced, 0, 1, 60), 0, 1)
    assert [await limits.spent_this_period(a) for a in (free, paced)] == [0, 0]


async def test_a_request_is_told_what_is_left(limits, clock):
    allowance = KeyQuota("app", rpm=10, tpm=1000)
    await limits.admit(allowance, 300, 0, 60)
    clock.now += 0.25
    ticket = await limits.admit(allowance, 300, 0, 60)
    assert dict(ticket.headers()) == {
        b"x-ratelimit-limit-requests": b"10",
        b"x-ratelimit-remaining-requests": b"8",
        b"x-ratelimit-reset-requests": b"1m1s",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"400",
        b"x-ratelimit-reset-tokens": b"1m1s",
    }
    assert dict((await limits.admit(KeyQuota("other", rpm=1), 0, 0, 60)).headers()).keys() == {
        b"x-ratelimit-limit-requests",
        b"x-ratelimit-remaining-requests",
        b"x-ratelimit-reset-requests",
    }


async def test_a_refusal_names_the_limit_its_value_and_when_to_come_back(limits, clock):
    allowance = KeyQuota("app", rpm=2)
    await limits.admit(allowance, 0, 0, 60)
    clock.now += 20
    await limits.admit(allowance, 0, 0, 60)
    clock.now += 1.75
    error, headers = await refusal(limits, allowance)
    assert (error.status, error.type, error.code, error.param) == (
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
        None,
    )
    assert (
        error.message
        == "The key 'app' has reached its limit of 2 requests per minute (rpm). Try again in "
        "40s, or have the limit raised."
    )
    assert headers == {
        b"retry-after": b"40",
        b"retry-after-ms": b"39250",
        b"x-ratelimit-limit-requests": b"2",
        b"x-ratelimit-remaining-requests": b"0",
        b"x-ratelimit-reset-requests": b"59.3s",
    }
    clock.now += 39.125
    assert (await refusal(limits, allowance))[1][b"retry-after"] == b"1"
    clock.now += 0.125
    assert await limits.admit(allowance, 0, 0, 60)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"tpm": 7}, "7 tokens per minute (tpm)"),
        ({"concurrent": 1}, "1 requests at the same time (concurrent)"),
        (
            {"usd": 0.5, "period": "day"},
            "0.5 USD per day, which is reserved for requests still running",
        ),
    ],
)
async def test_every_limit_names_itself(limits, limit, says):
    await limits.admit(KeyQuota("app", **limit), 7, 0.5, 60)
    error, headers = await refusal(limits, KeyQuota("app", **limit), 7, 0.5)
    assert f"has reached its limit of {says}. Try again in" in error.message
    assert not isinstance(error, BudgetSpent)
    assert b"x-should-retry" not in headers
    assert int(headers[b"retry-after"]) >= 1


@pytest.mark.parametrize("limit", [{"rpm": 1}, {"tpm": 5}])
async def test_a_wait_of_ours_never_exceeds_its_window(limits, clock, limit):
    allowance = KeyQuota("app", **limit)
    await limits.admit(allowance, 5, 0, 60)
    error, headers = await refusal(limits, allowance, 5)
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == (b"60", b"60000")
    assert "Try again in 1m0s" in error.message


async def test_tokens_are_waited_for_until_this_request_fits(limits, clock):
    allowance = KeyQuota("app", tpm=100)
    for _ in range(4):
        await limits.admit(allowance, 25, 0, 60)
        clock.now += 10
    assert (await refusal(limits, allowance, 25))[1][b"retry-after"] == b"21"
    assert (await refusal(limits, allowance, 26))[1][b"retry-after"] == b"31"
    assert (await refusal(limits, allowance, 10**6))[1][b"retry-after"] == b"51"


async def test_an_estimate_above_the_limit_runs_alone(limits, clock):
    allowance = KeyQuota("app", tpm=100, usd=0.01)
    ticket = await limits.admit(allowance, 5000, 3.0, 60)
    await refusal(limits, allowance, 1, 0.0)
    await limits.settle(ticket, 90, 0.004)
    assert await limits.spent_this_period(allowance) == 0.004
    await limits.admit(allowance, 10, 0.006, 60)


async def test_a_spent_budget_is_final_until_its_period_ends(limits, clock):
    allowance = KeyQuota("app", usd=2, period="day")
    await limits.settle(await limits.admit(allowance, 0, 1.0, 60), 0, 2.5)
    error, headers = await refusal(limits, allowance, 0, 0.1)
    assert isinstance(error, BudgetSpent)
    assert json.loads(error.body())["error"] == {
        "message": "The key 'app' has spent 2.5 of its budget of 2 USD per day. Its next "
        "period begins in 11h30m0s; have the budget raised to continue now.",
        "type": "insufficient_quota",
        "param": None,
        "code": "insufficient_quota",
    }
    assert error.status == 429
    assert headers == {
        b"retry-after": b"41400",
        b"retry-after-ms": b"41400000",
        b"x-should-retry": b"false",
    }
    clock.now += 41400
    await limits.admit(allowance, 0, 0.1, 60)
    assert await limits.spent_this_period(allowance) == 0.1


async def test_what_is_left_of_a_budget_is_told_where_it_is_too_little_for_the_request(limits):
    allowance = KeyQuota("app", usd=2, period="day")
    await limits.settle(await limits.admit(allowance, 0, 1.0, 60), 0, 1.985)
    error, _ = await refusal(limits, allowance, 0, 0.0204)
    assert isinstance(error, BudgetSpent)
    assert str(error) == (
        "The key 'app' has spent 1.985 of its budget of 2 USD per day, and this request may "
        "cost 0.0204. Its next period begins in 11h30m0s; ask for fewer tokens (max_tokens) or "
        "have the budget raised to continue now."
    )


async def test_the_smallest_budget_is_one_all_the_same(limits):
    allowance = KeyQuota("app", usd=1e-12)
    await limits.settle(await limits.admit(allowance, 0, 1.0, 60), 0, 1e-6)
    assert isinstance((await refusal(limits, allowance))[0], BudgetSpent)


async def test_settling_twice_changes_nothing(limits):
    allowance = KeyQuota("app", tpm=100, concurrent=2, usd=1)
    ticket = await limits.admit(allowance, 50, 0.5, 60)
    await limits.admit(allowance, 10, 0.1, 60)
    for _ in range(3):
        await limits.settle(ticket, 20, 0.2)
    assert round(await limits.spent_this_period(allowance), 9) == 0.3
    assert (
        dict((await limits.admit(allowance, 0, 0, 60)).headers())[b"x-ratelimit-remaining-tokens"]
        == b"70"
    )
    await refusal(limits, allowance)


async def test_a_seed_counts_once_and_only_where_nothing_was_counted(limits, clock):
    allowance = KeyQuota("app", usd=10)
    await limits.seed(allowance, 4)
    await limits.seed(allowance, 4)
    assert await limits.spent_this_period(allowance) == 4
    late = KeyQuota("late", usd=10)
    await limits.admit(late, 0, 1, 60)
    await limits.seed(late, 4)
    assert await limits.spent_this_period(late) == 1


async def test_the_ledger_is_asked_once_a_period(clock):
    asked = []

    async def ledger(key, since):
        asked.append((key, datetime.fromtimestamp(since, UTC).isoformat()))
        await asyncio.sleep(0)
        return 9.5

    limits = Limiter(LocalCounters(clock), ledger, clock)
    allowance = KeyQuota("app", usd=10, period="week")
    await limits.admit(KeyQuota("app", rpm=10), 0, 0, 60)
    assert asked == []
    await limits.admit(allowance, 0, 0.25, 60)
    await limits.admit(allowance, 0, 0.25, 60)
    await refusal(limits, allowance, 0, 0.01)
    assert asked == [("app", "2026-11-16T00:00:00+00:00")]
    assert await limits.spent_this_period(allowance) == 10
    clock.now += 7 * 86400
    await limits.admit(allowance, 0, 0.5, 60)
    assert asked[1:] == [("app", "2026-11-23T00:00:00+00:00")]


@pytest.mark.parametrize(
    ("period", "at", "begins", "ends"),
    [
        ("hour", "2026-11-18T12:30:59", "2026-11-18T12", "2026-11-18T13"),
        ("hour", "2026-12-31T23:59:59", "2026-12-31T23", "2027-01-01T00"),
        ("day", "2026-11-18T00:00:00", "2026-11-18T00", "2026-11-19T00"),
        ("day", "2028-02-28T23:00:00", "2028-02-28T00", "2028-02-29T00"),
        ("week", "2026-11-16T00:00:00", "2026-11-16T00", "2026-11-23T00"),
        ("week", "2027-01-03T23:59:59", "2026-12-28T00", "2027-01-04T00"),
        ("month", "2026-01-31T23:59:59", "2026-01-01T00", "2026-02-01T00"),
        ("month", "2026-02-01T00:00:00", "2026-02-01T00", "2026-03-01T00"),
        ("month", "2028-02-29T12:00:00", "2028-02-01T00", "2028-03-01T00"),
        ("month", "2026-12-01T00:00:00", "2026-12-01T00", "2027-01-01T00"),
        ("month", "2026-04-30T10:00:00", "2026-04-01T00", "2026-05-01T00"),
    ],
)
def test_periods_are_those_of_the_calendar_in_utc(period, at, begins, ends):
    found = span(period, datetime.fromisoformat(at + "+00:00").timestamp())
    assert found.name == f"{period}-{begins}"
    assert [datetime.fromtimestamp(t, UTC) for t in found[1:]] == [
        datetime.fromisoformat(x + ":00:00+00:00") for x in (begins, ends)
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (1.2, "1.2s"),
        (1.21, "1.3s"),
        (59, "59s"),
        (60, "1m0s"),
        (60.2, "1m1s"),
        (360, "6m0s"),
        (3661, "1h1m1s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(seconds, text):
    assert duration(seconds) == text
