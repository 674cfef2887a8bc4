"""What the stand-in sees in a request: memory, the user's words, tools, results. Pure.

Memory elements are recognised by the tag of `<memory_blocks>` in the system text; look-alikes
without it are the user's own words. Later notes change the blocks, in order.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memory import is_system, text_of
from memory.core.blocks import apply_note, strip_spans, unescape

Json = dict[str, Any]
SUMMARISE = "You compress the earlier part of a conversation"
_TAG = re.compile(r'<memory_blocks tag="([^"<>]+)">')
_BLOCK = re.compile(r"<(?P<label>[a-z][a-z0-9_]*) [^>]*>\n(?P<value>.*?)\n</(?P=label)>", re.DOTALL)
_READ_ONLY = re.compile(r'<human [^>]*read_only="true"')


@dataclass(frozen=True, slots=True)
class ToolResult:
    """One call of this turn that has been answered."""

    name: str
    arguments: Json
    text: str

    @property
    def failed(self) -> bool:
        return self.text.startswith("Error")


@dataclass(slots=True)
class RequestView:
    """A request as the stand-in sees it.

    user: the newest user message, without memory elements. earlier_texts: the user messages before
    it. lines: the content of memory, line by line. has_memory: memory is present, even if empty.
    tools: name to parameters. may_write: into the block `human`, which in a project is read alone.
    """

    user: str = ""
    earlier_texts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    tools: dict[str, Json] = field(default_factory=dict)
    has_memory: bool = False
    summarising: bool = False
    may_write: bool = True


def see(body: Json) -> RequestView:
    """Read a valid chat-completions body."""
    messages: list[Json] = body["messages"]
    system = "\n\n".join(text_of(m) for m in messages if is_system(m))
    tags = _TAG.findall(system)
    tag = tags[-1] if tags else ""
    users = [i for i, m in enumerate(messages) if m["role"] == "user"]
    user_texts = [text_of(messages[i]) for i in users]
    words = [strip_spans(t, tag).strip() if tag else t.strip() for t in user_texts]
    results = _results(messages[users[-1] + 1 :] if users else [])
    functions = [t["function"] for t in body.get("tools") or [] if t.get("type") == "function"]
    return RequestView(
        user=words[-1] if words else "",
        earlier_texts=words[:-1],
        lines=_memory(system, user_texts, tag) if tag else [],
        results=results,
        tools={
            f["name"]: f["parameters"] if isinstance(f.get("parameters"), dict) else {}
            for f in functions
        },
        has_memory=bool(tag),
        summarising=system.startswith(SUMMARISE),
        may_write=_READ_ONLY.search(system) is None,
    )


def _memory(system: str, user_texts: Sequence[str], tag: str) -> list[str]:
    """Return the current lines of the blocks, then summary and recalled items.

    The stand-in's own persona is left out.
    """
    blocks = {
        m["label"]: unescape(m["value"])
        for text in _spans(system, "memory_blocks", tag)[-1:]
        for m in _BLOCK.finditer(text)
    }
    for text in user_texts:
        for note in _spans(text, "memory_updates", tag):
            # A note about a block this request does not show.
            with contextlib.suppress(KeyError):
                blocks = apply_note(blocks, note)
    blocks.pop("persona", None)
    more_texts = [
        unescape(s)
        for s in _spans(system, "conversation_summary", tag)
        + _spans("\n".join(user_texts[-1:]), "recalled_memory", tag)
    ]
    return [
        line.strip(" \t-*")
        for text in (*blocks.values(), *more_texts)
        for line in text.split("\n")
        if line.strip(" \t-*")
    ]


def _spans(text: str, name: str, tag: str) -> list[str]:
    return re.findall(rf'<{name} tag="{re.escape(tag)}">(.*?)</{name}>', text, re.DOTALL)


def _results(after: Sequence[Json]) -> list[ToolResult]:
    """Return the answered calls of this user turn, in order."""
    calls = [c for m in after for c in m.get("tool_calls") or []]
    texts = {m.get("tool_call_id"): text_of(m) for m in after if m["role"] == "tool"}
    return [
        ToolResult(c["function"]["name"], _arguments(c["function"]["arguments"]), texts[c["id"]])
        for c in calls
        if c["id"] in texts
    ]


def _arguments(text: str) -> Json:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict):
        return value
    return {}


def hits(text: str) -> list[str]:
    """Return the stored words in a search tool's result, without the assistant's.

    Results are JSON objects, one per line, or plain lines.
    """
    out: list[str] = []
    for line in text.split("\n"):
        if line.startswith("{"):
            item = _arguments(line)
        else:
            item = {}
        if item and item.get("role", "user") == "user" and isinstance(item.get("content"), str):
            out.append(unescape(item["content"]))
        elif (
            not item
            and line.strip()
            and not re.match(r"(?:\d+ found in|Nothing found|Error)\b", line)
        ):
            out.append(unescape(line.strip(" \t-*")))
    return out
