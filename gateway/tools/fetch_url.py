"""The tool `fetch_url`: the text of a public web page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gateway.config.web_tools import FetchUrlSettings
from gateway.tools.guarded_http import (
    AnswerLimits,
    GuardedAnswer,
    GuardedHttp,
    GuardedRequest,
    RequestFailed,
)
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from gateway.tools.single_tool import SingleTool, ToolDefaults
from gateway.tools.url_guard import Resolve, UrlGuard, UrlRefused, UrlRules
from gateway.tools.web_page import PageText, read_bytes, read_html
from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.reading import ChildDied, FileReader
from memory.formats.documents.unreadable import Unreadable
from memory.formats.documents.whole_text import is_packed, read_text

# Of one result.
PAGE_CHARACTERS = 20_000
FOUND_LINES = 200
QUOTED_CHARACTERS = 300
SNIFFED_BYTES = 4096
# Of a document; one with more text is not read.
DOCUMENT_CHARACTERS = 5_000_000
DESCRIPTION = "Read a public web page, text, JSON or PDF file by its URL. Returns title and text."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "An https:// or http:// address."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "The character to begin at, in a long text.",
        },
        "find": {"type": "string", "description": "Show only lines that hold this text."},
    },
    "required": ["url"],
}
TEXT_TYPES = ("json", "xml", "javascript", "ecmascript", "yaml", "csv", "x-sh", "toml")


class FetchUrlTool(SingleTool):
    """One `[tools.NAME]` of kind `fetch_url`."""

    def __init__(
        self, name: str, settings: FetchUrlSettings, resolve: Resolve | None = None
    ) -> None:
        self._settings = settings
        rules = UrlRules(
            settings.allow_hosts, settings.deny_hosts, settings.private_hosts, settings.ports
        )
        self._http = GuardedHttp(UrlGuard(rules, resolve))
        self._reader = FileReader()
        super().__init__(name, settings, ToolDefaults(DESCRIPTION, PARAMETERS))

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Read one page."""
        settings = self._settings
        limits = AnswerLimits(settings.max_mib << 20, settings.redirects, settings.timeout)
        try:
            answer = await self._http.send(GuardedRequest(str(arguments["url"])), limits)
            if not 200 <= answer.status < 300:
                return _failure(f"HTTP {answer.status}", answer.url)
            page = await self._read(answer)
        except (UrlRefused, RequestFailed) as e:
            return _failure(str(e))
        find = arguments.get("find") or ""
        offset = int(arguments.get("offset") or 0)
        if find:
            body = find_lines(page.text, find)
        else:
            body = cut_text(page.text, offset)
        head = [page.title, answer.url] if page.title else [answer.url]
        if answer.is_cut:
            body += f"\n[The page is longer than {settings.max_mib} MiB; the rest was not read.]"
        return ToolOutput("\n".join([*head, "", body]), origin=answer.url)

    async def _read(self, answer: GuardedAnswer) -> PageText:
        """Return the text of an answer. Raises RequestFailed for what has none."""
        if not is_packed(answer.body):
            return await asyncio.to_thread(read_page, answer)
        url = answer.url[:QUOTED_CHARACTERS]
        if answer.is_cut:
            raise RequestFailed(f"{url} is larger than {self._settings.max_mib} MiB.")
        limits = DocumentLimits(characters=DOCUMENT_CHARACTERS)
        try:
            return PageText("", await read_text(self._reader, answer.body, limits))
        except (Unreadable, ChildDied) as e:
            raise RequestFailed(f"{url} cannot be read: {e}.") from None


def read_page(answer: GuardedAnswer) -> PageText:
    """Return the text of an answer. Raises RequestFailed for what is no text."""
    content_type = answer.headers.get("content-type", "")
    kind = content_type.split(";")[0].strip().lower()
    is_html = kind in ("text/html", "application/xhtml+xml")
    is_text = is_html or kind.startswith("text/") or any(part in kind for part in TEXT_TYPES)
    start = answer.body[:SNIFFED_BYTES]
    if not is_text and (kind not in ("", "application/octet-stream") or b"\0" in start):
        raise RequestFailed(
            f"{answer.url[:QUOTED_CHARACTERS]} is {kind[:60] or 'not text'}, "
            f"{len(answer.body):,} bytes, and cannot be read as text."
        )
    text = read_bytes(answer.body, content_type)
    if is_html or (not kind and text[:200].lstrip()[:9].lower() in ("<!doctype", "<html")):
        return read_html(text)
    return PageText("", text.replace("\0", ""))


def cut_text(text: str, offset: int) -> str:
    """Return the part of a text that begins at `offset`, and say what is behind it."""
    if not text:
        return "[The page has no text.]"
    if offset >= len(text):
        return f"[The text has {len(text):,} characters; offset {offset:,} is behind its end.]"
    end = offset + PAGE_CHARACTERS
    characters_left = len(text) - end
    part = text[offset:end]
    if characters_left <= 0:
        return part
    return f"{part}\n[{characters_left:,} more characters; offset = {end} shows them.]"


def find_lines(text: str, find: str) -> str:
    """Return the lines that hold a text, whatever its case, with their numbers."""
    folded_query = find.casefold()
    matches: list[str] = []
    size = 0
    for number, line in enumerate(text.splitlines(), 1):
        if folded_query in line.casefold():
            matches.append(f"{number}: {line[:1000]}")
            size += len(matches[-1])
        if len(matches) == FOUND_LINES or size > PAGE_CHARACTERS:
            matches.append("[More lines hold it; look for a longer text.]")
            break
    return "\n".join(matches) or f"No line of the page holds {find[:QUOTED_CHARACTERS]!r}."


def _failure(cause: str, url: str = "") -> ToolOutput:
    end = f" from {url}" if url else ""
    text = f"{cause}{end}"[: QUOTED_CHARACTERS * 2].rstrip(".")
    return ToolOutput(f"Error: {text}.", status="error", origin=url)
