"""Pages that help: they tell a key nothing of others, and take any number."""

from __future__ import annotations

import pytest

from tests.conftest import SENTINEL_KEY
from tests.gateway.ui.looking import shown, words


@pytest.mark.parametrize("who", [{"user": "bob"}, {}])
async def test_why_tells_a_key_that_is_not_trusted_nothing_of_others(data, who):
    async with shown(data) as (live, sign_in):
        off = {"x-memory": "off"}
        others = (await live.chat("Hi", off, **who)).headers["x-mnemogate-request-id"]
        own = {**off, "authorization": "Bearer sk-ada"}
        mine = (await live.chat("Hi", own)).headers["x-mnemogate-request-id"]
        ada, app = await sign_in("sk-ada"), await sign_in(SENTINEL_KEY)

        async def why(looker, ident):
            return words(await looker.get("/why", params={"id": ident}))

        assert "No such request" in await why(ada, others)
        assert "Memory was off for this request" in await why(ada, mine)
        assert "Memory was off for this request" in await why(app, others)


@pytest.mark.parametrize("since", ["-1", "0", "9" * 18, "9" * 400])
async def test_the_tick_takes_any_time(data, since):
    async with shown(data) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        assert (await looker.get(f"/connect/tick?since={since}")).status_code == 200


async def test_the_snippets_name_a_model_that_the_gateway_serves(data):
    async with shown(data) as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        assert "gpt-4o-mini" in words(await looker.get("/connect"))
        assert (await live.chat("Hello", user="ada", model="llama3.1")).status_code == 200
        page = words(await looker.get("/connect"))
        assert "llama3.1" in page
        assert "gpt-4o-mini" not in page
        assert "has to speak" not in page


async def test_the_snippets_use_a_model_that_the_server_has(data):
    """No model is configured and none was used: the server is asked what it has."""
    listed = [{"id": "nomic-embed-text"}, {"id": "llama3.1:8b"}, {"id": "qwen3"}]
    answer = (200, {"object": "list", "data": listed})
    async with shown(data, answer, routing={"ask_windows": True}) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        page = words(await looker.get("/connect"))
        assert "llama3.1:8b" in page
        assert "gpt-4o-mini" not in page
        assert "nomic" not in page
