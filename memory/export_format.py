"""A user's memory as lines of JSON, which an export writes and an import reads. Pure.

Every line is an object that names its kind. All members but the essential ones have defaults, so
that lines can be written by hand: `{"object": "passage", "content": "Likes tea"}`. Times are ISO
8601. Hidden exchanges, notes and summaries of a conversation are not included: they are made again.

An import accepts exactly what the management API accepts: the limits for both are defined here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from memory.conversation.foreign_json import json_steps
from memory.conversation.json_strings import count_in_steps
from memory.scope import KIND_MARK, memory_name
from memory.search.query import iso, parse_time

AGENT = "default"
# Characters, to which a block's limit can be raised.
LIMIT = 1_000_000
# Characters of a text that becomes passages.
CONTENT = 200_000
# Characters of one message.
SAID = 8 << 20
# Values in one line, or in one body.
VALUES = 100_000
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Label = Annotated[str, msgspec.Meta(max_length=63)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=LIMIT, description="characters")]
Description = Annotated[str, msgspec.Meta(max_length=10_000)]
Content = Annotated[str, msgspec.Meta(max_length=CONTENT)]
Tags = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=64)]
Importance = Annotated[float, msgspec.Meta(ge=0, le=1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
ProjectName = Annotated[str, msgspec.Meta(max_length=256, pattern="^[^\\x1f]*$")]
# An id or a name that others gave.
Told = Annotated[str, msgspec.Meta(max_length=1000)]


class ExportLine(
    msgspec.Struct,
    tag_field="object",
    forbid_unknown_fields=True,
    omit_defaults=True,
    kw_only=True,
    # There may be many, and they hold no cycle.
    gc=False,
):
    """One line. agent: whose of the user's agents. project: in which, "" for none."""

    agent: Name = AGENT
    project: ProjectName = ""

    @property
    def place(self) -> str:
        """The agent, and the project if there is one, as people are shown them."""
        if self.project:
            return f"{self.agent} in {self.project}"
        return self.agent

    @property
    def memory(self) -> str:
        """The name of the memory that it is of."""
        return memory_name(self.agent.lstrip(KIND_MARK) or AGENT, self.project)


class Export(ExportLine, tag="export"):
    """The first line."""

    version: Count = 1
    user: Told = ""


class PolicyLine(ExportLine, tag="policy"):
    """What the memory may do for the user, of all agents. timezone: None where nobody told it.

    layers: those that the user's requests read; None for all.
    """

    memory: Literal["full", "read", "write", "off"]
    timezone: Label | None = None
    layers: list[Literal["tenant", "team", "project"]] | None = None


class BlockLine(ExportLine, tag="block"):
    """deleted: only its versions are left, so that undo can restore it. limit in characters."""

    label: Label
    value: str = ""
    description: Description = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=2**53)] = 4000
    read_only: bool = False
    version: Count = 1
    deleted: bool = False
    updated_at: str | None = None


class SharedBlockLine(ExportLine, tag="shared_block"):
    """A block that the user sees, of others too. An import makes an own block of it.

    write: whether the user may write in it.
    """

    label: Label
    write: bool
    kind: Told = ""
    id: Told = ""
    description: Description = ""
    value: str = ""


class VersionLine(ExportLine, tag="version"):
    """undoes: the version that this one took back."""

    label: Label
    version: Count
    before: str | None = None
    after: str | None = None
    actor: Told = "import"
    request_id: Told | None = None
    tool_call_id: Told | None = None
    undoes: Count | None = None
    quote: Told | None = None
    created_at: str | None = None


class PassageLine(ExportLine, tag="passage"):
    """forgotten_at: taken out of every search, reversibly; by whom, and which passage or block
    stands in its place.
    """

    content: Content
    id: Told | None = None
    tags: Tags = []
    type: str = "fact"
    importance: Importance = 0.5
    actor: Told = "import"
    created_at: str | None = None
    forgotten_at: str | None = None
    forgotten_by: Told | None = None
    superseded_by: Told | None = None
    quote: Told | None = None
    speaker: Told | None = None


class ConversationLine(ExportLine, tag="conversation"):
    """A conversation.

    head: the node where a stored history continues. resent: its client sends the history itself.
    """

    id: Name
    explicit: bool = True
    resent: bool = False
    forked_from: Told | None = None
    head: Told | None = None
    created_at: str | None = None
    updated_at: str | None = None


class NodeLine(ExportLine, tag="node"):
    """One request and its answer.

    parent: the previous one. first: the first of several choices. state: open, done or aborted.
    """

    conversation: Name
    id: Told
    parent: Told | None = None
    first: Told | None = None
    state: Told = "done"
    created_at: str | None = None


