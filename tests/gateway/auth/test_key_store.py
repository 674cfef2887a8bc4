"""Managed keys made at run time: who may make them, what is refused, what they may do, and how they
end.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

import pytest
from sqlalchemy import update

from gateway.auth import key_store as room
from gateway.storage import api_keys
from gateway.storage.key_probe import KeyCounts, read_key_counts
from memory.errors import StoreUnavailable
from memory.stores.sql.engine import schema
from memory.stores.sql.engine.database import Database
from tests.conftest import running
from tests.gateway.management.managing import as_key, managed
from tests.models import Model

ROOT = as_key("sk-root")
APP = {"name": "phone", "tenant": "acme"}
FULL = {
    **APP,
    "trusted": False,
    "users": ["ada"],
    "default_user": "bob",
    "admin": True,
    "models": ["gpt-*", "m"],
    "limits": {"rpm": 1, "tpm": 2, "concurrent": 3},
    "budget": {"usd": 2.5, "period": "day"},
}


async def create(live, **members):
    answer = await live.memory("POST", "/keys", json={**APP, **members}, **ROOT)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def status(live, key, user=None, model="m"):
    return (
        await live.chat(
            "hi",
            {"authorization": f"Bearer {key}"},
            model=model,
            **({"user": user} if user else {}),
        )
    ).status_code


async def names(live, **params):
    return [
        k["name"] for k in (await live.memory("GET", "/keys", params=params, **ROOT)).json()["data"]
    ]


async def test_a_key_works_at_once_and_is_refused_on_the_request_after_it_was_revoked(live):
    key = (await create(live))["key"]
    assert await status(live, key) == 200
    assert (await live.memory("GET", "/users", **as_key(key))).status_code == 200
    ended = await live.memory("DELETE", "/keys/phone", **ROOT)
    assert (ended.status_code, ended.json()["name"], ended.json()["note"]) == (200, "phone", None)
    assert ended.json()["revoked_at"]
    response = await live.chat("hi", {"authorization": f"Bearer {key}"})
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (await live.memory("GET", "/users", **as_key(key))).status_code == 401


async def test_a_key_is_shown_once_and_the_list_tells_all_but_the_key(live):
    made = await create(live, **FULL)
    key = made.pop("key")
    assert key.startswith("mnemogate-")
    assert len(key) == len("mnemogate-") + 43
    assert made.pop("note") is None
    assert {k: made[k] for k in FULL} == FULL
    assert (made["source"], made["revoked_at"], made["object"]) == ("made", None, "key")
    listed = await live.memory("GET", "/keys", **ROOT)
    assert listed.json()["data"][-1] == made
    assert [(k["name"], k["source"], k["id"]) for k in listed.json()["data"][:-1]] == [
        (n, "config", None) for n in ("ada", "app", "other", "root")
    ]
    assert key not in listed.text
    assert room.digest_of(key.encode()) not in listed.text
    assert not {"key", "hash", "key_hash"} & set(listed.json()["data"][0])


async def test_every_key_has_a_text_of_its_own(live):
    assert len({(await create(live, name=f"k{i}"))["key"] for i in range(5)}) == 5


async def test_the_list_comes_in_pages_and_by_tenant(live):
    for i in range(3):
        await create(live, name=f"k{i}", tenant="beta" if i else "acme")
    await live.memory("DELETE", "/keys/k1", **ROOT)
    whole = ["ada", "app", "other", "root", "k0", "k1", "k2"]
    assert await names(live) == whole
    for limit in (1, 2, 4, 6):
        found, cursor = [], None
        while True:
            page = (
                await live.memory(
                    "GET",
                    "/keys",
                    params={"limit": limit, **({"cursor": cursor} if cursor else {})},
                    **ROOT,
                )
            ).json()
            assert 0 < len(page["data"]) <= limit
            found += [k["name"] for k in page["data"]]
            if not (cursor := page["next_cursor"]):
                break
        assert found == whole
    assert await names(live, tenant="beta") == ["other", "k1", "k2"]
    assert await names(live, tenant="*") == whole
    assert await names(live, tenant="nobody") == []


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"name": "\x00"}, "name"),
        ({"name": "  "}, "name"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "*"}, "tenant"),
        ({"tenant": 1}, "tenant"),
        ({"trusted": "yes"}, "trusted"),
        ({"users": "ada"}, "users"),
        ({"users": [1]}, "users.0"),
        ({"models": None}, "models"),
        ({"limits": {"rpm": -1}}, "limits.rpm"),
        ({"limits": {"rpm": True}}, "limits.rpm"),
        ({"limits": {"rpm": 2**70}}, "limits.rpm"),
        ({"limits": {"rps": 1}}, "limits.rps"),
        ({"budget": {"usd": "5"}}, "budget.usd"),
        ({"budget": {"usd": 1e300}}, "budget.usd"),
        ({"budget": {"period": "year"}}, "budget.period"),
        ({"role": "x"}, "role"),
        ({"key": "mg-my-own"}, "key"),
        ({"key_hash": "0" * 64}, "key_hash"),
    ],
)
async def test_what_a_key_cannot_be_is_refused_with_its_member(live, members, param):
    answer = await live.memory("POST", "/keys", json={**APP, **members}, **ROOT)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert param in answer.json()["error"]["message"]
    assert "phone" not in await names(live)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"tenant": 1}, "tenant: this must be a string, not 1"),
        ({"trusted": "yes"}, "trusted: this must be true or false, not 'yes'"),
        ({"users": "ada"}, """users: this must be a list, such as ["a", "b"], not 'ada'"""),
        ({"users": {"ada": 1}}, 'users: this must be a list, such as ["a", "b"], not an object'),
        ({"limits": {"rpm": -1}}, "limits.rpm: Input should be greater than or equal to 0, not -1"),
        ({"limits": {"rpm": 1.5}}, "limits.rpm: this must be a whole number, not 1.5"),
        ({"limits": {"rps": 1}}, "limits.rps: there is no such setting, did you mean rpm?"),
        (
            {"budget": {"colour": 1}},
            "budget.colour: there is no such setting; there are: period, usd",
        ),
        (
            {"budget": {"period": "year"}},
            "budget.period: Input should be 'hour', 'day', 'week' or 'month', not 'year'",
        ),
        (
            {"name": "x" * 300},
            f"name: String should have at most 256 characters, not '{'x' * 60}'… (300 characters)",
        ),
        (
            {"name": "a\nb"},
            "name: use printable characters, not only blanks, and not * alone (it means "
            "all), not 'a\\nb'",
        ),
        (
            {"tenant": 1, "admin": 2},
            "tenant: this must be a string, not 1; admin: this must be true or false, not 2",
        ),
    ],
)
async def test_the_value_is_told_with_what_is_allowed(live, members, message):
    answer = await live.memory("POST", "/keys", json={**APP, **members}, **ROOT)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)


@pytest.mark.parametrize(
    "members",
    [
        {"key": "sk-secret"},
        {"key_hash": "sk-secret"},
        {"kye": "sk-secret"},
        {"x" * 100_000: "sk-secret"},
    ],
)
async def test_a_key_in_a_body_is_not_told_nor_a_name_without_end(live, members):
    answer = await live.memory("POST", "/keys", json={**APP, **members}, **ROOT)
    assert answer.status_code == 400
    assert "there is no such setting" in answer.json()["error"]["message"]
    assert "sk-secret" not in answer.text
    assert len(answer.text) < 500


async def test_a_body_that_is_no_json_is_told_as_everywhere(live):
    error = (await live.memory("POST", "/keys", content=b'{"name": ', **ROOT)).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_json", None)
    assert error["message"].startswith("The body is not valid JSON at byte 9")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"name": "x"}',
        b'{"name": "x", "tenant": "\xff"}',
        b'{"name": "\\ud800", "tenant": "t"}',
        b'{"name": "x", "tenant": "t", "budget": {"usd": 1e999}}',
        b'{"name": "x", "tenant": "t", "budget": {"usd": NaN}}',
        b"[" * 5000,
    ],
)
async def test_a_body_that_is_no_key_is_a_400(live, body):
    answer = await live.memory("POST", "/keys", content=body, **ROOT)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


async def test_a_name_is_taken_until_its_key_is_revoked(live):
    first = await create(live)
    for taken in ("phone", "app"):
        answer = await live.memory("POST", "/keys", json={**APP, "name": taken}, **ROOT)
        assert (answer.status_code, taken in answer.json()["error"]["message"]) == (409, True)
    await live.memory("DELETE", f"/keys/{first['id']}", **ROOT)
    second = await create(live)
    assert [await status(live, k["key"]) for k in (first, second)] == [401, 200]


@pytest.mark.parametrize("name", ["a/b", "ü 名", "100%", "..x", "key_0"])
async def test_any_name_can_be_revoked_by(live, name):
    key = (await create(live, name=name))["key"]
    assert (await live.memory("DELETE", f"/keys/{quote(name, safe='')}", **ROOT)).json()[
        "name"
    ] == name
    assert await status(live, key) == 401


async def test_revoking_tells_what_it_cannot_do_and_what_it_did(live):
    assert (await live.memory("DELETE", "/keys/nobody", **ROOT)).status_code == 404
    fixed = await live.memory("DELETE", "/keys/app", **ROOT)
    assert fixed.status_code == 409
    assert "configuration" in fixed.json()["error"]["message"]
    made = await create(live, name="ops", admin=True)
    mine = await live.memory("DELETE", "/keys/ops", **as_key(made["key"]))
    assert (mine.status_code, mine.json()["note"]) == (
        200,
        "This request used that key.",
    )
    assert (await live.memory("GET", "/keys", **as_key(made["key"]))).status_code == 401
    again = await live.memory("DELETE", f"/keys/{made['id']}", **ROOT)
    assert again.json()["revoked_at"] == mine.json()["revoked_at"]
    assert (await live.memory("DELETE", "/keys/ops", **ROOT)).status_code == 404


@pytest.mark.parametrize("key", ["sk-sentinel-4f1d", "sk-ada", "sk-other"])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/keys"), ("POST", "/keys"), ("DELETE", "/keys/app")]
)
async def test_only_an_admin_key_has_a_say_over_keys(live, key, method, path):
    answer = await live.memory(method, path, json=APP, **as_key(key))
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
    assert (await live.memory(method, path, json=APP, **as_key("wrong"))).status_code == 401
    assert "phone" not in await names(live)


async def test_what_a_made_key_may_do_is_what_one_of_the_configuration_may(live):
    """Its models, its users, its tenant, its say over others'."""
    nano = (await create(live, name="nano", models=["nano-*"]))["key"]
    assert [await status(live, nano, model=m) for m in ("nano-1", "m")] == [200, 403]
    person = (await create(live, name="person", trusted=False, users=["ada"], default_user="bob"))[
        "key"
    ]
    assert [await status(live, person, user) for user in (None, "bob", "ada", "eve")] == [
        200,
        200,
        200,
        403,
    ]
    assert (await live.memory("GET", "/users/eve/blocks", **as_key(person))).status_code == 403
    assert {
        u["id"] for u in (await live.memory("GET", "/users", **as_key(person))).json()["data"]
    } == {"ada", "bob"}
    trusted = (await create(live, name="trusted", tenant="beta"))["key"]
    assert await status(live, trusted, "eve") == 200
    assert [
        u["tenant"] for u in (await live.memory("GET", "/users", **as_key(trusted))).json()["data"]
    ] == ["beta"]
    assert (await live.memory("GET", "/users?tenant=acme", **as_key(trusted))).status_code == 403
    admin = (await create(live, name="admin", tenant="ops2", admin=True))["key"]
    assert {
        u["tenant"]
        for u in (await live.memory("GET", "/users?tenant=*", **as_key(admin))).json()["data"]
    } == {"acme", "beta"}
    assert (await live.memory("POST", "/keys", json=APP, **as_key(admin))).status_code == 200


