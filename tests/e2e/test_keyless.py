"""Where no key is needed, nothing but this machine's own programs and pages is answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil

import pytest

from gateway.server import http_protocol
from tests.conftest import running
from tests.models import Model, text
from tests.other_user import forwarding, needs_root, nginx

OPEN = {"server.open": True}
SEVERAL = {**OPEN, "server.single_user": False}
MODES = {"own-key, single-user": {}, "open, single-user": OPEN, "open, several users": SEVERAL}
keyless = pytest.mark.parametrize("config", MODES.values(), ids=MODES)
PATHS = (
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/models"),
    ("GET", "/memory/v1/users"),
    ("PUT", "/memory/v1/users/ada/blocks/human"),
    ("GET", "/ui/sign-in"),
    ("GET", "/schema"),
)
BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x"}
STRANGE = {
    "rebound name": {"host": "evil.example"},
    "other origin": {"origin": "https://evil.example"},
    "a page of another port": {"origin": "http://localhost:3000"},
    "an opaque page": {"origin": "null"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    "a form post": {"content-type": "text/plain", "sec-fetch-site": "same-site"},
    "forwarded": {"forwarded": "for=1"},
    "x-forwarded-for": {"x-forwarded-for": "1.2.3.4"},
    "via": {"via": "1.1 x"},
    "cloudflare": {"cf-connecting-ip": "1.2.3.4"},
}


@keyless
@pytest.mark.parametrize("headers", STRANGE.values(), ids=STRANGE)
async def test_no_page_machine_or_proxy_is_answered_where_no_key_is_needed(data, config, headers):
    async with Model("ok") as up, running(up.url, data, config) as live:
        for method, path in PATHS:
            answer = await live.http.request(method, live.root + path, headers=headers, json=BODY)
            assert answer.status_code == 403, path
        assert not up.requests
        own_page = {"origin": live.root, "sec-fetch-site": "same-origin"}
        assert (await live.chat("hi", own_page)).status_code == 200
        assert (await live.chat("hi", {"sec-fetch-site": "none"})).status_code == 200


async def test_whose_connection_it_is_is_found_out_once_for_all_its_requests(data, monkeypatch):
    lookups = []
    find = http_protocol.find_peer_user
    monkeypatch.setattr(
        http_protocol, "find_peer_user", lambda *ends: lookups.append(ends) or find(*ends)
    )
    async with Model("ok") as up, running(up.url, data, OPEN) as live:
        for _ in range(5):
            assert (await live.chat("hi")).status_code == 200
    assert lookups
    assert len(lookups) == len(set(lookups))


async def test_a_key_of_each_client_needs_no_guard(data):
    config = {"server.single_user": False}
    async with Model("ok") as up, running(up.url, data, config) as live:
        proxied = {"x-forwarded-for": "1.2.3.4", "host": "memory.example"}
        assert (await live.chat("hi", proxied)).status_code == 200


@keyless
async def test_a_page_that_is_listed_may_call_where_no_key_is_needed(data, config):
    listed = {**config, "server.cors_origins": ["http://localhost:3000"]}
    async with Model("ok") as up, running(up.url, data, listed) as live:
        page = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}
        assert (await live.chat("hi", page)).status_code == 200


@pytest.mark.parametrize("config", [OPEN, SEVERAL])
async def test_the_management_of_an_open_gateway_needs_the_local_token(data, config):
    async with Model("ok") as up, running(up.url, data, config, key="") as live:
        assert (await live.chat("hi", user="ada")).status_code == 200
        for method, path in PATHS[3:5]:
            answer = await live.http.request(method, live.root + path, json={"value": "x"})
            assert answer.status_code == 401
            guess = {"authorization": "Bearer anything"}
            answer = await live.http.request(method, live.root + path, headers=guess)
            assert answer.status_code == 401
        same = {"sec-fetch-site": "same-origin"}
        wrong = {"key": "anything"}
        answer = await live.http.post(f"{live.root}/ui/sign-in", data=wrong, headers=same)
        assert answer.status_code == 401
        token = (data / "token").read_text().strip()
        bearer = {"authorization": f"Bearer {token}"}
        users = (await live.memory("GET", "/users", headers=bearer)).json()["data"]
        assert [user["id"] for user in users] == ["ada"]
        right = {"key": token}
        answer = await live.http.post(f"{live.root}/ui/sign-in", data=right, headers=same)
        assert answer.status_code == 303
        assert (await live.http.get(f"{live.root}/ui")).status_code == 200


def port_of(live) -> int:
    return int(live.root.rsplit(":", 1)[1])


@needs_root
@keyless
async def test_a_real_nginx_of_another_user_reaches_no_memory(data, tmp_path, config):
    async with Model("ok") as up, running(up.url, data, config) as live:
        async with nginx(port_of(live), tmp_path) as url:
            for method, path in PATHS:
                answer = await live.http.request(method, url + path, json=BODY)
                assert answer.status_code == 403, path
                assert "server.peers" in answer.text
            assert (await live.http.get(f"{url}/health")).status_code == 200
            assert not up.requests
        assert (await live.chat("hi")).status_code == 200


@needs_root
async def test_a_real_nginx_of_another_user_is_served_with_keys(data, tmp_path):
    managed = {"keys": [{"name": "app", "key": "k-app-0123456789", "tenant": "t"}]}
    async with Model("ok") as up, running(up.url, data, managed, "k-app-0123456789") as live:
        async with nginx(port_of(live), tmp_path) as url:
            answer = await live.http.post(f"{url}/v1/chat/completions", json=BODY)
            assert answer.status_code == 200


@pytest.mark.skipif(
    not shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
    reason="nginx is not installed",
)
async def test_a_real_nginx_of_the_same_user_is_not_recognised(data, tmp_path):
    """As the documentation says: whoever runs one has to configure keys."""
    async with Model("ok") as up, running(up.url, data, OPEN) as live:
        user = "root root" if os.geteuid() == 0 else ""
        async with nginx(port_of(live), tmp_path, user) as url:
            answer = await live.http.post(f"{url}/v1/chat/completions", json=BODY)
            assert answer.status_code == 200


@needs_root
@pytest.mark.parametrize(
    ("config", "host", "status"),
    [
        ({}, None, 403),
        ({"server.hosts": ["host.docker.internal"]}, "host.docker.internal", 200),
        ({"server.hosts": ["host.docker.internal"]}, None, 200),
        ({"server.hosts": ["host.docker.internal"]}, "evil.example", 403),
        ({"server.peers": "any"}, None, 200),
    ],
)
async def test_a_proxy_of_bytes_is_answered_where_the_settings_say_so(data, config, host, status):
    async with Model("ok") as up, running(up.url, data, config) as live:
        async with forwarding(port_of(live)) as url:
            headers = {"host": host} if host else {"host": live.root.removeprefix("http://")}
            answer = await live.http.post(f"{url}/v1/chat/completions", headers=headers, json=BODY)
            assert answer.status_code == status
            assert len(up.requests) == (status == 200)


async def test_who_sent_a_request_and_left_is_nobody(data):
    """A closed connection belongs to no user: for root it would look like its own."""
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    async with Model("ok") as up, running(up.url, data) as live:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(live))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body
        )
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await asyncio.sleep(0.3)
        assert not up.requests


KEYS = {"keys": [{"name": "ops", "key": "k-ops-0123456789", "tenant": "t", "admin": True}]}


@pytest.mark.parametrize(
    "headers",
    [{"x-forwarded-for": "1.2.3.4"}, {"via": "1.1 x"}, {"host": "memory.example"}],
)
async def test_metrics_behind_a_proxy_need_an_admin_key(data, headers):
    async with Model("ok") as up, running(up.url, data, KEYS, key="") as live:
        url = f"{live.root}/metrics"
        assert (await live.http.get(url)).status_code == 200
        assert (await live.http.get(url, headers=headers)).status_code == 401
        admin = {**headers, "authorization": "Bearer k-ops-0123456789"}
        assert (await live.http.get(url, headers=admin)).status_code == 200


@needs_root
@pytest.mark.parametrize("config", [KEYS, {}], ids=["managed", "single-user"])
async def test_metrics_through_a_real_nginx_need_a_key(data, tmp_path, config):
    async with Model("ok") as up, running(up.url, data, config, key="") as live:
        assert (await live.http.get(f"{live.root}/metrics")).status_code == 200
        async with nginx(port_of(live), tmp_path) as url:
            assert (await live.http.get(f"{url}/metrics")).status_code == 401
            key = "k-ops-0123456789" if config else (data / "token").read_text().strip()
            admin = {"authorization": f"Bearer {key}"}
            assert (await live.http.get(f"{url}/metrics", headers=admin)).status_code == 200


async def test_no_answer_of_ours_may_be_taken_for_a_page(data):
    async with Model(text("ok")) as up, running(up.url, data) as live:
        bearer = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        answers = [
            await live.http.post(f"{live.url}/chat/completions", content=b"{"),
            await live.http.post(f"{live.url}/chat/completions", json={**BODY, "model": 7}),
            await live.http.get(f"{live.url}/responses/resp_none"),
            await live.http.get(f"{live.url}/models"),
            await live.http.get(f"{live.root}/nothing"),
            await live.http.get(f"{live.root}/health"),
            await live.http.get(f"{live.root}/metrics"),
            await live.http.get(f"{live.root}/schema/openapi.json"),
            await live.http.get(f"{live.root}/ui/sign-in"),
            await live.http.get(f"{live.root}/health", headers={"via": "1.1 x"}),
            await live.memory("GET", "/users", headers=bearer),
            await live.memory("GET", "/users"),
        ]
        for answer in answers:
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(live))
        writer.write(b"\x00\x01\r\n\r\n")
        assert b"x-content-type-options: nosniff\r\n" in await reader.read()
        writer.close()


@pytest.mark.parametrize("path", ["/ui/nothing", "/ui/users/nothing/at/all", "/ui/static/none.js"])
async def test_what_the_dashboard_lacks_is_a_page(data, path):
    async with Model("ok") as up, running(up.url, data) as live:
        answer = await live.http.get(live.root + path)
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert answer.headers["content-security-policy"]
