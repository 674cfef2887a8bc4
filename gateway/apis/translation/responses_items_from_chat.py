"""The messages of a chat completion as items of the Responses API. Pure.

Decisions, where the two differ:
- System and developer text at the beginning is `instructions`. A later one is an item in its place.
- Parts keep their order; images and files are the API's own. A result of text alone is a string.
- What a model said is its reasoning, its text and its calls, each an item. Calls have no item ids:
  one with an id needs the reasoning that it followed.
- Encrypted reasoning (`thinking_blocks`) goes back where it stood, in the tool loop under way only.
- The result of a custom call is a `custom_tool_call_output`, that of any other a
  `function_call_output`.
- Parts and members that the API has no place for are lost: refused, or dropped as the provider's
  settings say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.apis.translation.messages_turns_from_chat import as_list, loop_of, merge_thoughts
from gateway.errors import BadRequest
from gateway.wire.chat import Json
from gateway.wire.losses import Losses

SYSTEM = ("system", "developer")
REASONING = "reasoning"
BETWEEN = "\n\n"
KNOWN = {
    "system": frozenset({"role", "content"}),
    "developer": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": frozenset({"role", "content", "tool_calls", "refusal", "thinking_blocks"}),
}
# What answers are told with, and clients send back: the model needs none of it.
TOLD = frozenset({"reasoning_content", "reasoning", "annotations"})
WITHOUT_EFFECT: tuple[Any, ...] = (None, [], {}, "")


class NativeItems:
    """Messages as `instructions` and input items.

    Raises BadRequest for what cannot be carried.
    """

    def __init__(self, messages: Sequence[Json], losses: Losses) -> None:
        self._losses = losses
        self._loop = {id(m) for m in loop_of(messages)}
        # Calls of custom tools, by their ids.
        self._custom: set[str] = set()
        lead = self._lead(messages)
        texts = [t for m in messages[:lead] for t in _texts(m.get("content")) or ()]
        self.instructions = BETWEEN.join(texts)
        self.items = [
            item
            for message_index, message in enumerate(messages[lead:], lead)
            for item in self._items(message, f"messages[{message_index}]")
        ]

    def _lead(self, messages: Sequence[Json]) -> int:
        """Return how many messages at the beginning are instructions of text alone.

        One message is left, since the API takes no request without input.
        """
        lead = 0
        for message in messages[:-1]:
            if message["role"] not in SYSTEM or _texts(message.get("content")) is None:
                break
            self._check_members(message, f"messages[{lead}]")
            self._check_marks(message.get("content"), f"messages[{lead}].content")
            lead += 1
        return lead

    def _items(self, message: Json, where: str) -> Iterator[Json]:
        role = message["role"]
        self._check_members(message, where)
        match role:
            case "assistant":
                yield from self._said_items(message, where)
            case "tool":
                yield self._result(message, where)
            case _:
                # User, or a late system message.
                yield {"role": role, "content": self._content(message.get("content"), where)}

    def _check_members(self, message: Json, where: str) -> None:
        known_members = KNOWN.get(message["role"])
        if known_members is None:
            raise BadRequest(
                f"`{where}.role` is {message['role'][:40]!r}; this model's server takes system, "
                "developer, user, assistant and tool.",
                param=where,
            )
        for name, value in message.items():
            if name not in known_members and name not in TOLD and value not in WITHOUT_EFFECT:
                self._losses.lose(f"messages.{name}", f"{where}.{name}")

    def _check_marks(self, content: Any, where: str) -> None:
        for part_index, part in enumerate(as_list(content)):
            if part.get("cache_control"):
                self._losses.lose("cache_control", f"{where}[{part_index}].cache_control")

    def _said_items(self, message: Json, where: str) -> Iterator[Json]:
        """Give what a model said: each of its reasoning stands before what followed it."""
        content = message.get("content") or message.get("refusal")
        content_parts = ""
        if content:
            content_parts = self._content(content, where)
        if isinstance(content_parts, list):
            content_parts = "".join(str(p.get("text") or "") for p in content_parts)
        items = [{"role": "assistant", "content": content_parts}] if content_parts else []
        for call_index, call in enumerate(as_list(message.get("tool_calls"))):
            items.append(self._call(call, f"{where}.tool_calls[{call_index}]"))
        if items and id(message) in self._loop:
            items = merge_thoughts(items, _reasoning_of(message))
            # Its follower is gone.
            while items[-1].get("type") == REASONING:
                items.pop()
        yield from items

    def _call(self, call: Any, where: str) -> Json:
        if not isinstance(call, dict):
            call = {}
        function = call.get("function")
        custom = call.get("custom")
        if isinstance(custom, dict):
            self._custom.add(str(call.get("id")))
            custom_call = {"name": custom.get("name"), "input": custom.get("input") or ""}
            return {"type": "custom_tool_call", "call_id": call.get("id"), **custom_call}
        if not isinstance(function, dict):
            raise BadRequest(f"`{where}` has no `function`.", param=where)
        custom_call = {"name": function.get("name"), "arguments": function.get("arguments") or "{}"}
        return {"type": "function_call", "call_id": call.get("id"), **custom_call}

    def _result(self, message: Json, where: str) -> Json:
        call = message.get("tool_call_id")
        kind = "custom_tool_call_output" if str(call) in self._custom else "function_call_output"
        output = self._content(message.get("content"), where)
        if (texts := _texts(message.get("content"))) is not None:
            # Which every server takes.
            output = BETWEEN.join(texts)
        return {"type": kind, "call_id": call, "output": output}

    def _content(self, content: Any, where: str) -> Any:
        """Return content as the API has it: a string where it is text alone."""
        where = f"{where}.content"
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list) or not all(isinstance(p, dict) for p in content):
            raise BadRequest(f"`{where}` must be a string or a list of parts.", param=where)
        self._check_marks(content, where)
        return [
            p
            for part_index, part in enumerate(content)
            for p in self._part(part, f"{where}[{part_index}]")
        ]

    def _part(self, part: Json, where: str) -> Iterator[Json]:
        if (native_part := _native_part(part)) is not None:
            yield native_part
        else:
            self._losses.lose(f"messages.{part.get('type')}", where)


def _texts(content: Any) -> list[str] | None:
    """Return the texts of content that has nothing else; None for any other."""
    if content is None or isinstance(content, str):
        if content:
            return [content]
        return []
    if not isinstance(content, list):
        return None
    texts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
    part_texts = [t for t in texts if isinstance(t, str)]
    if len(part_texts) == len(content):
        return part_texts
    return None


def _native_part(part: Json) -> Json | None:
    """Return one part as the API has it; None where it has no such."""
    kind = part.get("type")
    member = part.get(str(kind))
    if kind in ("text", "refusal") and isinstance(member, str):
        return {"type": "input_text", "text": member}
    if kind == "image_url":
        image = member if isinstance(member, dict) else {"url": member}
        detail = {"detail": image["detail"]} if image.get("detail") else {}
        return {"type": "input_image", "image_url": image.get("url"), **detail}
    if kind == "file" and isinstance(member, dict):
        return {"type": "input_file", **member}
    if kind == "input_audio":
        return {"type": kind, kind: member}
    return None


def _reasoning_of(message: Json) -> list[tuple[int, Json]]:
    """Return the encrypted reasoning of a message, each with its place among its items."""
    placed_reasoning: list[tuple[int, Json]] = []
    for block in as_list(message.get("thinking_blocks")):
        if not isinstance(block, dict) or block.get("type") != REASONING:
            continue
        if not (block.get("encrypted_content") and isinstance(block.get("id"), str)):
            continue
        place = block.get("position")
        item = {k: v for k, v in block.items() if k not in ("index", "position")}
        placed_reasoning.append((place if type(place) is int else 0, {"summary": [], **item}))
    return placed_reasoning
