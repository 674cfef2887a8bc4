"""Each command of docs/everyday.md is understood as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli

PAGE = Path(__file__).parents[3] / "docs" / "everyday.md"
COMMANDS = re.findall(r"^\$ mnemogate (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
USAGE_ERROR = 2


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_page_is_run(command, tmp_path, monkeypatch):
    """On an empty data folder, without a server: it may find nothing, but it is no usage error."""
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.log").touch()
    words = shlex.split(command.replace("11434", "9"))
    done = CliRunner().invoke(cli, words)
    assert done.exit_code != USAGE_ERROR, done.output
    assert not isinstance(done.exception, (KeyError, TypeError, AttributeError))


def test_the_page_has_commands():
    assert len(COMMANDS) >= 8
