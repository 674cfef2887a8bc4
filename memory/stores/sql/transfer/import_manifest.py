"""Examines an import before anything is written: an invalid line means that nothing is stored.

Only the offsets of the lines are kept, by what they belong to; each line is read again when it is
written. So an import needs little more memory than its bytes.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from memory.conversation.messages import text_of
from memory.core.blocks import CoreBlock, check_label
from memory.core.edits import BlockEdit, put_block
from memory.core.screen import Screen
from memory.core.skill_text import check_description
from memory.core.skill_text import check_name as check_skill_name
from memory.errors import BadArguments, ToolError
from memory.export_format import (
    LIMIT,
    SAID,
    Any_Line,
    BlockLine,
    ConversationLine,
    Export,
    ExportEnd,
    MessageLine,
    NodeLine,
    PassageLine,
    PolicyLine,
    SharedBlockLine,
    SkillLine,
    TooManyLines,
    UserFileChunkLine,
    UserFileLine,
    VersionLine,
    bad_line,
    line_at,
    lines_in,
)
from memory.search.zones import parse_zone
from memory.stores.sql.engine.batches import QuickRead
from memory.stores.sql.rows.file_uploads import FileLimits
from memory.stores.sql.rows.files import check_name
from memory.stores.sql.rows.passages import check

# Of a line that is read in a thread.
LONG_LINE_BYTES = 1 << 16
# Lines that stand for themselves.
LoneLine = SharedBlockLine | PassageLine | UserFileLine | UserFileChunkLine | SkillLine
CALLS = "`message.tool_calls` must be a list of objects."


class LineReader:
    """The lines of an import, by number and offset."""

    def __init__(self, body: bytes, screen: Screen) -> None:
        self._body = body
        self._places = array("Q")
        self._screen = screen

    def add(self, number: int, offset: int) -> None:
        self._places.extend((number, offset))

    def __iter__(self) -> Iterator[tuple[int, Any_Line]]:
        """Yield the lines in order."""
        for i in range(0, len(self._places), 2):
            number, offset = self._places[i : i + 2]
            yield number, _screened(line_at(self._body, number, offset), self._screen)

    @property
    def first(self) -> int:
        return self._places[0]


@dataclass(slots=True)
class ConversationImport:
    """The lines of one conversation. nodes: names of its nodes."""

    lines: LineReader
    nodes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ImportPart:
    """The lines of one agent. blocks: by label. files: those of skills too. chats: by name."""

    blocks: dict[str, LineReader] = field(default_factory=dict)
    versions: LineReader | None = None
    passages: LineReader | None = None
    shared: LineReader | None = None
    files: LineReader | None = None
    chats: dict[str, ConversationImport] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Limits and defaults of an import.

    defaults: the operator's blocks. agent: that gets everything, None to follow the lines. most:
    number of lines, None for any. screen: what is left out of texts. files: what a user may keep.
    """

    defaults: Mapping[str, CoreBlock]
    agent: str | None = None
    most: int | None = None
    screen: Screen = field(default_factory=Screen)
    files: FileLimits = field(default_factory=FileLimits)


