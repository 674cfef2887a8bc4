"""docs/http-api.md names every route of the management API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from litestar import Litestar

from gateway.management.router import management

TEXT = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text()
ROWS = [row for row in TEXT.splitlines() if row.startswith("|")]
ROUTES = sorted(
    (method, re.sub(r"{[^}]*}", "{}", route.path.removeprefix("/memory/v1")))
    for route in Litestar([management()], openapi_config=None).routes
    for method in getattr(route, "methods", ())
    if method != "OPTIONS"
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_stands_in_the_tables(method, path):
    """One row has every word of its path, and its method, or says that it is as another."""
    words = [word for word in path.split("/") if word and word != "{}"]
    rows = [row for row in ROWS if all(re.search(rf"/{re.escape(w)}\b", row) for w in words)]
    if words[0] in ("teams", "projects", "tenant") and "passages" in words:
        rows = [row for row in ROWS if f"/{words[0]}" in row and "passages" in row]
        method = "As a user's"
    assert any(method in row or "The same" in row for row in rows), (method, path)
