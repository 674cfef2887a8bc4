"""Leaves out what a client program puts around the words of its user. Pure.

Coding agents and chat programs add elements to a user's message: the date, open files, reminders to
the model. They are nobody's words: they are not searched, recalled or extracted, and tell no task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from memory.conversation.steps import end_step, holds_text, search_in_steps

# At once, of white space that may take any room.
INSPECTED_CHARACTERS = 4096
MAX_ATTRIBUTE_CHARACTERS = 300
MAX_INDENT = 40
# That are left out before a text, and behind it.
MAX_ELEMENTS = 2048
EDGE_CHARACTERS = 1 << 14
# What known programs add. Elements in which users' own words stand, such as `user_query`, are not
# here: whoever names one loses what is in it.
HARNESS_ELEMENTS = (
    # Claude Code
    *("system-reminder", "local-command-stdout", "local-command-stderr", "local-command-caveat"),
    *("command-message", "command-name", "bash-stdout", "bash-stderr", "task-notification"),
    *("user-prompt-submit-hook", "new-diagnostics", "ide_opened_file", "ide_selection"),
    "ide_diagnostics",
    # Codex
    *("environment_context", "user_instructions", "turn_aborted", "user_shell_command"),
    # Cline, Roo, Cursor, Copilot, Gemini CLI
    *(
        "environment_details",
        "system_reminder",
        "additional_data",
        "open_and_recently_viewed_files",
    ),
    *("attached_files", "project_layout", "git_status", "user_info", "environment_info"),
    *("workspace_info", "editorContext", "reminderInstructions", "session_context"),
)


class Harness:
    """The elements that one program adds, by their names."""

    def __init__(self, elements: Iterable[str] = HARNESS_ELEMENTS) -> None:
        self._names = frozenset(elements)
        names = "|".join(map(re.escape, sorted(self._names))) or r"(?!)"
        opening = rf"<({names})(?:\s[^<>]{{0,{MAX_ATTRIBUTE_CHARACTERS}}})?>"
        # Its beginning is a literal one, which is looked for fast: most texts have none.
        self._closing = re.compile(rf"</(?:{names})>")
        self._opening = re.compile(opening)
        self._line = re.compile(rf"^[^\S\n]{{0,{MAX_INDENT}}}{opening}", re.MULTILINE)
        self._longest_name = max(map(len, self._names), default=0)
        self._line_end = re.compile(rf"[^\S\n]{{0,{MAX_INDENT}}}(?:\n|\Z)")

    def own_part(self, text: str) -> str:
        """Return a text without the elements before and behind it, and on lines of their own."""
        if not holds_text(text, "</") or not self._has_closing(text):
            return text
        begin = self._skip_before(text)
        end = self._skip_behind(text, begin)
        return self._without_lines(text[begin:end])

    def own_edges(self, text: str) -> str:
        """Return the own part of a text; of a long one only its beginning and its end.

        For the event loop: to look through 8 MiB for elements takes up to 300 ms.
        """
        if len(text) <= 2 * EDGE_CHARACTERS:
            return self.own_part(text)
        begin = self._skip_before(text)
        end = self._skip_behind(text, begin)
        if end - begin <= 2 * EDGE_CHARACTERS:
            return self._without_lines(text[begin:end])
        edges = text[begin : begin + EDGE_CHARACTERS], text[end - EDGE_CHARACTERS : end]
        return "\n".join(map(self._without_lines, edges))

    def _without_lines(self, own_text: str) -> str:
        if self._has_closing(own_text):
            return "".join(self._between(own_text))
        return own_text

    def _has_closing(self, text: str) -> bool:
        tag_size = len("</>") + self._longest_name
        return search_in_steps(self._closing, text, 0, tag_size) is not None

    def _skip_before(self, text: str) -> int:
        """Return where the elements before a text end."""
        begin = _skip_space(text, 0)
        for _ in range(MAX_ELEMENTS):
            if not (opening := self._opening.match(text, begin)):
                break
            closing = f"</{opening[1]}>"
            element_end = text.find(closing, opening.end())
            if element_end < 0:
                break
            begin = _skip_space(text, element_end + len(closing))
        return begin

    def _skip_behind(self, text: str, begin: int) -> int:
        """Return where the elements behind a text begin."""
        end = _skip_space_back(text, begin, len(text))
        for _ in range(MAX_ELEMENTS):
            if not text.endswith(">", begin, end):
                break
            # No farther than a name is long: a text may be full of what looks like a tag.
            search_end = max(begin, end - len("</>") - self._longest_name)
            closing = text.rfind("</", search_end, end)
            if closing < 0 or (name := text[closing + 2 : end - 1]) not in self._names:
                break
            element_start = text.rfind(f"<{name}", begin, closing)
            if (
                element_start < 0
                or not (opening := self._opening.match(text, element_start))
                or opening[1] != name
            ):
                break
            end = _skip_space_back(text, begin, element_start)
        return end

    def _between(self, text: str) -> Iterator[str]:
        """Yield what stands around the elements that have lines of their own."""
        yielded_end = search_start = 0
        # Which are not closed any more from here on.
        open_names: set[str] = set()
        line_size = MAX_INDENT + len("< >") + self._longest_name + MAX_ATTRIBUTE_CHARACTERS
        while line := search_in_steps(self._line, text, search_start, line_size):
            name = line[1]
            search_start = line.end()
            if name in open_names:
                closing = -1
            else:
                closing = text.find(f"</{name}>", search_start)
            if closing < 0:
                open_names.add(name)
                continue
            end_step()
            search_start = closing + len(name) + 3
            if end := self._line_end.match(text, search_start):
                yield text[yielded_end : line.start()]
                yielded_end = search_start = end.end()
        yield text[yielded_end:]


def _skip_space(text: str, offset: int) -> int:
    """Return where the white space at a place ends; a slice at a time, since it may be long."""
    while part := text[offset : offset + INSPECTED_CHARACTERS]:
        if words := part.lstrip():
            return offset + len(part) - len(words)
        offset += len(part)
    return offset


def _skip_space_back(text: str, begin: int, offset: int) -> int:
    while part := text[max(begin, offset - INSPECTED_CHARACTERS) : offset]:
        if words := part.rstrip():
            return offset - len(part) + len(words)
        offset -= len(part)
    return offset


SHIPPED_HARNESS = Harness()
