"""The management API: `/memory/v1`."""
from __future__ import annotations

from typing import Any

ROUTES: list[Any] = []
