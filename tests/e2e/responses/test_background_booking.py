"""What a response in the background cost is booked when it is known, and once."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from gateway.chat.stored import background_booking
from gateway.limits.limiter import KeyQuota
from tests.conftest import running
from tests.e2e import test_fit_of_formats as fit
from tests.e2e.responses.asking import ask
from tests.e2e.responses.test_owners import ADA
from tests.models import USAGE as SUMMARY_USED
from tests.models import Model
from tests.sockets import within
from tests.wire_models import USAGE, ResponsesModel

KEY = {
    "name": "k",
    "key": "key-k-aaaaaaaaaaaaaaaaaa",
    "tenant": "t",
    "budget": {"usd": 100.0, "period": "month"},
}
# USD a million tokens: of a thousand, 1 USD.
PRICE = {"input": 1000.0, "output": 1000.0}
USED = (USAGE["input_tokens"] + USAGE["output_tokens"]) / 1000
# At least: for the output that a request may have.
RESERVED = 1.0


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
        # Booked once, however often it is seen, and by whom at once.
        for _ in range(3):
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
        assert await booked_in(live)
        assert await spent(live) == (pytest.approx(USED), pytest.approx(USED))
        assert await pending(live) == 0


async def records(live):
    await live.gateway.memory.wait_until_ready()
    await live.gateway.usage.flush()
    columns = "input, output, cost, estimated"
    query = text(f"SELECT {columns} FROM usage WHERE path = '/responses' ORDER BY id")
    rows = await live.gateway.memory.db.read(lambda conn: conn.execute(query).all(), 2.0)
    return [tuple(row) for row in rows]


async def pending(live):
    """How many rows are left to book."""
    query = text("SELECT count(*) FROM meta WHERE name LIKE 'booking %'")
    return await live.gateway.memory.db.read(lambda conn: conn.execute(query).scalar(), 2.0)


async def booked_in(live, seconds=10.0):
    """Whether all records become final in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(row[3] for row in await records(live)) and not await pending(live):
            return True
        await asyncio.sleep(0.05)
    return False


FINAL = (USAGE["input_tokens"], USAGE["output_tokens"], pytest.approx(USED), 0)
NOBODY: dict[str, str] = {}
SAYS = {"a user": ADA, "nobody": NOBODY}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("whose", SAYS)
async def test_a_booking_is_taken_up_after_a_restart(data, monkeypatch, mode, whose, stream):
    """Nobody ever asks for the response: the credential is the provider's key."""
    headers = {**SAYS[whose], "x-memory": mode}
    body = {"model": "m", "input": "Hi", "background": True, "stream": stream}
    async with Background("Yes.") as up:
        async with running("", data, config(up.url), key=KEY["key"]) as live:
            url = f"{live.url}/responses"
            # The client leaves after the first event.
            if stream:
                async with live.http.stream("POST", url, json=body, headers=headers) as answer:
                    assert await anext(answer.aiter_raw())
            else:
                assert (await live.http.post(url, json=body, headers=headers)).status_code == 200
            await spent(live)
            assert await pending(live) == 1
        up.finished = True
        monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
        async with running("", data, config(up.url), key=KEY["key"]) as live:
            await live.gateway.memory.wait_until_ready()
            assert await booked_in(live)
            assert await records(live) == [FINAL]
            assert (await spent(live))[1] == pytest.approx(USED)


class Unmentioned(Background):
    """One that does not tell that it stores."""

    def reply(self, parts, body):
        return {k: v for k, v in super().reply(parts, body).items() if k not in ("store",)}


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_server_that_does_not_tell_store_is_asked_all_the_same(data, monkeypatch, mode):
    monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
    headers = {**ADA, "x-memory": mode}
    async with Unmentioned("Yes.") as up, running("", data, config(up.url), key=KEY["key"]) as live:
        await ask(live, "Hi", headers=headers, background=True)
        assert await pending(live) == 1
        up.finished = True
        assert await booked_in(live)
        assert await records(live) == [FINAL]


KEYS = {
    "no limits": {},
    "only rpm": {"limits": {"rpm": 100}},
    "a budget": {"budget": KEY["budget"]},
}


