"""The routes of the management API and of the Letta door, with queries and bodies they take."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from litestar import Litestar

from gateway.letta.door import ROUTES as LETTA_ROUTES
from gateway.management.router import management

# Values of the names in paths, which both tenants have.
NAMES = {
    "label": "human",
    "team": "core",
    "project": "apollo",
    "member": "ann",
    "file": "plan.md",
    "entry": "lookup",
}
NAMED = {"agents": ("support", "helper"), "teams": ("core",), "projects": ("apollo",)}
# Of a query: values that a look may have, beside none.
QUERY: dict[str, tuple[Any, ...]] = {
    "agent": ("support", "helper"),
    "project": ("apollo",),
    "q": ("river",),
    "layers": ("all",),
    "limit": (50,),
    "user": ("ann",),
    "tags": ("x",),
    "role": ("user",),
    "forgotten": ("true",),
    "group_by": ("user",),
    "label": ("board",),
    "team": ("core",),
}
NEEDED = ("q",)
LETTA_QUERY = ({}, {"limit": 5}, {"query": "river"}, {"order": "asc"}, {"name": "x"})
LETTA_BODY = {"messages": [{"role": "user", "content": "river"}]}
BODY: dict[str, Any] = {
    "content": "river",
    "value": "river",
    "text": "river",
    "write": True,
    "description": "river",
    "messages": LETTA_BODY["messages"],
    "into": "bob",
    "dry_run": True,
    "memory": "full",
    "model": "m",
}
LETTA = "/letta/v1/"


class Route(NamedTuple):
    """A route. query: the names that it takes. body: one that it takes, None where it has none."""

    method: str
    path: str
    query: tuple[str, ...] = ()
    body: dict[str, Any] | None = None

    @property
    def reads(self) -> bool:
        return self.method == "GET"

    @property
    def has_id(self) -> bool:
        return "{ident}" in self.path

    def paths(self, user: str = "ann") -> list[str]:
        """Return the path with each of the names that both tenants have; ids stay open."""
        path = self.path.replace("{user}", user)
        for name, value in NAMES.items():
            path = path.replace(f"{{{name}}}", value)
        kind = path.split("/")[-2 if path.endswith("{name}") else 3]
        names = NAMED.get(kind, NAMED["agents"])
        return [path.replace("{name}", name) for name in names] if "{name}" in path else [path]

    def queries(self) -> list[dict[str, Any]]:
        """Return combinations of what the query of this route may hold."""
        if self.path.startswith(LETTA):
            return list(LETTA_QUERY)
        names = [name for name in self.query if name in QUERY]
        values = [(*QUERY[n],) if n in NEEDED else (None, *QUERY[n]) for n in names]
        found = [dict(zip(names, chosen, strict=True)) for chosen in product(*values)]
        return [{k: v for k, v in query.items() if v is not None} for query in found]


@cache
def routes() -> tuple[Route, ...]:
    """Return all routes, those that read first."""
    schema = Litestar([management()]).openapi_schema.to_schema()
    listed = [
        _management_route(method.upper(), path, operation, schema)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    for route in LETTA_ROUTES:
        body = None if route.method in ("GET", "DELETE") else LETTA_BODY
        listed.append(Route(route.method, LETTA + route.path.replace("*", "{ident}"), (), body))
    return tuple(sorted(listed, key=lambda route: (not route.reads, route.path, route.method)))


def _management_route(method: str, path: str, operation: Any, schema: Any) -> Route:
    path = re.sub(r":\w+}", "}", path)
    query = tuple(p["name"] for p in operation.get("parameters", ()) if p["in"] == "query")
    content = operation.get("requestBody", {}).get("content", {})
    found = content.get("application/json", {}).get("schema", {})
    while "$ref" in found:
        found = schema["components"]["schemas"][found["$ref"].rpartition("/")[2]]
    names = found.get("properties", {})
    body = {n: v for n, v in BODY.items() if n in names} if content else None
    return Route(method, path, query, body)
