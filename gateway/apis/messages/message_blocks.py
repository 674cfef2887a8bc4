"""Messages of Anthropic's API as the memory sees them, and where each of them stands.

A user message may hold tool results before its own words: each result is a message of its own, as
chat completions have it. Assistant messages that follow each other are one. What the memory does
not look at (thinking, server tools, cache marks) leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.wire.chat import Json, encode
from memory.conversation.messages import is_long_text

_encode = encode


@dataclass(slots=True)
class BlockTranscript:
    """Messages, and the native messages of each: from where to where.

    own_words: whether a native message holds words of the user, at which a note may stand.
    """

    messages: list[Json] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, message: Json, start: int, end: int) -> None:
        self.messages.append(message)
        self.spans.append((start, end))


def transcript_of(native: Sequence[Any], summaries: tuple[str, ...] = ()) -> BlockTranscript:
    """Return the messages that native ones say.

    summaries: beginnings of texts in user messages that are a program's summary: not what its user
    said, but what stands for the answers before it.
    """
    out = BlockTranscript()
    for at, message in enumerate(native):
        if not isinstance(message, dict):
            out.add({"role": "system", "content": None}, at, at + 1)
        elif message.get("role") == "assistant":
            _add_assistant(message, at, out)
        elif summaries and (summary := _count_summary(message, summaries)):
            blocks = blocks_of(message.get("content"))
            out.add(assistant_message(blocks[:summary]), at, at + 1)
            if rest := blocks[summary:]:
                _add_other({**message, "content": rest}, at, out)
        else:
            _add_other(message, at, out)
    return out


def _count_summary(message: Json, summaries: tuple[str, ...]) -> int:
    """Return how many blocks of a user message end with a program's own summary; 0 without one."""
    if message.get("role") != "user":
        return 0
    texts = [b.get("text") for b in blocks_of(message.get("content"))]
    found = [isinstance(t, str) and t.lstrip().startswith(summaries) for t in texts]
    return found.index(True) + 1 if True in found else 0


def _add_assistant(message: Json, at: int, out: BlockTranscript) -> None:
    said = assistant_message(blocks_of(message.get("content")))
    if out.messages and out.messages[-1].get("role") == "assistant":
        before = out.messages.pop()
        start, _ = out.spans.pop()
        out.add(_join(before, said), start, at + 1)
    else:
        out.add(said, at, at + 1)


def _add_other(message: Json, at: int, out: BlockTranscript) -> None:
    role, content = message.get("role"), message.get("content")
    role = role if isinstance(role, str) else "system"
    if not isinstance(content, list):
        out.add({"role": role, "content": content if isinstance(content, str) else ""}, at, at + 1)
        return
    rest = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            out.add(result_message(block), at, at + 1)
        else:
            rest.append(part_of(block))
    if rest or not content:
        out.add({"role": role, "content": plain_content(rest)}, at, at + 1)


def result_message(block: Json) -> Json:
    """Return the result of a tool as a message."""
    content = block.get("content")
    text = content if isinstance(content, str) else ""
    if isinstance(content, list):
        text = plain_content([part_of(b) for b in content]) or ""
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}


def assistant_message(blocks: Sequence[Json]) -> Json:
    """Return what a model's blocks say, as one message."""
    parts: list[Json] = []
    calls: list[Json] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            parts.append({"type": "text", "text": str(block.get("text") or "")})
        elif kind == "tool_use":
            arguments = _encode(block.get("input") or {}).decode()
            function = {"name": block.get("name"), "arguments": arguments}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
    out: Json = {"role": "assistant", "content": plain_content(parts)}
    if calls:
        out["tool_calls"] = calls
    return out


def blocks_of(content: Any) -> list[Json]:
    """Return content as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def part_of(block: Any) -> Json:
    """Return one block as chat completions have it."""
    if not isinstance(block, dict):
        return {"type": "text", "text": str(block)}
    if block.get("type") == "text":
        return {"type": "text", "text": str(block.get("text") or "")}
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, dict):
        # No copy is made of a long one: the memory knows it in this form too.
        if not source.get("url") and is_long_text(source.get("data")):
            return {"type": "image", "source": source}
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {k: v for k, v in block.items() if k != "cache_control"}


def plain_content(parts: list[Json]) -> Any:
    """Return parts, or their one text as a string; None for nothing."""
    if not parts:
        return None
    if len(parts) == 1 and parts[0].get("type") == "text":
        return parts[0]["text"]
    return parts


def _join(one: Json, other: Json) -> Json:
    """Return two assistant messages as one."""
    parts = [*_parts(one), *_parts(other)]
    calls = [*one.get("tool_calls", ()), *other.get("tool_calls", ())]
    out: Json = {"role": "assistant", "content": plain_content(parts)}
    return {**out, "tool_calls": calls} if calls else out


def _parts(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []
