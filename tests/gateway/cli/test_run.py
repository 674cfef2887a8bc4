"""`mnemogate run`: a client is started with the gateway as its server."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from urllib.parse import unquote

import pytest

from gateway.cli.lockfile import hold_lock
from gateway.cli.options import CommandFailed
from gateway.cli.run import MemoryOwner, arguments_for, name_project, variables_for
from tests.sockets import free_port

URL = "http://127.0.0.1:8080"


def test_both_sdks_are_led_here_and_the_user_is_named_beside_what_was_set():
    found = variables_for(URL, MemoryOwner("ada"), {"ANTHROPIC_CUSTOM_HEADERS": "X-A: 1"})
    assert found == {
        "OPENAI_BASE_URL": f"{URL}/v1",
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_CUSTOM_HEADERS": "X-A: 1\nX-Memory-User: ada",
    }


def test_codex_takes_its_provider_as_arguments():
    told = arguments_for(["/usr/bin/codex", "exec", "hi"], URL, MemoryOwner("ada"))
    assert told[-2:] == ["exec", "hi"]
    assert f'model_providers.mnemogate.base_url="{URL}/v1"' in told
    assert 'model_providers.mnemogate.http_headers={ "X-Memory-User" = "ada" }' in told
    assert arguments_for(["claude", "-p", "hi"], URL, MemoryOwner()) == ["claude", "-p", "hi"]


def test_any_name_reaches_the_gateway_as_a_header_can_say_it():
    name = 'Zoë "x" 50%\\'
    told = "Zo%C3%AB %22x%22 50%25%5C"
    headers = variables_for(URL, MemoryOwner(name), {})["ANTHROPIC_CUSTOM_HEADERS"]
    assert headers == f"X-Memory-User: {told}"
    (setting,) = [
        a for a in arguments_for(["codex"], URL, MemoryOwner(name)) if "http_headers" in a
    ]
    found = tomllib.loads(setting)["model_providers"]["mnemogate"]["http_headers"]
    assert found == {"X-Memory-User": told}
    assert unquote(told) == name


def test_a_gateway_that_does_not_run_is_told():
    free = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gateway", "run", "--url", free, "--", sys.executable]
    found = subprocess.run(
        [*command, "-c", "print('ran')"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "ran"
    assert f"nothing answers at {free}" in found.stderr


def test_the_client_runs_with_the_variables_and_they_are_told():
    script = "import os; print(os.environ['ANTHROPIC_BASE_URL'])"
    command = [sys.executable, "-m", "gateway", "run", "--url", f"{URL}/v1", "--"]
    found = subprocess.run(
        [*command, sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == URL
    assert f"ANTHROPIC_BASE_URL={URL}" in found.stderr


def test_a_client_that_is_not_installed_is_told():
    command = [sys.executable, "-m", "gateway", "run", "--", "no-such-client"]
    env = {**os.environ, "PATH": "/nonexistent"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert found.returncode != 0
    assert "no-such-client is not installed" in found.stderr


def test_an_agent_is_named_to_both_programs():
    owner = MemoryOwner("ada", "wörk")
    lines = variables_for(URL, owner, {})["ANTHROPIC_CUSTOM_HEADERS"].split("\n")
    assert lines == ["X-Memory-User: ada", "X-Memory-Agent: w%C3%B6rk"]
    (setting,) = [a for a in arguments_for(["codex"], URL, owner) if "http_headers" in a]
    headers = tomllib.loads(setting)["model_providers"]["mnemogate"]["http_headers"]
    assert headers == {"X-Memory-User": "ada", "X-Memory-Agent": "w%C3%B6rk"}


def test_a_project_is_named_to_both_programs_and_is_the_repository_where_none_is_given(tmp_path):
    owner = MemoryOwner(project="apollo")
    assert variables_for(URL, owner, {})["ANTHROPIC_CUSTOM_HEADERS"] == "X-Memory-Project: apollo"
    (setting,) = [a for a in arguments_for(["codex"], URL, owner) if "http_headers" in a]
    headers = tomllib.loads(setting)["model_providers"]["mnemogate"]["http_headers"]
    assert headers == {"X-Memory-Project": "apollo"}
    inner = tmp_path / "heron" / "src"
    inner.mkdir(parents=True)
    (tmp_path / "heron" / ".git").mkdir()
    assert name_project(inner) == "heron"
    with pytest.raises(CommandFailed, match="no git repository"):
        name_project(tmp_path)


def test_a_proxy_is_not_asked_for_a_gateway_on_this_machine():
    behind = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "intranet, 10.0.0.1"}
    found = variables_for(URL, MemoryOwner(), behind)
    assert found["NO_PROXY"] == found["no_proxy"] == "intranet,10.0.0.1,127.0.0.1"
    assert "NO_PROXY" not in variables_for(URL, MemoryOwner(), {})
    assert "NO_PROXY" not in variables_for("https://gate.example", MemoryOwner(), behind)


def test_run_finds_the_running_gateway(tmp_path):
    """By the variable, by the data folder, and by the demo's."""
    script = "import os; print(os.environ['ANTHROPIC_BASE_URL'])"
    command = [sys.executable, "-m", "gateway", "run", "--", sys.executable, "-c", script]
    env = {**os.environ, "MNEMOGATE_DATA": str(tmp_path)}
    env.pop("MNEMOGATE_URL", None)

    def led_to(**more):
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**env, **more}
        )
        return done.stdout.strip()

    assert led_to() == "http://127.0.0.1:8080"
    with hold_lock(tmp_path / "demo", "http://127.0.0.1:8099"):
        assert led_to() == "http://127.0.0.1:8099"
        with hold_lock(tmp_path, "http://127.0.0.1:9123"):
            assert led_to() == "http://127.0.0.1:9123"
            assert led_to(MNEMOGATE_URL="http://127.0.0.1:7000/v1") == "http://127.0.0.1:7000"
