"""Codex with its built-in provider, which would rather speak over a WebSocket.

Run by `make test-clients`.
"""

from __future__ import annotations

import pytest

from gateway.server import middleware
from tests.clients.keen_responses import KeenResponses
from tests.clients.test_codex import OWN, Codex
from tests.conftest import SENTINEL_KEY, running

CONFIG = 'model = "m"\nopenai_base_url = "{url}"\n'


@pytest.fixture
async def live(tmp_path):
    async with KeenResponses() as model, running(model.url, tmp_path / "data", OWN) as live:
        yield live


async def test_codex_asks_for_a_websocket_once_and_goes_on_over_http(live, tmp_path, monkeypatch):
    upgrades = []

    class Refusal(middleware.UpgradeRequired):
        def __init__(self, *args, **options):
            upgrades.append(args)
            super().__init__(*args, **options)

    monkeypatch.setattr(middleware, "UpgradeRequired", Refusal)
    codex = Codex(live.url, tmp_path, "full")
    home = tmp_path / "home"
    (home / "config.toml").write_text(CONFIG.format(url=live.url))
    login = home / "auth.json"
    login.write_text(f'{{"OPENAI_API_KEY": "{SENTINEL_KEY}"}}')
    code, said, told = await codex.run("I like tea.")
    login.unlink()  # the key in it is the test's own
    assert code == 0, told
    assert said.endswith("Hello, Ada.")
    assert "econnecting" not in told
    assert len(upgrades) == 1
