"""Bounds, in bytes, what the web framework caches of request paths and queries.

The framework bounds its caches in number only: a query of 16 KiB leaves up to a mebibyte in tables
of 1,024 entries, before authentication. Chat completions at their plain path bypass it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

BYTES = 2 << 20
# Estimated bytes cached: per request, per byte of its path, per byte of its query.
EACH = 1000
PATH = 24
QUERY = 96
# Litestar's cached functions; a test fails if an installed version lacks one.
TABLES = (
    ("litestar._parsers", "parse_query_string"),
    ("litestar._kwargs.extractors", "create_query_default_dict"),
    ("litestar._asgi.routing_trie.traversal", "parse_path_params"),
)


def tables() -> list[Any]:
    """Return the framework's functions that have a cache."""
    functions = [getattr(sys.modules.get(module), name, None) for module, name in TABLES]
    return [function for function in functions if hasattr(function, "cache_clear")]


class RouterCaches:
    """Estimates what requests left in the caches, and clears them all at `BYTES`.

    routes: what clears the cache of routes of each application.
    """

    def __init__(self) -> None:
        self.routes: list[Callable[[], None]] = []
        self.held_bytes = 0

    def leave(self, path: str, query: bytes) -> None:
        """Count a request that the framework is about to handle."""
        size = EACH + PATH * len(path) + QUERY * len(query)
        if self.held_bytes + size > BYTES:
            for forget in (*self.routes, *(function.cache_clear for function in tables())):
                forget()
            self.held_bytes = 0
        self.held_bytes += size