async def test_a_caller_carries_the_limits_and_the_budget_of_its_key(live):
    key = (await create(live, **FULL))["key"]
    principal = live.gateway.keys.caller({b"authorization": f"Bearer {key}".encode()})
    assert (principal.limits.model_dump(), principal.budget.model_dump()) == (
        FULL["limits"],
        FULL["budget"],
    )
    plain = live.gateway.keys.caller({b"authorization": b"Bearer sk-other"})
    assert (plain.limits.rpm, plain.limits.tpm, plain.limits.concurrent, plain.budget.usd) == (
        0,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    "credential",
    [
        b"",
        b"Bearer",
        b"Bearer \xff\xfe",
        "Bearer mg-ünïcode".encode(),
        b"Bearer " + b"x" * 50_000,
        b"Basic eDp5",
        b"Bearer a b c",
        b"mg-",
    ],
)
async def test_a_credential_that_is_no_key_is_a_401_whatever_it_is(live, credential):
    await create(live)
    for path in ("/v1/models", "/memory/v1/keys"):
        response = await live.http.get(live.root + path, headers=[(b"authorization", credential)])
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_the_local_token_makes_the_first_key_and_the_answer_tells_when_it_counts(
    data,
):
    async with Model("ok") as up, running(up.url, data) as live:
        token = as_key((data / "token").read_text().strip())
        assert (
            # A provider's key has no say.
            await live.memory("POST", "/keys", json=APP)
        ).status_code == 401
        made = await live.memory("POST", "/keys", json=APP, **token)
        assert "restart" in made.json()["note"]
        assert [k["name"] for k in (await live.memory("GET", "/keys", **token)).json()["data"]] == [
            "phone"
        ]
        assert (await live.memory("DELETE", "/keys/phone", **token)).json()["note"] is None
        assert (await live.chat("hi")).status_code == 200


