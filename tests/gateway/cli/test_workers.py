"""`mnemogate serve --workers N`: what it needs, and that it goes on whatever dies."""

from __future__ import annotations

import os
import signal
import time

import httpx
import pytest

from gateway.demo_model.server import start as start_bundled
from tests import stores
from tests.gateway.cli.command import mnemogate, started

REFUSED = 2
WORKERS = "SELECT pid FROM workers ORDER BY pid"


@pytest.fixture
def bundled():
    with start_bundled() as server:
        yield server


def environment(url, redis=""):
    return {
        "MNEMOGATE_STORAGE__DATABASE": url,
        "MNEMOGATE_STORAGE__SECRET": stores.SECRET.hex(),
        "MNEMOGATE_STORAGE__REDIS": redis,
        "MNEMOGATE_MEMORY__READ_DEADLINE_MS": "2000",
        "MNEMOGATE_SERVER__DRAIN_SECONDS": "2",
    }


def pids(url):
    return [row[0] for row in stores.on_server(url, WORKERS)]


def until(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def ask(process, user="ada"):
    """One turn, on a connection of its own."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": "Bearer k", "x-memory-user": user}
    return httpx.post(f"{process.url}/v1/chat/completions", json=body, headers=headers, timeout=30)


def is_well(process):
    try:
        return ask(process).headers.get("x-memory-status") == "ok"
    except httpx.TransportError:  # its connection was at a worker that died
        return False


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_on_sqlite_and_without_redis_it_says_what_it_needs(postgres_url, tmp_path):
    on_a_file = mnemogate(tmp_path, "serve", "--workers", "2")
    assert on_a_file.returncode == REFUSED
    assert (
        "--workers 2: the memory is one SQLite file, which only one worker can serve. Set "
        "storage.database to postgresql+asyncpg://... and storage.redis, or run one gateway per "
        "data folder."
    ) in " ".join(on_a_file.stderr.split())
    alone = mnemogate(tmp_path, "serve", "--workers", "2", **environment(postgres_url))
    assert alone.returncode == REFUSED
    assert "--workers 2: each worker would count limits and budgets for itself" in alone.stderr


def test_workers_share_a_port_are_started_again_and_end_in_order(
    postgres_url, redis_server, tmp_path, bundled
):
    env = environment(postgres_url, redis_server.url)
    options = ("serve", "--workers", "2", "--port", "0", "--upstream", bundled.url)
    with started(tmp_path, *options, **env) as parent:
        until(lambda: len(pids(postgres_url)) == 2 and is_well(parent))
        first = pids(postgres_url)
        assert parent.popen.pid not in first
        assert all(is_well(parent) for _ in range(20))
        told = httpx.get(f"{parent.url}/metrics", timeout=30).text
        counted = [
            float(line.rsplit(" ", 1)[1])
            for line in told.splitlines()
            if line.startswith("mnemogate_requests_total{")
        ]
        # Of both workers.
        assert sum(counted) >= 20, told
        os.kill(first[0], signal.SIGKILL)
        parent.waited("died with status -9; another starts")
        until(lambda: len(pids(postgres_url)) == 2 and first[0] not in pids(postgres_url))
        until(lambda: all(is_well(parent) for _ in range(10)))
        second = pids(postgres_url)
        parent.popen.send_signal(signal.SIGTERM)
        assert parent.popen.wait(30) == 0
        assert not any(map(lives, second))
        assert pids(postgres_url) == []


def test_workers_end_with_their_parent(postgres_url, redis_server, tmp_path, bundled):
    env = environment(postgres_url, redis_server.url)
    options = ("serve", "--workers", "2", "--port", "0", "--upstream", bundled.url)
    with started(tmp_path, *options, **env) as parent:
        until(lambda: len(pids(postgres_url)) == 2)
        found = pids(postgres_url)
        parent.popen.kill()
        until(lambda: not any(map(lives, found)))
