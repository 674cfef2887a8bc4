"""Both ways to ask."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["plain", "stream"])
def stream(request) -> bool:
    return request.param
