"""A skill as text: what its members may be, and the file SKILL.md with its front matter. Pure."""

from __future__ import annotations

import json
import re

import msgspec

from memory.errors import BadSkill

NAME = re.compile(r"[a-z0-9-]{1,48}")
NAME_CHARACTERS = 48
DESCRIPTION_CHARACTERS = 200
CANDIDATE = "candidate"
ACTIVE = "active"
RETIRED = "retired"
STATUSES = (CANDIDATE, ACTIVE, RETIRED)
FENCE = "---"
_member = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(?:[ \t]+(.*))?$")
_plain = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.()/'-]*$")
_words = re.compile(r"[a-z0-9]+")


class SkillDraft(msgspec.Struct, frozen=True):
    """A skill that is to be made."""

    name: str
    description: str
    text: str


def check_name(name: str) -> str:
    """Return the name of a skill. Raises BadSkill."""
    if not NAME.fullmatch(name):
        raise BadSkill(
            f"`name` is {name[:64]!r}: use 1 to {NAME_CHARACTERS} characters of a-z, 0-9 and '-'.",
            "name",
        )
    return name


def check_description(description: str) -> str:
    """Return what one line says of a skill. Raises BadSkill."""
    line = description.strip()
    if not line or len(line) > DESCRIPTION_CHARACTERS or not line.isprintable():
        raise BadSkill(
            f"`description` has {len(line)} characters: write one line of 1 to "
            f"{DESCRIPTION_CHARACTERS}, without control characters.",
            "description",
        )
    return line


def check_text(text: str, limit: int) -> str:
    """Return the text of a skill. Raises BadSkill."""
    if not text.strip() or len(text) > limit:
        raise BadSkill(
            f"`text` has {len(text)} characters: write 1 to {limit:,}, not all of them blank. The "
            "operator can raise memory.skills.characters.",
            "text",
        )
    return text


def check_status(status: str) -> str:
    """Return the status of a skill. Raises BadSkill."""
    if status not in STATUSES:
        raise BadSkill(f"`status` is {status[:64]!r}: use {', '.join(STATUSES)}.", "status")
    return status


def check_draft(draft: SkillDraft, limit: int) -> SkillDraft:
    """Return a draft whose members may stand in a skill. Raises BadSkill."""
    return SkillDraft(
        check_name(draft.name),
        check_description(draft.description),
        check_text(draft.text, limit),
    )


def format_document(draft: SkillDraft) -> str:
    """Return the file SKILL.md of a skill."""
    description = draft.description
    if not _plain.match(description):
        description = json.dumps(description, ensure_ascii=False)
    return f"{FENCE}\nname: {draft.name}\ndescription: {description}\n{FENCE}\n\n{draft.text}"


def read_document(document: str) -> SkillDraft:
    """Return what a file SKILL.md says. Raises BadSkill.

    Of the front matter `name` and `description` count: plain, quoted, or a block of lines.
    """
    document = document.removeprefix("\ufeff").replace("\r\n", "\n")
    first_line, _, following = document.partition("\n")
    head, closing, text = f"\n{following}".partition(f"\n{FENCE}\n")
    if first_line.strip() != FENCE or not closing:
        raise BadSkill(
            "`text` has no front matter: begin with a line `---`, then `name:` and "
            "`description:`, then a line `---`.",
            "text",
        )
    members = _read_members(head)
    for member in ("name", "description"):
        if member not in members:
            raise BadSkill(f"The front matter has no `{member}`: add a line for it.", member)
    return SkillDraft(members["name"], members["description"], text.strip("\n"))


def _read_members(head: str) -> dict[str, str]:
    """Return the members of a front matter; lines that are further in belong to the one before."""
    members: dict[str, str] = {}
    lines_of: dict[str, list[str]] = {}
    name = ""
    for line in head.split("\n"):
        if (match := _member.match(line)) is not None:
            name = match[1]
            lines_of[name] = [match[2] or ""]
        elif line[:1] in (" ", "\t") and name:
            lines_of[name].append(line.strip())
    for name, lines in lines_of.items():
        members[name] = _read_scalar(lines)
    return members


def _read_scalar(lines: list[str]) -> str:
    """Return a scalar of the front matter."""
    first_line = lines[0].strip()
    if first_line[:1] in ("|", ">"):
        first_line = ""
    value = " ".join(line for line in (first_line, *lines[1:]) if line)
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:
            return value[1:-1]
    return value


def name_from(words: str) -> str:
    """Return a name made of the first words of a text; "" if it has none that can be used."""
    name = ""
    for word in _words.findall(words.lower()):
        longer = f"{name}-{word}" if name else word
        if len(longer) > NAME_CHARACTERS:
            break
        name = longer
    return name or "".join(_words.findall(words.lower()))[:NAME_CHARACTERS]


def free_name(name: str, taken_names: frozenset[str]) -> str:
    """Return a name that is not taken: as it is, else with a number behind it."""
    number = 1
    free = name
    while free in taken_names:
        number += 1
        ending = f"-{number}"
        free = name[: NAME_CHARACTERS - len(ending)].rstrip("-") + ending
    return free


def shorten_line(text: str) -> str:
    """Return the beginning of a text as a description."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= DESCRIPTION_CHARACTERS:
        return line
    return line[: DESCRIPTION_CHARACTERS - 1].rstrip() + "…"