@pytest.mark.parametrize("limits", KEYS)
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_an_estimate_is_the_reservation_whatever_the_key_is_limited_by(data, mode, limits):
    key = {k: v for k, v in KEY.items() if k != "budget"} | KEYS[limits]
    headers = {**ADA, "x-memory": mode}
    async with Background("Yes.") as up:
        async with running("", data, config(up.url) | {"keys": [key]}, key=KEY["key"]) as live:
            await ask(live, "Hi", headers=headers, background=True, max_output_tokens=5000)
            [(read, written, cost, estimated)] = await records(live)
            assert estimated
            assert written == 5000
            assert read > 0
            assert cost == pytest.approx((read + written) / 1000)


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_the_token_window_is_corrected_with_the_record(data, mode):
    key = {k: v for k, v in KEY.items() if k != "budget"} | {"limits": {"tpm": 100_000}}
    headers = {**ADA, "x-memory": mode}
    async with Background("Yes.") as up:
        async with running("", data, config(up.url) | {"keys": [key]}, key=KEY["key"]) as live:
            # Else it is booked later.
            await live.gateway.memory.wait_until_ready()
            shown, _ = await ask(
                live, "Hi", headers=headers, background=True, max_output_tokens=60_000
            )
            window = live.gateway.limits._counters._windows["k"]
            assert window.tokens > 60_000
            up.finished = True
            url = f"{live.url}/responses/{shown['id']}"
            for _ in range(3):
                assert (await live.http.get(url, headers=headers)).json()["status"] == "completed"
            assert window.tokens == sum(bucket[2] for bucket in window.buckets)
            assert window.tokens == USAGE["input_tokens"] + USAGE["output_tokens"]


HIS = {"authorization": "Bearer sk-of-the-tenant", **ADA}


def own_config(url):
    providers = {"main": {"base_url": url}}
    return {"server.single_user": False, "providers": providers, "models": MODELS}


MODELS = {"m": {"targets": [{"provider": "main"}], "price": PRICE}}


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_with_own_keys_the_next_request_of_the_tenant_books(data, monkeypatch, mode):
    monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
    headers = {**HIS, "x-memory": mode}
    async with Background("Yes.") as up:
        async with running("", data, own_config(up.url), key="") as live:
            await ask(live, "Hi", headers=headers, background=True)
        up.finished = True
        async with running("", data, own_config(up.url), key="") as live:
            await live.gateway.memory.wait_until_ready()
            bookings = live.gateway.process.bookings
            assert await within(5, lambda: bookings.tenants_without_key)
            looks = len(up.requests)
            stranger = {**headers, "authorization": "Bearer sk-of-another"}
            await ask(live, "Hello", headers=stranger)
            await asyncio.sleep(0.5)
            assert [r.path for r in up.requests[looks:] if r.method == "GET"] == []
            assert await pending(live) == 1
            await ask(live, "I am back", headers=headers)
            assert await booked_in(live)
            gets = [r for r in up.requests[looks:] if r.method == "GET"]
            assert {dict(r.headers)["authorization"] for r in gets} == {HIS["authorization"]}
            assert not bookings.tenants_without_key
        raw = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
        assert b"sk-of-the-tenant" not in raw


DAY = 24 * 60 * 60


async def test_after_a_day_the_reservation_counts_as_spent(data, monkeypatch):
    """A minute before the day is over it is asked for all the same."""
    ahead = [DAY - 60]
    clock = SimpleNamespace(time=lambda: time.time() + ahead[0])
    async with Background("Yes.") as up:
        async with running("", data, config(up.url), key=KEY["key"]) as live:
            await ask(live, "Hi", headers=ADA, background=True)
            reserved = (await spent(live))[1]
        monkeypatch.setattr(background_booking, "time", clock)
        monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
        looks = len(up.requests)
        async with running("", data, config(up.url), key=KEY["key"]) as live:
            await live.gateway.memory.wait_until_ready()
            assert await within(5, lambda: len(up.requests) > looks)
            assert await pending(live) == 1
            ahead[0], looks = DAY + 60, len(up.requests)
            live.gateway.process.bookings.change_event.set()
            until = time.monotonic() + 5
            while await pending(live) and time.monotonic() < until:
                await asyncio.sleep(0.05)
            assert await pending(live) == 0
            assert (await spent(live))[1] == pytest.approx(reserved)
            assert len(up.requests) == looks


