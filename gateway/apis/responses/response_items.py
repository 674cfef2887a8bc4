"""Items of the Responses API as the memory sees them: messages, and where each of them stands.

Runs of what a model says (reasoning, text, calls) are one assistant message, as chat completions
have it; every other item is a message of its own. What the memory does not look at (reasoning,
built-in tools, ids) stays in the items and leaves no trace in the messages, so that an echo is
known again whatever a client does to those.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.wire.chat import Json
from memory.conversation.steps import end_step

Span = tuple[int, int]
_encode = msgspec.json.encode
SYSTEM = ("system", "developer")
# What a model says that is neither text nor a call the client answers.
ASIDES = frozenset({"reasoning", "item_reference", "image_generation_call", "compaction"})
TEXTS = ("input_text", "output_text", "text")


@dataclass(slots=True)
class Transcript:
    """Messages, and the items of each: from where to where in the input."""

    messages: list[Json] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def transcript_of(items: Sequence[Any], summaries: tuple[str, ...] = ()) -> Transcript:
    """Return the messages that items say.

    summaries: beginnings of user messages that are a program's summary: not what its user said, but
    what stands for the answers before it.
    """
    transcript = Transcript()
    run: list[Json] = []
    for index, item in enumerate(items):
        end_step()
        message = message_of(item)
        if message is not None:
            if summaries and is_summary(message, summaries):
                message = {"role": "assistant", "content": message["content"]}
            _end_run(run, index, transcript)
            transcript.messages.append(message)
            transcript.spans.append((index, index + 1))
        else:
            run.append(item)
    _end_run(run, len(items), transcript)
    return transcript


def without_owned(page: Json, owned: Collection[str]) -> Json:
    """Return a page of items without calls of ours, and what they gave. owned: their names."""
    data = page.get("data")
    if not isinstance(data, list):
        return page
    items = [i for i in data if isinstance(i, dict)]
    calls = {
        str(i.get("call_id"))
        for i in items
        if i.get("type") == "function_call" and i.get("name") in owned
    }
    return {**page, "data": [i for i in items if str(i.get("call_id")) not in calls]}


def is_summary(message: Json, summaries: tuple[str, ...]) -> bool:
    """Tell whether a message is a program's own summary."""
    content = message["content"]
    if isinstance(content, list) and content:
        content = content[0].get("text")
    user = message["role"] == "user"
    return user and isinstance(content, str) and content.lstrip().startswith(summaries)


def message_of(item: Any) -> Json | None:
    """Return the message that an item is by itself; None for part of what a model says."""
    kind = None
    if isinstance(item, dict):
        kind = item.get("type")
    if not isinstance(item, dict):
        return {"role": "system", "content": None}
    if kind in (None, "message"):
        role = item.get("role")
        if role == "assistant":
            return None
        content = content_of(item.get("content"))
        return {"role": role if isinstance(role, str) else "system", "content": content}
    if isinstance(kind, str) and kind.endswith("_output"):
        output = item.get("output")
        return {
            "role": "tool",
            "tool_call_id": item.get("call_id"),
            "content": output if isinstance(output, str) else content_of(output),
        }
    if isinstance(kind, str) and (kind in ASIDES or kind.endswith("_call")):
        return None
    return {"role": "system", "content": None}


def assistant_message(items: Sequence[Json]) -> Json:
    """Return what a run of a model's items says, as one message."""
    parts: list[Json] = []
    calls: list[Json] = []
    for item in items:
        kind = item.get("type")
        if kind in (None, "message"):
            parts += parts_of(item.get("content"))
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            calls.append({"id": item.get("call_id"), "type": "function", "function": function})
        elif kind == "custom_tool_call":
            custom = {"name": item.get("name"), "input": item.get("input")}
            calls.append({"id": item.get("call_id"), "type": "custom", "custom": custom})
    message: Json = {"role": "assistant", "content": plain_content(parts)}
    if calls:
        message["tool_calls"] = calls
    return message


def content_of(content: Any) -> Any:
    """Return an item's content as chat completions have it: a string where it is text alone."""
    return plain_content(parts_of(content))


def parts_of(content: Any) -> list[Json]:
    """Return an item's content as parts of chat completions: of an empty list none."""
    if not isinstance(content, list):
        return [{"type": "text", "text": content if isinstance(content, str) else ""}]
    return [part_of(p) for p in content]


def part_of(part: Any) -> Json:
    """Return one content part as chat completions have it."""
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    kind = part.get("type")
    if kind in TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "refusal":
        return {"type": "text", "text": str(part.get("refusal") or "")}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return part


def plain_content(parts: list[Json]) -> Any:
    """Return parts, or their one text as a string; None for nothing."""
    if not parts:
        return None
    if len(parts) == 1 and parts[0].get("type") == "text":
        return parts[0]["text"]
    return parts


def _end_run(run: list[Json], end: int, transcript: Transcript) -> None:
    """Add a run of a model's items as one message."""
    if run:
        transcript.messages.append(assistant_message(run))
        transcript.spans.append((end - len(run), end))
        run.clear()
