"""A gateway with something to look at, and somebody who is signed in."""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from tests.conftest import Live, running
from tests.gateway.management.managing import KEYS
from tests.models import Model, call, calls

HOSTILE = (
    "<script>top.hit=1</script><img src=x onerror=top.hit=1>\u202eevil\u2066 [x](javascript:1)"
)
REMEMBER = calls(
    call("core_memory_append", {"label": "human", "content": "Likes tea"}),
    call("archival_memory_insert", {"content": "Grace arrives on Friday", "tags": ["family"]}),
)
FIND = calls(call("archival_memory_search", {"query": "Grace"}))
SCRIPT = (REMEMBER, "Noted.", FIND, "On Friday.")
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


class Looker:
    """A browser without a screen: it keeps cookies, and sends the forms of pages."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.http = httpx.AsyncClient(base_url=live.root, headers=SAME_ORIGIN, timeout=30)
        self.csrf = ""

    async def sign_in(self, key: str) -> httpx.Response:
        response = await self.http.post("/ui/sign-in", data={"key": key})
        if response.status_code == 303:
            self.csrf = (await self.get("")).text.partition('name="csrf" value="')[2][:64]
        return response

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(f"/ui{path}", **options)

    async def send(self, path: str, headers: Any = None, **fields: str) -> httpx.Response:
        data = {"csrf": self.csrf, **fields}
        return await self.http.post(f"/ui{path}", data=data, headers=headers or {})


@contextlib.asynccontextmanager
async def shown(data: Path, *script: Any, **config: Any) -> AsyncIterator[tuple[Live, Any]]:
    """A gateway with managed keys, and a function that signs in with one of them."""
    async with Model(*(script or SCRIPT)) as model:
        async with running(model.url, data, {"keys": KEYS, **config}) as live:
            async with contextlib.AsyncExitStack() as stack:

                def arrive() -> Looker:
                    looker = Looker(live)
                    stack.push_async_callback(looker.http.aclose)
                    return looker

                async def sign_in(key: str) -> Looker:
                    looker = arrive()
                    assert (await looker.sign_in(key)).status_code == 303
                    return looker

                sign_in.arrive = arrive
                yield live, sign_in


def words(response: httpx.Response) -> str:
    """The text of a page, without its tags."""
    body = response.text.partition("<main")[2].partition(">")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


PAGE_LINKS = "href|hx-get"
EVERY_LINK = f"{PAGE_LINKS}|hx-post|action|sse-connect"


def links(response: httpx.Response, kinds: str = EVERY_LINK) -> set[str]:
    """The addresses that a page's content leads to, with what its search forms send along."""
    body = response.text.partition("<main")[2] or response.text
    body = re.sub(r'<form[^>]*method="get".*?</form>', _to_link, body, flags=re.DOTALL)
    return {html.unescape(url) for url in re.findall(rf'(?:{kinds})="(/ui[^"]*)"', body)}


def _to_link(form: re.Match[str]) -> str:
    hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form[0])
    query = urlencode([(name, html.unescape(value)) for name, value in hidden])
    return re.sub(r'action="([^"]*)"', lambda m: f'href="{m[1]}?{query}"', form[0], count=1)


def in_tenant(path: str) -> str:
    """The path as an admin looks at a tenant."""
    return f"{path}{'&' if '?' in path else '?'}tenant=acme"


async def walk(looker: Looker, paths: list[str]) -> dict[str, httpx.Response]:
    """Every page that can be reached from some paths, by its address."""
    walked: dict[str, httpx.Response] = {}
    waiting = {f"/ui{path}" for path in paths}
    while ahead := sorted(waiting - walked.keys()):
        response = await looker.http.get(ahead[0], follow_redirects=True)
        walked[ahead[0]] = response
        waiting |= links(response, PAGE_LINKS)
    return walked
