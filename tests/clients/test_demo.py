"""Codex and Claude Code against `mnemogate demo`, as a newcomer tries them.

Run by `make test-clients`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.clients.test_codex import Codex
from tests.clients.test_messages import ClaudeCode
from tests.gateway.cli.command import started


@pytest.fixture
def root(tmp_path):
    with started(tmp_path / "data", "demo", "--port", "0") as process:
        process.waited("until Ctrl-C")
        yield process.waited(r'base_url = "(\S+)/v1"')[1]


async def test_codex_and_claude_code_share_a_memory_at_the_demo(root, tmp_path):
    codex = Codex(f"{root}/v1", tmp_path / "codex", "full")
    claude = ClaudeCode(SimpleNamespace(root=root), tmp_path / "claude", "full")
    assert "Ada" in await codex.ask("Hello! My name is Ada, and I like plums.")
    assert "Your name is Ada." in await claude.run("-p", "What is my name?")
    assert "You like plums." in await codex.ask("What do I like?")
