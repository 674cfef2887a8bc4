"""One gateway for a module's tests, in front of a model whose script each test sets: starting one costs more than a test."""
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.conftest import Live, running
from tests.models import Model


class Line:
    """The gateway, and the model behind it."""

    def __init__(self, up: Model, live: Live) -> None:
        self.up, self.live = up, live

    def play(self, *script: Any) -> Live:
        """Sets what the model answers from now on."""
        self.up.script[:] = script
        self.up.requests.clear()
        return self.live


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory) -> AsyncIterator[Line]:
    async with Model("unset") as up, running(up.url, tmp_path_factory.mktemp("line")) as live:
        yield Line(up, live)
