"""What tests of the store share."""

from __future__ import annotations

import pytest

from memory.stores.sql.database import Database


@pytest.fixture
async def db(tmp_path):
    out = Database(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    await out.open()
    yield out
    await out.close()
