"""The commands of the recipes in docs/agents.md and docs/teams.md, typed as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli

DOCS = Path(__file__).parents[3] / "docs"
COMMAND = re.compile(r"^\d+\. `mnemogate ([^`]*)`", re.MULTILINE)
AGENTS, TEAMS = (
    COMMAND.findall((DOCS / page).read_text(encoding="utf-8")) for page in ("agents.md", "teams.md")
)


@pytest.fixture
def type_command(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MNEMOGATE_STORAGE__VECTORS", "none")
    monkeypatch.chdir(tmp_path)

    def run(command, *more):
        done = CliRunner().invoke(cli, [*shlex.split(command), *more])
        assert done.exit_code == 0, (command, done.output)
        return done.output

    return run


def test_the_board_of_the_manager_and_two_workers_has_them_as_members(type_command):
    (board,) = [command for command in AGENTS if command.startswith("shared put")]
    for name in ("manager", "worker-1", "worker-2"):
        Path("agent.json").write_text(json.dumps({"home": "agent"}))
        type_command(f"agents put {name} agent.json")
    type_command(board)
    (block,) = json.loads(type_command("shared list --json"))
    members = {member["agent"]: member["write"] for member in block["members"]}
    assert members == {"manager": True, "worker-1": True, "worker-2": True}


def test_the_household_shares_a_block_that_all_of_them_write(type_command):
    assert [command.split()[0] for command in TEAMS] == ["teams", "shared"]
    for command in TEAMS:
        type_command(command)
    (block,) = json.loads(type_command("shared list --json"))
    assert (block["label"], block["value"]) == ("family", "Dinner is at seven.")
    assert [(member["team"], member["write"]) for member in block["members"]] == [("family", True)]


def test_the_support_agents_key_and_profile_are_made(type_command, monkeypatch):
    commands = [command for command in AGENTS if not command.startswith("shared")]
    assert [command.split()[:2] for command in commands] == [["keys", "create"], ["agents", "put"]]
    Path("support.json").write_text(json.dumps({"instruction": "Be kind."}))
    (key,) = re.findall(r"mnemogate-[\w-]{43}", type_command(commands[0]))
    monkeypatch.setenv("MNEMOGATE_KEY", key)
    type_command(commands[1])
    assert [agent["name"] for agent in json.loads(type_command("agents list --json"))] == [
        "support"
    ]
