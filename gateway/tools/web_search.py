"""The tool `web_search`: hits of a search engine that the operator names."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from gateway.apis.search.vendor_search import SearchLimits
from gateway.config.web_tools import WebSearchSettings
from gateway.http.json_thread import run_by_weight
from gateway.tools.guarded_http import AnswerLimits, GuardedHttp, GuardedRequest, RequestFailed
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from gateway.tools.single_tool import SingleTool, ToolDefaults
from gateway.tools.url_guard import DEFAULT_PORTS, Resolve, UrlGuard, UrlRefused, UrlRules
from gateway.wire.chat import decode_answer

HIT_CHARACTERS = 400
TITLE_CHARACTERS = 200
RESULT_CHARACTERS = 6000
QUERY_CHARACTERS = 400
MAX_HITS = 10
SCANNED_HITS = 100
PAGE_BYTES = 4 << 20
URL_CHARACTERS = 2048
BLANKS = re.compile(r"\s+")
MARKUP = re.compile(r"</?(?:b|em|strong|mark|span)[^<>]{0,100}>", re.IGNORECASE)
# How search engines name the time since a day.
TIME_RANGES = ((1, "day"), (7, "week"), (31, "month"))
TOO_MANY = "Error: max_uses_exceeded: {} searches were made, as many as the client allows."
DESCRIPTION = "Search the web. Returns titles, URLs and short texts; fetch_url reads a page."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for.", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": 5},
        "since": {"type": "string", "format": "date", "description": "Nothing older than this."},
    },
    "required": ["query"],
}


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One hit. date: as the engine writes it, or empty."""

    title: str
    url: str
    text: str
    date: str = ""


@dataclass(frozen=True, slots=True)
class WebQuery:
    """What is looked for. since: nothing older, as far as the engine knows dates.

    bounds: which domains a client wants hits of, None for all.
    """

    text: str
    limit: int = 5
    since: date | None = None
    bounds: SearchLimits | None = None


class SearchFailed(Exception):
    """A backend that gave no hits for a reason. The text is for the model."""


class WebSearchTool(SingleTool):
    """One `[tools.NAME]` of kind `web_search`."""

    def __init__(
        self, name: str, settings: WebSearchSettings, resolve: Resolve | None = None
    ) -> None:
        self.settings = settings
        self._resolve = resolve
        super().__init__(name, settings, ToolDefaults(DESCRIPTION, PARAMETERS))

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Search once."""
        since = arguments.get("since")
        query = WebQuery(
            str(arguments["query"]),
            int(arguments.get("limit") or 5),
            date.fromisoformat(since) if since else None,
            caller.search,
        )
        if (bounds := caller.search) is not None:
            if bounds.max_uses is not None and bounds.uses >= bounds.max_uses:
                return ToolOutput(TOO_MANY.format(bounds.max_uses), status="error")
            bounds.uses += 1
        try:
            hits = await self.search(query)
        except SearchFailed as e:
            return ToolOutput(f"Error: {e}", status="error")
        return ToolOutput(show_hits(hits), origin="\n".join(hit.url for hit in hits))

    async def search(self, query: WebQuery) -> list[SearchHit]:
        """Return the hits. Raises SearchFailed."""
        text = BLANKS.sub(" ", query.text).strip()[:QUERY_CHARACTERS]
        query = replace(query, text=text, limit=min(query.limit, MAX_HITS))
        if self.settings.backend == "ddgs":
            rows = await _ask_ddgs(query, self.settings.timeout)
            members = HitMembers("/title", "/href", "/body", "")
        else:
            rows, members = await self._ask_server(query)
        return choose_hits(rows, members, query)

    async def _ask_server(self, query: WebQuery) -> tuple[list[Any], HitMembers]:
        settings = self.settings
        if settings.backend == "json":
            url = fill_url(settings.url, query)
            items = settings.items
            members = HitMembers(settings.title, settings.link, settings.text, settings.date)
        else:
            url = _searxng_url(settings.backend.partition(":")[2], query)
            items = "/results"
            members = HitMembers("/title", "/url", "/content", "/publishedDate")
        request = GuardedRequest(url, headers={"Accept": "application/json", **settings.headers})
        limits = AnswerLimits(PAGE_BYTES, 3, settings.timeout, same_host=True)
        try:
            answer = await self._client_of(url).send(request, limits)
        except (UrlRefused, RequestFailed) as e:
            raise SearchFailed(f"the search did not work: {e} Answer without it.") from None
        if answer.status != 200:
            raise SearchFailed(
                f"the search did not work: HTTP {answer.status}. Answer without it, and say so."
            )
        try:
            document = await run_by_weight(answer.body, decode_answer, answer.body)
            rows = read_pointer(document, items)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rows = None
        if not isinstance(rows, list):
            raise SearchFailed("the search engine did not send a list of hits as JSON.")
        return rows, members

    def _client_of(self, url: str) -> GuardedHttp:
        """Return a client that opens the operator's own server, wherever it is."""
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        address = f"{host}:{parts.port or DEFAULT_PORTS[parts.scheme]}"
        return GuardedHttp(UrlGuard(UrlRules(private_hosts=(address,)), self._resolve))


@dataclass(frozen=True, slots=True)
class HitMembers:
    """Where a hit has its parts: JSON pointers."""

    title: str
    link: str
    text: str
    date: str


