"""Who makes the first key in the dashboard is not locked out by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import running
from tests.gateway.ui.looking import Looker, words
from tests.models import Model


def token_of(data: Path) -> str:
    return (data / "token").read_text().strip()


async def test_the_first_key_is_an_admins_and_the_local_token_stays_valid(data):
    async with Model("Hi.") as up:
        async with running(up.url, data) as live:
            looker = Looker(live)
            assert (await looker.sign_in(token_of(data))).status_code == 303
            page = words(await looker.get("/keys"))
            assert "Before the first key" in page
            assert "Make an admin key first" in page
            plain = await looker.send("/keys", name="app", tenant="local")
            assert plain.status_code == 409
            assert "admin key first" in words(plain)
            made = await looker.send("/keys", name="boss", tenant="local", admin="on")
            assert "It is shown once" in words(made)
            assert "Before the first key" not in words(await looker.get("/keys"))
            await looker.http.aclose()
        async with running(up.url, data) as live:
            assert live.gateway.settings.mode == "managed"
            looker = Looker(live)
            assert (await looker.sign_in(token_of(data))).status_code == 303
            assert (await looker.get("/keys")).status_code == 200
            assert "boss" in words(await looker.get("/keys"))
            token = {"authorization": f"Bearer {token_of(data)}"}
            assert (await live.memory("GET", "/users", headers=token)).status_code == 200
            assert (await live.chat("Hi", token)).status_code == 401
            await looker.http.aclose()


@pytest.mark.parametrize("wrong", ["x", "0" * 48])
async def test_a_wrong_token_opens_nothing(data, wrong):
    (data / "token").parent.mkdir(parents=True, exist_ok=True)
    keys = [{"name": "app", "tenant": "t", "key": "mg-0123456789abcdef0123"}]
    async with Model("Hi.") as up, running(up.url, data, {"keys": keys}, key="") as live:
        bearer = {"authorization": f"Bearer {wrong}"}
        assert (await live.memory("GET", "/users", headers=bearer)).status_code == 401
        assert not (data / "token").exists()
