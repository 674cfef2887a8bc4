"""A gateway with managed keys, for the tests of the management API; both kinds of loop for the
tests of what works on sockets itself.
"""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.gateway.management.managing import managed


@pytest.fixture
async def live(data):
    async with managed(data) as gateway:
        yield gateway


def pytest_asyncio_loop_factories(config, item):
    both = item.path.name in ("test_http1.py", "test_upstream.py")
    return {
        "asyncio": asyncio.new_event_loop,
        **({"uvloop": uvloop.new_event_loop} if both else {}),
    }