def find_missing_package(settings: WebSearchSettings) -> str:
    """Return why this backend cannot run here, or nothing."""
    if settings.backend == "ddgs" and importlib.util.find_spec("ddgs") is None:
        return "backend \"ddgs\" needs a package: pip install 'mnemogate[tools]'"
    return ""


def choose_hits(rows: Iterable[Any], members: HitMembers, query: WebQuery) -> list[SearchHit]:
    """Return the first hits with an http address, one for each."""
    hits: dict[str, SearchHit] = {}
    for at, row in enumerate(rows):
        if len(hits) >= query.limit or at >= SCANNED_HITS:
            break
        hit = _read_hit(row, members)
        if hit is not None and _is_wanted(hit, query):
            hits.setdefault(hit.url.rstrip("/"), hit)
    return list(hits.values())


def show_hits(hits: Sequence[SearchHit]) -> str:
    """Return hits as a model reads them, numbered."""
    entries: list[str] = []
    size = 0
    for number, hit in enumerate(hits, 1):
        lines = [f"{number}. {hit.title or hit.url}", hit.url, hit.text, hit.date]
        entry = "\n".join(line for line in lines if line)
        size += len(entry) + 2
        if size > RESULT_CHARACTERS:
            break
        entries.append(entry)
    return "\n\n".join(entries) or "Nothing found."


def read_pointer(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer names (RFC 6901), or None."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and len(name) < 10:
            document = document[int(name)] if int(name) < len(document) else None
        else:
            return None
    return document


def fill_url(template: str, query: WebQuery) -> str:
    """Return the address of a search, its parts percent-encoded."""
    since = ""
    if query.since:
        since = query.since.isoformat()
    values = {"query": query.text, "limit": str(query.limit), "since": since}
    return re.sub(
        r"\{(query|limit|since)\}", lambda match: quote(values[match[1]], safe=""), template
    )


def name_time_range(since: date, today: date) -> str:
    """Return the shortest time range that holds a day."""
    days = (today - since).days
    return next((name for max_days, name in TIME_RANGES if days <= max_days), "year")


def _searxng_url(base: str, query: WebQuery) -> str:
    url = f"{base.rstrip('/')}/search?q={quote(query.text, safe='')}&format=json"
    if query.since is not None and (date.today() - query.since).days <= 366:
        url += f"&time_range={name_time_range(query.since, date.today())}"
    return url


def _read_hit(row: Any, members: HitMembers) -> SearchHit | None:
    link = read_pointer(row, members.link)
    if not isinstance(link, str) or len(link) > URL_CHARACTERS or BLANKS.search(link.strip()):
        return None
    if not link.strip().lower().startswith(("http://", "https://")):
        return None
    return SearchHit(
        _clean(read_pointer(row, members.title), TITLE_CHARACTERS),
        link.strip(),
        _clean(read_pointer(row, members.text), HIT_CHARACTERS),
        _clean(read_pointer(row, members.date), 40) if members.date else "",
    )


def _clean(value: Any, limit: int) -> str:
    """Return one line of text without the marks of hits."""
    if not isinstance(value, (str, int, float)):
        return ""
    text = MARKUP.sub("", str(value)[: 4 * limit])
    text = BLANKS.sub(" ", text).strip()
    if len(text) <= limit:
        return text
    return text[: limit - 3] + "..."


def _is_wanted(hit: SearchHit, query: WebQuery) -> bool:
    bounds = query.bounds
    if _is_older(hit.date, query.since):
        return False
    if bounds is None:
        return True
    is_blocked = any(_is_of_domain(hit.url, domain) for domain in bounds.blocked)
    is_allowed = any(_is_of_domain(hit.url, domain) for domain in bounds.allowed)
    return not is_blocked and (is_allowed or not bounds.allowed)


def _is_of_domain(url: str, domain: str) -> bool:
    """Tell whether an address is of a domain, or below it. domain: may have a path."""
    host, slash, path = domain.partition("/")
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").lower()
    except ValueError:
        return False
    return f".{name}".endswith(f".{host}") and (
        not slash or parts.path.lower().startswith(f"/{path}")
    )


def _is_older(hit_date: str, since: date | None) -> bool:
    if since is None or not hit_date:
        return False
    try:
        return date.fromisoformat(hit_date[:10]) < since
    except ValueError:
        return False


async def _ask_ddgs(query: WebQuery, timeout: float) -> list[Any]:
    """Ask the engines that the package `ddgs` reads. Raises SearchFailed."""
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.to_thread(_call_ddgs, query, timeout)
    except TimeoutError:
        raise SearchFailed(f"the search did not answer within {timeout:g} s.") from None


def _call_ddgs(query: WebQuery, timeout: float) -> list[Any]:
    # The package is large, so it is imported here, in a thread, at the first search.
    try:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException
    except ImportError:
        raise SearchFailed(
            "the search is not installed here: pip install 'mnemogate[tools]'."
        ) from None
    since = None
    if query.since is not None and (date.today() - query.since).days <= 366:
        since = name_time_range(query.since, date.today())[0]
    try:
        return list(
            DDGS(timeout=max(1, int(timeout))).text(
                query.text, max_results=2 * query.limit, timelimit=since
            )
        )
    except DDGSException as e:
        if "no results" in str(e).lower():
            return []
        raise SearchFailed(
            f"the search did not work: {str(e)[:300]}. Answer without it, and say so."
        ) from None
