"""A request's books: admitted before it begins, settled once, written down whatever happens."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from gateway.accounting import LEASE_MARGIN, USUAL_OUTPUT, RequestAccount
from gateway.config.settings import Price
from gateway.errors import Forbidden, RateLimited, Unavailable, UpstreamRefused
from gateway.http.asgi import ClientLeft
from gateway.limits.limiter import KeyQuota
from gateway.routing.caller import Caller
from gateway.telemetry.metrics import Metrics
from gateway.usage.log import UsageRecord
from gateway.usage.meter import Meter
from gateway.wire.sse import SseFramer

QUOTA = [(b"x-ratelimit-limit-requests", b"1")]
CHEAP = SimpleNamespace(label="p/cheap", model="cheap", price=Price(input=1, output=2))
DEAR = SimpleNamespace(label="p/dear", model="dear", price=Price(input=10, output=20))
UNKNOWN = SimpleNamespace(label="p/unknown", model="unknown", price=None)


class Route(SimpleNamespace):
    @property
    def targets(self):
        return [t for tier in self.tiers for t in tier]


class Limits:
    """Admits, or refuses; keeps what it was asked."""

    refuses = None

    def __init__(self):
        self.asked, self.settled = [], []

    async def admit(self, quota, tokens, usd, lease):
        if self.refuses is not None:
            raise self.refuses
        self.asked.append((tokens, usd, lease))
        return SimpleNamespace(headers=lambda: QUOTA, hold=None)

    async def settle(self, ticket, tokens, usd):
        self.settled.append((tokens, usd))


class Log(list):
    add = list.append


@pytest.fixture
async def account():
    forward = SimpleNamespace(
        meter=Meter(100),
        route=Route(tiers=((CHEAP, DEAR),), name="m"),
        deadline=asyncio.get_running_loop().time() + 40,
        served=CHEAP,
        last_target=CHEAP,
        attempts=1,
        caller=Caller(),
    )
    record = UsageRecord("req_1", 0.0, "acme", "ada", "app", "m", "", "/x", "full", 0.0, 0)
    return RequestAccount(forward, record, 0.0, Limits(), Log(), KeyQuota("app", rpm=1), Metrics())


def unlimited(account):
    account.allowance = KeyQuota("app")
    return account


async def producer():
    return "the producer"


async def finished(account, error=None, memory="ok"):
    if (rest := account.on_finish(memory, error)) is not None:
        await rest
    (record,) = account.usage
    return record


async def test_an_unlimited_request_is_never_waited_for(account):
    assert await unlimited(account).begin(producer) == ("the producer", [])
    account.on_first_byte(200, committed=False)
    assert account.on_finish("ok", None) is None
    assert account.limits.asked == account.limits.settled == []
    assert [r.status for r in account.usage] == [200]


async def test_a_request_is_admitted_before_its_work_begins(account):
    async def begun():
        assert len(account.limits.asked) == 1
        return "the producer"

    assert await account.begin(begun) == ("the producer", QUOTA)
    ((tokens, usd, lease),) = account.limits.asked
    assert tokens == 100 + USUAL_OUTPUT
    assert usd == pytest.approx((100 * 10 + USUAL_OUTPUT * 20) / 1e6)
    assert lease == pytest.approx(40 + LEASE_MARGIN, abs=1)


async def test_it_reserves_what_its_answer_may_have(account):
    account.output = 7
    await account.begin(producer)
    assert account.limits.asked[0][0] == 107


async def test_what_is_not_billed_by_tokens_reserves_none(account):
    account.forward.meter.guess = None
    await account.begin(producer)
    assert account.limits.asked[0][:2] == (0, 0.0)


async def test_it_is_settled_on_what_was_used(account):
    await account.begin(producer)
    account.forward.meter.record_call(CHEAP, SseFramer())
    account.forward.meter.record_usage({"prompt_tokens": 50, "completion_tokens": 5})
    record = await finished(account)
    assert account.limits.settled == [(55, pytest.approx(60e-6))]
    assert (record.input, record.output, record.target, record.attempts) == (50, 5, "p/cheap", 1)


async def test_a_refused_request_is_written_down_and_no_work_begins(account):
    account.limits.refuses = RateLimited("too many")

    async def never():
        raise AssertionError

    with pytest.raises(RateLimited):
        await account.begin(never)
    assert [(r.status, r.code) for r in account.usage] == [(429, "rate_limit_exceeded")]
    assert account.limits.settled == []


async def test_work_that_cannot_begin_gives_back_what_was_reserved(account):
    async def failing():
        raise Unavailable("no store")

    with pytest.raises(Unavailable):
        await account.begin(failing)
    assert account.limits.settled == [(0, 0.0)]
    assert [r.status for r in account.usage] == [503]


async def test_so_does_work_whose_client_leaves_meanwhile(account):
    begun = asyncio.Event()

    async def slow():
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(account.begin(slow))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert account.limits.settled == [(0, 0.0)]
    assert [(r.status, r.code) for r in account.usage] == [(499, "client_left")]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, (200, None)),
        (ClientLeft(), (499, "client_left")),
        (asyncio.CancelledError(), (499, "client_left")),
        (ValueError(), (500, "internal_error")),
        (Unavailable("later", code="full"), (503, "full")),
        (UpstreamRefused(429, b'{"error": {"code": "quota"}}', []), (429, "quota")),
    ],
)
async def test_how_it_ended_is_written_down(account, error, told):
    record = await finished(unlimited(account), error)
    assert (record.status, record.code) == told


async def test_the_first_byte_counts_and_a_mere_comment_does_not(account):
    unlimited(account).on_first_byte(200, committed=True)
    assert account.record.first_token_ms is None
    account.on_first_byte(201, committed=False)
    assert account.record.first_token_ms > 0
    assert (await finished(account)).status == 201


@pytest.mark.parametrize(("own", "kept"), [("own-1", 0), ("", 1)])
async def test_nothing_is_written_of_a_clients_own_refused_credential(account, own, kept):
    unlimited(account).forward.caller = Caller(account=own)
    account.on_finish("ok", UpstreamRefused(401, b"{}", []))
    assert len(account.usage) == kept


async def test_a_budget_leaves_only_targets_whose_price_is_known(account):
    from gateway.routing.router import Route as RealRoute

    account.allowance = KeyQuota("app", usd=1)
    account.forward.route = RealRoute(((UNKNOWN, CHEAP), (UNKNOWN,)), "m")
    await account.begin(producer)
    assert account.forward.route.tiers == ((CHEAP,),)

    account.usage.clear()
    account.forward.route = RealRoute(((UNKNOWN,),), "m")
    with pytest.raises(Forbidden) as met:
        await account.begin(producer)
    assert met.value.code == "price_unknown"
