"""A server of tools, and gateways that grant them, for tests of the operator's tools."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import parse_qs, unquote, urlsplit

from tests.conftest import running
from tests.sockets import RawServer

SECRET = "mg-0123456789abcdef0123"
KEY = {"authorization": f"Bearer {SECRET}"}
CITY = {"city": {"type": "string", "description": "The city"}}


class ToolServer(RawServer):
    """Answers `/NAME/...`, as told by name.

    answers: what a tool answers, by its name: text, `(status, text)`, or a function of the request
    that returns one. delays: seconds before that. running, most: requests at a time.
    """

    def __init__(self, **answers):
        super().__init__(self._answer)
        self.answers, self.delays = answers, {}
        self.running = self.most = 0

    @property
    def root(self):
        return f"http://127.0.0.1:{self.port}"

    def runs(self, name):
        """The requests of a tool."""
        return [r for r in self.requests if urlsplit(r.path).path.split("/")[1] == name]

    async def _answer(self, seen, wire):
        name = urlsplit(seen.path).path.split("/")[1]
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.delays.get(name, 0))
            told = self.answers.get(name, "done")
            told = told(seen) if callable(told) else told
            status, body = told if isinstance(told, tuple) else (200, told)
            data = body if isinstance(body, bytes) else body.encode()
            kind = "image/png" if data.startswith(b"\x89PNG") else "text/plain; charset=utf-8"
            await wire.answer(status, data, content_type=kind)
        finally:
            self.running -= 1

    def entry(self, name, **more):
        """A `[tools.NAME]` that reads from this server by a city."""
        return {
            "kind": "http",
            "url": f"{self.root}/{name}/{{city}}",
            "description": f"Tells the {name} of a city.",
            "parameters": CITY,
            "required": ["city"],
            **more,
        }

    def writing(self, name, **more):
        """A `[tools.NAME]` that changes something."""
        return self.entry(name, method="POST", body="none", **more)


def city_of(seen):
    return unquote(urlsplit(seen.path).path.split("/")[2])


def query_of(seen):
    return parse_qs(urlsplit(seen.path).query)


def granting(tools, *patterns, **more):
    """A configuration whose one key grants these tools, all by default."""
    key = {"name": "app", "key": SECRET, "tenant": "t", "tools": list(patterns or ("*",))}
    admin = {"name": "admin", "key": f"{SECRET}-admin", "tenant": "t", "admin": True}
    return {"keys": [{**key, **more.pop("key", {})}, admin], "tools": tools, **more}


ADMIN = {"authorization": f"Bearer {SECRET}-admin"}


@contextlib.asynccontextmanager
async def gateway(up, data, config):
    """A gateway whose client sends the first managed key."""
    async with running(up.url, data, config, key="") as live:
        live.http.headers.update(KEY)
        yield live


def offered(body):
    """The names of a request's tools, of whatever form, in their order."""
    return [(t.get("function") or t)["name"] for t in body.get("tools") or ()]


def memory_free(names):
    """Names without those of memory tools and of the toolbox itself."""
    own = ("archival_", "core_memory", "conversation_search", "memory_", "result_open", "tool_")
    return [name for name in names if not name.startswith(own)]
