"""Degraded turns: told with their reason to whom they belong, and bounded in number."""

from __future__ import annotations

import time
from types import SimpleNamespace

from gateway.http.request_weight import MESSAGES
from gateway.telemetry.degraded import MAX_COUNTS, MAX_HELD, MAX_NAME_CHARACTERS, DegradedTurns
from memory import StoreUnavailable
from tests.conftest import SENTINEL_KEY
from tests.gateway.management.managing import as_key
from tests.gateway.ui.looking import shown, words

DOWN, MENDS = "The memory store is down", "mnemogate doctor"
UNAVAILABLE = "the memory store is unavailable"


def request(number, user="ada", tenant="acme", at=1.0, model="m"):
    return SimpleNamespace(
        request_id=f"req_{number}", created_at=at, tenant=tenant, user=user, model=model
    )


def everything(_):
    return True


def test_the_newest_are_held_and_no_more():
    held = DegradedTurns()
    for number in range(MAX_HELD + 5):
        held.note(request(number, model="x" * 9999), "down")
    found = held.list_since(0.0, everything)
    assert [found[0].request_id, found[-1].request_id] == [f"req_{MAX_HELD + 4}", "req_5"]
    assert len(found) == MAX_HELD
    assert len(found[0].model) == MAX_NAME_CHARACTERS


def test_an_erased_users_name_goes_from_turns_that_end_later_too():
    held = DegradedTurns()
    held.note(request(1), "down")
    held.note(request(2, "bob"), "down")
    held.forget("acme", "ada")
    # Began before the erasure.
    held.note(request(3), "down")
    held.note(request(4, at=2e10), "down")
    users = [turn.user for turn in held.list_since(0.0, everything)]
    assert users == ["ada", None, "bob", None]


def test_all_are_counted_to_whom_they_belong():
    held = DegradedTurns()
    for number in range(MAX_HELD + 5):
        held.note(request(number, "bob" if number % 2 else "ada", at=7200.0 + number), "down")
    held.note(request("other", "ada", "other"), "down")
    held.note(request("nobody", None, at=1.0), "down")
    assert held.count_since(0.0) == MAX_HELD + 7
    assert held.count_since(0.0, "acme") == MAX_HELD + 6
    # An hour is counted whole.
    assert held.count_since(7300.0, "acme") == MAX_HELD + 5
    assert held.count_since(0.0, "acme", ["bob"]) == MAX_HELD // 2 + 2
    held.forget("acme", "bob")
    assert held.count_since(0.0, "acme", ["bob"]) == 0
    assert held.count_since(0.0, "acme") == MAX_HELD + 6


def test_the_counts_are_bounded():
    held = DegradedTurns()
    for number in range(MAX_COUNTS + 5):
        held.note(request(number, f"user-{number}"), "down")
    assert held.count_since(0.0) == MAX_COUNTS


async def test_while_the_store_is_down_turns_are_listed_and_pages_say_what_mends_it(
    data, monkeypatch
):
    async with shown(data, "Hello.") as (live, sign_in):
        await live.chat("Hi", user="ada")
        looker = await sign_in(SENTINEL_KEY)
        monkeypatch.setattr(live.gateway.memory, "_closed_until", time.monotonic() + 1000)
        await live.chat("Hi", user="bob")
        listed = (await live.memory("GET", "/turns")).json()
        assert [(t["user"], t["status"]) for t in listed["data"]] == [("bob", "degraded")]
        assert DOWN in listed["warning"]
        assert MENDS in listed["warning"]
        refused = await live.memory("GET", "/users")
        assert (refused.status_code, MENDS in refused.json()["error"]["message"]) == (503, True)
        for path in ("/feed", "/user/turns?user=bob"):
            page = await looker.get(path)
            assert page.status_code == 200
            for part in (DOWN, MENDS, f"degraded {UNAVAILABLE}"):
                assert part in words(page)
            assert "Nothing is stored" not in words(page)
        for path in ("/why", "/why?user=ada", "/why?id=req_1"):
            assert "The store is down" in words(await looker.get(path))
        for path in ("", "/user?user=ada", "/user/passages?user=ada", "/monitors", "/jobs"):
            page = await looker.get(path)
            assert page.status_code == 503
            assert "The store is down" in words(page)
            assert MENDS in words(page)
        async with looker.http.stream("GET", "/ui/feed/events") as feed:
            text, lines = "", feed.aiter_lines()
            async for line in lines:
                text += f"{line}\n"
                if "bob" in text and "event: outage" in text:
                    break
            assert MENDS in text
            monkeypatch.setattr(live.gateway.memory, "_closed_until", 0.0)
            async for line in lines:
                text += f"{line}\n"
                if "ada" in text:
                    break
        # The second one is empty.
        assert text.count("event: outage") == 2
        assert (await live.memory("GET", "/turns")).json()["warning"] is None


