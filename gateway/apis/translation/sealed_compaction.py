"""Compacted input of the Responses API: a summary sealed in a compaction item. Pure.

A server without `/responses/compact` is helped out here: the client gets an item of OpenAI's shape
whose `encrypted_content` only this gateway can read. Before a later request goes upstream, the item
becomes an ordinary message with the summary, so any server understands it. What another server
sealed, or somebody forged, stays as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.apis.translation.member_seal import MemberSeal, SealedMembers
from gateway.wire.chat import Json, encode
from gateway.wire.own_marks import SEALED

COMPACTION = "compaction"
# What programs call the item.
KINDS = (COMPACTION, "compaction_summary", "context_compaction")
SUMMARY = "summary"
INSTRUCTING = ("system", "developer")
# The roles of messages that stay as they are.
KEPT = ("user", *INSTRUCTING)
# Below which a body holds input items.
PATHS = ("/responses", "/conversations")
# Of a body, which hold them.
MEMBERS = ("input", "items")
TAG = "conversation_summary"
INTRODUCTION = (
    "The earlier part of this conversation was replaced by this summary. It is information about "
    "what was said and done; go on from it."
)
# Of an item.
NO_WORDS = frozenset({"id", "status", "type", "call_id", "role"})


class SummarySeal:
    """Makes and opens the compaction items of one tenant. secret: the server's."""

    def __init__(self, secret: bytes, tenant: str) -> None:
        # No provider has this name: an item is read whichever server takes the next request.
        self._seal = MemberSeal(secret, tenant, "\x00compaction")

    def close(self, summary: str) -> str:
        """Return the `encrypted_content` that holds a summary."""
        return self._seal.close(SealedMembers({SUMMARY: summary}))

    def open(self, item: Any) -> str | None:
        """Return the summary in a compaction item; None for any item that is not ours."""
        if not isinstance(item, dict) or item.get("type") not in KINDS:
            return None
        token = item.get("encrypted_content")
        if not isinstance(token, str) or not token.startswith(SEALED):
            return None
        sealed = self._seal.open(token)
        if sealed is None:
            return None
        return str(sealed.members.get(SUMMARY) or "")


def holds_items(path: str) -> bool:
    """Tell whether bodies of a path hold input items."""
    return path.startswith(PATHS)


def may_be_compacted(path: str, body: bytes) -> bool:
    """Tell whether a body may hold a compaction item of ours."""
    return holds_items(path) and SEALED.encode() in body and COMPACTION.encode() in body


def with_summaries(body: Json, seal: SummarySeal) -> Json:
    """Return a body with its compaction items as messages; the same where none is ours."""
    for member in MEMBERS:
        items = body.get(member)
        if not isinstance(items, list):
            continue
        summaries = [seal.open(item) for item in items]
        if any(summary is not None for summary in summaries):
            pairs = zip(items, summaries, strict=True)
            opened_items = [
                item if summary_text is None else summary_message(summary_text)
                for item, summary_text in pairs
            ]
            body = {**body, member: opened_items}
    return body


def summary_message(summary: str) -> Json:
    """Return the message that stands for a compaction item of ours."""
    text = f"<{TAG}>\n{INTRODUCTION}\n\n{summary}\n</{TAG}>"
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content}


def earlier_summary(items: Sequence[Any], seal: SummarySeal) -> str:
    """Return what the compaction items of ours say, together."""
    return "\n\n".join(filter(None, map(seal.open, items)))


def kept_items(items: Sequence[Any], seal: SummarySeal) -> Iterator[Any]:
    """Yield the items that a compaction keeps as they are.

    These are the messages of users and the instructions among them, and compaction items that only
    another server can read.
    """
    for item in items:
        if not isinstance(item, dict):
            continue
        kind = item.get("type", "message")
        stays = kind == "message" and item.get("role") in KEPT
        unreadable = kind in KINDS and seal.open(item) is None
        if stays or unreadable:
            yield item


def output_message(item: Json, ident: str) -> Json:
    """Return a kept message in the shape of an answer's output. ident: for one without an id."""
    if item.get("type", "message") != "message":
        return item
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    head = {"id": ident, "type": "message", "status": "completed"}
    return {**head, **item, "content": content or []}


def transcript(items: Sequence[Any]) -> list[Json]:
    """Return what was said and done as messages of text, for a summary of them."""
    return [m for m in map(_spoken, items) if m is not None and m["content"]]


def _spoken(item: Any) -> Json | None:
    """Return an item as a message of text; None for one that says nothing to a reader."""
    if not isinstance(item, dict):
        return None
    kind = str(item.get("type", "message"))
    if kind == "message":
        if item.get("role") in INSTRUCTING:
            # It stays in force as it is.
            return None
        return {"role": str(item.get("role")), "content": _text(item.get("content"))}
    if kind == "reasoning" or kind in KINDS:
        return None
    if kind.endswith("_output"):
        return {"role": "tool", "content": _text(item.get("output"))}
    members = {k: v for k, v in item.items() if k not in NO_WORDS and v}
    return {"role": "assistant", "content": f"[{kind}] {encode(members).decode()}"}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        if content is None:
            return ""
        return encode(content).decode()
    parts = [part for part in content if isinstance(part, dict)]
    texts = [part.get("text") or part.get("refusal") or f"[{part.get('type')}]" for part in parts]
    return "\n".join(map(str, texts))
