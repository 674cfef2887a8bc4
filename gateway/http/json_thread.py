"""Parse heavy JSON in a thread, light JSON at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.wire.json_weight import is_light

Result = TypeVar("Result")


async def run_by_weight(text: bytes, work: Callable[..., Result], *args: Any) -> Result:
    """Call `work` at once if the text is light, else in a thread."""
    return work(*args) if is_light(text) else await asyncio.to_thread(work, *args)
