"""Whose memory: every way to name a user, every way to be refused, and single-user mode's
guards.
"""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.conftest import running
from tests.models import Model, call, calls

REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
KEYS = {
    "keys": [
        {"name": "app", "key": "k-app", "tenant": "acme"},
        {"name": "other", "key": "k-other", "tenant": "globex"},
        {
            "name": "phone",
            "key": "k-phone",
            "tenant": "acme",
            "trusted": False,
            "default_user": "ada",
            "users": ["ada2"],
        },
        {"name": "nano", "key": "k-nano", "tenant": "acme", "models": ["nano-*"]},
    ]
}


def auth(key):
    return {"authorization": f"Bearer {key}"}


async def taught(live, up, headers=None, **body):
    up.script = [REMEMBER, "ok"]
    assert (await live.chat("I like tea", headers, **body)).status_code == 200


async def knows(live, up, headers=None, url=None, **body):
    up.script = ["ok"]
    sent = {"model": "m", "messages": [{"role": "user", "content": "?"}], **body}
    response = await live.http.post(
        (url or live.url) + "/chat/completions", json=sent, headers=headers or {}
    )
    assert response.status_code == 200, response.text
    return "Likes tea" in json.dumps(up.bodies[-1])


@pytest.mark.parametrize("name", ["ada", "a/b", "ünïcode 名前", "a%2Fb", "x" * 1024, "."])
async def test_every_way_of_naming_a_user_is_the_same_user(data, name):
    from urllib.parse import quote

    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        await taught(live, up, user=name)
        quoted = quote(name, safe="")
        assert await knows(live, up, {"x-memory-user": quoted})
        if name != ".":
            assert await knows(live, up, url=f"{live.root}/u/{quoted}/v1")
        assert await knows(live, up, safety_identifier=name)
        assert await knows(live, up, {"x-openwebui-user-id": quoted})
        # The header wins.
        assert await knows(live, up, {"x-memory-user": quoted}, user="bob")
        assert not await knows(live, up, user=name + "x" if len(name) < 1024 else "y")


async def test_tenants_and_agents_are_apart(data):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        await taught(live, up, user="ada")
        assert not await knows(live, up, auth("k-other"), user="ada")
        assert not await knows(live, up, {"x-memory-agent": "coder"}, user="ada")
        assert await knows(live, up, {"x-memory-agent": "default"}, user="ada")


@pytest.mark.parametrize(
    "name", ["", "  ", "undefined", "NULL", "anonymous", None, True, 1.5, 0, ["ada"], {"id": 1}]
)
async def test_placeholders_name_nobody(data, name):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        await taught(live, up, user="ada")
        assert not await knows(live, up, user=name)
        assert "tools" not in up.bodies[-1]


async def test_user_names_compare_exactly(data):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        await taught(live, up, user="Ada")
        assert not await knows(live, up, user="ada")


async def test_white_space_around_a_name_is_no_part_of_it(data):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        await taught(live, up, user="ada lovelace")
        assert await knows(live, up, user="\u3000ada lovelace \n")
        assert await knows(live, up, safety_identifier=" ada lovelace")
        assert await knows(live, up, {"x-memory-user": "%20ada%20lovelace%09"})
        assert await knows(live, up, {"x-openwebui-user-id": "ada%20lovelace%20"})
        assert await knows(live, up, url=f"{live.root}/u/%20ada%20lovelace%20/v1")
        assert not await knows(live, up, user="ada  lovelace")