async def test_who_deletes_a_response_has_paid_for_it(data):
    async with Background("Yes.") as up, running("", data, config(up.url), key=KEY["key"]) as live:
        shown, _ = await ask(live, "Hi", headers=ADA, background=True)
        up.finished = True
        url = f"{live.url}/responses/{shown['id']}"
        assert (await live.http.delete(url, headers=ADA)).json()["deleted"]
        assert await records(live) == [FINAL]
        assert await pending(live) == 0


async def test_of_two_workers_one_asks(data):
    async with Background("Yes.") as up, running("", data, config(up.url), key=KEY["key"]) as live:
        await ask(live, "Hi", headers=ADA, background=True)
        await spent(live)
        bookings = live.gateway.process.bookings
        [row] = await bookings.read_page("")
        claims = await asyncio.gather(*(bookings.claim(row, row.due + 60 + i) for i in range(5)))
        assert claims.count(True) == 1
        [claimed] = await bookings.read_page("")
        assert claimed.due > row.due + 59
        assert claimed.response == row.response
        assert "user" not in claimed.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("whose", ["managed", "own"])
async def test_a_request_without_a_model_is_booked_as_well(data, monkeypatch, stream, whose):
    """Its provider knows the model, by a stored prompt; the client never looks again."""
    body = {"prompt": {"id": "pmpt_1"}, "input": "Hi", "background": True, "stream": stream}
    fenced = {k: v for k, v in KEY.items() if k != "budget"} | {"paths": ["/v1/*"]}

    class Prompted(Background):
        def reply(self, parts, body):
            return super().reply(parts, {"model": "m-1", **body})

    async with Prompted("Yes.") as up:
        provider, key = {"base_url": up.url, "api_key": "sk-operator"}, KEY["key"]
        settings = {"providers": {"main": provider}, "keys": [fenced]}
        if whose == "own":
            settings, key = {"providers": {"main": {"base_url": up.url}}}, "sk-mine"
        async with running("", data, settings, key=key) as live:
            # Else it is booked later.
            await live.gateway.memory.wait_until_ready()
            http = await live.http.post(f"{live.url}/responses", json=body, headers=ADA)
            assert http.status_code == 200, http.text
            [(*_, estimated)] = await records(live)
            assert estimated, "what goes on is not known yet"
            assert await pending(live) == 1
            up.finished = True
            monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
            live.gateway.process.bookings.change_event.set()
            assert await booked_in(live)
            [(read, written, _, estimated)] = await records(live)
            assert (read, written) == (USAGE["input_tokens"], USAGE["output_tokens"])
            assert not estimated


async def test_what_a_summary_used_stays_booked_beside_the_answer(data, monkeypatch):
    """A turn in the background whose history was summarised first: all of it counts, once."""
    monkeypatch.setattr(background_booking, "FIRST_SECONDS", 0.1)
    async with Background("Yes.") as up, Model("Old turns.") as summariser:
        found = config(up.url)
        found["providers"]["main"]["wires"] = ["responses"]
        found["providers"]["sum"] = {"base_url": summariser.url, "api_key": "sk-operator"}
        found["models"]["m"]["context_window"] = fit.WINDOW
        found["models"]["s"] = {"targets": [{"provider": "sum"}], "price": PRICE}
        found["memory"] = {"summarizer": "s"}
        async with running("", data, found, key=KEY["key"]) as live:
            shown, _ = await ask(live, fit.items(6), headers=ADA, background=True)
            assert shown["status"] == "queued"
            calls = len(summariser.bodies)
            assert calls, "nothing was summarised"
            [(read, written, _, estimated)] = await records(live)
            assert estimated
            up.finished = True
            assert await booked_in(live)
            [(read, written, cost, _)] = await records(live)
            assert read == USAGE["input_tokens"] + calls * SUMMARY_USED["prompt_tokens"]
            assert written == USAGE["output_tokens"] + calls * SUMMARY_USED["completion_tokens"]
            assert cost == pytest.approx((read + written) / 1000)
            assert (await spent(live))[0] == pytest.approx(cost)
