"""A gateway with managed keys, for the tests of the management API."""
from __future__ import annotations

import pytest

from tests.gateway.managing import managed


@pytest.fixture
async def live(data):
    async with managed(data) as gateway:
        yield gateway
