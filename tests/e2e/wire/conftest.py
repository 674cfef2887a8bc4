"""Gateways that many tests share, each in front of a model whose script a test sets: starting one
costs more than a test.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from gateway.routing.cooldowns import LocalCooldowns
from tests.conftest import Live, running
from tests.models import Model

ANY = {"targets": [{"provider": "openai"}]}
ALIAS = {"models": {"alias": {"targets": [{"provider": "openai", "model": "real"}]}, "*": ANY}}
COUNT = itertools.count()


@dataclass
class Line:
    """up: the upstream, to be scripted. live: the gateway."""

    up: Model
    live: Live

    def wake(self) -> None:
        """No target rests any more: a Retry-After of one case is no concern of the next."""
        choice = self.live.gateway.choice
        choice.cooldowns = LocalCooldowns(choice.cooldowns.rules)

    def play(self, *script: Any) -> Live:
        """Sets what the model answers from now on."""
        self.up.script[:] = script
        self.up.requests.clear()
        self.wake()
        return self.live

    async def post(
        self, raw: bytes, mode: str = "", path: str = "/chat/completions", **headers: str
    ) -> Any:
        # What is asked of another path is how it is relayed.
        mode = mode or ("full" if path == "/chat/completions" else "off")
        return await self.live.http.post(
            f"{self.live.url}{path}",
            content=raw,
            headers={"x-memory": mode, "content-type": "application/json", **headers},
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory) -> AsyncIterator[Line]:
    """A module's own, as it is set by default."""
    async with Model("unset") as up, running(up.url, tmp_path_factory.mktemp("line")) as live:
        yield Line(up, live)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _shared(tmp_path_factory) -> AsyncIterator[Line]:
    async with (
        Model("ok") as up,
        running(
            up.url,
            tmp_path_factory.mktemp("wire") / "data",
            {**ALIAS, "server.max_body_mib": 33, "routing.retries": 0},
        ) as live,
    ):
        yield Line(up, live)


@pytest.fixture
def shared(_shared: Line) -> Line:
    """One for all, without retries and with the alias `alias` of `real`, for a user of each test's
    own.
    """
    _shared.play("ok")
    _shared.live.gateway.lacks.clear()
    _shared.live.http.headers["x-memory-user"] = f"user-{next(COUNT)}"
    return _shared