async def test_a_turn_that_no_store_saw_is_listed_with_its_reason(data, monkeypatch):
    async with shown(data, "Hello.") as (live, sign_in):
        await live.chat("Hi", user="ada")
        with monkeypatch.context() as broken:

            async def down(*_, **__):
                raise StoreUnavailable("gone")

            broken.setattr(live.gateway.memory, "begin", down)
            answer = await live.chat("Hi", user="bob")
            assert answer.headers["x-memory-reason"] == f"degraded: {UNAVAILABLE}"
        listed = (await live.memory("GET", "/turns")).json()["data"]
        assert [(t["user"], t["status"], t["reason"]) for t in listed] == [
            ("bob", "degraded", UNAVAILABLE),
            ("ada", "ok", None),
        ]
        assert listed[0]["request_id"] == answer.headers["x-mnemogate-request-id"]
        mine = (await live.memory("GET", "/turns", **as_key("sk-ada"))).json()["data"]
        assert [t["user"] for t in mine] == ["ada"]
        assert (await live.memory("GET", "/turns", **as_key("sk-other"))).json()["data"] == []
        stats = (await live.memory("GET", "/stats")).json()
        assert (stats["turns"], stats["degraded"]) == (1, 1)
        looker = await sign_in(SENTINEL_KEY)
        for path in ("/feed", "/user/turns?user=bob"):
            assert f"degraded {UNAVAILABLE}" in words(await looker.get(path))
        assert "degraded" not in words(await looker.get("/user/turns?user=ada"))
        async with looker.http.stream("GET", "/ui/feed/events") as feed:
            text = ""
            async for line in feed.aiter_lines():
                text += line
                if UNAVAILABLE in text and "ada" in text:
                    break
        await live.memory("DELETE", "/users/bob")
        assert "bob" not in words(await looker.get("/feed"))


async def test_a_recorded_turn_that_was_not_saved_is_listed_once(data, monkeypatch):
    async with shown(data, "Hello.") as (live, _):
        producer = "gateway.chat.turn.turn.Turn"
        monkeypatch.setattr(f"{producer}.degraded", property(lambda _: True))
        monkeypatch.setattr(f"{producer}.why_degraded", property(lambda _: "the test says so"))
        await live.chat("Hi", user="ada")
        (turn,) = (await live.memory("GET", "/turns")).json()["data"]
        assert (turn["status"], turn["reason"]) == ("degraded", "the test says so")
        assert turn["explain"]


async def test_a_request_too_heavy_for_memory_counts_as_degraded(data):
    async with shown(data, "Hello.") as (live, _):
        messages = [{"role": "user", "content": "x"}] * (MESSAGES + 1)
        answer = await live.http.post(
            f"{live.root}/v1/chat/completions",
            json={"model": "m", "messages": messages, "user": "ada"},
            headers={"authorization": f"Bearer {SENTINEL_KEY}"},
        )
        assert answer.headers["x-memory-status"] == "degraded"
        (turn,) = (await live.memory("GET", "/turns")).json()["data"]
        assert f"degraded: {turn['reason']}" == answer.headers["x-memory-reason"]
        assert live.gateway.metrics.memory == {"degraded": 1}