async def test_an_integer_counts_as_its_text(data):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        await taught(live, up, user=42)
        assert await knows(live, up, user="42")
        assert await knows(live, up, {"x-memory-user": "42"})
        assert (await live.chat("hi", user=int("9" * 2000))).status_code == 400


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("ada", "ada"),
        ("a/b ünï", "a%2Fb%20%C3%BCn%C3%AF"),
        ("  ada ", "ada"),
        (7, "7"),
        (None, "none"),
        ("undefined", "none"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_with_memory_says_whose_it_is(data, sent, shown, stream):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        response = await live.chat("hi", user=sent, stream=stream)
        assert (response.status_code, response.headers["x-memory-user"]) == (200, shown)
        assert (
            "x-memory-user" not in (await live.chat("hi", {"x-memory": "off"}, user=sent)).headers
        )
        up.script = [(400, {"error": {"message": "no"}})]
        refused = await live.chat("no", user=sent, stream=stream)
        assert (refused.status_code, refused.headers["x-memory-user"]) == (400, shown)


async def test_a_user_called_none_is_told_from_nobody(data):
    config = {**KEYS, "identity": {"placeholders": []}}
    async with Model("ok") as up, running(up.url, data, config, "k-app") as live:
        assert (await live.chat("hi", user="none")).headers["x-memory-user"] == "%6Eone"


async def test_where_nobody_was_named_the_explain_record_says_what_to_send(data):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        remarks = {}
        for user in (None, "ada"):
            ident = (await live.chat("hi", user=user)).headers["x-memory-explain"]
            remarks[user] = (await live.memory("GET", f"/explain/{ident}")).json()["remarks"]
        (remark,) = remarks[None]
        assert "nobody was named" in remark
        assert "X-Memory-User" in remark
        assert not remarks["ada"]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"x-memory-user": "x" * 1025}, {}),
        ({"x-memory-user": "%zz"}, {}),
        ({"x-memory-user": "%ff"}, {}),
        ({"x-memory-user": "ada%00"}, {}),
        ({"x-memory-agent": "%00"}, {}),
        ({"x-memory-user": "ada", "x-memory-conversation": "a%00b"}, {}),
        ({}, {"user": "ada\x00"}),
        ({}, {"user": "x" * 1025}),
        ({"x-memory": "maybe"}, {}),
        ({"x-memory-conversation": "x" * 300}, {}),
    ],
)
async def test_malformed_names_are_400_and_say_why(data, headers, body):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        response = await live.chat("hi", headers, **body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert not up.requests


async def test_a_key_that_is_not_trusted_speaks_only_for_its_own_users(data):
    async with Model("ok") as up, running(up.url, data, KEYS, "k-phone") as live:
        await taught(live, up)
        assert await knows(live, up, user="ada")
        assert await knows(live, up, auth("k-app"), user="ada")
        assert not await knows(live, up, user="ada2")
        up.requests.clear()
        for headers, body in (
            ({}, {"user": "bob"}),
            ({"x-memory-user": "bob"}, {}),
            ({}, {"safety_identifier": "bob"}),
            ({"x-openwebui-user-id": "bob"}, {}),
        ):
            assert (await live.chat("hi", headers, **body)).status_code == 403
        assert (
            await live.http.post(
                f"{live.root}/u/bob/v1/chat/completions",
                json={"model": "m", "messages": [{"role": "user", "content": "x"}]},
            )
        ).status_code == 403
        assert not up.requests


async def test_wrong_keys_and_models(data):
    async with (
        Model("ok") as up,
        running(
            up.url, data, {**KEYS, "models": {"m": {"targets": [{"provider": "openai"}]}}}, "k-app"
        ) as live,
    ):
        for headers in (
            {"authorization": "Bearer nope"},
            {"authorization": ""},
            {"authorization": "Basic eDp5"},
        ):
            response = await live.chat("hi", headers)
            assert (response.status_code, response.json()["error"]["code"]) == (
                401,
                "invalid_api_key",
            )
        response = await live.chat("hi", model="unknown")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
        assert (await live.chat("hi", auth("k-nano"))).status_code == 403
        assert not up.requests


async def test_a_managed_key_never_reaches_the_upstream(data):
    config = {**KEYS, "providers": {"openai": {"base_url": "x", "api_key": "sk-provider"}}}
    async with Model("ok") as up, running(up.url, data, config, "k-app") as live:
        await live.chat(
            "hi",
            {"cookie": "a=b", "x-api-key": "k-app", "x-memory-user": "ada", "x-mnemogate-x": "1"},
        )
        sent = {k.lower(): v for k, v in up.requests[0].headers}
        assert sent["authorization"] == "Bearer sk-provider"
        assert not [
            k for k in sent if k.startswith(("x-memory", "x-mnemogate", "cookie", "x-api-key"))
        ]
        up.script = [(401, {"error": {"message": "bad key sk-provider"}})]
        response = await live.chat("hi")
        assert (response.status_code, response.json()["error"]["type"]) == (
            502,
            "upstream_auth_error",
        )
        up.script = [(403, {"error": {"message": "sk-provider may not"}})]
        response = await live.chat("hi")
        assert (response.status_code, response.json()["error"]["message"]) == (403, "[key] may not")


async def test_own_key_mode_is_one_tenant_a_key(data):
    async with Model("ok") as up, running(up.url, data, {"server.single_user": False}) as live:
        await taught(live, up, auth("sk-one"), user="ada")
        assert up.requests[0].header("authorization") == "Bearer sk-one"
        assert await knows(live, up, auth("sk-one"), user="ada")
        assert not await knows(live, up, auth("sk-two"), user="ada")
        assert (await live.chat("hi", {"authorization": ""})).status_code == 401


async def test_single_user_mode_survives_a_rotated_key_and_needs_no_name(data):
    async with Model("ok") as up, running(up.url, data) as live:
        await taught(live, up, auth("sk-one"))
        assert await knows(live, up, auth("sk-two"))
        assert await knows(live, up, auth("sk-two"), user="me")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8080"},
        {"origin": "https://evil.example"},
        {"x-forwarded-for": "1.2.3.4"},
        {"forwarded": "for=1"},
        {"via": "1.1 x"},
        {"x-forwarded-anything": "1"},
        {"x-real-ip": "203.0.113.9"},
        {"cf-connecting-ip": "1.2.3.4"},
        {"true-client-ip": "1.2.3.4"},
        {"x-client-ip": "1.2.3.4"},
        {"x-original-forwarded-for": "1.2.3.4"},
        {"x-original-host": "a"},
        {"tailscale-user-login": "a@b.example"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_single_user_mode_refuses_what_may_come_from_elsewhere(data, headers):
    async with Model("ok") as up, running(up.url, data) as live:
        for method, path in (
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("GET", "/memory/v1/users"),
            ("GET", "/health"),
            ("GET", "/schema"),
        ):
            response = await live.http.request(
                method,
                live.root + path,
                headers=headers,
                json={"model": "m", "messages": [{"role": "user", "content": "x"}]},
            )
            assert response.status_code == 403, path
            assert response.json()["error"]["type"] == "permission_error"
        assert not up.requests
        assert (await live.chat("hi", {"origin": live.root})).status_code == 200


async def test_cors_is_off_by_default_and_echoes_when_asked_for(data):
    preflight = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "x-memory-user, x-stainless-os",
    }
    async with Model("ok") as up, running(up.url, data, KEYS, "k-app") as live:
        response = await live.http.options(f"{live.url}/chat/completions", headers=preflight)
        assert "access-control-allow-origin" not in response.headers
    async with (
        Model("ok") as up,
        running(
            up.url, data, {**KEYS, "server.cors_origins": ["https://app.example"]}, "k-app"
        ) as live,
    ):
        response = await live.http.options(f"{live.url}/chat/completions", headers=preflight)
        assert response.headers["access-control-allow-headers"] == "x-memory-user, x-stainless-os"
        response = await live.chat("hi", {"origin": "https://app.example"})
        assert response.headers["access-control-allow-origin"] == "https://app.example"


async def test_single_user_mode_refuses_a_bare_reverse_proxy_and_not_a_listed_page(data):
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    async with (
        Model("ok") as up,
        running(up.url, data, {"server.cors_origins": ["https://app.example"]}) as live,
    ):
        port = int(live.root.rsplit(":", 1)[1])
        for path, status in (
            (b"POST /v1/chat/completions", b"403"),
            (b"GET /v1/models", b"403"),
            (b"GET /health", b"200"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                path + b" HTTP/1.0\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer sk\r\n"
                b"content-length: %d\r\n\r\n" % (port, len(body)) + body
            )
            assert (await reader.read()).split()[1] == status
            writer.close()
        assert not up.requests
        page = {"sec-fetch-site": "cross-site", "origin": "https://app.example"}
        assert (await live.chat("hi", page)).status_code == 200
        assert (await live.chat("hi", {"sec-fetch-site": "same-origin"})).status_code == 200


async def counted(live, *tables):
    await live.gateway.memory.wait_until_ready()
    return [
        await live.gateway.memory.db.read(
            lambda conn, t=t: conn.exec_driver_sql(f"select count(*) from {t}").scalar(), 5
        )
        for t in tables
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tenant_no_upstream_ever_accepted_keeps_nothing_of_a_turn_without_an_answer(
    data, stream
):
    tables = ("scopes", "conversations", "messages", "nodes")

    async def slow(seen, wire):
        if "invented" in seen.header("authorization"):
            await seen.gone.wait()
        return "fine"

    async with (
        Model(slow) as up,
        running(up.url, data, {"server.single_user": False, "routing.retries": 0}, key="") as live,
    ):
        for user in ("ada", None):
            named = {"user": user} if user else {}
            with pytest.raises(httpx.ReadTimeout):
                await live.http.post(
                    f"{live.url}/chat/completions",
                    headers=auth("sk-invented"),
                    timeout=0.6,
                    json={
                        "model": "m",
                        "stream": stream,
                        "messages": [{"role": "user", "content": "x" * 50_000}],
                        **named,
                    },
                )
        up.script = [(500, {"error": {"message": "busy"}})]
        assert (await live.chat("hello", auth("sk-invented"), stream=stream)).status_code == 500
        for _ in range(100):
            if not any(left := await counted(live, *tables)):
                break
            await asyncio.sleep(0.05)
        assert left == [0, 0, 0, 0]
        # Once an upstream has answered, what the user said stays whatever becomes of the answer.
        up.script = ["fine", (500, {"error": {"message": "busy"}})]
        assert (
            await live.chat("hello", auth("sk-real"), user="ada", stream=stream)
        ).status_code == 200
        before = await counted(live, "messages")
        assert (
            await live.chat("I like tea", auth("sk-real"), user="ada", stream=stream)
        ).status_code == 500
        assert await counted(live, "messages") == [before[0] + 1]