class ImportManifest:
    """The lines of an import by agent. policy: the user's, None where no line tells it."""

    def __init__(self, body: bytes, rules: ImportLimits) -> None:
        self._body = body
        self._rules = rules
        self.files = rules.files
        self._rows = 0
        self.parts: dict[str, ImportPart] = {}
        self.policy: PolicyLine | None = None

    async def examine(self) -> None:
        """Read every line, letting other requests run in between.

        Raises BadLine for the first invalid one.
        """
        glance = QuickRead()
        for number, offset in lines_in(self._body):
            if number and self._is_long(offset):
                await asyncio.to_thread(self._examine_line, number, offset)
            elif number:
                self._examine_line(number, offset)
            await glance.rest()

    def _is_long(self, offset: int) -> bool:
        """Tell whether the line that begins here takes long to read."""
        end = offset + LONG_LINE_BYTES
        return end < len(self._body) and self._body.find(b"\n", offset, end) < 0

    def _examine_line(self, number: int, offset: int) -> None:
        line = line_at(self._body, number, offset)
        try:
            self._take(number, offset, line)
        except ToolError as e:
            raise bad_line(number, e) from e

    def _take(self, number: int, offset: int, line: Any_Line) -> None:
        if isinstance(line, Export | ExportEnd):
            return
        if isinstance(line, PolicyLine):
            if line.timezone:
                _check_zone(line.timezone)
            self.policy = line
            return
        self._rows += 1
        if self._rules.most is not None and self._rows > self._rules.most:
            raise TooManyLines(
                f"The import has more than {self._rules.most} lines, the most that this key may "
                "import at once. Send it in several parts, use an admin key, or raise "
                "memory.import_rows."
            )
        part = self.parts.setdefault(self._rules.agent or line.memory, ImportPart())
        if isinstance(line, BlockLine | VersionLine):
            self._check_block(line)
            if isinstance(line, VersionLine):
                where = part.versions = part.versions or LineReader(self._body, self._rules.screen)
            else:
                where = part.blocks.get(line.label) or part.blocks.setdefault(
                    line.label, LineReader(self._body, self._rules.screen)
                )
        elif isinstance(line, LoneLine):
            where = self._choose_reader(part, line)
        else:
            where = self._chat(part, number, line)
        where.add(number, offset)

    def _choose_reader(
        self,
        part: ImportPart,
        line: SharedBlockLine | PassageLine | UserFileLine | UserFileChunkLine | SkillLine,
    ) -> LineReader:
        """Return where a line that stands for itself belongs. Raises ToolError."""
        if isinstance(line, SharedBlockLine):
            check_label(line.label)
            part.shared = part.shared or self._new_reader()
            return part.shared
        if isinstance(line, PassageLine):
            check(line.content, line.type, line.importance)
            part.passages = part.passages or self._new_reader()
            return part.passages
        if isinstance(line, UserFileLine):
            check_name(line.name)
        if isinstance(line, SkillLine):
            check_skill_name(line.name)
            check_description(line.description)
        part.files = part.files or self._new_reader()
        return part.files

    def _new_reader(self) -> LineReader:
        return LineReader(self._body, self._rules.screen)

    def _check_block(self, line: BlockLine | VersionLine) -> None:
        """Raises ToolError."""
        check_label(line.label)
        default_block = self._rules.defaults.get(line.label)
        max_characters = max(LIMIT, default_block.limit if default_block else 0)
        if isinstance(line, BlockLine):
            sizes = {"limit": line.limit}
            put_block(line.label, BlockEdit(line.value, line.description, line.limit), {})(None)
        else:
            sizes = {"before": len(line.before or ""), "after": len(line.after or "")}
        for name, size in sizes.items():
            if size > max_characters:
                raise BadArguments(
                    f"`{name}` is {size} characters; at most {max_characters} are allowed."
                )

    def _chat(
        self, part: ImportPart, number: int, line: ConversationLine | NodeLine | MessageLine
    ) -> LineReader:
        """Raises BadLine."""
        if isinstance(line, ConversationLine):
            name = line.id
        else:
            name = line.conversation
        chat = part.chats.get(name) or part.chats.setdefault(
            name, ConversationImport(LineReader(self._body, self._rules.screen))
        )
        if isinstance(line, NodeLine):
            chat.nodes.add(line.id)
        elif isinstance(line, MessageLine):
            _check_message(number, line)
            if line.node is not None and line.node not in chat.nodes:
                raise bad_line(
                    number, f"the node {line.node!r} of its conversation must stand before it."
                )
        return chat.lines


def _check_zone(name: str) -> None:
    """Raise BadArguments unless this is the name of a time zone."""
    try:
        parse_zone(name)
    except ValueError as e:
        raise BadArguments(f"`timezone`: {e}. Give an IANA name, like Europe/Berlin.") from e


def _screened(line: Any_Line, screen: Screen) -> Any_Line:
    """Return a line without the secrets in its texts."""
    for name in ("content", "value", "before", "after", "text"):
        if isinstance(text := getattr(line, name, None), str):
            setattr(line, name, screen.mask(text)[0])
    if isinstance(line, MessageLine):
        line.message = screen.mask_message(line.message)
    return line


def _check_message(number: int, line: MessageLine) -> None:
    """Raises BadLine."""
    calls = line.message.get("tool_calls")
    if not isinstance(line.message.get("role"), str):
        raise bad_line(number, "`message` needs a `role`.")
    if calls is not None and not (
        isinstance(calls, list) and all(isinstance(c, dict) for c in calls)
    ):
        raise bad_line(number, CALLS)
    if (size := len(text_of(line.message))) > SAID:
        raise bad_line(number, f"`message` has {size} characters; at most {SAID} are allowed.")
