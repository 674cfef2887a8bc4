"""`mnemogate run`: a client is started with the gateway as its server."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from urllib.parse import unquote

from gateway.cli.run import arguments_for, variables_for
from tests.sockets import free_port

URL = "http://127.0.0.1:8080"


def test_both_sdks_are_led_here_and_the_user_is_named_beside_what_was_set():
    found = variables_for(URL, "ada", {"ANTHROPIC_CUSTOM_HEADERS": "X-A: 1"})
    assert found == {
        "OPENAI_BASE_URL": f"{URL}/v1",
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_CUSTOM_HEADERS": "X-A: 1\nX-Memory-User: ada",
    }


def test_codex_takes_its_provider_as_arguments():
    told = arguments_for(["/usr/bin/codex", "exec", "hi"], URL, "ada")
    assert told[-2:] == ["exec", "hi"]
    assert f'model_providers.mnemogate.base_url="{URL}/v1"' in told
    assert 'model_providers.mnemogate.http_headers={ "X-Memory-User" = "ada" }' in told
    assert arguments_for(["claude", "-p", "hi"], URL, None) == ["claude", "-p", "hi"]


def test_any_name_reaches_the_gateway_as_a_header_can_say_it():
    name = 'Zoë "x" 50%\\'
    told = "Zo%C3%AB %22x%22 50%25%5C"
    headers = variables_for(URL, name, {})["ANTHROPIC_CUSTOM_HEADERS"]
    assert headers == f"X-Memory-User: {told}"
    (setting,) = [a for a in arguments_for(["codex"], URL, name) if "http_headers" in a]
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
