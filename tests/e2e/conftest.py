"""Real openai SDK clients for a live gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.conftest import SENTINEL_KEY, Live


@pytest.fixture
def sdk():
    """`async with sdk(live) as client`: the official SDK, pointed at the gateway."""

    @contextlib.asynccontextmanager
    async def made(live: Live, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
        client = openai.AsyncOpenAI(
            base_url=live.url,
            api_key=options.pop("api_key", SENTINEL_KEY),
            **{"max_retries": 0, **options},
        )
        try:
            yield client
        finally:
            await client.close()

    return made
