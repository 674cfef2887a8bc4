"""A second gateway on one memory is refused, and takes over from one that ended."""

from __future__ import annotations

import json
import signal
import time

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
        "MNEMOGATE_MEMORY__READ_DEADLINE_MS": "2000",
    }


def serving(data, upstream, **env):
    return started(data, "serve", "--port", "0", "--upstream", upstream.url, **env)


def serves(process):
    """Tell whether turns come to be remembered; one may be late on a busy machine."""
    until = time.monotonic() + 20
    while status_of_turn(process) != "ok":
        if time.monotonic() > until:
            return False
    return True


def status_of_turn(process):
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": "Bearer k"}
    answer = httpx.post(
        f"{process.url}/v1/chat/completions", json=body, headers=headers, timeout=30
    )
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
        assert serves(one)
        serve = ("serve", "--port", "0", "--upstream", bundled.url)
        second = mnemogate(tmp_path / "two", *serve, **env)
        assert second.returncode == REFUSED
        held = lease(postgres_url)
        assert held["pid"] == one.popen.pid
        assert f"host {held['host']}, process {held['pid']}" in second.stderr
        assert "Stop it first" in second.stderr
        assert PASSWORD not in second.stderr
        assert serves(one)
        one.stopped(end)
    with serving(tmp_path / "two", bundled, **env) as two:
        assert serves(two)
        assert lease(postgres_url)["pid"] == two.popen.pid


def test_commands_work_beside_a_gateway_and_take_no_lease(postgres_url, tmp_path, bundled):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert serves(one)
        before = lease(postgres_url)["incarnation"]
        for command in (("users", "list"), ("doctor",), ("db", "upgrade")):
            found = mnemogate(tmp_path / "two", *command, **env)
            assert "Another gateway serves" not in found.stderr, command
        assert lease(postgres_url)["incarnation"] == before
        assert serves(one)


def test_in_one_data_folder_the_second_is_refused_whatever_the_store(tmp_path, bundled):
    with serving(tmp_path, bundled) as one:
        assert serves(one)
        second = mnemogate(tmp_path, "serve", "--port", "0", "--upstream", bundled.url)
        assert second.returncode == REFUSED
        assert f"{one.url} serves the data folder {tmp_path} already" in second.stderr
        assert serves(one)
        one.stopped(signal.SIGKILL)
    with serving(tmp_path, bundled) as two:
        assert serves(two)


def test_one_that_stood_still_finds_its_lease_taken_and_writes_nothing(
    postgres_url, tmp_path, bundled
):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert serves(one)
        one.popen.send_signal(signal.SIGSTOP)
        age = "SELECT extract(epoch FROM clock_timestamp()) - (value::jsonb->>'seen')::float8 "
        while stores.on_server(postgres_url, f"{age} FROM meta WHERE name = 'gateway'")[0][0] < 8:
            time.sleep(0.1)
        with serving(tmp_path / "two", bundled, **env) as two:  # it waits until the lease ends
            assert serves(two)
            before = stores.on_server(postgres_url, "SELECT count(*) FROM messages")
            one.popen.send_signal(signal.SIGCONT)
            assert status_of_turn(one) == "degraded"
            assert stores.on_server(postgres_url, "SELECT count(*) FROM messages") == before
            one.waited(f"has lost its lease .*process {two.popen.pid}")
            assert serves(two)
            two.stopped()
        one.waited("serves its database again")
        assert serves(one)
