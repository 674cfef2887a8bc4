"""The framework's applications see the state that the next request gets."""

from __future__ import annotations

import pytest

from gateway.server.api_app import build_api, build_dashboard
from gateway.server.router_caches import RouterCaches
from gateway.state import CurrentState
from tests.conftest import running
from tests.models import Model, text


@pytest.mark.parametrize("build", [build_api, build_dashboard])
async def test_an_application_sees_settings_that_were_loaded_anew(data, build):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        current, caches = CurrentState(live.gateway), RouterCaches()
        app = build(current, caches)
        live.app.reload(live.gateway.settings)
        current.gateway = live.gateway
        assert app.state.gateway is live.gateway
        assert len(caches.routes) == 1


async def test_two_gateways_of_one_process_have_a_state_each(data, tmp_path):
    key = {"name": "k", "key": "key-of-a-test", "tenant": "t", "admin": True}
    async with Model(text("so be it")) as up:
        provider = {"base_url": up.url, "api_key": "provider-key"}
        config = {"keys": [key], "providers": {"openai": provider}}
        async with (
            running(up.url, data, config, key["key"]) as live,
            running(up.url, tmp_path / "other", config, key["key"]) as neighbour,
        ):
            await live.chat("Hello, I am Ada", user="ada")
            pages = [await g.memory("GET", "/users") for g in (live, neighbour)]
    assert [[user["id"] for user in page.json()["data"]] for page in pages] == [["ada"], []]


async def test_the_schema_lists_what_is_answered_before_the_framework(data):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        listed = (await live.http.get(f"{live.root}/schema/openapi.json")).json()["paths"]
    before = {"/health", "/ready", "/v1/chat/completions", "/memory/v1/users"}
    assert before | {"/mcp", "/u/{user}/mcp"} <= set(listed)
