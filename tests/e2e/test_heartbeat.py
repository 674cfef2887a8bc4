"""Reflections by the clock, as proposals, and of a memory that does not change."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.server.heartbeat import queue_due_reflections
from memory.ids import clock
from memory.jobs.heartbeat import is_due
from memory.jobs.reflection import ReflectionPlan
from tests.conftest import running
from tests.e2e.operator_tools import KEY, gateway, granting
from tests.e2e.test_background import settled
from tests.models import Model, call, calls

BASE = "/users/ada"
SHORTER = "Ada likes green tea from Japan in the early morning before her work begins"
LONGER = SHORTER.replace("likes", "really likes")
DRY = {"memory.reflect": {"dry_run": True, "prompt": "You tidy. Be brief.", "model": "tidy-1"}}


def tidying(*answers):
    left = list(answers)

    def scripted(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You tidy"):
            return left.pop(0) if left else "done"
        return "ok"

    return scripted


def runs(up):
    return [b for b in up.bodies if b["messages"][0]["content"].startswith("You tidy")]


async def put(live, label, value):
    r = await live.memory("PUT", f"{BASE}/blocks/{label}", headers=KEY, json={"value": value})
    assert r.status_code == 200, r.text


async def values(live):
    blocks = (await live.memory("GET", f"{BASE}/blocks", headers=KEY)).json()["data"]
    passages = (await live.memory("GET", f"{BASE}/passages", headers=KEY)).json()["data"]
    return {b["label"]: b["value"] for b in blocks}, sorted(p["content"] for p in passages)


async def reflect(live):
    r = await live.memory("POST", f"{BASE}/reflections", headers=KEY)
    assert (r.status_code, r.json()["status"]) == (202, "queued"), r.text
    await settled(live)
    return (await live.memory("GET", f"{BASE}/reflections", headers=KEY)).json()["data"]


async def decide(live, ident, decision):
    return await live.memory(
        "POST", f"{BASE}/reflections/{ident}", headers=KEY, json={"decision": decision}
    )


async def prepared(live):
    await live.chat("Hello", user="ada")
    await put(live, "human", "Name: Ada\nName: Ada L.")
    r = await live.memory(
        "POST",
        f"{BASE}/passages",
        headers=KEY,
        json={"content": SHORTER},
    )
    return r.json()["data"][0]["id"] if "data" in r.json() else r.json()["id"]


def moves():
    first = calls(
        call("archival_memory_insert", {"content": "Ada wrote notes on engines"}, "a"),
        call("memory_rethink", {"label": "human", "new_memory": "Name: Ada L."}, "b"),
    )
    second = calls(
        call(
            "archival_memory_insert",
            {"content": LONGER},
            "c",
        ),
        call("core_memory_append", {"label": "human", "content": "Likes tea"}, "d"),
    )
    return first, second


@asynccontextmanager
async def proposing(data):
    """Serve a memory for which a dry run proposed its moves; yield both, and the passage."""
    async with (
        Model(lambda seen, wire: tidy(seen, wire)) as up,
        gateway(up, data, {**granting({}), **DRY}) as live,
    ):
        tidy = tidying()
        passage = await prepared(live)
        tidy = tidying(*moves())
        (proposal,) = await reflect(live)
        yield live, proposal, passage


async def test_t_k2_a_dry_run_writes_nothing_and_is_applied_or_undone_as_a_whole(data):
    async with (
        Model(lambda seen, wire: tidy(seen, wire)) as up,
        gateway(up, data, {**granting({}), **DRY}) as live,
    ):
        tidy = tidying()
        passage = await prepared(live)
        tidy = tidying(*moves())
        before = await values(live)
        (proposal,) = await reflect(live)
        assert await values(live) == before
        assert runs(up)[0]["model"] == "tidy-1"
        assert runs(up)[0]["messages"][0]["content"] == "You tidy. Be brief."
        assert proposal["id"].startswith("refl_")
        assert proposal["status"] == "pending"
        changes = {c["label"] or c["passage"]: c for c in proposal["changes"]}
        human = changes["human"]
        assert (human["before"], human["after"]) == (
            "Name: Ada\nName: Ada L.",
            "Name: Ada L.\nLikes tea",
        )
        assert human["version"] == 1
        assert (changes[passage]["before"], changes[passage]["after"]) == (
            SHORTER,
            LONGER,
        )
        assert changes[None]["after"] == "Ada wrote notes on engines"
        r = await decide(live, proposal["id"], "apply")
        assert (r.status_code, r.json()["status"]) == (200, "applied"), r.text
        after = await values(live)
        assert after[0]["human"] == "Name: Ada L.\nLikes tea"
        assert after[1] == [
            LONGER,
            "Ada wrote notes on engines",
        ]
        r = await decide(live, proposal["id"], "apply")
        assert (r.status_code, r.json()["error"]["code"]) == (409, "already_decided")
        r = await decide(live, proposal["id"], "undo")
        assert r.status_code == 200, r.text
        assert await values(live) == before
        versions = (await live.memory("GET", f"{BASE}/blocks/human/versions", headers=KEY)).json()[
            "data"
        ]
        assert [v["actor"] for v in versions] == ["undo", "api", "api"]


async def test_t_k2_what_changed_meanwhile_is_a_conflict_and_nothing_is_written(data):
    async with proposing(data) as (live, proposal, _):
        await put(live, "human", "Name: Bo")
        before = await values(live)
        for status in (409, 409):
            r = await decide(live, proposal["id"], "apply")
            assert (r.status_code, r.json()["error"]["code"]) == (status, "memory_changed")
            assert "human" in r.json()["error"]["message"]
        assert await values(live) == before
        (stored,) = (await live.memory("GET", f"{BASE}/reflections", headers=KEY)).json()["data"]
        assert stored["status"] == "conflict"
        r = await decide(live, proposal["id"], "discard")
        assert r.json()["status"] == "discarded"
        assert (await decide(live, "refl_none", "apply")).status_code == 404
        r = await decide(live, proposal["id"], "burn")
        assert (r.status_code, r.json()["error"]["param"]) == (400, "decision")


async def test_t_k2_a_passage_that_changed_meanwhile_keeps_the_blocks_as_they_are(data):
    async with proposing(data) as (live, proposal, passage):
        gone = await live.memory("DELETE", f"{BASE}/passages/{passage}", headers=KEY)
        assert gone.status_code == 200, gone.text
        before = await values(live)
        r = await decide(live, proposal["id"], "apply")
        assert (r.status_code, r.json()["error"]["code"]) == (409, "memory_changed")
        assert passage in r.json()["error"]["message"]
        assert await values(live) == before
        versions = await live.memory("GET", f"{BASE}/blocks/human/versions", headers=KEY)
        assert [v["actor"] for v in versions.json()["data"]] == ["api"]


async def test_t_k2_an_undo_of_what_changed_since_is_a_conflict_too(data):
    async with proposing(data) as (live, proposal, _):
        assert (await decide(live, proposal["id"], "apply")).status_code == 200
        await put(live, "human", "Name: Bo")
        before = await values(live)
        r = await decide(live, proposal["id"], "undo")
        assert (r.status_code, r.json()["error"]["code"]) == (409, "memory_changed")
        assert await values(live) == before


async def test_t_k2_ten_runs_over_an_unchanged_memory_ask_the_model_once(data):
    async with Model(tidying()) as up, gateway(up, data, granting({})) as live:
        await prepared(live)
        for _ in range(10):
            assert await reflect(live) == []
        assert len([b for b in up.bodies if "tidy" in b["messages"][0]["content"]]) == 1
        await put(live, "human", "Name: Ada")
        await reflect(live)
        assert len([b for b in up.bodies if "tidy" in b["messages"][0]["content"]]) == 2


async def test_only_the_blocks_that_are_named_are_edited(data):
    edits = calls(
        call("memory_rethink", {"label": "human", "new_memory": "x"}, "a"),
        call("core_memory_append", {"label": "scratchpad", "content": "Ask Ada"}, "b"),
    )
    config = {"memory.reflect": {"label": ["scratchpad"]}}
    async with Model(tidying(edits)) as up, gateway(up, data, {**granting({}), **config}) as live:
        await prepared(live)
        before, _ = await values(live)
        await reflect(live)
        after, _ = await values(live)
        assert after == {**before, "scratchpad": "Ask Ada"}
        told = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
        assert [t.startswith("Error: this block may not be edited") for t in told] == [1, 0]


async def test_a_clock_runs_once_for_each_memory_that_was_used_since(data, monkeypatch):
    config = {"memory.reflect": {"cron": "0 3 * * *"}}
    now = 1_790_000_000.0
    monkeypatch.setattr(clock, "now", lambda: now)
    async with Model(tidying()) as up, gateway(up, data, {**granting({}), **config}) as live:
        await prepared(live)
        # The clock begins now.
        assert await queue_due_reflections(live.gateway) == 0
        await settled(live)
        now += 60
        assert await queue_due_reflections(live.gateway) == 0
        # One run after an outage.
        now += 5 * 86_400
        assert await queue_due_reflections(live.gateway) == 1
        await settled(live)
        assert len([b for b in up.bodies if "tidy" in b["messages"][0]["content"]]) == 1
        assert await queue_due_reflections(live.gateway) == 0
        # Nobody used it since.
        now += 2 * 86_400
        assert await queue_due_reflections(live.gateway) == 0


async def test_a_clock_that_cannot_be_read_is_told_at_the_start(data):
    from gateway.config.settings import ConfigError

    for cron in ("every day", "61 * * * *", "* * * * * *"):
        with pytest.raises((ConfigError, ValueError), match="cron"):
            async with running("http://127.0.0.1:9/v1", data, {"memory.reflect": {"cron": cron}}):
                raise AssertionError("it started")


@given(
    st.integers(1_700_000_000, 1_900_000_000),
    st.integers(0, 200_000),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
def test_a_daily_clock_strikes_once_in_a_day(since, seconds, zone):
    plan = ReflectionPlan("30 3 * * *", zone)
    due = is_due(plan, "", float(since), float(since + seconds))
    if seconds > 25 * 3600:
        assert due
    if seconds == 0:
        assert not due
    assert not is_due(ReflectionPlan(), "", float(since), float(since + seconds))
    assert is_due(plan, "UTC", float(since), float(since + seconds)) == is_due(
        ReflectionPlan("30 3 * * *"), "", float(since), float(since + seconds)
    )
