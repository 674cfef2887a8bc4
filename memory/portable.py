"""A user's memory as lines of JSON: what an export writes and an import reads. Pure.

Every line is an object that says what it is. All members but the telling ones have defaults, so that lines can be written
by hand: `{"object": "passage", "content": "Likes tea"}`. Times are ISO 8601. The hidden exchanges, notes and summaries of a
conversation are not part of it: they are made anew.
"""
from __future__ import annotations

from typing import Annotated, Any

import msgspec

from memory.search import iso, parse_time

AGENT = "default"
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Line(msgspec.Struct, tag_field="object", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One line. agent: whose of the user's agents."""

    agent: str = AGENT


class Export(Line, tag="export"):
    """The first line."""

    version: int = 1
    user: str = ""


class BlockLine(Line, tag="block"):
    """deleted: only its versions are left, so that undo can restore it. limit in characters."""

    label: str
    value: str = ""
    description: str = ""
    limit: Count = 4000
    read_only: bool = False
    version: Count = 1
    deleted: bool = False
    updated_at: str | None = None


class VersionLine(Line, tag="version"):
    """undoes: the version that this one took back."""

    label: str
    version: Count
    before: str | None = None
    after: str | None = None
    actor: str = "import"
    request_id: str | None = None
    tool_call_id: str | None = None
    undoes: Count | None = None
    created_at: str | None = None


class PassageLine(Line, tag="passage"):
    """forgotten_at: taken out of every search, reversibly; by whom, and which passage or block stands in its place."""

    content: str
    id: str | None = None
    tags: list[str] = []
    type: str = "fact"
    importance: float = 0.5
    actor: str = "import"
    created_at: str | None = None
    forgotten_at: str | None = None
    forgotten_by: str | None = None
    superseded_by: str | None = None


class ConversationLine(Line, tag="conversation"):
    """head: the node where server-kept history goes on. resent: its client sends the history itself."""

    id: str
    explicit: bool = True
    resent: bool = False
    forked_from: str | None = None
    head: str | None = None
    created_at: str | None = None
    updated_at: str | None = None


class NodeLine(Line, tag="node"):
    """One request and its answer. parent: the one before. first: of sibling answers, the first. state: open, done or aborted."""

    conversation: str
    id: str
    parent: str | None = None
    first: str | None = None
    state: str = "done"
    created_at: str | None = None


class MessageLine(Line, tag="message"):
    """message: as OpenAI's API has it. node: None in a chat that was written down without nodes, in order."""

    conversation: str
    message: dict[str, Any]
    node: str | None = None
    source: str = "import"
    aborted: bool = False
    created_at: str | None = None


class End(Line, tag="end"):
    """The last line: an export without it was cut short. lines: those before it."""

    lines: int = 0


Any_Line = Export | BlockLine | VersionLine | PassageLine | ConversationLine | NodeLine | MessageLine | End
_decode = msgspec.json.Decoder(Any_Line).decode
_encode = msgspec.json.Encoder().encode


class BadLine(ValueError):
    """A line that cannot be imported; the message names it."""


def written(line: Line) -> bytes:
    return _encode(line) + b"\n"


def read(body: bytes) -> list[tuple[int, Any_Line]]:
    """The lines of an export with their numbers, empty ones left out. Raises BadLine."""
    out: list[tuple[int, Any_Line]] = []
    for number, raw in enumerate(body.split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            line = _decode(raw)
            _check_times(line)
        except (ValueError, RecursionError, OverflowError, OSError) as e:
            raise BadLine(f"Line {number} cannot be imported: {e}") from e
        out.append((number, line))
    return out


def _check_times(line: Line) -> None:
    for name in ("created_at", "updated_at", "forgotten_at"):
        if (value := getattr(line, name, None)) is not None:
            moment(value)


def moment(value: str) -> float:
    """Seconds since 1970 of a time that can also be told again. Raises ValueError or OverflowError."""
    at = parse_time(value)
    iso(at)
    return at
