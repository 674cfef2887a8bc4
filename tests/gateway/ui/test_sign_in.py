"""Sign-in and sign-out: open to every key, whatever it may do; the cookie of an encrypted page."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from base64 import urlsafe_b64decode

import pytest

from tests.conftest import SENTINEL_KEY, running
from tests.e2e.postgres_chat import storage
from tests.gateway.management.managing import KEYS
from tests.gateway.ui.looking import SAME_ORIGIN, shown
from tests.models import Model


@pytest.mark.parametrize("policy", ["read", "off"])
async def test_a_key_that_may_write_nothing_signs_out(data, policy):
    keys = [*KEYS, {"name": "less", "key": "sk-less", "tenant": "acme", "memory": policy}]
    async with shown(data, keys=keys) as (_, sign_in):
        looker = await sign_in("sk-less")
        assert (await looker.get("")).status_code == (200 if policy == "read" else 403)
        cookies = dict(looker.http.cookies)
        assert (await looker.send("/sign-out", csrf="x")).status_code == 403
        foreign = {"origin": "https://evil.example"}
        assert (await looker.send("/sign-out", foreign)).status_code == 403
        assert (await looker.send("/sign-out")).status_code == 303
        looker.http.cookies.update(cookies)
        assert (await looker.get("")).headers["location"].startswith("/ui/sign-in")


@pytest.mark.parametrize(("scheme", "secure"), [("https", True), ("http", False)])
async def test_the_cookie_of_an_encrypted_page_is_sent_encrypted_only(data, scheme, secure):
    async with shown(data) as (live, sign_in):
        host = live.root.partition("://")[2]
        response = await sign_in.arrive().http.post(
            "/ui/sign-in", data={"key": SENTINEL_KEY}, headers={"origin": f"{scheme}://{host}"}
        )
        assert response.status_code == 303
        assert bool(re.search(r"(?i); secure", response.headers["set-cookie"])) is secure


async def test_a_change_from_elsewhere_is_told_what_differs(data):
    async with shown(data) as (live, sign_in):
        foreign = {"origin": "https://memory.example"}
        refused = await sign_in.arrive().http.post("/ui/sign-in", data={}, headers=foreign)
        assert refused.status_code == 403
        for part in ("https://memory.example", live.root.partition("://")[2], "header Host"):
            assert part in refused.text


async def cookie_of(live, key):
    response = await live.http.post(
        f"{live.root}/ui/sign-in", data={"key": key}, headers=SAME_ORIGIN
    )
    assert response.status_code == 303
    return response.cookies["mnemogate_session"]


def carrying(cookie):
    return {"cookie": f"mnemogate_session={cookie}"}


async def status(live, cookie):
    live.http.cookies.clear()
    answer = await live.http.get(f"{live.root}/ui", headers=carrying(cookie))
    live.http.cookies.clear()
    return answer.status_code


async def sign_out(live, cookie):
    live.http.cookies.clear()
    page = await live.http.get(f"{live.root}/ui", headers=carrying(cookie))
    csrf = page.text.partition('name="csrf" value="')[2][:64]
    answer = await live.http.post(
        f"{live.root}/ui/sign-out", data={"csrf": csrf}, headers={**carrying(cookie), **SAME_ORIGIN}
    )
    assert answer.status_code == 303
    live.http.cookies.clear()


async def link_of(live, key):
    answer = await live.http.post(
        f"{live.root}/ui/links", headers={"authorization": f"Bearer {key}", **SAME_ORIGIN}
    )
    return answer.json()["path"].partition("code=")[2]


async def enter(live, code):
    live.http.cookies.clear()
    answer = await live.http.post(f"{live.root}/ui/enter", data={"code": code}, headers=SAME_ORIGIN)
    live.http.cookies.clear()
    return answer.status_code


async def test_a_sign_out_and_a_used_link_hold_after_a_restart_and_a_session_lasts(data):
    async with Model("ok") as up:
        async with running(up.url, data, {"keys": KEYS}) as live:
            ended, lasting = [await cookie_of(live, SENTINEL_KEY) for _ in range(2)]
            used, fresh = [await link_of(live, SENTINEL_KEY) for _ in range(2)]
            await sign_out(live, ended)
            assert await enter(live, used) == 303
            assert [await status(live, cookie) for cookie in (ended, lasting)] == [303, 200]
        async with running(up.url, data, {"keys": KEYS}) as live:
            assert [await status(live, cookie) for cookie in (ended, lasting)] == [303, 200]
            assert [await enter(live, code) for code in (used, fresh, fresh)] == [401, 303, 401]


async def test_a_sign_out_and_a_used_link_hold_at_every_worker(postgres_url, tmp_path):
    config = {"keys": KEYS, **storage(postgres_url)}
    async with (
        Model("ok") as up,
        running(up.url, tmp_path / "one", config) as one,
        running(up.url, tmp_path / "two", config) as two,
    ):
        cookie, code = await cookie_of(one, SENTINEL_KEY), await link_of(one, SENTINEL_KEY)
        assert [await status(live, cookie) for live in (one, two)] == [200, 200]
        await sign_out(two, cookie)
        assert [await status(live, cookie) for live in (one, two)] == [303, 303]
        both = await asyncio.gather(enter(one, code), enter(two, code))
        assert sorted(both) == [303, 401]
        assert [await enter(live, code) for live in (one, two)] == [401, 401]


async def test_neither_cookie_nor_link_tells_anything_of_a_key(data):
    async with Model("ok") as up, running(up.url, data, {"keys": KEYS}) as live:
        texts = [await cookie_of(live, SENTINEL_KEY), await link_of(live, SENTINEL_KEY)]
        digest = hashlib.sha256(SENTINEL_KEY.encode()).hexdigest()
        for text in texts:
            pieces = [text, *(decoded(part) for part in text.split("."))]
            for piece in pieces:
                assert digest not in piece
                assert SENTINEL_KEY not in piece
            assert re.fullmatch(r"[\w-]{43}", text)
        assert len({*texts, await cookie_of(live, SENTINEL_KEY)}) == 3


def decoded(part):
    with contextlib.suppress(ValueError):
        return urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode("latin-1")
    return ""
