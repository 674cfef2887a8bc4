"""Parse heavy JSON in a thread, light JSON at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.wire.json_weight import SEARCHED_BYTES, is_in, is_light
from gateway.wire.long_content import LongContent

Result = TypeVar("Result")


async def run_by_weight(text: bytes, work: Callable[..., Result], *args: Any) -> Result:
    """Call `work` at once if the text is light, else in a thread."""
    if is_light(text):
        return work(*args)
    return await run_heavy(work, *args)


async def look_for(content: bytes | Sequence[bytes | memoryview] | None, *needles: bytes) -> bool:
    """Tell whether a body, or one of its parts, holds one of these marks, in a thread if long."""
    parts = [content] if isinstance(content, bytes) else content or ()
    if not isinstance(parts, LongContent) and sum(map(len, parts)) <= SEARCHED_BYTES:
        return _hold_any(parts, needles)
    return await asyncio.to_thread(_hold_any, parts, needles)


def _hold_any(parts: Sequence[bytes | memoryview], needles: Sequence[bytes]) -> bool:
    # `in` goes through a view of memory element by element, a hundred times slower.
    texts = (part if isinstance(part, bytes) else bytes(part) for part in parts)
    return any(is_in(text, needle) for text in texts for needle in needles)


async def run_heavy(work: Callable[..., Result], *args: Any) -> Result:
    """Call `work` in a thread, without searches for garbage while it makes many objects.

    Each search would look at all that was made so far, and nobody else runs meanwhile: to decode
    100,000 objects would take twice as long.
    """

    def work_on() -> Result:
        was = gc.isenabled()
        gc.disable()
        try:
            return work(*args)
        finally:
            if was:
                gc.enable()

    return await asyncio.to_thread(work_on)
