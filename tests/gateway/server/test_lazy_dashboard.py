"""The dashboard's application is built once, when somebody first asks for it."""

from __future__ import annotations

import asyncio

from tests.conftest import running
from tests.models import Model, text


async def test_the_dashboard_is_built_once_when_it_is_first_asked_for(data, monkeypatch):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        dashboard = live.app._dashboard
        built, build = [], dashboard._build
        monkeypatch.setattr(dashboard, "_build", lambda: built.append(build()) or built[-1])
        await live.chat([{"role": "user", "content": "hi"}])
        assert built == []
        pages = await asyncio.gather(
            *(live.http.get(f"{live.root}/ui/sign-in", headers={}) for _ in range(4))
        )
        assert [page.status_code for page in pages] == [200] * 4
        assert len(built) == 1


async def test_the_dashboard_sees_settings_that_were_loaded_anew(data):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        await live.http.get(f"{live.root}/ui/sign-in")
        live.app.reload(live.gateway.settings)
        assert live.app._dashboard._app.state.gateway is live.gateway
