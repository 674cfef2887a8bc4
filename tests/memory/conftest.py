"""What tests of the store share."""

from __future__ import annotations

import pytest

from tests import stores


@pytest.fixture
async def db(tmp_path):
    out = stores.database(tmp_path / "a.db")
    await out.open()
    yield out
    await out.close()
