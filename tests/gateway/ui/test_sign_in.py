"""Sign-in and sign-out: open to every key, whatever it may do; the cookie of an encrypted page."""

from __future__ import annotations

import re

import pytest

from tests.conftest import SENTINEL_KEY
from tests.gateway.management.managing import KEYS
from tests.gateway.ui.looking import shown


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
