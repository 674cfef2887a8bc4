"""What the memory may do: the strictest of key, model, user and header holds."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from tests.conftest import running
from tests.models import Model, call, calls

REMEMBER = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_0")
SECRET = "mg-0123456789abcdef0123"
KEY = {"authorization": f"Bearer {SECRET}"}


def managed(**more):
    return [{"name": "app", "key": SECRET, "tenant": "t", **more}]


def rows_of(data):
    """The rows of every table of a user's memory, by table."""
    with sqlite3.connect(data / "mnemogate.db") as conn:
        names = [n for (n,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        # Jobs: its own upkeep.
        kept = {"alembic_version", "marks", "usage", "keys", "jobs"}
        return {
            n: count
            for n in names
            if n not in kept
            and "_fts" not in n
            and (count := conn.execute(f'SELECT count(*) FROM "{n}"').fetchone()[0])
        }


@contextlib.asynccontextmanager
async def gateway(up, data, config=None, **key):
    """A gateway with one managed key, which its client sends."""
    settings = {"keys": managed(**key), **(config or {})}
    async with running(up.url, data, settings, key="") as live:
        live.http.headers.update(KEY)
        yield live


async def put_policy(live, user, mode):
    return await live.memory("PUT", f"/users/{user}/policy", json={"memory": mode})


@pytest.mark.parametrize("asked", ["full", "read", "write", ""])
async def test_a_key_whose_memory_is_off_leaves_no_row_whatever_it_asks(data, asked):
    sent = {"x-memory": asked} if asked else {}
    async with Model("Hi.") as up, gateway(up, data, memory="off") as live:
        answer = await live.chat("I am Ada", sent, user="ada")
        assert (answer.headers["x-memory-status"], answer.headers["x-memory-reason"]) == (
            "off",
            "policy",
        )
        assert up.bodies[-1]["messages"] == [{"role": "user", "content": "I am Ada"}]
        assert "tools" not in up.bodies[-1]
        written = await live.memory("PUT", "/users/ada/blocks/human", json={"value": "x"})
        assert (written.status_code, written.json()["error"]["code"]) == (403, "policy")
    assert rows_of(data) == {}


async def test_a_models_policy_lowers_what_a_request_does(data):
    target = [{"provider": "openai"}]
    models = {"quiet": {"targets": target, "memory": "read"}, "*": {"targets": target}}
    async with (
        Model(calls(REMEMBER), "Saved.") as up,
        gateway(up, data, {"models": models}) as live,
    ):
        await live.chat("I like tea", user="ada")
        answer = await live.chat("What do I like?", user="ada", model="quiet")
        assert answer.headers["x-memory-status"] == "ok"
        assert "Likes tea" in up.bodies[-1]["messages"][0]["content"]
        names = {t["function"]["name"] for t in up.bodies[-1]["tools"]}
        assert names == {"archival_memory_search", "conversation_search"}
    assert rows_of(data)["nodes"] == 1


async def test_a_users_policy_is_set_read_and_holds_from_the_next_request_on(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        for mode, status in (("off", "off"), ("read", "ok"), ("write", "ok"), ("full", "ok")):
            put = await put_policy(live, "ada", mode)
            assert put.json() == {"memory": mode, "object": "policy"}
            answer = await live.chat("Hello", {"x-memory": "full"}, user="ada")
            assert answer.headers["x-memory-status"] == status, mode
            injected = len(up.bodies[-1]["messages"]) > 1
            assert injected == (mode in ("full", "read"))
        other = await live.chat("Hello", user="eve")
        assert other.headers["x-memory-status"] == "ok"


async def test_a_header_lowers_and_never_raises(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await put_policy(live, "ada", "read")
        lowered = await live.chat("Hello", {"x-memory": "write"}, user="ada")
        assert lowered.headers["x-memory-reason"] == "policy"
        asked = await live.chat("Hello", {"x-memory": "off"}, user="ada")
        assert asked.headers["x-memory-reason"] == "request"
    assert "nodes" not in rows_of(data)


async def test_a_wrong_policy_is_named(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        answer = await put_policy(live, "ada", "loud")
        assert answer.status_code == 400
        assert "loud" in answer.text
        assert "memory" in answer.text


ZONE = "Asia/Kathmandu"


async def put_zone(live, zone, user="ada", **more):
    return await live.memory("PUT", f"/users/{user}/policy", json={"timezone": zone, **more})


async def test_a_users_zone_is_kept_beside_what_the_memory_may_do(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        both = {"memory": "read", "timezone": ZONE, "object": "policy"}
        assert (await put_zone(live, ZONE, memory="read")).json() == both
        assert (await put_policy(live, "ada", "read")).json() == both
        assert (await live.memory("GET", "/users/ada/policy")).json() == both
        full = {"memory": "full", "timezone": ZONE, "object": "policy"}
        assert (await put_policy(live, "ada", "full")).json() == full
        assert (await put_zone(live, None)).json() == {"memory": "full", "object": "policy"}
    assert "user_policies" not in rows_of(data)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "x" * 5000])
async def test_a_zone_that_is_none_is_refused_by_every_door(data, zone):
    async with Model("Hi.") as up, gateway(up, data) as live:
        answer = await put_zone(live, zone)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "timezone")
        lines = json.dumps({"object": "policy", "memory": "full", "timezone": zone})
        answer = await live.memory("POST", "/users/ada/import", content=lines)
        assert answer.status_code == 400
        assert "timezone" in answer.text


@pytest.mark.parametrize(
    ("headers", "offset"), [({}, "+05:45"), ({"x-memory-timezone": "Asia/Tokyo"}, "+09:00")]
)
async def test_a_users_zone_holds_where_no_header_names_another(data, headers, offset):
    search = calls(call("archival_memory_search", {"query": "boat"}))
    config = {"memory.timezone": "America/New_York"}
    async with Model("Hi.", search, "Yes.") as up, gateway(up, data, config) as live:
        await live.chat("Hello", headers, user="ada")
        await live.memory("POST", "/users/ada/passages", json={"content": "The boat is red"})
        await put_zone(live, ZONE)
        await live.chat("What colour is the boat?", headers, user="ada")
        shown = up.bodies[-1]["messages"][-1]
        assert shown["role"] == "tool"
        assert f'{offset}"' in shown["content"]


async def test_a_zone_is_exported_imported_and_erased(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await put_zone(live, ZONE)
        lines = await live.memory("GET", "/users/ada/export")
        await live.memory("DELETE", "/users/ada")
        assert (await live.memory("GET", "/users/ada/policy")).json() == {
            "memory": "full",
            "object": "policy",
        }
        await live.memory("POST", "/users/bob/import", content=lines.content)
        assert (await live.memory("GET", "/users/bob/policy")).json()["timezone"] == ZONE


async def test_a_policy_is_exported_imported_and_erased(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await live.chat("Hello", user="ada")
        await put_policy(live, "ada", "read")
        lines = await live.memory("GET", "/users/ada/export")
        await live.memory("DELETE", "/users/ada")
        assert (await live.memory("GET", "/users/ada/policy")).json()["memory"] == "full"
        await live.memory("POST", "/users/bob/import", content=lines.content)
        assert (await live.memory("GET", "/users/bob/policy")).json()["memory"] == "read"


async def test_only_named_conversations_are_kept_where_that_is_set(data):
    config = {"memory.conversations": "named"}
    async with Model("Hi.") as up, gateway(up, data, config) as live:
        once = await live.chat("Hello", user="ada")
        assert once.headers["x-memory-status"] == "ok"
        assert "memory_blocks" in up.bodies[-1]["messages"][0]["content"]
        assert "nodes" not in rows_of(data)
        await live.chat("Hello", {"x-memory-conversation": "c1"}, user="ada")
    assert rows_of(data)["nodes"] == 1


KEY_OF_AN_API = "sk-" + "a1b2c3d4" * 4


async def test_no_secret_enters_by_the_api_or_an_import(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        said = f"My key is {KEY_OF_AN_API}"
        for path, body in (
            ("/users/ada/blocks/human", {"value": said}),
            ("/users/ada/passages", {"content": said}),
        ):
            method = "PUT" if "blocks" in path else "POST"
            answer = await live.memory(method, path, json=body)
            assert answer.status_code == 400
            assert "API key" in answer.json()["error"]["message"]
        parts = [{"type": "text", "text": said}]
        messages = [{"role": "user", "content": said}, {"role": "user", "content": parts}]
        brought = {"messages": messages, "id": "c1"}
        await live.memory("POST", "/users/ada/conversations", json=brought)
        lines = (
            {"object": "passage", "content": said},
            {"object": "block", "label": "human", "value": said},
        )
        text = "\n".join(json.dumps(line) for line in lines)
        assert (await live.memory("POST", "/users/ada/import", content=text)).status_code == 200
        found = (await live.memory("GET", "/users/ada/export")).text
        assert KEY_OF_AN_API not in found
        assert found.count("[removed: API key]") >= 4
