"""What tests of the store share."""

from __future__ import annotations

import pytest

from tests import stores
from tests.memory.files import Library, open_memory


@pytest.fixture
async def db(tmp_path):
    out = stores.database(tmp_path / "a.db")
    await out.open()
    yield out
    await out.close()


@pytest.fixture
async def library(db):
    memory = open_memory(db)
    await memory.open()
    yield Library(memory)
    await memory.close()
