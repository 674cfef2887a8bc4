"""What the web framework keeps of the paths and queries that came: there bounded in number, here in
bytes too.

A query of 16 KiB leaves up to a mebibyte in tables of 1,024 places, before anybody asks who sent
it. Chat completions at their plain path never come by here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

BYTES = 2 << 20
# Of a request; and for each byte of a path, and of a query: that may be all short names.
EACH, PATH, QUERY = 1000, 24, 96
# Litestar's, as far as a version of it has them (a test tells when one that is installed has not).
TABLES = (
    ("litestar._parsers", "parse_query_string"),
    ("litestar._kwargs.extractors", "create_query_default_dict"),
    ("litestar._asgi.routing_trie.traversal", "parse_path_params"),
)


def tables() -> list[Any]:
    """Return the framework's functions that remember what they were given."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in TABLES]
    return [function for function in found if hasattr(function, "cache_clear")]


class RouterCaches:
    """Counts what requests may have left, and forgets all of it once that has `BYTES`.

    routes: forgets an application's routes.
    """

    def __init__(self, routes: Callable[[], None]) -> None:
        self._forget = [routes, *(function.cache_clear for function in tables())]
        self.held = 0

    def leave(self, path: str, query: bytes) -> None:
        """Count a request that is about to leave its own."""
        more = EACH + PATH * len(path) + QUERY * len(query)
        if self.held + more > BYTES:
            for forget in self._forget:
                forget()
            self.held = 0
        self.held += more
