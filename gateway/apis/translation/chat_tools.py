"""Tools of other formats as functions of a chat completion, and back. Pure.

- A custom tool, whose input is free text, becomes a function with one string `input`; its
  description contains the grammar of the input.
- A tool in a namespace has the namespace in its name.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import msgspec

from gateway.wire.chat import Json, encode
from memory.conversation.foreign_json import decode_foreign

NAME_CHARACTERS = 64
NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
NO_PARAMETERS: Json = {"type": "object", "properties": {}}
INPUT = "input"
FREE_TEXT: Json = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The tool's input, as it is."}},
    "required": [INPUT],
    "additionalProperties": False,
}


class ToolOrigin(NamedTuple):
    """A tool as the client knows it. namespace: "" for none."""

    name: str
    namespace: str = ""
    is_custom: bool = False


class ChatTools:
    """The functions of one request. listed: as chat completions have them."""

    def __init__(self) -> None:
        self.listed: list[Json] = []
        self._origins: dict[str, ToolOrigin] = {}
        self._names: dict[tuple[str, str], str] = {}

    def add(self, origin: ToolOrigin, function: Json) -> None:
        """Add a tool. function: its members but for the name."""
        name = _flat_name(origin)
        while name in self._origins:
            name = f"{name}_"
        self._origins[name] = origin
        self._names[origin.name, origin.namespace] = name
        tool_members = {k: v for k, v in function.items() if v is not None}
        self.listed.append({"type": "function", "function": {"name": name, **tool_members}})

    def add_custom(self, tool: Json, name: str) -> None:
        """Add a tool whose input is free text."""
        description_lines = [str(tool.get("description") or "")]
        form = tool.get("format")
        if isinstance(form, dict) and form.get("definition"):
            description_lines.append(f"`{INPUT}` must fit this {form.get('syntax')} grammar:")
            description_lines.append(str(form["definition"]))
        description = "\n\n".join(t for t in description_lines if t)
        origin = ToolOrigin(name, is_custom=True)
        self.add(origin, {"description": description or None, "parameters": FREE_TEXT})

    def name_of(self, name: str, namespace: str = "") -> str:
        """Return a tool's name in chat completions, also if it is not offered."""
        flat_name = self._names.get((name, namespace))
        return flat_name or _flat_name(ToolOrigin(name, namespace))

    def origin_of(self, chat_name: str) -> ToolOrigin:
        """Return the tool that a model calls by this name."""
        return self._origins.get(chat_name) or ToolOrigin(chat_name)

    def keep(self, names: set[str]) -> None:
        """Offer only these, by their names in chat completions."""
        self.listed = [t for t in self.listed if t["function"]["name"] in names]


def custom_arguments(text: Any) -> str:
    """Return free text as a function's arguments."""
    return encode({INPUT: text if isinstance(text, str) else ""}).decode()


def custom_input(arguments: str) -> str:
    """Return the free text in a function's arguments; arguments of any other form are the text."""
    try:
        value = decode_foreign(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    text = None
    if isinstance(value, dict):
        text = value.get(INPUT)
    if isinstance(text, str):
        return text
    return arguments


def _flat_name(origin: ToolOrigin) -> str:
    if not origin.namespace:
        return origin.name
    joint = "" if origin.namespace.endswith("__") else "__"
    full_name = f"{origin.namespace}{joint}{origin.name}"
    name = NOT_IN_NAMES.sub("_", full_name)
    if name == full_name and len(name) <= NAME_CHARACTERS:
        return name
    name_digest = hashlib.sha256(full_name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: NAME_CHARACTERS - 9]}_{name_digest}"
