"""A memory as pages of Markdown, which people read and edit, and which are read back. Pure.

Each record is a comment with its members as JSON, a heading for the reader, and the text:

    <!-- {"object": "passage", "tags": ["family"]} -->
    #### 2026-11-23

    Grace arrives on Friday

The heading is not read back. A line of a text that begins like such a comment is written with a
backslash before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from memory.core.blocks import LABEL
from memory.export_format import (
    AGENT,
    BadLine,
    BlockLine,
    ConversationLine,
    Export,
    ExportEnd,
    ExportLine,
    MessageLine,
    NodeLine,
    PassageLine,
    PolicyLine,
    VersionLine,
    line_at,
)

BEGIN = "<!-- {"
END = "} -->"
HEADING = "#### "
LIKE_A_RECORD = re.compile(r"^(\\*<!-- \{)", re.MULTILINE)
ESCAPED = re.compile(r"^\\(\\*<!-- \{)", re.MULTILINE)
DAY = re.compile(r"\d{4}-\d\d-\d\d")
# On one page.
PASSAGES = 200
NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_TEXTS = {BlockLine: "value", PassageLine: "content"}
_TEXT_MEMBERS: dict[Any, str] = {"block": "value", "passage": "content"}
_encode = msgspec.json.Encoder().encode


class BadPage(ValueError):
    """A page that cannot be read; the message names the line."""


def page_texts(lines: Iterable[ExportLine]) -> Iterator[tuple[str, str]]:
    """Yield (path, text) for the lines of an export: what to add to which page.

    Args:
        lines: as an export tells them, the line of a conversation before its nodes.
    """
    layout = _Layout()
    for line in lines:
        if not isinstance(line, ExportEnd):
            yield layout.path_of(line), record_text(line)


def record_text(line: ExportLine) -> str:
    """Return a record as the text of its page."""
    members = msgspec.to_builtins(line)
    text: str | None = None
    if (name := _TEXTS.get(type(line))) is not None:
        text = members.pop(name, "")
    elif isinstance(line, MessageLine) and _is_plain(line.message):
        members["message"] = line.message["role"]
        text = line.message["content"]
    # A ">" within a member would end the comment.
    comment = f"<!-- {_encode(members).decode().replace('>', chr(92) + 'u003e')} -->\n"
    if text is None:
        return comment + "\n"
    text = LIKE_A_RECORD.sub(r"\\\1", text)
    return f"{comment}{HEADING}{_heading(line)}\n\n{text}\n\n"


def read_page(text: str) -> list[ExportLine]:
    """Return the records of a page, in order. Raises BadPage."""
    records: list[ExportLine] = []
    lines = text.removesuffix("\n").split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith(BEGIN)]
    for start, end in pairwise([*starts, len(lines)]):
        try:
            records.append(_read_record(lines[start].rstrip(), lines[start + 1 : end]))
        except (ValueError, RecursionError) as e:
            raise BadPage(f"line {start + 1}: {e}") from e
    return records


def _read_record(comment: str, text_lines: list[str]) -> ExportLine:
    """Raises ValueError."""
    if not comment.endswith(END):
        raise BadLine(f"a record must end with {END} on its line")
    json_bytes = comment[len("<!-- ") : -len(" -->")].encode()
    members: dict[str, Any] = msgspec.json.decode(json_bytes, type=dict[str, Any])
    kind = members.get("object")
    message = members.get("message")
    if (name := _TEXT_MEMBERS.get(kind)) is not None:
        members[name] = _text_of(text_lines)
    elif kind == "message" and isinstance(message, str):
        members["message"] = {"role": message, "content": _text_of(text_lines)}
    else:
        return line_at(json_bytes, 1, 0)
    return line_at(_encode(members), 1, 0)


def _text_of(text_lines: list[str]) -> str:
    """Return the text below a record's comment, without its heading and blank lines."""
    if text_lines and text_lines[0].startswith(HEADING.rstrip()):
        text_lines = text_lines[1:]
        if text_lines and not text_lines[0].strip():
            text_lines = text_lines[1:]
    if text_lines and not text_lines[-1].strip("\r"):
        text_lines = text_lines[:-1]
    return ESCAPED.sub(r"\1", "\n".join(text_lines))


def _is_plain(message: dict[str, Any]) -> bool:
    return list(message) == ["role", "content"] and all(
        isinstance(m, str) for m in message.values()
    )


def _heading(line: ExportLine) -> str:
    if isinstance(line, BlockLine):
        return " ".join(line.label.split())
    day_and_time = " ".join(
        (getattr(line, "created_at", None) or "")[:16].replace("T", " ").split()
    )
    if isinstance(line, MessageLine):
        role = NOT_IN_NAMES.sub(" ", str(line.message["role"]))[:40]
        return f"{role}, {day_and_time}"
    return day_and_time


class _Layout:
    """Which page a line is on."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {AGENT: ""}
        self._passages: dict[str, int] = {}
        self._chats: dict[tuple[str, str], str] = {}

    def path_of(self, line: ExportLine) -> str:
        if isinstance(line, Export | PolicyLine):
            return "about.md"
        folder = self._folder(line.place)
        if isinstance(line, BlockLine):
            if LABEL.fullmatch(line.label):
                name = line.label
            else:
                name = _slug(line.label)
            return f"{folder}blocks/{name}.md"
        if isinstance(line, VersionLine):
            return f"{folder}blocks/history.versions.md"
        if isinstance(line, PassageLine):
            count = self._passages[folder] = self._passages.get(folder, 0) + 1
            return f"{folder}passages/{(count - 1) // PASSAGES + 1:05}.md"
        if isinstance(line, ConversationLine):
            return self._chat(line.place, line.id, line.created_at or "")
        if isinstance(line, NodeLine | MessageLine):
            return self._chat(line.place, line.conversation, "")
        return "about.md"

    def _folder(self, agent: str) -> str:
        if agent not in self._folders:
            self._folders[agent] = f"agents/{len(self._folders):03}-{_slug(agent)}/"
        return self._folders[agent]

    def _chat(self, agent: str, name: str, created_at: str) -> str:
        if (agent, name) not in self._chats:
            number = f"{len(self._chats) + 1:06}"
            parts = [part for part in (number, _day(created_at), _slug(name)) if part]
            self._chats[agent, name] = f"{self._folder(agent)}conversations/{'-'.join(parts)}.md"
        return self._chats[agent, name]


def _day(iso_text: str) -> str:
    """Return the day of a time; "" if it is not one."""
    if DAY.match(iso_text):
        return iso_text[:10]
    return ""


def _slug(name: str) -> str:
    """Return a name without characters that are unsafe in a path, at most 40 characters."""
    return NOT_IN_NAMES.sub("-", name)[:40].strip("-.") or "unnamed"
