"""Two tenants with the same names of everything, and one that looks for the other's words.

    python -m tests.bench.isolation [--most N] [--seed N]

Every object of a tenant holds a word of that tenant's alone. The other tenant's keys then look by
every route of the management API, by the Letta door, in chats and in the dashboard, with the names
that both have, and with ids of the first. Whatever is answered, and whatever reaches the model,
must not hold the first one's word; and what the first one has must be as before.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from litestar import Litestar

from gateway.letta.door import ROUTES as LETTA_ROUTES
from gateway.management.router import management
from gateway.ui.router import PAGES
from tests.conftest import Live, running
from tests.gateway.ui.looking import Looker
from tests.models import Model, call, calls, text

SECRET = "mg-0123456789abcdef0123"
FIRST, SECOND = "first", "second"  # the tenants
WORDS = {FIRST: "quokkaalpha", SECOND: "quokkabeta"}
IDENT = re.compile(r"\b[a-z]{2,12}[_-][0-9a-f]{8}[0-9a-f-]{8,40}\b")
SOURCE = 'def triple(days: int) -> str:\n    """TOLD river."""\n    return "TOLD river"\n'
# Values of the names in paths that both tenants have.
NAMES = {
    "user": "ann",
    "label": "human",
    "team": "core",
    "project": "apollo",
    "member": "ann",
    "file": "plan.md",
    "entry": "lookup",
}
NAMED = ("support", "helper", "triple", "core", "apollo")  # what {name} may be
QUERIES: tuple[dict[str, str], ...] = (
    {},
    {"agent": "support"},
    {"project": "apollo"},
    {"q": "river", "query": "river", "layers": "all"},
    {"tenant": FIRST},
    {"tenant": "*", "user": "ann", "team": "core", "label": "board"},
)
PAGES_LEFT_OUT = ("events", "sign", "enter", "links", "tick")  # streams, and the session itself
BODIES: dict[str, Any] = {
    "content": "x",
    "text": "x",
    "value": "x",
    "messages": [{"role": "user", "content": "river"}],
}


def keys() -> list[dict[str, Any]]:
    """The keys of both: one that is trusted, one that speaks for a user, and one that operates."""
    made = []
    for tenant in (FIRST, SECOND):
        base = {"tenant": tenant, "tools": ["*"]}
        made.append({"name": tenant, "key": key_of(tenant), **base})
        limited = {"trusted": False, "users": ["ann"]}
        made.append({"name": f"{tenant}-ann", "key": f"{key_of(tenant)}-ann", **base, **limited})
    made.append({"name": "setup", "key": f"{SECRET}-admin", "tenant": FIRST, "admin": True})
    return made


def key_of(tenant: str) -> str:
    return f"{SECRET}-{tenant}"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def reply(seen: Any, wire: Any) -> Any:
    """A model that searches everything before it answers."""
    if not seen.body or seen.json["messages"][-1]["role"] == "tool":
        return text("I have looked.")
    names = {tool["function"]["name"] for tool in seen.json.get("tools", ())}
    searches = ("archival_memory_search", "conversation_search", "file_search")
    wanted = [call(n, {"query": "river"}, f"c{n}") for n in searches if n in names]
    return calls(*wanted) if wanted else text("I cannot look.")


class IsolationRun:
    """The looks of one run. answered: without an error. leaks: that saw the other's word.

    seen: answers to the first tenant that hold its own word, so that there is something to see.
    most: looks at each route. ids: those of the first tenant's objects.
    """

    def __init__(self, live: Live, model: Any, most: int, seed: int) -> None:
        self.live, self.model, self.most = live, model, most
        self.choose = random.Random(seed)
        self.looks = self.answered = self.seen = 0
        self.leaks: list[str] = []
        self.ids: list[str] = []

    async def ask(self, method: str, path: str, key: str, **options: Any) -> Any:
        headers = {**(bearer(key) if key else {}), **options.pop("headers", {})}
        url = f"{self.live.root}{path}"
        return await self.live.http.request(method, url, headers=headers, **options)

    async def make(self, method: str, path: str, tenant: str, **options: Any) -> Any:
        answer = await self.ask(method, path, key_of(tenant), **options)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else {}

    async def fill(self, tenant: str) -> None:
        """Give a tenant one of everything."""
        told, make = f"{WORDS[tenant]} river", self.make
        memory = "/memory/v1"
        block = {"label": "persona", "value": told, "description": told}
        for name, home in (("support", "agent"), ("helper", "user")):
            profile = {
                "model": "m",
                "home": home,
                "title": told,
                "description": told,
                "instruction": told,
                "metadata": {"told": told},
                "blocks": [block],
            }
            await make("PUT", f"{memory}/agents/{name}", tenant, json=profile)
        await make("PUT", f"{memory}/teams/core", tenant, json={"description": told})
        member = {"write": True}
        await make("PUT", f"{memory}/teams/core/members/ann", tenant, json=member)
        project = {"description": told, "users": ["ann"], "teams": ["core"], "write": True}
        await make("PUT", f"{memory}/projects/apollo", tenant, json=project)
        for label, who in (
            ("board", {"everyone": True}),
            ("notes", {"user": "ann"}),
            ("plan", {"agent": "support"}),
            ("rules", {"team": "core"}),
            ("goal", {"project": "apollo"}),
        ):
            shared = {"label": label, "value": told, "description": told, "members": [who]}
            await make("POST", f"{memory}/shared-blocks", tenant, json=shared)
        for whose in ("users/ann", "teams/core", "projects/apollo", "tenant"):
            await make("POST", f"{memory}/{whose}/passages", tenant, json={"content": told})
        await make("PUT", f"{memory}/users/ann/blocks/human", tenant, json={"value": told})
        inbox = {"text": told, "from": "an app"}
        await make("POST", f"{memory}/agents/support/inbox", tenant, json=inbox)
        file = {
            "content": f"# Plan\n\n{told}\n".encode(),
            "headers": {"content-type": "text/plain"},
        }
        await make("PUT", f"{memory}/users/ann/files/plan.md", tenant, **file)
        await self._fill_by_letta(tenant, told)
        for body in self._chats(told):
            await make("POST", "/v1/chat/completions", tenant, **body)

    async def _fill_by_letta(self, tenant: str, told: str) -> None:
        blocks = [{"label": "human", "value": told}]
        sent = {"model": "m", "name": told, "memory_blocks": blocks, "system": told}
        agent = await self.make("POST", "/letta/v1/agents", tenant, json=sent)
        path = f"/letta/v1/agents/{agent['id']}"
        messages = {"messages": [{"role": "user", "content": told}]}
        await self.make("POST", f"{path}/messages", tenant, json=messages)
        await self.make("POST", f"{path}/archival-memory", tenant, json={"text": told})

    @staticmethod
    def _chats(words: str) -> list[dict[str, Any]]:
        """Chats with every agent, in a project and without."""
        said = [{"role": "user", "content": words}]
        return [
            {
                "json": {"model": model, "messages": said},
                "headers": {"x-memory-user": "ann", **more},
            }
            for model in ("m", "agent:support", "agent:helper")
            for more in ({}, {"x-memory-project": "apollo"})
        ]

    async def add_tool(self) -> None:
        """Make a Python tool of the first tenant, where the sandbox is installed."""
        source = SOURCE.replace("TOLD", WORDS[FIRST])
        path, body = "/memory/v1/tools/triple", {"source": source}
        await self.ask("PUT", path, f"{SECRET}-admin", json=body)

    async def harvest(self) -> None:
        """Collect the ids of everything that the first tenant has."""
        for method, path in self.routes():
            if method == "GET" and "{ident}" not in path:
                for filled in self._fill_path(path):
                    answer = await self.ask("GET", filled, key_of(FIRST))
                    self.seen += WORDS[FIRST] in answer.text
                    self.ids += IDENT.findall(answer.text)
        self.ids = sorted(set(self.ids))

    @staticmethod
    def routes() -> list[tuple[str, str]]:
        """All routes of the management API and of the Letta door, as method and path."""
        app = Litestar([management()], openapi_config=None)
        listed = [
            (method, re.sub(r":\w+}", "}", route.path))
            for route in app.routes
            for method in sorted(getattr(route, "methods", ()))
            if method != "OPTIONS"
        ]
        for route in LETTA_ROUTES:
            path = route.path
            while "*" in path:
                path = path.replace("*", "{ident}", 1)
            listed.append((route.method, f"/letta/v1/{path}"))
        return sorted(listed)

    def _fill_path(self, path: str) -> list[str]:
        """Return a path with the names that both tenants have, and with ids of the first."""
        for name, value in NAMES.items():
            path = path.replace(f"{{{name}}}", value)
        paths = [path.replace("{name}", n) for n in NAMED] if "{name}" in path else [path]
        if "{ident}" not in path:
            return paths
        tried = [*self.choose.sample(self.ids, min(self.most, len(self.ids))), "human"]
        return [p.replace("{ident}", ident) for p in paths for ident in tried]

    async def look(self) -> None:
        """Look by every route with the second tenant's keys: first what reads, then the rest."""
        routes = sorted(self.routes(), key=lambda route: route[0] != "GET")
        tried = key_of(SECOND), f"{key_of(SECOND)}-ann"
        for method, path in routes:
            queries = QUERIES if method == "GET" else QUERIES[:1]
            ways = list(product(self._fill_path(path), tried, queries))
            for way in self.choose.sample(ways, min(self.most, len(ways))):
                await self._look_once(method, *way)
        await self._look_in_chats(len(self._chats("")))
        # Who sends no key waits for the answer, so this is done once.
        await self._look_once("GET", "/memory/v1/users/ann/export", "", {})

    async def _look_once(self, method: str, path: str, key: str, query: dict[str, str]) -> None:
        body = {} if method in ("GET", "DELETE") else {"json": BODIES}
        answer = await self.ask(method, path, key, params=query, **body)
        self.note(f"{method} {path} {query} {answer.status_code}", answer)

    def note(self, what: str, answer: Any) -> None:
        """Count a look; note it if the other's word is in its answer, or reached the model."""
        self.looks += 1
        self.answered += answer.status_code < 300
        told = f"{answer.headers}{answer.text}"
        upstream = b"".join(request.body for request in self.model.requests)
        self.model.requests.clear()
        if WORDS[FIRST] in told or WORDS[FIRST].encode() in upstream:
            self.leaks.append(what)

    async def _look_in_chats(self, most: int) -> None:
        for body in self.choose.sample(self._chats("Where is the river?"), most):
            for path in ("/v1/chat/completions", "/u/ann/v1/chat/completions"):
                answer = await self.ask("POST", path, key_of(SECOND), **body)
                self.note(f"POST {path} {body['json']['model']}", answer)

    async def look_in_chats(self) -> None:
        """Talk as the second tenant, before its objects are changed by other looks."""
        await self._look_in_chats(len(self._chats("")))

    async def look_by_name(self) -> None:
        """Call each id of the first tenant as an agent, and as somebody's own."""
        for ident in self.choose.sample(self.ids, min(self.most, len(self.ids))):
            for more in ({"model": f"agent:{ident}"}, {"user": ident}):
                sent = {"model": "m", "messages": BODIES["messages"], **more}
                key = key_of(SECOND)
                answer = await self.ask("POST", "/v1/chat/completions", key, json=sent)
                self.note(f"chat as {more}", answer)

    async def look_at_pages(self) -> None:
        """Open every page of the dashboard with the second tenant's key."""
        looker = Looker(self.live)
        signed_in = await looker.sign_in(key_of(SECOND))
        assert signed_in.status_code == 303, signed_in.text
        paths = {path for page in PAGES for handler in page.ROUTES for path in handler.paths}
        for path in sorted(p for p in paths if not any(left in p for left in PAGES_LEFT_OUT)):
            for more in ({}, {"tenant": FIRST}):
                for ident in self.choose.sample(self.ids, min(2, len(self.ids))):
                    query = {
                        "user": "ann",
                        "name": "support",
                        "label": "human",
                        "id": ident,
                        "q": "river",
                        **more,
                    }
                    answer = await looker.get(path, params=query)
                    self.note(f"GET /ui{path} {more} {answer.status_code}", answer)
        await looker.http.aclose()

    async def snapshot(self) -> dict[str, str]:
        """Return what the first tenant has, as it is shown to itself."""
        memory = "/memory/v1"
        paths = [
            *(f"{memory}/{p}" for p in ("agents", "shared-blocks", "teams", "projects")),
            *(f"{memory}/users/ann/{p}" for p in ("blocks", "passages", "files", "teams")),
            f"{memory}/agents/support/inbox",
            f"{memory}/tenant/passages",
            "/letta/v1/agents",
            "/letta/v1/blocks",
        ]
        return {path: (await self.ask("GET", path, key_of(FIRST))).text for path in paths}


async def play(data: Path, most: int, seed: int) -> IsolationRun:
    """Play one run on a gateway of its own."""
    config = {"keys": keys(), "memory.recall": "always"}
    config |= {"toolbox": {"create": "trusted"}, "tools": {"files": {"kind": "files"}}}
    async with Model(reply) as model, running(model.url, data, config, key="") as live:
        run = IsolationRun(live, model, most, seed)
        for tenant in (FIRST, SECOND):
            await run.fill(tenant)
        await run.add_tool()
        model.requests.clear()
        await run.harvest()
        model.requests.clear()
        before = await run.snapshot()
        await run.look_in_chats()
        await run.look_by_name()
        await run.look_at_pages()
        await run.look()
        assert await run.snapshot() == before, "the other tenant changed something"
        return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=16, help="looks at each route")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        run = asyncio.run(play(Path(folder), args.most, args.seed))
    print(
        f"{run.looks} looks with {len(run.ids)} ids, {run.answered} of them answered, "
        f"{len(run.leaks)} with a foreign word"
    )
    for leak in run.leaks[:20]:
        print(f"  {leak}")
    return 1 if run.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
