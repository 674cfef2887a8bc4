"""Read a heavy JSON text in a thread, a light one at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.wire.json_weight import is_light

Found = TypeVar("Found")


async def run_by_weight(text: bytes, work: Callable[..., Found], *args: Any) -> Found:
    """Call `work` with what is read of a text: at once where the text is light, else in a
    thread.
    """
    return work(*args) if is_light(text) else await asyncio.to_thread(work, *args)
