"""Fixtures that start the real thing: a gateway on a loopback socket, in this process or as a
child.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import settings

from gateway.app import create_app
from gateway.config.loader import load
from gateway.server.uvicorn_server import config_for
from memory import ids
from memory.embed.telemetry import hush
from memory.stores.sql.engine.database import Database
from tests import stores
from tests.e2e.wire.report import (
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)
from tests.redis_server import own_server, redis_binary, redis_server, shared_server

__all__ = [
    "own_server",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_terminal_summary",
    "redis_binary",
    "redis_server",
    "shared_server",
]

# Timing is the bench's to judge: a slow first import must not fail a law.
settings.register_profile("laws", deadline=None)
# CI judges a change: the same examples each time. New ones are looked for wherever else tests run.
settings.register_profile("ci", settings.get_profile("laws"), derandomize=True, database=None)
PROFILE = "ci" if os.environ.get("CI") == "true" else "laws"
# What is played a second time, on another Python: that reads the same bytes in another way.
settings.register_profile("again", settings.get_profile(PROFILE), max_examples=25)
settings.load_profile(PROFILE)

# for gateways that are processes of their own
os.environ.setdefault("MNEMOGATE_ROUTING__ASK_WINDOWS", "false")
# What tests import by themselves is as quiet as in the product.
hush()
SENTINEL_KEY = "sk-sentinel-4f1d"
WRITE, WRITE_NOW = Database.write, Database.write_now


def write_now(db: Database, work: Any) -> Any:
    """Write at once, unless a test stands in for `Database.write`, which then sees each write."""
    is_replaced = Database.write is not WRITE or "write" in vars(db)
    return None if is_replaced else WRITE_NOW(db, work)


Database.write_now = write_now  # type: ignore[method-assign]


# Until all is collected, since all of it stays: a third of the time that it takes.
gc.disable()


def pytest_collection_finish() -> None:
    freeze_heap()
    gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        freeze_heap()


def freeze_heap() -> None:
    """Leave what is here out of the garbage collection, as `serve` does once it has started.

    Else each full collection stops a gateway of this process for up to a second, in which its
    deadlines pass: now and then a test met a request without memory.
    """
    gc.collect()
    gc.freeze()


class Live:
    """A running gateway."""

    def __init__(self, url: str, app: Any, http: httpx.AsyncClient) -> None:
        self.root, self.app, self.http = url, app, http
        self.url = f"{url}/v1"
        self._has_stopped_worker = False

    @property
    def gateway(self) -> Any:
        return self.app.gateway

    async def stop_worker(self) -> None:
        """Stop the background jobs, once they run: the gateway starts them behind its own start."""
        async with asyncio.timeout(10):
            while not (self._has_stopped_worker or self.gateway.worker._tasks):
                await asyncio.sleep(0.002)
        self._has_stopped_worker = True
        await self.gateway.worker.stop()

    async def chat(
        self, messages: Any, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        sent = {
            "model": "m",
            "messages": [{"role": "user", "content": messages}]
            if isinstance(messages, str)
            else messages,
            **body,
        }
        return await self.http.post(
            f"{self.url}/chat/completions", json=sent, headers=headers or {}
        )

    async def stream(
        self, messages: Any, headers: dict[str, str] | None = None, **body: Any
    ) -> tuple[httpx.Response, list[Any]]:
        response = await self.chat(messages, headers, stream=True, **body)
        return response, events(response.text)

    async def memory(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.http.request(method, f"{self.root}/memory/v1{path}", **options)


def events(text: str) -> list[Any]:
    """The data of each event of a stream; `[DONE]` as that string."""
    found = [e.removeprefix("data: ") for e in text.split("\n\n") if e.startswith("data: ")]
    return ["[DONE]" if e == "[DONE]" else json.loads(e) for e in found]


def said(found: list[Any]) -> str:
    return "".join(
        ch["delta"].get("content") or ""
        for e in found
        if isinstance(e, dict)
        for ch in e.get("choices", [])
    )


@contextlib.asynccontextmanager
async def running(
    upstream: str, data: Path, config: dict[str, Any] | None = None, key: str = SENTINEL_KEY
) -> AsyncIterator[Live]:
    """A gateway in this process, on a port of its own. config: members over the defaults."""
    overrides = {
        "storage.data": str(data),
        "storage.vectors": "none",
        "memory.read_deadline_ms": 2000,
        "upstream": upstream,
        **stores.settings(data),
        # A scripted model answers what a test gave it, and is asked nothing beside.
        "routing": {"ask_windows": False, **(config or {}).get("routing", {})},
        **{k: v for k, v in (config or {}).items() if k != "routing"},
    }
    # In a thread: a test may play the database server in this loop.
    app = create_app(await asyncio.to_thread(load, None, {}, overrides))
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    served = config_for(app, log_level="error")
    served.load()
    server = uvicorn.Server(served)
    server.lifespan = served.lifespan_class(served)
    # Without the server's own loop and end, which wait by tenths of a second: there are thousands
    # of starts.
    await server.startup([sock])
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=30, headers=headers, verify=False) as http:
        try:
            yield Live(f"http://127.0.0.1:{sock.getsockname()[1]}", app, http)
        finally:
            await http.aclose()
            for listener in server.servers:
                listener.close()
            if tasks := list(server.server_state.tasks):
                _, late = await asyncio.wait(tasks, timeout=1)
                for task in late:
                    task.cancel()
                await asyncio.wait(tasks)
            await server.lifespan.shutdown()
            sock.close()


@pytest.fixture(scope="session", autouse=True)
def _nobodys_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where a test names no folder, it must not find the keys of whoever runs it."""
    os.environ["MNEMOGATE_DATA"] = str(tmp_path_factory.mktemp("nobody"))


@pytest.fixture
def postgres_url() -> str:
    """A database on a real Postgres of this test's own, with tables and nothing in them."""
    return stores.server_url()


@pytest.fixture(scope="session", autouse=True)
def _one_server() -> Iterator[None]:
    yield
    stores.stop()


@pytest.fixture(autouse=True)
def _own_databases() -> Iterator[None]:
    # By what is there for more tests than this one.
    shared = stores.made()
    yield
    stores.drop_all(shared)


@pytest.fixture(autouse=True)
def _keys_of_the_present() -> Iterator[None]:
    """Keys made with a clock that a test set ahead would put all later ones ahead as well."""
    yield
    newest = max(ids.row_keys._last.values())
    if newest > time.time_ns() // 1000:
        ids.row_keys._last = dict.fromkeys(ids.row_keys._last, 0)


@pytest.fixture(autouse=True)
def _patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon a search goes on without a vector store that starts on a busy machine is not what is
    asked here.
    """
    monkeypatch.setattr("memory.stores.chroma.SEARCH_SECONDS", 60.0)
    # Whose sessions are opened within the first turn.
    if stores.POOLED:
        monkeypatch.setattr("memory.session.recorder.TOGETHER_SECONDS", 20.0)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """An empty database, open."""
    database = stores.database(tmp_path / "test.db")
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI nothing may be skipped: with MNEMOGATE_TEST_REQUIRE set, a skipped test is a failed
    one.
    """
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("MNEMOGATE_TEST_REQUIRE"):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped, and MNEMOGATE_TEST_REQUIRE is set: {report.longrepr}"
        )