class MessageLine(ExportLine, tag="message"):
    """One message, in OpenAI's format.

    node: None in a plain chat, whose messages are in order. id: kept if it is of our kind.
    """

    conversation: Name
    message: dict[str, Any]
    id: Told | None = None
    node: Told | None = None
    source: Told = "import"
    aborted: bool = False
    created_at: str | None = None


class UserFileLine(ExportLine, tag="file"):
    """A file; its chunks follow. An import reads it again. bytes: how many there are."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    sha256: Digest
    bytes: Count
    kind: Told = ""
    id: Told = ""
    type: Told = ""
    version: Count = 1
    created_at: str | None = None


class UserFileChunkLine(ExportLine, tag="file_chunk"):
    """A part of the file of this digest. data: in Base64. position: from 0, without a gap."""

    sha256: Digest
    position: Count
    data: bytes
    kind: Told = ""


class SkillLine(ExportLine, tag="skill"):
    """A skill. steps: a digest of the calls it was made from, "" for one that a person wrote."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=48)]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
    status: Told = "candidate"
    steps: Annotated[str, msgspec.Meta(max_length=64)] = ""
    source_turns: Annotated[list[Told], msgspec.Meta(max_length=1000)] = []
    created_at: str | None = None


class ExportEnd(ExportLine, tag="end"):
    """The last line: an export without it was cut short. lines: those before it."""

    lines: int = 0


Any_Line = (
    Export
    | PolicyLine
    | BlockLine
    | SharedBlockLine
    | VersionLine
    | PassageLine
    | ConversationLine
    | NodeLine
    | MessageLine
    | UserFileLine
    | UserFileChunkLine
    | SkillLine
    | ExportEnd
)
_decode = msgspec.json.Decoder(Any_Line).decode
_encode = msgspec.json.Encoder().encode


class BadLine(ValueError):
    """A line that cannot be imported; the message names it."""


class TooManyLines(BadLine):
    """More lines than this key may import at once."""


def encode_line(line: ExportLine) -> bytes:
    return _encode(line) + b"\n"


BLANK = re.compile(rb"[ \t\r\n]*+")
# Bytes of white space that are passed over in one step.
STRIDE = 1 << 16


def lines_in(body: bytes) -> Iterator[tuple[int, int]]:
    """Number and place of each line that is not blank, one at a time.

    Also (0, 0), which is no line, where white space goes on for long: a moment to let others go on.
    """
    at = 0
    number = 1
    while at < len(body):
        begin = at
        blank = BLANK.match(body, begin, begin + STRIDE)
        if blank:
            at = blank.end()
        else:
            at = begin
        number += body.count(b"\n", begin, at)
        if at == len(body):
            return
        if at == begin + STRIDE:
            yield 0, 0
            continue
        yield number, at
        end = body.find(b"\n", at)
        if end < 0:
            at = len(body)
        else:
            at = end


def line_at(body: bytes, number: int, at: int) -> Any_Line:
    """Return the line of this number, which begins at this place. Raises BadLine."""
    end = body.find(b"\n", at)
    line_bytes = body[at:] if end < 0 else body[at:end]
    try:
        if has_many_values(line_bytes):
            raise ValueError(f"it has more than {VALUES} values: split it")
        line: Any_Line = _decode(line_bytes)
        _check_times(line)
    except (ValueError, RecursionError, OverflowError, OSError) as e:
        raise bad_line(number, e) from e
    return line


def bad_line(number: int, why: object) -> BadLine:
    return BadLine(f"Line {number} cannot be imported: {why}")


MARKS = (b",", b"[", b"{")


def has_many_values(line_bytes: bytes) -> bool:
    """Tell whether a JSON text has more than `VALUES` values, by its commas and brackets.

    Those inside strings are not counted. Such texts cost more to parse than their size suggests.
    """
    if sum(count_in_steps(line_bytes, sign) for sign in MARKS) <= VALUES:
        return False
    values = 0
    for step in json_steps(line_bytes):
        outside = b"".join(step.parts[::2])
        values += max(sum(map(outside.count, MARKS)), len(step.parts) // 4)
        if values > VALUES:
            return True
    return False


def _check_times(line: ExportLine) -> None:
    for name in ("created_at", "updated_at", "forgotten_at"):
        if (value := getattr(line, name, None)) is not None:
            moment(value)


def moment(value: str) -> float:
    """Return seconds since 1970 of a time that can also be told again.

    Raises ValueError or OverflowError.
    """
    at = parse_time(value)
    iso(at)
    return at
