"""What a docstring says of a function and its parameters, in Google's style. Pure."""

from __future__ import annotations

import inspect
import re

SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Attributes|Returns?|Yields?|Raises|Examples?|Notes?|"
    r"References|Todo|See Also|Warnings?):\s*"
)
ARGUMENT_SECTIONS = ("Args", "Arguments", "Parameters", "Params")
# `name: text` or `name (type): text`
ARGUMENT = re.compile(r"\*{0,2}([A-Za-z_][A-Za-z0-9_]*)\s{0,9}(\([^()]{0,200}\))?\s{0,9}:(?:\s|$)")
BLANKS = re.compile(r"\s+")
DESCRIPTION_CHARACTERS = 1024


def read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text up to the first section, and what it says of each parameter."""
    lines = inspect.cleandoc(docstring).split("\n")
    sections = [at for at, line in enumerate(lines) if SECTION.fullmatch(line)]
    if sections:
        section_start = sections[0]
    else:
        section_start = len(lines)
    description = "\n".join(line.rstrip() for line in lines[:section_start]).strip()
    parameters: dict[str, str] = {}
    for at in sections:
        if lines[at].split(":")[0] in ARGUMENT_SECTIONS:
            end = next((next_at for next_at in sections if next_at > at), len(lines))
            parameters |= _read_arguments(lines[at + 1 : end])
    return description[:DESCRIPTION_CHARACTERS], parameters


def _read_arguments(lines: list[str]) -> dict[str, str]:
    """Return what the lines of a section say of each parameter."""
    text_lines = [line for line in lines if line.strip()]
    if not text_lines:
        return {}
    indent = min(len(line) - len(line.lstrip()) for line in text_lines)
    parts_by_name: dict[str, list[str]] = {}
    parts: list[str] = []
    for line in text_lines:
        begins = len(line) - len(line.lstrip()) == indent
        match = None
        if begins:
            match = ARGUMENT.match(line.strip())
        if match is not None:
            parts = parts_by_name.setdefault(match[1], [])
            parts.append(line.strip()[match.end() :])
        else:
            parts.append(line.strip())
    return {
        name: BLANKS.sub(" ", " ".join(texts)).strip()[:DESCRIPTION_CHARACTERS]
        for name, texts in parts_by_name.items()
    }
