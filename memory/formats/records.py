"""What the readers of all formats share. Pure.

What they yield, and parsers of times, ids and texts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from memory.export_format import (
    CONTENT,
    SAID,
    ConversationLine,
    ExportLine,
    MessageLine,
    PassageLine,
    moment,
)
from memory.search.query import iso

# Characters of an id by which a program knows a person.
OWNER = 256
# A larger number is no time in seconds: that would be the year 5138.
MILLISECONDS = 1e11
UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class BrokenItem(ValueError):
    """An item that cannot be imported; the message says why."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Lines that are imported together or not at all, such as a conversation.

    owner: the program's own id of the person they belong to; "" if unknown.
    """

    lines: Sequence[ExportLine]
    owner: str = ""


@dataclass(slots=True)
class BundleCount:
    """How much was read."""

    conversations: int = 0
    messages: int = 0
    passages: int = 0
    blocks: int = 0
    owners: dict[str, int] = field(default_factory=dict)

    def add(self, bundle: Bundle) -> None:
        for line in bundle.lines:
            self.conversations += isinstance(line, ConversationLine)
            self.messages += isinstance(line, MessageLine)
            self.passages += isinstance(line, PassageLine)
            self.blocks += line.__struct_config__.tag == "block"
        if bundle.owner:
            self.owners[bundle.owner] = self.owners.get(bundle.owner, 0) + 1


# It raises BrokenItem for all of a value, and yields one for what it leaves out of it.
Reader = Callable[[Any], Iterator[Bundle | BrokenItem]]


def time_of(value: Any) -> float | None:
    """Return the Unix time of a number or of an ISO 8601 text.

    A number counts seconds, or thousandths or less of them. Returns None if it is not a time.
    """
    try:
        if isinstance(value, str) and len(value) <= 64:
            return moment(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            seconds = float(value)
            while math.isfinite(seconds) and seconds > MILLISECONDS:
                seconds /= 1000
            iso(seconds)
            return seconds
    except (ValueError, OverflowError, OSError):
        return None
    return None


def iso_time(timestamp: float | None) -> str | None:
    if timestamp is None:
        return None
    return iso(timestamp)


def member(value: Any, name: str) -> Any:
    """Return a member of an object; None if it is missing, or the value is not an object."""
    if isinstance(value, dict):
        return value.get(name)
    return None


def text_member(value: Any, name: str) -> str:
    """Return a text member; "" if it is missing or not a text."""
    member_value = member(value, name)
    if isinstance(member_value, str):
        return member_value
    return ""


def owner_of(value: Any) -> str:
    if isinstance(value, str):
        return value[:OWNER]
    return ""


def name_of(program: str, ident: Any, value: Any) -> str:
    """Return the name of a conversation; the same at each import."""
    if not isinstance(ident, str) or not ident.strip():
        ident = hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:32]
    if len(ident) > 200:
        ident = hashlib.sha256(ident.encode()).hexdigest()
    return f"{program}:{ident}"


def own_id(prefix: str, ident: str, namespace: str = "") -> str:
    """Return our id for an id of another program: the same digits if it is a UUID.

    namespace: the scope in which a shorter id is unique.
    """
    if UUID.fullmatch(ident):
        return f"{prefix}_{ident.replace('-', '')}"
    return f"{prefix}_{hashlib.sha256(f'{namespace} {ident}'.encode()).hexdigest()[:32]}"


def check_text(text: str) -> str:
    """Return the text of a message. Raises BrokenItem if it is longer than allowed."""
    if len(text) > SAID:
        raise BrokenItem(f"a message has {len(text)} characters; at most {SAID} are allowed")
    return text


def passage(content: str, **members: Any) -> PassageLine:
    """Return the line of a passage. Raises BrokenItem if it is empty or too long."""
    if not content.strip():
        raise BrokenItem("a memory is empty")
    if len(content) > CONTENT:
        raise BrokenItem(f"a memory has {len(content)} characters; at most {CONTENT} are allowed")
    return PassageLine(content=content, **members)


def text_of_parts(content: Any) -> str:
    """Return the text of a message: a string, or parts of several types.

    Images become a note. Reasoning, tool calls and tool results are left out.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(text for part in content if (text := _text_of_part(part)).strip())


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = member(part, "type") or member(part, "content_type")
    if kind in ("text", "input_text", "output_text", "audio_transcription", "voice_note"):
        return text_member(part, "text")
    if isinstance(kind, str) and "image" in kind:
        return "[image]"
    return ""
