"""What a response in the background cost is booked when it is known, and once."""

from __future__ import annotations

import asyncio

import pytest

from gateway.chat import background_booking
from gateway.limits.limiter import KeyQuota
from tests.conftest import running
from tests.e2e.responses.asking import ask
from tests.e2e.responses.test_owners import ADA
from tests.sockets import within
from tests.wire_models import USAGE, ResponsesModel

KEY = {
    "name": "k",
    "key": "key-k-aaaaaaaaaaaaaaaaaa",
    "tenant": "t",
    "budget": {"usd": 100.0, "period": "month"},
}
PRICE = {"input": 1000.0, "output": 1000.0}  # USD a million tokens: of a thousand, 1 USD
USED = (USAGE["input_tokens"] + USAGE["output_tokens"]) / 1000
RESERVED = 1.0  # at least: for the output that a request may have


class Background(ResponsesModel):
    """One whose responses are finished when the test says so; then they tell their usage."""

    finished = False

    def reply(self, parts, body):
        found = super().reply(parts, body)
        if body.get("background"):
            found["usage"] = None
        return found

    async def serve_other(self, seen, wire):
        name = seen.path.partition("?")[0].partition("/responses/")[2].partition("/")[0]
        if self.finished and name in self.replies:
            self.replies[name] |= {"status": "completed", "usage": USAGE}
        return await super().serve_other(seen, wire)


def config(url):
    provider = {"base_url": url, "api_key": "sk-operator"}
    models = {"m": {"targets": [{"provider": "main"}], "price": PRICE}}
    return {"providers": {"main": provider}, "keys": [KEY], "models": models}


async def spent(live):
    """What the counter holds, and what a restart would find."""
    gateway = live.gateway
    await gateway.memory.wait_until_ready()
    principal = gateway.keys.caller({b"authorization": f"Bearer {KEY['key']}".encode()})
    quota = KeyQuota("k", usd=principal.budget.usd, period=principal.budget.period)
    return await gateway.limits.spent_this_period(quota), await gateway.usage.spent_since("k", 0)


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_reservation_is_kept_until_a_finished_response_is_seen(data, mode):
    headers = {**ADA, "x-memory": mode}
    async with Background("Yes.") as up, running("", data, config(up.url), key=KEY["key"]) as live:
        shown, _ = await ask(live, "Hi", headers=headers, background=True)
        url = f"{live.url}/responses/{shown['id']}"
        for _ in range(2):
            assert (await live.http.get(url, headers=headers)).json()["status"] == "queued"
            counted, recorded = await spent(live)
            assert counted >= RESERVED, "the budget forgot what runs"
            assert recorded == pytest.approx(counted)
        up.finished = True
        for _ in range(3):  # booked once, however often it is seen, and by whom at once
            found = await asyncio.gather(*(live.http.get(url, headers=headers) for _ in range(4)))
            assert {r.json()["status"] for r in found} == {"completed"}
            counted, recorded = await spent(live)
            assert counted == pytest.approx(USED)
            assert recorded == pytest.approx(USED)


async def test_it_is_booked_after_a_restart(data):
    async with Background("Yes.") as up:
        async with running("", data, config(up.url), key=KEY["key"]) as live:
            shown, _ = await ask(live, "Hi", headers=ADA, background=True)
            await spent(live)
        up.finished = True
        async with running("", data, config(up.url), key=KEY["key"]) as live:
            assert (await spent(live))[1] >= RESERVED
            await live.http.get(f"{live.url}/responses/{shown['id']}", headers=ADA)
            counted, recorded = await spent(live)
            assert recorded == pytest.approx(USED)
            assert counted in (0, pytest.approx(USED))


async def test_a_task_asks_where_the_client_never_does(data, monkeypatch):
    monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
    async with Background("Yes.") as up, running("", data, config(up.url), key=KEY["key"]) as live:
        await ask(live, "Hi", headers=ADA, background=True)
        assert (await spent(live))[0] >= RESERVED
        up.finished = True
        assert await within(10, lambda: not live.gateway.process.jobs)
        assert await spent(live) == (pytest.approx(USED), pytest.approx(USED))
