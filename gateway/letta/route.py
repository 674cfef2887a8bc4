"""What a route of the Letta door is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

# JSON, or its bytes; None from a handler that answered itself.
Answer = Any
Handler = Callable[..., Awaitable[Answer]]
NAME = "*"


class LettaRoute(NamedTuple):
    """One route. path: below `/letta/v1`, with `*` for a name.

    of_tenant: it is about what is kept for a tenant, who must be a known one.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    of_tenant: bool = True

    def match(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names in a path; None for another path."""
        words = self.path.split("/")
        if len(words) != len(parts):
            return None
        names = []
        for word, part in zip(words, parts, strict=True):
            if word == NAME:
                names.append(part)
            elif word != part:
                return None
        return tuple(names)
