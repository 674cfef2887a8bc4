"""Automatic recall: finds what seems relevant to the newest user message, without a tool call.

At most five items, each once, within a token budget; what the request contains already is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from memory.context.tokens import TokenCounter
from memory.conversation.messages import Json, collapse_whitespace, text_of
from memory.core.blocks import escape
from memory.retrieval.retriever import Retriever
from memory.search.query import iso
from memory.stores.sql.messages import SearchQuery
from memory.stores.sql.passages import PassageFilter

ITEMS = 5
TOKENS = 600
MAX_SHOWN_CHARACTERS, MAX_INSPECTED_CHARACTERS = (
    1000,
    8000,
)  # of an item, and of the text that it is taken from


async def relevant(
    retrieval: Retriever, scope_id: int, words: str, within: int | None
) -> list[dict[str, Any]]:
    """Return candidates, best first: passages and earlier messages alternately.

    within: the conversation's end for an unnamed user.
    """
    query = SearchQuery(words[:2000], ("user", "assistant"), limit=ITEMS * 2, within=within)
    passages = await retrieval.passages(scope_id, PassageFilter(query))
    messages = await retrieval.messages(scope_id, query)
    return [
        hit
        for pair in zip(_pad(passages, messages), _pad(messages, passages), strict=True)
        for hit in pair
        if hit
    ]


def _pad(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*one, *({} for _ in range(len(other) - len(one)))]


def beginnings(messages: Sequence[Json]) -> set[str]:
    """Return the beginnings of these messages."""
    return {_shown_beginning(text_of(m)) for m in messages}


def _shown_beginning(text: str) -> str:
    """Return the part of a text that is shown, and by which it is recognised."""
    return collapse_whitespace(text[:MAX_INSPECTED_CHARACTERS])[:MAX_SHOWN_CHARACTERS]


def render_recall(
    hits: Sequence[dict[str, Any]], present: Collection[str], tag: str, counter: TokenCounter
) -> str:
    """Return the hits as prompt text, escaped; empty if none is left.

    present: beginnings of what the request contains already.
    """
    lines: list[str] = []
    seen = set(present)
    room = TOKENS
    for hit in hits:
        words = _shown_beginning(hit["content"])
        if words in seen or len(lines) == ITEMS:
            continue
        seen.add(words)
        line = (
            f"- ({iso(hit['created_at'])[:10]}{', ' + hit['role'] if 'role' in hit else ''}) "
            f"{escape(words)}"
        )
        room -= counter.text(line)
        if room < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    body = "\n".join(lines)
    return (
        f'<recalled_memory tag="{tag}">\nFound in memory; it may or may not matter here.\n{body}\n'
        "</recalled_memory>"
    )
