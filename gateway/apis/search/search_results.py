"""What a search came to, as the vendors' APIs show it, and what marks such as [1] cite. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.wire.chat import Json
from memory import new_id

ERROR = "Error: "
TOO_MANY = "max_uses_exceeded"
FIRST_LINE = re.compile(r"(\d{1,3})\. (.*)")
DATE = re.compile(r"\d{4}-\d{2}|.{0,30}\b\d{4}\b.{0,10}$")
MARK = re.compile(r"\[(\d{1,3})\]")
# Of one text that become citations.
MAX_MARKS = 200
CITED_CHARACTERS = 150


class ShownHit(msgspec.Struct, frozen=True):
    """One hit of a search, as the model was shown it. number: its own."""

    number: int
    title: str
    url: str
    text: str = ""
    date: str = ""


class ShownSearch(msgspec.Struct, frozen=True):
    """One search of a turn. failure: why it gave no hits, "" where it did not fail."""

    query: str
    hits: Sequence[ShownHit] = ()
    failure: str = ""


# Seals a hit for its scope: another scope cannot read what a client sends back.
SealHit = Callable[[str, ShownHit], str]


def read_search(query: str, result: str) -> ShownSearch:
    """Return what a result of the tool tells, as the model reads it."""
    if result.startswith(ERROR):
        return ShownSearch(query, failure=TOO_MANY if TOO_MANY in result else "unavailable")
    body = result.partition("\n")[2]
    return ShownSearch(query, list(_read_hits(body)))


def _read_hits(text: str) -> Iterator[ShownHit]:
    for entry in text.split("\n\n"):
        lines = entry.split("\n")
        numbered_title = FIRST_LINE.fullmatch(lines[0])
        if (
            numbered_title is None
            or len(lines) < 2
            or not lines[1].startswith(("http://", "https://"))
        ):
            continue
        details = lines[2:4]
        is_dated = len(details) == 2 or (len(details) == 1 and bool(DATE.fullmatch(details[0])))
        date = ""
        if details and is_dated:
            date = details.pop()
        yield ShownHit(
            int(numbered_title[1]), numbered_title[2], lines[1], details[0] if details else "", date
        )


def write_hit(hit: ShownHit) -> str:
    """Return a hit as a model reads it."""
    lines = [f"{hit.number}. {hit.title}", hit.url, hit.text, hit.date]
    return "\n".join(line for line in lines if line)


def response_items(search: ShownSearch, *, shows_sources: bool) -> list[Json]:
    """Return a search as the items of a response."""
    action: Json = {"type": "search", "query": search.query, "queries": [search.query]}
    if shows_sources:
        action["sources"] = [{"type": "url", "url": hit.url} for hit in search.hits]
    status = "failed" if search.failure else "completed"
    item = {"id": new_id("ws"), "type": "web_search_call", "status": status, "action": action}
    return [item]


def message_blocks(search: ShownSearch, seal: SealHit) -> list[Json]:
    """Return a search as the blocks of a message."""
    ident = new_id("srvtoolu")
    tool_use = {"type": "server_tool_use", "id": ident, "name": "web_search"}
    content: Any = [
        {
            "type": "web_search_result",
            "url": hit.url,
            "title": hit.title,
            "encrypted_content": seal(search.query, hit),
            "page_age": hit.date or None,
        }
        for hit in search.hits
    ]
    if search.failure:
        content = {"type": "web_search_tool_result_error", "error_code": search.failure}
    result = {"type": "web_search_tool_result", "tool_use_id": ident, "content": content}
    return [{**tool_use, "input": {"query": search.query}}, result]


class SearchCitations:
    """What marks in an answer refer to: the hits of its searches, the newest of each number."""

    def __init__(self, seal: SealHit) -> None:
        self._seal = seal
        self._hits: dict[int, tuple[str, ShownHit]] = {}

    def __bool__(self) -> bool:
        return bool(self._hits)

    def add(self, search: ShownSearch) -> None:
        """Take in the hits of a search."""
        self._hits |= {hit.number: (search.query, hit) for hit in search.hits}

    def cite_response(self, text: str) -> list[Json]:
        """Return the annotations of a text in a response."""
        return [
            {
                "type": "url_citation",
                "start_index": match.start(),
                "end_index": match.end(),
                "url": hit.url,
                "title": hit.title,
            }
            for match, _, hit in self._find(text)
        ]

    def cite_completion(self, text: str, start: int = 0) -> list[Json]:
        """Return the annotations of a text in a chat completion. start: where they may begin."""
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": start + match.start(),
                    "end_index": start + match.end(),
                    "url": hit.url,
                    "title": hit.title,
                },
            }
            for match, _, hit in self._find(text[start:])
        ]

    def cite_message(self, text: str) -> list[Json]:
        """Return the citations of a text block: one for each hit."""
        hits = {hit.number: (query, hit) for _, query, hit in self._find(text)}
        return [
            {
                "type": "web_search_result_location",
                "url": hit.url,
                "title": hit.title,
                "encrypted_index": self._seal(query, hit),
                "cited_text": hit.text[:CITED_CHARACTERS],
            }
            for query, hit in hits.values()
        ]

    def cite_item(self, item: Json) -> Json:
        """Return an item of a response with its annotations; the same where there are none."""
        content = None
        if item.get("type") == "message":
            content = item.get("content")
        if not (self._hits and isinstance(content, list)):
            return item
        return {**item, "content": [self.cite_part(part) for part in content]}

    def cite_part(self, part: Any) -> Any:
        """Return a part of an item's content with its annotations."""
        if not isinstance(part, dict) or part.get("type") != "output_text":
            return part
        annotations = self.cite_response(str(part.get("text") or ""))
        if not annotations:
            return part
        return {**part, "annotations": [*(part.get("annotations") or ()), *annotations]}

    def cite_block(self, block: Json) -> Json:
        """Return a block of a message with its citations; the same where there are none."""
        if not self._hits or block.get("type") != "text":
            return block
        citations = self.cite_message(str(block.get("text") or ""))
        if citations:
            return {**block, "citations": citations}
        return block

    def _find(self, text: str) -> Iterator[tuple[re.Match[str], str, ShownHit]]:
        for count, match in enumerate(MARK.finditer(text)):
            if count == MAX_MARKS:
                return
            if (cited_hit := self._hits.get(int(match[1]))) is not None:
                yield (match, *cited_hit)


