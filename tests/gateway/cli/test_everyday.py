"""What docs/everyday.md says is so: its commands, and the files of other programs in it."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.config.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "everyday.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ mnemogate (.*)$", TEXT, re.MULTILINE)
OPERATIONS = (PAGE.parent / "operations.md").read_text(encoding="utf-8")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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


class Newcomer:
    """Somebody who types what the page says, on a data folder of their own."""

    def __init__(self, folder):
        self.data = folder / "data"

    def type(self, command, *more):
        """Type a command of the page, or another one; return what it prints."""
        done = CliRunner().invoke(cli, [*shlex.split(command), *more])
        assert done.exit_code == 0, (command, done.output)
        return done.output


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.log").write_text("")
    return Newcomer(tmp_path)


def of_page(beginning):
    """Return the command of the page that begins so."""
    (command,) = {c for c in COMMANDS if c.startswith(beginning)}
    return command


def remember(newcomer, *lines):
    path = newcomer.data.parent / "lines.ndjson"
    path.write_text("".join(f'{{"object": "passage", "content": "{x}"}}\n' for x in lines))
    newcomer.type(f"memory import {path}")


def test_what_is_wrong_is_corrected_with_the_commands_of_the_page(newcomer):
    remember(newcomer, "Likes green tea", "Lives in Bremen")
    search, forget, undo = (of_page(f"memory {x}") for x in ("search", "forget", "undo"))
    assert "green tea" in newcomer.type(search)
    newcomer.type(forget)
    assert "green tea" not in newcomer.type(search)
    newcomer.type(undo)
    assert "green tea" in newcomer.type(search)
    assert "Bremen" in newcomer.type("memory search Bremen")


def test_a_copy_is_made_and_restored_as_the_page_says(newcomer):
    remember(newcomer, "Likes green tea")
    newcomer.type(of_page("db backup"))
    remember(newcomer, "Likes coffee")
    copy = newcomer.data.parent / "today.db"
    shutil.copy(copy, newcomer.data / "mnemogate.db")
    for name in re.findall(r"`(mnemogate\.db-\w+)`", TEXT):
        (newcomer.data / name).unlink(missing_ok=True)
    assert "green tea" in newcomer.type("memory search tea")
    assert "coffee" not in newcomer.type("memory search coffee")
    newcomer.type(of_page("db erase-again"))


def block_of(text, language, part):
    """Return the block of code in a language that has this part."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [block for name, block in blocks if name == language and part in block]
    return found


def run_if_there(program, *arguments):
    """Run a program that checks a file, where it is installed; return what it complains of."""
    path = shutil.which(program, path=SYSTEM_PATH)
    if path is None:
        return ""
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60)
    complaints = done.stderr if done.returncode or program == "systemd-analyze" else ""
    return complaints.strip()


def test_caddy_understands_the_page(tmp_path):
    text = block_of(TEXT, "", "reverse_proxy")
    assert text.count("{") == text.count("}")
    words = [line.split()[0] for line in text.splitlines() if line.strip() not in ("", "}")]
    assert words == ["memory.example.com", "reverse_proxy", "flush_interval"]
    assert f":{Settings().server.port} " in text
    path = tmp_path / "Caddyfile"
    path.write_text(text)
    assert run_if_there("caddy", "validate", "--config", str(path)) == ""


def test_systemd_understands_the_page(tmp_path):
    text = block_of(TEXT, "ini", "[Service]")
    unit = configparser.ConfigParser(strict=True)
    unit.optionxform = str
    unit.read_string(text)
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > Settings().server.drain_seconds
    _, *arguments = shlex.split(service["ExecStart"])
    assert CliRunner().invoke(cli, [arguments[0], "--help"]).exit_code == 0
    # The program and the user of the page are not on this machine.
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
    text = text.replace("User=mnemogate", "User=root")
    path = tmp_path / "mnemogate.service"
    path.write_text(text)
    assert run_if_there("systemd-analyze", "verify", str(path)) == ""


def test_nginx_understands_the_lines_for_it(tmp_path):
    text = block_of(OPERATIONS, "nginx", "proxy_pass")
    assert f"127.0.0.1:{Settings().server.port};" in text
    assert f"client_max_body_size {Settings().server.max_body_mib:.0f}m;" in text
    path = tmp_path / "nginx.conf"
    path.write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off; server {{ listen 127.0.0.1:1;\n{text}}} }}\n"
    )
    assert run_if_there("nginx", "-t", "-q", "-c", str(path), "-p", str(tmp_path)) == ""
