"""Calls that wait for a person: who decides, once, and in time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.tools import approval_wait
from gateway.tools.approval_wait import refusal_of, wait_for_decision
from memory import management
from memory.errors import StoreUnavailable
from memory.management.approvals import ApprovalRequest
from memory.stores.sql.rows import approvals as rows
from tests.e2e.test_agents import gateway
from tests.models import Model

ADMIN, APPROVER, APP = (
    {"authorization": f"Bearer mg-0123456789abcdef0123{i or ''}"} for i in range(3)
)
KEYS = ({"admin": True}, {"approve": True}, {})
CALL = ApprovalRequest("t", "ann", "default", "c1", "req_1", "delete_all", '{"x": 1}', 30)


async def within(seconds, work):
    """What comes of some work, which takes no longer."""
    return await asyncio.wait_for(work, seconds)


def waiting(live, wanted=CALL):
    async def wait():
        await live.gateway.memory.wait_until_ready()
        return await wait_for_decision(live.gateway.memory, wanted)

    return asyncio.ensure_future(wait())


async def pending(live, headers=APPROVER, count=1):
    """The calls that wait, as soon as there are so many."""
    while True:
        got = await live.memory("GET", "/tool-approvals?status=pending", headers=headers)
        found = got.json()["data"]
        if len(found) == count:
            return found
        await asyncio.sleep(0.02)


async def decide(live, ident, decision, headers=APPROVER, **more):
    sent = {"decision": decision, **more}
    return await live.memory("POST", f"/tool-approvals/{ident}", json=sent, headers=headers)


@pytest.mark.parametrize(("decision", "status"), [("allow", "allowed"), ("deny", "denied")])
async def test_a_person_decides_once_and_it_arrives_within_a_second(data, decision, status):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        call = waiting(live)
        (found,) = await within(20, pending(live))
        shown = (found["tool"], found["arguments"], found["user"], found["request_id"])
        assert shown == ("delete_all", '{"x": 1}', "ann", "req_1")
        got = await decide(live, found["id"], decision, reason="Not today.")
        assert (got.status_code, got.json()["status"]) == (200, status)
        decided = await within(20, call)
        assert approval_wait.LOOK_SECONDS <= 0.5
        assert (decided.status, decided.decided_by) == (status, "app1")
        again = await decide(live, found["id"], "allow", headers=ADMIN)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "already_decided")
        assert await within(20, pending(live, count=0)) == []
        refusal = refusal_of(decided, 30)
        assert refusal == ("" if decision == "allow" else DENIED)


DENIED = "Error: a person refused this call. Not today."


async def test_nobody_in_time_expires_the_call(data):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        wanted = rows.msgspec.structs.replace(CALL, seconds=0.5)
        decided = await within(20, waiting(live, wanted))
        assert decided.status == "expired"
        text = "Error: nobody decided on this call within 120 s; it was not run."
        assert refusal_of(decided, 120.0) == text
        got = await decide(live, decided.id, "allow")
        assert got.json()["error"]["code"] == "already_decided"
        listed = await live.memory("GET", "/tool-approvals?status=expired", headers=ADMIN)
        assert [a["id"] for a in listed.json()["data"]] == [decided.id]


async def test_a_turn_that_ends_cancels_its_call(data):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        call = waiting(live)
        (found,) = await within(20, pending(live))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        row = await management.approvals.find_approval(live.gateway.memory, found["id"])
        assert row.status == "cancelled"
        assert (await decide(live, found["id"], "allow")).status_code == 409


async def test_a_call_of_a_process_that_is_gone_is_expired(data, monkeypatch):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        memory = live.gateway.memory
        await memory.wait_until_ready()
        monkeypatch.setattr(rows, "ALIVE_SECONDS", 0.0)
        asked = await management.approvals.ask_person(memory, CALL)
        assert await pending(live, count=0) == []
        got = await decide(live, asked.id, "allow")
        assert got.status_code == 409
        assert "is expired already" in got.json()["error"]["message"]


async def test_a_turn_that_waits_long_says_that_it_is_there(data, monkeypatch):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        monkeypatch.setattr(rows, "ALIVE_SECONDS", 1.0)
        monkeypatch.setattr(approval_wait, "RENEW_SECONDS", 0.2)
        call = waiting(live)
        (found,) = await within(20, pending(live))
        await asyncio.sleep(1.5)
        assert (await decide(live, found["id"], "allow")).status_code == 200
        assert (await within(20, call)).status == "allowed"


async def test_a_store_that_fails_for_a_while_is_asked_again(data, monkeypatch):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        call = waiting(live)
        (found,) = await within(20, pending(live))
        find, failures = management.approvals.find_approval, [StoreUnavailable("down")]

        async def fail_once(*args):
            if failures:
                raise failures.pop()
            return await find(*args)

        monkeypatch.setattr(management.approvals, "find_approval", fail_once)
        assert (await decide(live, found["id"], "allow")).status_code == 200
        assert (await within(20, call)).status == "allowed"
        assert not failures


async def test_only_some_keys_decide_and_only_on_calls_of_their_tenant(data):
    keys = (*KEYS, {"approve": True, "tenant": "other"})
    stranger = {"authorization": "Bearer mg-0123456789abcdef01233"}
    async with Model("Hi.") as up, gateway(up, data, None, *keys) as live:
        call = waiting(live)
        (found,) = await within(20, pending(live))
        listed = await live.memory("GET", "/tool-approvals", headers=stranger)
        assert listed.json()["data"] == []
        assert (await decide(live, found["id"], "allow", headers=stranger)).status_code == 404
        for got in (
            await live.memory("GET", "/tool-approvals", headers=APP),
            await decide(live, found["id"], "allow", headers=APP),
        ):
            assert (got.status_code, got.json()["error"]["code"]) == (403, "approve_key_needed")
        assert (await decide(live, found["id"], "perhaps")).status_code == 400
        assert (await decide(live, "appr_x", "allow", headers=ADMIN)).status_code == 404
        shown = await live.memory("GET", "/keys", headers=ADMIN)
        assert [key["approve"] for key in shown.json()["data"]] == [False, True, False, True]
        assert (await decide(live, found["id"], "allow", headers=ADMIN)).status_code == 200
        await within(20, call)


async def test_a_user_who_is_erased_or_renamed_takes_the_calls_along(data):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        await live.chat("Hi", ADMIN, user="ann")
        await live.chat("Hi there", ADMIN, user="eve")
        memory = live.gateway.memory
        await memory.wait_until_ready()
        asked = await management.approvals.ask_person(memory, CALL)
        got = await live.memory("POST", "/users/ann/merge", json={"into": "eve"}, headers=ADMIN)
        assert got.status_code == 200
        row = await management.approvals.find_approval(memory, asked.id)
        assert row.user == "eve"
        await live.memory("DELETE", "/users/eve", headers=ADMIN)
        listed = await live.memory("GET", "/tool-approvals", headers=ADMIN)
        assert listed.json()["data"] == []


async def test_old_calls_are_removed(data):
    async with Model("Hi.") as up, gateway(up, data, None, *KEYS) as live:
        db = live.gateway.memory.db
        await live.gateway.memory.wait_until_ready()
        asked = await management.approvals.ask_person(live.gateway.memory, CALL)
        assert await db.write(lambda conn: rows.expire(conn, asked.created_at)) == 0
        assert await db.write(lambda conn: rows.expire(conn, asked.created_at + 1)) == 1