def searched_again(
    messages: Sequence[Any], name: str, open_hit: Callable[[Any], Mapping[str, Any] | None]
) -> list[Any]:
    """Return messages in which searches that a client sends back are calls of a function again.

    name: of the function. open_hit: reads a sealed hit, None for another scope's. What cannot be
    read is left out, and so are citations.
    """
    messages_again: list[Any] = []
    for message in messages:
        content = None
        if isinstance(message, dict):
            content = message.get("content")
        if isinstance(content, list) and any(map(_is_of_search, content)):
            messages_again += _Restoring(name, open_hit).split(message)
        else:
            messages_again.append(message)
    return messages_again


def _is_of_search(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    if kind == "server_tool_use":
        return block.get("name") == "web_search"
    return kind == "web_search_tool_result" or (kind == "text" and bool(block.get("citations")))


class _Restoring:
    """Splits one message at its searches."""

    def __init__(self, name: str, open_hit: Callable[[Any], Mapping[str, Any] | None]) -> None:
        self._name = name
        self._open_hit = open_hit
        self._messages: list[Json] = []
        self._blocks: list[Any] = []

    def split(self, message: Json) -> list[Json]:
        for block in message["content"]:
            kind = None
            if isinstance(block, dict):
                kind = block.get("type")
            if kind == "web_search_tool_result":
                self._add_search(block)
            elif kind == "text" and block.get("citations"):
                self._blocks.append({k: v for k, v in block.items() if k != "citations"})
            elif not (kind == "server_tool_use" and block.get("name") == "web_search"):
                self._blocks.append(block)
        if self._blocks:
            self._messages.append({**message, "content": self._blocks})
        return self._messages

    def _add_search(self, block: Json) -> None:
        content = block.get("content")
        opened_hits = [
            self._open_hit(hit) for hit in (content if isinstance(content, list) else ())
        ]
        hits = [hit for hit in opened_hits if hit is not None]
        if not hits:
            return
        ident = new_id("toolu")
        arguments = {"query": str(hits[0].get("query"))}
        call = {"type": "tool_use", "id": ident, "name": self._name, "input": arguments}
        text = "\n\n".join(str(hit.get("text")) for hit in hits)
        result = {"type": "tool_result", "tool_use_id": ident, "content": text}
        self._messages.append({"role": "assistant", "content": [*self._blocks, call]})
        self._messages.append({"role": "user", "content": [result]})
        self._blocks = []
