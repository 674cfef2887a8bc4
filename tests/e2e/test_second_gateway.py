"""A second gateway on one memory is refused, and takes over from one that ended."""

from __future__ import annotations

import json
import signal

import httpx
import pytest

from gateway.demo_model.server import start as start_bundled
from tests import stores
from tests.gateway.cli.command import mnemogate, started
from tests.postgres_server import PASSWORD

REFUSED = 2


@pytest.fixture
def bundled():
    with start_bundled() as server:
        yield server


def environment(url):
    return {
        "MNEMOGATE_STORAGE__DATABASE": url,
        "MNEMOGATE_STORAGE__SECRET": stores.SECRET.hex(),
    }


def serving(data, upstream, **env):
    return started(data, "serve", "--port", "0", "--upstream", upstream.url, **env)


def ready(process):
    """Wait until the memory is open; return the status of a turn."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": "Bearer k"}
    answer = httpx.post(f"{process.url}/v1/chat/completions", json=body, headers=headers)
    return answer.headers["x-memory-status"]


def lease(url):
    rows = stores.on_server(url, "SELECT value FROM meta WHERE name = 'gateway'")
    return json.loads(rows[0][0]) if rows else None


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_on_one_database_the_second_is_told_who_serves_it_and_serves_after_that(
    postgres_url, tmp_path, bundled, end
):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert ready(one) == "ok"
        serve = ("serve", "--port", "0", "--upstream", bundled.url)
        second = mnemogate(tmp_path / "two", *serve, **env)
        assert second.returncode == REFUSED
        held = lease(postgres_url)
        assert held["pid"] == one.popen.pid
        assert f"host {held['host']}, process {held['pid']}" in second.stderr
        assert "Stop it first" in second.stderr
        assert PASSWORD not in second.stderr
        assert ready(one) == "ok"
        one.stopped(end)
    with serving(tmp_path / "two", bundled, **env) as two:
        assert ready(two) == "ok"
        assert lease(postgres_url)["pid"] == two.popen.pid


def test_commands_work_beside_a_gateway_and_take_no_lease(postgres_url, tmp_path, bundled):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert ready(one) == "ok"
        before = lease(postgres_url)["incarnation"]
        for command in (("users", "list"), ("doctor",), ("db", "upgrade")):
            found = mnemogate(tmp_path / "two", *command, **env)
            assert "Another gateway serves" not in found.stderr, command
        assert lease(postgres_url)["incarnation"] == before
        assert ready(one) == "ok"


def test_in_one_data_folder_the_second_is_refused_whatever_the_store(tmp_path, bundled):
    with serving(tmp_path, bundled) as one:
        assert ready(one) == "ok"
        second = mnemogate(tmp_path, "serve", "--port", "0", "--upstream", bundled.url)
        assert second.returncode == REFUSED
        assert f"{one.url} serves the data folder {tmp_path} already" in second.stderr
        assert ready(one) == "ok"
        one.stopped(signal.SIGKILL)
    with serving(tmp_path, bundled) as two:
        assert ready(two) == "ok"
