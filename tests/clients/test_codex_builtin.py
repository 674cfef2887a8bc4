"""Codex with its built-in provider, which would rather speak over a WebSocket.

Run by `make test-clients`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.server import middleware
from tests.chat_only_model import ChatOnlyModel
from tests.clients.keen_responses import KeenResponses
from tests.clients.test_codex import OWN, Codex
from tests.conftest import SENTINEL_KEY, running

CONFIG = 'model = "m"\nopenai_base_url = "{url}"\n'


class BuiltInCodex(Codex):
    """Codex with its built-in provider, at this address."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder, "full")
        self.home = folder / "home"
        (self.home / "config.toml").write_text(CONFIG.format(url=url))
        login = {"OPENAI_API_KEY": SENTINEL_KEY}
        (self.home / "auth.json").write_text(json.dumps(login))

    def sign_out(self) -> None:
        # The key in it is the test's own.
        (self.home / "auth.json").unlink()


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
    codex = BuiltInCodex(live.url, tmp_path)
    code, said, told = await codex.run("I like tea.")
    codex.sign_out()
    assert code == 0, told
    assert said.endswith("Hello, Ada.")
    assert "econnecting" not in told
    assert len(upgrades) == 1


async def test_codex_compacts_at_a_server_of_chat_completions(tmp_path):
    """Its compaction is the gateway's, and what it goes on with is a message with the summary."""
    summary = "A summary: Ada likes tea."
    async with ChatOnlyModel(summary) as model, running(model.url, tmp_path / "data", OWN) as live:
        codex = BuiltInCodex(live.url, tmp_path)
        code, _, told = await codex.run("I like tea.")
        assert code == 0, told
        limit = ("-c", "model_auto_compact_token_limit=100")
        code, _, told = await codex.run(*limit, "resume", "--last", "What do I like now?")
        codex.sign_out()
        assert code == 0, told
        assert "compacted" in told
        assert summary in str(model.bodies[-1]["messages"])
