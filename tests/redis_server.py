"""A real Redis on a port of its own, which tests may stop, freeze and start again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from gateway.redis_client import RedisClient, Script
from tests.sockets import free_port

PASSWORD = "sentinel-pw-91c3"


class RedisServer:
    """redis-server as a child, keeping nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--requirepass",
            PASSWORD,
        ]
        self.child = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError("redis-server did not start")

    def stop(self) -> None:
        if self.child:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait(10)

    def freeze(self) -> None:
        """From now on it takes connections and says nothing."""
        self.child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.child.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def redis_binary():
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    pytest.importorskip("redis", reason="the extra `redis` is not installed")


@pytest.fixture(scope="session")
def shared_server(redis_binary, tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def redis_server(shared_server):
    """The session's Redis, emptied."""
    await _emptied(shared_server.url)
    return shared_server


@pytest.fixture
def own_server(redis_binary, tmp_path):
    """A Redis for one test to maltreat."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


async def _emptied(url: str) -> None:
    shared = RedisClient(url, wait=5)
    await shared.open()
    await shared.run(Script("redis.call('FLUSHALL')"), ["mnemogate:{all}"], [])
    await shared.close()
