"""One gateway and one scripted upstream for all of the wire's tests that need no configuration of their own."""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import Live, running
from tests.models import Model

ANY = {"targets": [{"provider": "openai"}]}
ALIAS = {"models": {"alias": {"targets": [{"provider": "openai", "model": "real"}]}, "*": ANY}}
COUNT = itertools.count()


@dataclass
class Line:
    """up: the upstream, to be scripted. live: the gateway, for a user of this test's own."""

    up: Model
    live: Live

    async def post(self, raw: bytes, mode: str = "full", path: str = "/chat/completions", **headers: str) -> Any:
        return await self.live.http.post(f"{self.live.url}{path}", content=raw, headers={"x-memory": mode, "content-type": "application/json", **headers})


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _line(tmp_path_factory):
    async with Model("ok") as up, running(up.url, tmp_path_factory.mktemp("wire") / "data", {**ALIAS, "server.max_body_mib": 33, "routing.retries": 0}) as live:
        yield Line(up, live)


@pytest.fixture
def line(_line):
    _line.up.script = ["ok"]
    _line.up.requests.clear()
    _line.live.gateway.lacks.clear()
    _line.live.http.headers["x-memory-user"] = f"user-{next(COUNT)}"
    return _line
