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
from memory.conversation.steps import end_step

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


def transcript_of(
    native_messages: Sequence[Any], summaries: tuple[str, ...] = ()
) -> BlockTranscript:
    """Return the messages that native ones say.

    summaries: beginnings of texts in user messages that are a program's summary: not what its user
    said, but what stands for the answers before it.
    """
    transcript = BlockTranscript()
    for index, message in enumerate(native_messages):
        if not isinstance(message, dict):
            transcript.add({"role": "system", "content": None}, index, index + 1)
        elif message.get("role") == "assistant":
            _add_assistant(message, index, transcript)
        elif summaries and (summary := _count_summary(message, summaries)):
            blocks = blocks_of(message.get("content"))
            transcript.add(assistant_message(blocks[:summary]), index, index + 1)
            if remaining_blocks := blocks[summary:]:
                _add_other({**message, "content": remaining_blocks}, index, transcript)
        else:
            _add_other(message, index, transcript)
    return transcript


def _count_summary(message: Json, summaries: tuple[str, ...]) -> int:
    """Return how many blocks of a user message end with a program's own summary; 0 without one."""
    if message.get("role") != "user":
        return 0
    texts = [b.get("text") for b in blocks_of(message.get("content"))]
    is_summary = [isinstance(t, str) and t.lstrip().startswith(summaries) for t in texts]
    if True in is_summary:
        return is_summary.index(True) + 1
    return 0


def _add_assistant(message: Json, index: int, transcript: BlockTranscript) -> None:
    spoken_message = assistant_message(blocks_of(message.get("content")))
    if transcript.messages and transcript.messages[-1].get("role") == "assistant":
        previous_message = transcript.messages.pop()
        start, _ = transcript.spans.pop()
        transcript.add(_join(previous_message, spoken_message), start, index + 1)
    else:
        transcript.add(spoken_message, index, index + 1)


def _add_other(message: Json, index: int, transcript: BlockTranscript) -> None:
    role = message.get("role")
    content = message.get("content")
    if not isinstance(role, str):
        role = "system"
    if not isinstance(content, list):
        transcript.add(
            {"role": role, "content": content if isinstance(content, str) else ""}, index, index + 1
        )
        return
    other_parts = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            transcript.add(result_message(block), index, index + 1)
        else:
            other_parts.append(part_of(block))
        end_step()
    if other_parts or not content:
        transcript.add({"role": role, "content": plain_content(other_parts)}, index, index + 1)


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
    message: Json = {"role": "assistant", "content": plain_content(parts)}
    if calls:
        message["tool_calls"] = calls
    return message


def blocks_of(content: Any) -> list[Json]:
    """Return content as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [b for b in content if isinstance(b, dict)]
    return []


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


def _join(first_message: Json, second_message: Json) -> Json:
    """Return two assistant messages as one."""
    parts = [*_parts(first_message), *_parts(second_message)]
    calls = [*first_message.get("tool_calls", ()), *second_message.get("tool_calls", ())]
    joined_message: Json = {"role": "assistant", "content": plain_content(parts)}
    if calls:
        return {**joined_message, "tool_calls": calls}
    return joined_message


def _parts(message: Json) -> list[Json]:
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content or []
