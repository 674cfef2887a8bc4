"""An application of the framework is built once, when somebody first asks for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import running
from tests.models import Model, text


@pytest.mark.parametrize(
    ("name", "path"), [("dashboard", "/ui/sign-in"), ("api", "/schema/openapi.json")]
)
async def test_an_application_is_built_once_when_it_is_first_asked_for(
    data, monkeypatch, name, path
):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        app = getattr(live.app.apps, name)
        built, build = [], app._build
        monkeypatch.setattr(app, "_build", lambda: built.append(build()) or built[-1])
        await live.chat([{"role": "user", "content": "hi"}])
        assert (await live.http.get(f"{live.root}/health")).json() == {"status": "ok"}
        assert (await live.http.get(f"{live.root}/ready")).status_code == 200
        assert built == []
        answers = await asyncio.gather(*(live.http.get(live.root + path) for _ in range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4
        assert len(built) == 1


async def test_what_cannot_be_built_is_tried_again(data, monkeypatch):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        app, build = live.app.apps.api, live.app.apps.api._build

        def fail():
            monkeypatch.setattr(app, "_build", build)
            raise MemoryError

        monkeypatch.setattr(app, "_build", fail)
        with pytest.raises(MemoryError):
            await app({"type": "http"}, None, None)
        assert (await live.http.get(f"{live.root}/schema/openapi.json")).status_code == 200
