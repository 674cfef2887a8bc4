"""Who meets the gateway without a word from its docs is told where to go."""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.models import Model, call, calls


async def test_a_browser_is_told_of_the_dashboard_and_the_base_url(data):
    async with Model("Hi.") as up, running(up.url, data) as live:
        page = await live.http.get(f"{live.root}/", headers={"accept": "text/html,*/*;q=0.8"})
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert f"{live.root}/v1" in page.text
        assert 'href="/ui"' in page.text
        plain = await live.http.get(f"{live.root}/")
        assert plain.status_code == 404
        assert "/ui" in plain.json()["error"]["message"]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages", "embeddings"])
async def test_who_is_refused_is_told_that_it_is_about_the_caller(data, path):
    key = {
        "name": "app",
        "tenant": "t",
        "key": "mg-0123456789abcdef0123",
        "users": ["ada"],
        "trusted": False,
    }
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
    async with Model("Hi.") as up, running(up.url, data, {"keys": [key]}, key="") as live:
        url = f"{live.url}/{path}"
        bearer = {"authorization": f"Bearer {key['key']}"}
        for status, headers in ((401, {}), (403, {**bearer, "x-memory-user": "eve"})):
            if status == 403 and path == "embeddings":
                continue
            answer = await live.http.post(url, json=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert answer.headers["x-memory-status"] == "off"
            assert answer.headers["x-memory-reason"] == "auth"
        wrong = await live.http.post(url, content=b"{", headers=bearer)
        assert wrong.headers.get("x-memory-reason") != "auth"
    async with Model((401, {"error": {"message": "bad key"}})) as up, running(up.url, data) as live:
        answer = await live.http.post(f"{live.url}/{path}", json=body)
        assert answer.headers.get("x-memory-reason") != "auth"


async def test_a_server_of_this_machine_that_needs_no_key_gets_requests_without_one(data):
    """Memory works too: background work, and commands."""
    append = call("core_memory_append", {"label": "human", "content": "Likes tea"})
    config = {"memory.commands": True}
    async with (
        Model(calls(append), "Noted.") as up,
        running(up.url, data, config, key="") as live,
    ):
        answer = await live.chat("I like tea")
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-memory-user"] == "me"
        told = (await live.chat("/memory")).json()["choices"][0]["message"]["content"]
        assert "Likes tea" in told


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "https://llm.example.com/v1"])
async def test_a_server_elsewhere_is_asked_nothing_without_a_key(data, url):
    async with running(url, data, key="") as live:
        answer = await live.chat("Hi")
        assert answer.status_code == 401
        assert answer.json()["error"]["message"].startswith("No API key given")
