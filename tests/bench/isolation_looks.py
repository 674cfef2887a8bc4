"""Looks of everybody who has no right to a word, and what they saw."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.ui.router import PAGES
from tests.bench.isolation_objects import (
    ANN,
    APOLLO,
    APOLLO_SHARED,
    CORE,
    FIRST,
    LETTA,
    MEMORY,
    OPEN,
    PARTITION,
    SECOND,
    SUPPORT,
    bearer,
    key_of,
    word,
)
from tests.bench.isolation_routes import Route, routes
from tests.conftest import Live
from tests.gateway.cli.command import mnemogate
from tests.gateway.ui.looking import Looker

IDENT = re.compile(r"\b[a-z]{2,12}[_-][0-9a-f]{8}[0-9a-f-]{8,40}\b")
# Streams, and the session itself.
PAGES_LEFT_OUT = ("events", "sign", "enter", "links", "tick")
QUESTION = "Where is the river?"
MODELS = ("m", "agent:helper", "agent:support")
PROJECTS: tuple[dict[str, str], ...] = ({}, APOLLO, {"x-memory-project": "zeus"})
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("archival_memory_search", {"query": "river"}),
    ("conversation_search", {"query": "river"}),
    ("conversation_search", {}),
    ("memory_show", {}),
)
COMMANDS = (
    "memory show --user USER",
    "memory search river --user USER",
    "memory export --user USER",
    "memory history human --user USER",
    "memory dropped --user USER",
    "memory show --user USER --agent support",
    "memory show --user USER --project apollo",
    "files list --user USER",
    "files show plan.md --user USER",
    "users list",
    "agents list",
    "agents show helper",
    "agents export support",
    "shared list",
    "teams list",
    "teams show core",
    "projects list",
    "projects show apollo",
    "tools list",
)


class Viewer(NamedTuple):
    """Who looks. foreign: words that they must not see. own: one that they may.

    users: whom they name. outside: the owner, who looks without the project.
    """

    name: str
    key: str
    foreign: tuple[str, ...]
    own: str
    users: tuple[str, ...] = ("ann", "bob")
    outside: bool = False

    @property
    def projects(self) -> tuple[dict[str, str], ...]:
        return tuple(p for p in PROJECTS if p != APOLLO) if self.outside else PROJECTS


def viewers() -> list[Viewer]:
    """Return everybody who looks: at all doors, or, as those of the last two, as users alone."""
    others = (word(FIRST),)
    closed = [word(FIRST, owner) for owner in (ANN, CORE, APOLLO_SHARED, PARTITION)]
    hidden = [word(FIRST, owner) for owner in (SUPPORT, LETTA)]
    second, theirs = key_of(SECOND), word(SECOND)
    return [
        Viewer("other tenant", second, others, theirs),
        Viewer("other tenant's ann", f"{second}-ann", others, theirs, ("ann",)),
        Viewer("bob", f"{key_of(FIRST)}-bob", (*closed, *hidden), word(FIRST, OPEN), ("bob",)),
    ]


def users() -> list[Viewer]:
    closed = [word(FIRST, owner) for owner in (ANN, CORE, APOLLO_SHARED, PARTITION)]
    outside = (word(FIRST, APOLLO_SHARED), word(FIRST, PARTITION), word(SECOND))
    key, opened = key_of(FIRST), word(FIRST, OPEN)
    return [
        Viewer("bob by the app", key, tuple(closed), opened, ("bob",)),
        Viewer("ann outside", key, outside, word(FIRST, ANN), ("ann",), outside=True),
    ]


class Looks:
    """The looks of one run, by their kind.

    answered: without an error; telling: of these, with a word of who looked; refused: the others.
    leaks: that saw a foreign word. most: looks of a kind, by each who looks.
    """

    def __init__(self, live: Live, model: Any, most: int, seed: int) -> None:
        self.live, self.model, self.most = live, model, most
        self.choose = random.Random(seed)
        self.answered, self.telling, self.refused = Counter[str](), Counter[str](), Counter[str]()
        self.leaks: list[str] = []
        self.ids: dict[str, list[str]] = {}
        self.explained: dict[str, list[str]] = {}
        self.prefixes: dict[str, set[str]] = {}

    async def look_around(self) -> None:
        """Look as everybody, by every door; first what reads."""
        everybody = viewers()
        await self._harvest("", key_of(FIRST))
        for viewer in everybody:
            await self._harvest(viewer.name, viewer.key)
        self.model.requests.clear()
        before = await self._snapshot()
        for viewer in (*everybody, *users()):
            await self._look_on_wires(viewer)
            await self._look_over_mcp(viewer)
        for viewer in everybody:
            await self._look_by_routes(viewer, [r for r in routes() if r.reads])
            await self._look_by_name(viewer)
            await self._look_at_pages(viewer)
            await self._look_by_commands(viewer)
        for viewer in everybody:
            await self._look_by_routes(viewer, [r for r in routes() if not r.reads])
        assert await self._snapshot() == before, "somebody changed what is not theirs"

    async def ask(self, method: str, path: str, key: str, **options: Any) -> Any:
        headers = {**bearer(key), **options.pop("headers", {})}
        url = f"{self.live.root}{path}"
        return await self.live.http.request(method, url, headers=headers, **options)

    def note(self, kind: str, what: str, viewer: Viewer, answer: Any) -> None:
        """Count a look; note it if a foreign word is in its answer, or reached the model."""
        status = answer.status_code
        refusal = "" if status < 300 else str(status)
        self._note(kind, what, viewer, (refusal, f"{answer.headers}{answer.text}"))

    def _note(self, kind: str, what: str, viewer: Viewer, seen: tuple[str, str]) -> None:
        refusal, text = seen
        text += b"".join(r.body for r in self.model.requests).decode("utf-8", "replace")
        self.model.requests.clear()
        if refusal:
            self.refused[f"{kind} {refusal}"] += 1
        else:
            self.answered[kind] += 1
            self.telling[kind] += viewer.own in text
        if found := [word for word in viewer.foreign if word in text]:
            self.leaks.append(f"{viewer.name}: {what}: {found}")

    def _sample(self, ways: Any, most: int = 0) -> list[Any]:
        listed = list(ways)
        return self.choose.sample(listed, min(most or self.most, len(listed)))

    async def _harvest(self, name: str, key: str) -> None:
        """Collect the ids of everything that a key sees, and by which routes each kind is read."""
        texts = []
        for route in routes():
            if route.reads and not route.has_id:
                for path, query in itertools.product(route.paths(), route.queries()[:1]):
                    texts.append((await self.ask("GET", path, key, params=query)).text)
        self.ids[name] = sorted({ident for text in texts for ident in IDENT.findall(text)})
        if name:
            return
        for route in routes():
            if route.reads and route.has_id:
                for ident in _one_of_a_kind(self.ids[name]):
                    path = route.paths()[0].replace("{ident}", ident)
                    query = route.queries()[0]
                    if (await self.ask("GET", path, key, params=query)).status_code < 300:
                        self.prefixes.setdefault(_stem(route), set()).add(_prefix(ident))

    def _idents(self, route: Route, name: str) -> list[str]:
        """Return ids that a route may take, of who looks ("" for those of the first tenant)."""
        wanted = self.prefixes.get(_stem(route))
        return [i for i in self.ids[name] if wanted is None or _prefix(i) in wanted]

    def _ways(self, route: Route, viewer: Viewer) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield paths and queries: those of who looks, and some with ids of the first tenant."""
        for user in viewer.users:
            for path, query in itertools.product(route.paths(user), route.queries()):
                if not route.has_id:
                    yield path, query
                    continue
                own = self._sample(self._idents(route, viewer.name), 4)
                for ident in (*own, *self._sample(self._idents(route, ""), 2), "human"):
                    yield path.replace("{ident}", ident), query

    async def _look_by_routes(self, viewer: Viewer, chosen: list[Route]) -> None:
        for route in chosen:
            kind = "letta" if route.path.startswith("/letta") else "routes"
            for path, query in self._sample(self._ways(route, viewer)):
                body = {} if route.body is None else {"json": route.body}
                answer = await self.ask(route.method, path, viewer.key, params=query, **body)
                what = f"{route.method} {path} {query} {answer.status_code}"
                self.note(kind, what, viewer, answer)
        # Names of the owner, whom this key may not name.
        if viewer.users == ("bob",):
            for route in chosen:
                for path in route.paths("ann"):
                    if "/users/ann" in path and not route.has_id:
                        answer = await self.ask(route.method, path, viewer.key)
                        self.note("routes", f"{route.method} {path}", viewer, answer)

    async def _look_on_wires(self, viewer: Viewer) -> None:
        """Ask on each wire, streamed and plain, with each agent and project."""
        ways = itertools.product(
            ("chat/completions", "responses", "messages"),
            MODELS,
            viewer.projects,
            viewer.users,
            (False, True),
        )
        for api, model, project, user, stream in self._sample(ways, 3 * self.most):
            body = wire_body(api, model, stream=stream)
            path = self.choose.choice((f"/v1/{api}", f"/u/{user}/v1/{api}"))
            headers = {"x-memory-user": user, **project}
            answer = await self.ask("POST", path, viewer.key, json=body, headers=headers)
            self.note(api, f"POST {path} {model} {headers}", viewer, answer)
            if ident := answer.headers.get("x-memory-explain"):
                await self._look_at_record(viewer, ident)
        for path in ("messages/count_tokens", "responses/input_tokens"):
            body = wire_body(path.partition("/")[0], "m", stream=False)
            answer = await self.ask("POST", f"/v1/{path}", viewer.key, json=body)
            self.note("counts", path, viewer, answer)

    async def _look_at_record(self, viewer: Viewer, ident: str) -> None:
        """Look at the explain record of a request, and at one of somebody else's."""
        self.explained.setdefault(viewer.name, []).append(ident)
        everybody = [i for found in self.explained.values() for i in found]
        for one in (ident, self.choose.choice(everybody)):
            if one != ident and viewer in users():
                # A key that is trusted sees all of its tenant.
                continue
            answer = await self.ask("GET", f"{MEMORY}/explain/{one}", viewer.key)
            self.note("explain", f"GET explain {one}", viewer, answer)

    async def _look_over_mcp(self, viewer: Viewer) -> None:
        asks: list[tuple[str, dict[str, Any]]] = [
            *(("tools/call", {"name": n, "arguments": a}) for n, a in TOOLS),
            ("resources/list", {}),
            ("resources/read", {"uri": "memory://blocks/human"}),
            ("resources/read", {"uri": "memory://blocks/persona"}),
            ("resources/read", {"uri": "memory://changes"}),
            ("tools/list", {}),
        ]
        named = ({"x-memory-agent": name} for name in ("helper", "support"))
        agents: tuple[dict[str, str], ...] = ({}, *named)
        ways = itertools.product(asks, viewer.projects, viewer.users, agents)
        for (method, params), project, user, agent in self._sample(ways):
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            headers = {**project, **agent}
            path = f"/u/{user}/mcp"
            answer = await self.ask("POST", path, viewer.key, json=body, headers=headers)
            self.note("mcp", f"{method} {params} {user} {headers}", viewer, answer)

    async def _look_by_name(self, viewer: Viewer) -> None:
        """Call each id of the first tenant as an agent, and as somebody's own."""
        for ident in self._sample(self.ids[""]):
            for more in ({"model": f"agent:{ident}"}, {"user": ident}):
                sent = {**wire_body("chat/completions", "m", stream=False), **more}
                answer = await self.ask("POST", "/v1/chat/completions", viewer.key, json=sent)
                self.note("names", f"chat as {more}", viewer, answer)

    async def _look_at_pages(self, viewer: Viewer) -> None:
        looker = Looker(self.live)
        signed_in = await looker.sign_in(viewer.key)
        if signed_in.status_code == 303:
            handlers = [h for page in PAGES for h in page.ROUTES if "GET" in h.http_methods]
            paths = {path for handler in handlers for path in handler.paths}
            shown = sorted(p for p in paths if not any(left in p for left in PAGES_LEFT_OUT))
            for path in self._sample(shown, 12 * self.most):
                for user, ident in itertools.product(viewer.users, self._page_ids(viewer)):
                    query = {"user": user, "label": "human", "q": "river", "id": ident}
                    query |= {"name": "helper", "agent": "default"}
                    answer = await looker.get(path, params=query)
                    self.note("pages", f"GET /ui{path} {query}", viewer, answer)
        await looker.http.aclose()

    def _page_ids(self, viewer: Viewer) -> list[str]:
        most = 1 + (self.most > 1)
        return [*self._sample(self.ids[viewer.name], most), *self._sample(self.ids[""], 1)]

    async def _look_by_commands(self, viewer: Viewer) -> None:
        ways = itertools.product(COMMANDS, viewer.users)
        for command, user in self._sample(ways):
            arguments = command.replace("USER", user).split()
            with tempfile.TemporaryDirectory() as folder:
                asked = (*arguments, "--url", self.live.root, "--key", viewer.key)
                done = await asyncio.to_thread(mnemogate, Path(folder), *asked)
            seen = "failed" if done.returncode else "", done.stdout + done.stderr
            self._note("commands", command, viewer, seen)

    async def _snapshot(self) -> dict[str, str]:
        """Return what the first tenant has, as it is shown to itself."""
        users = f"{MEMORY}/users/ann"
        paths = [
            *(f"{MEMORY}/{p}" for p in ("agents", "shared-blocks", "teams", "projects")),
            *(f"{users}/{p}" for p in ("blocks", "passages", "files", "teams")),
            f"{users}/passages?project=apollo",
            f"{MEMORY}/agents/support/inbox",
            f"{MEMORY}/tenant/passages",
            f"{MEMORY}/teams/core/passages",
            f"{MEMORY}/projects/apollo/passages",
            "/letta/v1/agents",
            "/letta/v1/blocks",
        ]
        return {path: (await self.ask("GET", path, key_of(FIRST))).text for path in paths}


def wire_body(api: str, model: str, *, stream: bool) -> dict[str, Any]:
    """Return a request of an API, as its clients send it."""
    message = {"role": "user", "content": QUESTION}
    if api == "responses":
        return {"model": model, "input": [message], **({"stream": True} if stream else {})}
    body = {"model": model, "messages": [message], "max_tokens": 99}
    return {**body, **({"stream": True} if stream else {})}


def _prefix(ident: str) -> str:
    return re.split("[_-]", ident)[0]


def _one_of_a_kind(ids: list[str]) -> list[str]:
    return list({_prefix(ident): ident for ident in ids}.values())


def _stem(route: Route) -> str:
    return route.path.partition("{ident}")[0]
