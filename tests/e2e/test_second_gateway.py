"""Gateways on one database, and one data folder, which has one gateway."""

from __future__ import annotations

import signal
import time

import httpx
import pytest

from gateway.demo_model.server import start as start_bundled
from tests import stores
from tests.gateway.cli.command import mnemogate, started
from tests.postgres_server import PASSWORD

REFUSED = 2
SILENT_SECONDS = 16


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


def workers(url):
    return [row[0] for row in stores.on_server(url, "SELECT pid FROM workers ORDER BY slot")]


def test_two_gateways_serve_one_database_and_each_gives_its_place_back(
    postgres_url, tmp_path, bundled
):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert serves(one)
        with serving(tmp_path / "two", bundled, **env) as two:
            assert serves(two)
            assert serves(one)
            assert workers(postgres_url) == [one.popen.pid, two.popen.pid]
            two.stopped()
        assert workers(postgres_url) == [one.popen.pid]
        one.stopped(signal.SIGKILL)
    with serving(tmp_path / "one", bundled, **env) as again:
        assert serves(again)
        assert workers(postgres_url) == [again.popen.pid]


def test_a_gateway_with_another_secret_does_not_start_and_says_why(postgres_url, tmp_path, bundled):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert serves(one)
        env["MNEMOGATE_STORAGE__SECRET"] = "ee" * 32
        serve = ("serve", "--port", "0", "--upstream", bundled.url)
        other = mnemogate(tmp_path / "two", *serve, **env)
        assert other.returncode == REFUSED
        assert "storage.secret is not the secret that this database was made with" in other.stderr
        assert PASSWORD not in other.stderr
        assert serves(one)


def test_a_gateway_does_not_start_on_tables_of_another_version(postgres_url, tmp_path, bundled):
    stores.on_server(postgres_url, "UPDATE alembic_version SET version_num = '0007'")
    serve = ("serve", "--port", "0", "--upstream", bundled.url)
    found = mnemogate(tmp_path, *serve, **environment(postgres_url))
    assert found.returncode == REFUSED
    assert "mnemogate db upgrade" in found.stderr


def test_commands_work_beside_a_gateway(postgres_url, tmp_path, bundled):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert serves(one)
        for command in (("users", "list"), ("doctor",), ("db", "upgrade")):
            found = mnemogate(tmp_path / "two", *command, **env)
            assert "lease" not in found.stderr, command
        assert workers(postgres_url) == [one.popen.pid]
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


def test_one_that_stood_still_hinders_nobody_and_goes_on(postgres_url, tmp_path, bundled):
    env = environment(postgres_url)
    with serving(tmp_path / "one", bundled, **env) as one:
        assert serves(one)
        one.popen.send_signal(signal.SIGSTOP)
        with serving(tmp_path / "two", bundled, **env) as two:
            assert serves(two)
            age = "SELECT extract(epoch FROM clock_timestamp()) - min(seen_at) FROM workers"
            while stores.on_server(postgres_url, age)[0][0] < SILENT_SECONDS:
                assert serves(two)
                time.sleep(0.1)
            one.popen.send_signal(signal.SIGCONT)
            assert serves(one)
            assert serves(two)
