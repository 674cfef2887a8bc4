"""A memory moves to another name by the dashboard: who may, what is asked first, what it does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.errors import ResourceNotFound, Unavailable
from gateway.ui.moves import MAX_MOVES, Move, MoveOffice
from memory import NotFound
from tests.conftest import SENTINEL_KEY, running
from tests.gateway.management.managing import as_key
from tests.gateway.ui.looking import Looker, shown, words
from tests.models import Model

ADA, BOB = ("acme", "ada"), ("acme", "bob")


async def test_me_becomes_ada_in_single_user_mode(data, caplog):
    caplog.set_level(logging.INFO, "mnemogate")
    async with Model("Hello.") as up, running(up.url, data) as live:
        await live.chat("I like tea")
        looker = Looker(live)
        await looker.sign_in((data / "token").read_text().strip())
        assert "/ui/user/move?user=me" in (await looker.get("/user?user=me")).text
        asked = words(await looker.send("/user/move?user=me", to=" ada "))
        assert "Move me to ada ?" in asked
        assert "2 messages" in asked
        # Asked, not done.
        assert "user=ada" not in (await looker.get("")).text
        done = await looker.send("/user/move?user=me", to="ada", confirmed="yes")
        assert done.status_code == 303
        page = await looker.get(done.headers["location"].removeprefix("/ui"))
        assert "The memory of me now belongs to ada" in words(page)
        users = (await looker.get("")).text
        assert ("user=ada" in users, "user=me" in users) == (True, False)
        assert "I like tea" in words(await looker.get("/user/conversations?user=ada&q=tea"))
        await looker.http.aclose()
    assert "moves the memory of ('local', 'me') to ('local', 'ada')" in caplog.text


async def test_two_memories_are_merged_only_when_that_is_confirmed(data):
    async with shown(data) as (live, sign_in):
        for user in ("ada", "bob"):
            await live.chat(f"I am {user}", user=user)
            block = {"value": f"Is {user}", "description": "who it is"}
            await live.memory("PUT", f"/users/{user}/blocks/human", json=block)
        root = await sign_in("sk-root")
        path, to = "/user/move?user=ada&tenant=acme", {"to": "bob", "to_tenant": "acme"}
        asked = words(await root.send(path, **to))
        for part in ("bob has a memory already", "joined: human", "2 messages", "cannot be undone"):
            assert part in asked
        assert (await root.send(path, **to, confirmed="yes")).status_code == 409
        assert "user=ada" in (await root.get("")).text
        done = await root.send(path, **to, confirmed="merge")
        page = await root.get(done.headers["location"].removeprefix("/ui"))
        assert "The memory of ada is now in that of bob" in words(page)
        listed = (await root.get("")).text
        assert ("user=ada" in listed, "user=bob" in listed) == (False, True)
        merged = words(await root.get("/user?user=bob&tenant=acme"))
        assert "Is bob Is ada" in merged


async def test_memories_are_merged_by_the_api(data):
    async with shown(data) as (live, _):
        for user in ("ada", "bob"):
            await live.chat(f"I am {user}", user=user)
        root, into = as_key("sk-root"), {"into": "bob"}
        path = "/users/ada/merge?tenant=acme"
        refused = await live.memory("POST", "/users/ada/merge", json=into)
        assert (refused.status_code, "Only an admin key" in refused.text) == (403, True)
        for body, status in (({"into": "ada"}, 409), ({"into": "nobody"}, 404), ({}, 400)):
            assert (await live.memory("POST", path, json=body, **root)).status_code == status
        told = await live.memory("POST", path, json={**into, "dry_run": True}, **root)
        assert (told.json()["dry_run"], told.json()["merged"]["messages"]) == (True, 2)
        done = await live.memory("POST", path, json=into, **root)
        assert done.json() == {**told.json(), "dry_run": False}
        found = (await live.memory("GET", "/users")).json()["data"]
        assert [(u["id"], u["messages"]) for u in found] == [("bob", 4)]


async def test_an_admin_moves_a_user_to_another_tenant(data):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        root = await sign_in("sk-root")
        fields = {"to": "ada", "to_tenant": "other", "confirmed": "yes"}
        done = await root.send("/user/move?user=ada&tenant=acme", **fields)
        page = await root.get(done.headers["location"].removeprefix("/ui"))
        assert "user=ada&amp;tenant=other" in page.text
        assert "user=ada&amp;tenant=acme" not in (await root.get("")).text


@pytest.mark.parametrize("key", [SENTINEL_KEY, "sk-ada"])
async def test_a_key_that_is_not_an_admins_moves_nobody(data, key):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        looker = await sign_in(key)
        assert "/user/move" not in (await looker.get("/user?user=ada")).text
        assert (await looker.get("/user/move?user=ada")).status_code == 403
        sent = await looker.send("/user/move?user=ada", to="bob", confirmed="yes")
        assert sent.status_code == 403
        assert (await looker.get("/move?id=x")).status_code == 403


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"to": "ada", "to_tenant": "acme"}, 400),
        ({"to": "  "}, 400),
        ({"to": "bob", "to_tenant": "*"}, 400),
        ({"to": "bob", "csrf": "wrong"}, 403),
    ],
)
async def test_a_move_that_cannot_be_is_refused(data, fields, status):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        root = await sign_in("sk-root")
        sent = {"confirmed": "yes", **fields}
        response = await root.send("/user/move?user=ada&tenant=acme", **sent)
        assert response.status_code == status
        assert "user=ada" in (await root.get("")).text


class Waiting:
    """A memory whose recovery log waits until it is let go, and then lacks the user."""

    def __init__(self):
        self.go = asyncio.Event()
        self.recovery_log, self.db = self, self
        self.is_empty = True

    async def read(self, _):
        await self.go.wait()
        raise NotFound("nothing is stored about the user")


async def test_one_memory_moves_at_a_time_and_a_failure_is_told():
    office, memory, move = MoveOffice(), Waiting(), Move(ADA, BOB)
    ident = office.begin(memory, b"secret", move)
    await asyncio.sleep(0)
    assert not office.find(ident).is_over
    with pytest.raises(Unavailable, match="Another memory"):
        office.begin(memory, b"secret", Move(BOB, ADA))
    memory.go.set()
    await move.task
    assert office.find(ident).is_over
    assert move.error == "Nothing is stored about the user"


async def test_old_moves_are_forgotten():
    office, memory = MoveOffice(), Waiting()
    memory.go.set()
    first, *_ = [await _done(office, memory) for _ in range(MAX_MOVES + 1)]
    with pytest.raises(ResourceNotFound):
        office.find(first)


async def _done(office, memory):
    ident = office.begin(memory, b"secret", move := Move(ADA, BOB))
    await move.task
    return ident


async def test_a_move_waits_for_turns_that_are_not_stored_yet():
    office, memory = MoveOffice(), Waiting()
    memory.is_empty = False
    office.begin(memory, b"secret", move := Move(ADA, BOB))
    await move.task
    assert "recovery log" in move.error
