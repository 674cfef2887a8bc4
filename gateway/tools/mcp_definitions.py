"""The definitions of tools as an MCP server lists them: their hash, their limits, their names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from gateway.wire.chat import Json

MEMBERS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
MAX_TOOLS = 1000
MAX_PAGES = 100
MAX_BYTES = 1 << 20
# Of all pages, with what is not kept of them.
PAGES_BYTES = 8 << 20
SCHEMA_BYTES = 16 << 10
SCHEMA_DEPTH = 16
DESCRIPTION_CHARACTERS = 1024
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
TEXTS = ("description", "title")
NAME_CHARACTERS = 64
DIGEST_CHARACTERS = 6
INVISIBLE = frozenset({"Cf", "Cc", "Cs", "Co"})
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_sorted = msgspec.json.Encoder(order="sorted")


class ListedTool(NamedTuple):
    """One tool of a server. text: its definition as canonical JSON, digest: the hash of that."""

    name: str
    digest: str
    text: str


class TooManyDefinitions(Exception):
    """A server lists more than is read; the message says what."""


def read_tools(definitions: Iterable[Mapping[str, Any]]) -> dict[str, ListedTool]:
    """Return what a server lists, by name. Raises TooManyDefinitions."""
    tools: dict[str, ListedTool] = {}
    size = 0
    for definition in definitions:
        tool = read_tool(definition)
        size += len(tool.text)
        tools[tool.name] = tool
        if len(tools) > MAX_TOOLS or size > MAX_BYTES:
            raise TooManyDefinitions(
                f"it lists more than {MAX_TOOLS} tools, or {MAX_BYTES} bytes of definitions"
            )
    return tools


def read_tool(definition: Mapping[str, Any]) -> ListedTool:
    """Return one tool as a server lists it."""
    members = {name: definition[name] for name in MEMBERS if definition.get(name) is not None}
    text = _sorted.encode(members)
    return ListedTool(str(members["name"]), hashlib.sha256(text).hexdigest(), text.decode())


def why_refused(definition: Json) -> str:
    """Return why a tool is not offered whatever anybody accepts; empty for one that may be."""
    schema = definition.get("inputSchema")
    # A root without a type is shown as an object, unless it says that it is something else.
    if (
        not isinstance(schema, dict)
        or schema.get("type", "object") != "object"
        or ("type" not in schema and isinstance(schema.get("$ref"), str))
    ):
        return "the root of its schema is no object"
    if not isinstance(schema.get("properties", {}), dict):
        return "the properties of its schema are no object"
    if not _is_name_list(schema.get("required", [])):
        return "what its schema requires is no list of names"
    if len(_sorted.encode(schema)) > SCHEMA_BYTES:
        return f"its schema is larger than {SCHEMA_BYTES} bytes"
    queue: list[tuple[Any, int]] = [(schema, 1)]
    while queue:
        value, depth = queue.pop()
        if depth > SCHEMA_DEPTH:
            return f"its schema is nested more than {SCHEMA_DEPTH} levels deep"
        if isinstance(value, dict):
            if any(_leads_outside(value.get(name)) for name in REFERENCES):
                return "its schema refers to something outside of it"
            queue += [(x, depth + 1) for x in value.values() if isinstance(x, dict | list)]
        elif isinstance(value, list):
            queue += [(x, depth + 1) for x in value if isinstance(x, dict | list)]
    return ""


def _is_name_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _leads_outside(reference: object) -> bool:
    return isinstance(reference, str) and not reference.startswith("#")


def visible_schema(value: Any, depth: int = 0) -> Any:
    """Return a schema whose descriptions and titles are visible texts.

    Names and values stay as they are, since a call has to repeat them. What is nested too deeply is
    refused anyway.
    """
    if depth > SCHEMA_DEPTH:
        return value
    if isinstance(value, list):
        return [visible_schema(element, depth + 1) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        name: visible_text(member)
        if name in TEXTS and isinstance(member, str)
        else visible_schema(member, depth + 1)
        for name, member in value.items()
    }


def described_texts(value: Any, depth: int = 0) -> list[str]:
    """Return the descriptions and titles within a definition."""
    if depth > SCHEMA_DEPTH + 1 or not isinstance(value, dict | list):
        return []
    texts: list[str] = []
    for name, member in value.items() if isinstance(value, dict) else enumerate(value):
        if name in TEXTS and isinstance(member, str):
            texts.append(member)
        else:
            texts += described_texts(member, depth + 1)
    return texts


def visible_text(text: str) -> str:
    """Return a text without what nobody sees: tags, bidirectional marks, control characters."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in INVISIBLE)


def flags_of(definition: Json, entries: Iterable[str]) -> list[str]:
    """Return what an operator should look at in a tool's texts. entries: the names of others."""
    text = "\n".join(described_texts(definition))
    flags = []
    if visible_text(text) != text:
        flags.append("invisible characters")
    named_entries = [entry for entry in entries if re.search(rf"\b{re.escape(entry)}_", text)]
    if named_entries:
        flags.append(f"names tools of {', '.join(named_entries)}")
    return flags


def model_name(prefix: str, name: str) -> str:
    """Return the name by which a model calls a tool."""
    full_name = prefix + name
    safe_name = NOT_IN_NAMES.sub("_", full_name)
    if len(safe_name) <= NAME_CHARACTERS:
        return safe_name
    digest = hashlib.sha256(full_name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe_name[: NAME_CHARACTERS - DIGEST_CHARACTERS - 1]}_{digest[:DIGEST_CHARACTERS]}"