@pytest.mark.parametrize(
    "server", [{"server.single_user": False}, {"server.single_user": False, "server.open": True}]
)
async def test_where_strangers_may_call_nobody_makes_keys(data, server):
    async with Model("ok") as up, running(up.url, data, server) as live:
        assert (
            # From here on the key is known to be somebody's.
            await live.chat("hi", user="ada")
        ).status_code == 200
        # Whoever holds the local token of open mode runs the gateway, and makes keys as its user.
        opened = "server.open" in server
        token = as_key((data / "token").read_text().strip()) if opened else {}
        for method, path in (("GET", "/keys"), ("POST", "/keys"), ("DELETE", "/keys/x")):
            if opened:
                assert (await live.memory(method, path, json=APP)).status_code == 401
            answer = await live.memory(method, path, json=APP, **token)
            assert answer.status_code == 403
            assert "mnemogate keys create" in answer.json()["error"]["message"]


async def test_a_reading_that_began_before_a_revocation_does_not_bring_the_key_back(
    live, monkeypatch
):
    key, ring = (await create(live))["key"], live.gateway.keys.key_store
    await ring.stop()
    await create(live, name="another", tenant="t")
    # As if another process had made something: the next look reads all.
    ring._counts = (0, 0)
    held, go, read = asyncio.Event(), asyncio.Event(), Database.read

    async def slow(self, work, deadline=None, **how):
        found = await read(self, work, deadline, **how)
        if deadline == api_keys.READ_SECONDS and not (how or held.is_set()):
            held.set()
            await go.wait()
        return found

    monkeypatch.setattr(Database, "read", slow)
    older = asyncio.create_task(ring.refresh())
    await held.wait()
    revoking = asyncio.create_task(live.memory("DELETE", "/keys/phone", **ROOT))
    await asyncio.sleep(0.1)
    go.set()
    assert (await revoking).status_code == 200
    await older
    assert await status(live, key) == 401


