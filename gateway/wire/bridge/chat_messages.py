"""Messages of a chat completion in the form that every server accepts. Pure.

Decisions, where local servers and their templates are stricter than the API:

- There is one system text, at the beginning. A later one keeps its place as user text in `<system>`
  tags.
- Adjacent messages of one role are merged. Content that is only text is one string.
- The model's output between two other messages is one message: its text, then its calls.
- Results are text. Images in them follow all results of the step, as the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.wire.chat import Json

IMAGE_BELOW = "(an image, shown below)"
BETWEEN = "\n\n"


class ChatMessages:
    """Builds messages; `whole` returns them."""

    def __init__(self) -> None:
        self._messages: list[Json] = []
        self._images: list[Json] = []  # of results, until the step's last is there

    def add_system(self, text: str) -> None:
        if not text.strip():
            return
        if not self._messages or self._last_is("system") or self._images:
            self._add_parts("system", [_text(text)])
        else:
            self.add_user([_text(f"<system>\n{text}\n</system>")])

    def add_user(self, parts: Sequence[Json]) -> None:
        self._show_images()
        self._add_parts("user", parts)

    def add_said(self, parts: Sequence[Json], calls: Sequence[Json]) -> None:
        """Add what the model said."""
        self._show_images()
        if not self._last_is("assistant"):
            self._messages.append({"role": "assistant", "content": [], "tool_calls": []})
        self._messages[-1]["content"] += parts
        self._messages[-1]["tool_calls"] += calls

    def add_result(self, call: Any, parts: Sequence[Json]) -> None:
        """Add the result of a call. call: its id."""
        said = [p if p["type"] == "text" else _text(IMAGE_BELOW) for p in parts]
        self._images += [p for p in parts if p["type"] != "text"]
        self._messages.append({"role": "tool", "tool_call_id": call, "content": said})

    def whole(self) -> list[Json]:
        """Return the messages."""
        self._show_images()
        return [_finished(m) for m in self._messages]

    def _last_is(self, role: str) -> bool:
        return bool(self._messages) and self._messages[-1]["role"] == role

    def _add_parts(self, role: str, parts: Sequence[Json]) -> None:
        if not self._last_is(role):
            self._messages.append({"role": role, "content": []})
        self._messages[-1]["content"] += parts

    def _show_images(self) -> None:
        if self._images:
            images, self._images = self._images, []
            self._add_parts("user", images)


def _finished(message: Json) -> Json:
    parts = message["content"]
    texts = [p["text"] for p in parts if p["type"] == "text"]
    content: Any = BETWEEN.join(texts) if len(texts) == len(parts) else parts
    calls = message.get("tool_calls")
    if message["role"] != "assistant":
        return {**message, "content": content}
    if calls:
        return {**message, "content": content or None}
    return {"role": "assistant", "content": content}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def call_of(ident: Any, name: str, arguments: str) -> Json:
    """Return a call as chat completions have it."""
    function = {"name": name, "arguments": arguments}
    return {"id": ident, "type": "function", "function": function}