@pytest.mark.parametrize("spec", ['{"from": "another version"}', "{", "[]", "7", '{"trusted": 1'])
async def test_a_stored_key_that_cannot_be_read_is_refused_alone(live, caplog, spec):
    good, bad = (await create(live, name="good"))["key"], await create(live, name="bad")
    spoil = update(schema.keys).where(schema.keys.c.name == "bad").values(spec=spec)
    await live.gateway.memory.db.write(lambda conn: conn.execute(spoil) and None)
    await create(live, name="next")
    await live.gateway.keys.key_store.refresh()
    assert [await status(live, k) for k in (good, bad["key"])] == [200, 401]
    assert bad["id"] in caplog.text
    shown = next(
        k for k in (await live.memory("GET", "/keys", **ROOT)).json()["data"] if k["name"] == "bad"
    )
    assert (shown["trusted"], shown["models"], shown["admin"]) == (False, [], False)
    assert (await live.memory("DELETE", f"/keys/{bad['id']}", **ROOT)).status_code == 200
    assert read_key_counts(live.gateway.settings.database) == KeyCounts(3, 2, 0)


async def test_while_the_store_fails_the_keys_last_read_stay_and_it_is_told_once(
    data, monkeypatch, caplog
):
    monkeypatch.setattr(room, "EVERY_SECONDS", 0.01)
    async with managed(data) as live:
        key = (await create(live))["key"]
        read = Database.read

        async def failing(self, *_, **__):
            raise StoreUnavailable("gone")

        with caplog.at_level(logging.WARNING, "mnemogate"):
            monkeypatch.setattr(Database, "read", failing)
            await asyncio.sleep(0.2)
            assert [await status(live, k) for k in (key, "wrong")] == [200, 401]
            monkeypatch.setattr(Database, "read", read)
        assert sum("keys cannot be read again" in r.message for r in caplog.records) == 1
        assert live.gateway.keys.key_store._task is not None
        assert not live.gateway.keys.key_store._task.done()
