"""A profile as the fields of a form, and what a sent form changes of it. Pure.

A field that was not touched changes nothing: whatever a form cannot hold exactly, such as a line
break in a title, stays as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from gateway.errors import BadRequest
from gateway.wire.chat import decode

Json = dict[str, Any]
LINE_ENDS = re.compile(r"\r\n?")
MODES = ("full", "read", "write", "off")
BLOCK_MEMBERS = ("label", "description", "value", "limit", "read_only")
ROW = re.compile(r"blocks\.(\d{1,4})\.([a-z_]+)")
# Of a form; an agent with more is changed by the API or the command line.
MAX_BLOCKS = 200
# Of all fields; a profile has at most a quarter of it.
MAX_CHARACTERS = 1 << 20
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
NUMBER_CHARACTERS = 40
# What a browser sends for a box that is checked.
ON = "on"
NESTED = ("parameters", "reflect")


class ProfileField(NamedTuple):
    """One member of a profile. path: its name, with a dot where it is in an object.

    kind: `text`, `area`, `lines`, `json`, `number`, `check`, `choice` or `model`.
    """

    path: str
    label: str
    kind: str = "text"
    hint: str = ""
    choices: tuple[str, ...] = ()

    @property
    def ident(self) -> str:
        """Its id in the page."""
        return f"field-{self.path.replace('.', '-')}"


MAIN_FIELDS = (
    ProfileField("model", "Model", "model"),
    ProfileField("title", "Title", hint="How lists call it."),
    ProfileField("description", "Description", hint="What it is for."),
    ProfileField("instruction", "Instruction", "area", "What it is told before each conversation."),
)
HOME = ProfileField("home", "Memory", "choice", choices=("user", "agent"))
ADVANCED_FIELDS = (
    ProfileField(
        "inherit_blocks", "Has the gateway's own blocks too, such as human and persona", "check"
    ),
    ProfileField("memory", "The memory may, at most", "choice", choices=MODES),
    ProfileField("memory_tools", "The model gets the memory tools", "check"),
    ProfileField("client_tools", "Requests may bring tools of their own", "check"),
    ProfileField("fallbacks", "Fallback models", "lines", "One a line."),
    ProfileField("parameters.temperature", "Temperature", "number", "0 to 2."),
    ProfileField("parameters.top_p", "Top p", "number", "0 to 1."),
    ProfileField("parameters.max_output_tokens", "Output tokens, at most", "number"),
    ProfileField("parameters.reasoning_effort", "Reasoning effort", hint="Such as low or high."),
    ProfileField("parameters.seed", "Seed", "number"),
    ProfileField("parameters.stop", "Stop texts", "json", 'JSON, such as ["END"].'),
    ProfileField(
        "parameters.parallel_tool_calls", "Parallel tool calls", "json", "true, false or empty."
    ),
    ProfileField(
        "locked", "Parameters that a request cannot change", "lines", "One a line: temperature."
    ),
    ProfileField("response_format", "Response format", "json", 'Such as {"type": "json_object"}.'),
    ProfileField("context_window", "Context window", "number", "Tokens; 0: that of the model."),
    ProfileField("timezone", "Time zone", hint="An IANA name, such as Europe/Berlin."),
    ProfileField("tags", "Tags", "lines", "One a line."),
    ProfileField("metadata", "Metadata", "json", "Any JSON; no model sees it."),
    ProfileField("recall", "Automatic recall", "choice", choices=("", "tools", "auto", "always")),
    ProfileField("extract", "Extraction", "choice", choices=("", "off", "auto", "always")),
    ProfileField("reflect.every_turns", "Reflect after so many turns", "number"),
    ProfileField("reflect.idle_seconds", "Reflect after so many idle seconds", "number"),
    ProfileField("summarizer", "Model that summarizes"),
    ProfileField("max_rounds", "Memory rounds of a turn, at most", "number"),
    ProfileField("turn_seconds", "Seconds of a turn, at most", "number"),
    ProfileField("tools", "Tools", "lines", "One a line. Listed only: not offered yet."),
    ProfileField("tool_rules", "Tool rules", "json", "A list of objects. Not used yet."),
    ProfileField("may_message", "Agents it may write to", "lines", "One a line."),
    ProfileField("may_ask", "Agents it may ask", "lines", "One a line."),
)
FIELDS = (*MAIN_FIELDS, HOME, *ADVANCED_FIELDS)
ADVANCED = frozenset(field.path for field in ADVANCED_FIELDS)


@dataclass(slots=True)
class ProfileForm:
    """What the fields of a form hold. values: by path. rows: the blocks, as text."""

    values: dict[str, str]
    rows: list[dict[str, str]]

    def add_row(self) -> None:
        """Add an empty block. Raises BadRequest."""
        if len(self.rows) >= MAX_BLOCKS:
            raise BadRequest(
                f"The form has {len(self.rows)} blocks, and takes at most {MAX_BLOCKS}.",
                param="blocks",
            )
        self.rows.append({**dict.fromkeys(BLOCK_MEMBERS, ""), "limit": "4000"})

    def remove_row(self, number: str) -> None:
        """Remove a block by its place."""
        if number.isdigit() and int(number) < len(self.rows):
            del self.rows[int(number)]


def render_profile(profile: Mapping[str, Any]) -> ProfileForm:
    """Return the form of a profile, as the API shows that."""
    values = {field.path: _render(field, _member(profile, field.path)) for field in FIELDS}
    rows = [
        {
            "label": _one_line(block["label"]),
            "description": _one_line(block["description"]),
            "value": _lines(block["value"]),
            "limit": str(block["limit"]),
            "read_only": ON if block["read_only"] else "",
        }
        for block in profile["blocks"]
    ]
    return ProfileForm(values, rows)


def read_form(fields: Mapping[str, str]) -> ProfileForm:
    """Return what a browser sent. Raises BadRequest for a form that is not whole."""
    if (size := sum(map(len, fields.values()))) > MAX_CHARACTERS:
        raise BadRequest(
            f"The form has {size} characters; at most {MAX_CHARACTERS} are allowed. Shorten it.",
            code="profile_too_large",
        )
    numbers = {int(match[1]) for name in fields if (match := ROW.fullmatch(name)) is not None}
    if len(numbers) > MAX_BLOCKS:
        raise BadRequest(
            f"The form has {len(numbers)} blocks, and takes at most {MAX_BLOCKS}. Send fewer.",
            param="blocks",
        )
    values = {field.path: _lines(fields.get(field.path, "")) for field in FIELDS}
    missing_fields = [f.path for f in FIELDS if f.kind != "check" and f.path not in fields]
    if missing_fields:
        raise BadRequest(
            f"The form has no field {missing_fields[0]!r}. Reload the page and try again."
        )
    rows = [
        {name: _lines(fields.get(f"blocks.{number}.{name}", "")) for name in BLOCK_MEMBERS}
        for number in sorted(numbers)
    ]
    return ProfileForm(values, rows)


def changed_members(form: ProfileForm, profile: Mapping[str, Any]) -> Json:
    """Return the members of a profile that a form changes, None for what it leaves out.

    Raises BadRequest for text that is not the JSON that a field takes.
    """
    before = render_profile(profile)
    changes = {}
    for field in FIELDS:
        text = form.values[field.path]
        if text == before.values[field.path]:
            continue
        member, _, submember = field.path.partition(".")
        value = _parse(field, text)
        if not submember:
            changes[member] = value
            continue
        members = changes.setdefault(member, dict(profile.get(member) or {}))
        members[submember] = value
    for member in NESTED:
        if member in changes:
            changes[member] = _without_none(changes[member])
    if form.rows != before.rows:
        changes["blocks"] = [_block(row) for row in form.rows if _has_text(row)]
    return changes


def find_field(path: str, form: ProfileForm) -> str:
    """Return the field of a form that an error's path is about, "" for none of them."""
    names = {*form.values, "name", "blocks"}
    for i, row in enumerate(form.rows):
        names |= {f"blocks.{i}", *(f"blocks.{i}.{name}" for name in row)}
    while path and path not in names:
        path = path.rpartition(".")[0]
    return path


def text_members(profile: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what a profile says as texts by member, each block by itself, for comparisons."""
    texts: dict[str, str] = {}
    for member, value in (profile or {}).items():
        if member == "blocks":
            texts |= {f"block {block['label']}": _block_text(block) for block in value}
        elif value not in ("", None, [], {}):
            if isinstance(value, str):
                texts[member] = value
            else:
                texts[member] = _json_text(value)
    return texts


def changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the members that differ, in the order in which a profile has them."""
    names: Iterable[str] = {**before, **after}
    return [name for name in names if before.get(name) != after.get(name)]


def _block_text(block: Mapping[str, Any]) -> str:
    limits = [f"at most {block.get('limit', 4000)} characters"]
    if block.get("read_only"):
        limits.append("read-only")
    head = f"{block.get('description', '')} ({', '.join(limits)})".strip()
    return f"{head}\n{block.get('value', '')}".rstrip()


def _member(profile: Mapping[str, Any], path: str) -> Any:
    member, _, submember = path.partition(".")
    value = profile.get(member)
    if submember:
        return (value or {}).get(submember)
    return value


def _render(field: ProfileField, value: Any) -> str:
    if value is None:
        return ""
    if field.kind == "check":
        if value:
            return ON
        return ""
    if field.kind == "lines":
        return _lines("\n".join(value))
    if field.kind == "json":
        if value in ([], {}):
            return ""
        return _json_text(value)
    if field.kind == "number":
        return json.dumps(value)
    if field.kind == "area":
        return _lines(str(value))
    return _one_line(str(value))


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _lines(text: str) -> str:
    """Return a text with the line ends that are stored."""
    return LINE_ENDS.sub("\n", text)


def _one_line(text: str) -> str:
    """Return a text as a browser's field of one line holds it."""
    return text.replace("\r", "").replace("\n", "")


def _parse(field: ProfileField, text: str) -> Any:
    """Return the value of a field that was changed. Raises BadRequest."""
    if field.kind == "check":
        return text == ON
    if field.kind == "lines":
        return [line.strip() for line in text.split("\n") if line.strip()]
    if field.kind == "number":
        return _number(text.strip())
    if field.kind == "json":
        return _parse_json(field, text)
    if field.kind == "choice":
        return text or None
    if field.kind == "area":
        return text
    return text.strip()


def _number(text: str) -> Any:
    """Return a number, or what is none, which the profile's own check refuses."""
    if not text:
        return None
    if len(text) > NUMBER_CHARACTERS or NUMBER.fullmatch(text) is None:
        return text
    if set(text) & set(".eE"):
        number = float(text)
    else:
        number = int(text)
    if math.isfinite(number):
        return number
    return text


def _parse_json(field: ProfileField, text: str) -> Any:
    if not text.strip():
        return None
    try:
        return decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as e:
        raise BadRequest(f"{field.label}: this is not JSON ({e}).", param=field.path) from e


def _without_none(members: Mapping[str, Any]) -> Json | None:
    return {name: value for name, value in members.items() if value is not None} or None


def _block(row: Mapping[str, str]) -> Json:
    limit = _number(row["limit"].strip())
    block = {
        "label": row["label"].strip(),
        "description": row["description"],
        "value": row["value"],
        "read_only": row["read_only"] == ON,
    }
    if limit is None:
        return block
    return {**block, "limit": limit}


def _has_text(row: Mapping[str, str]) -> bool:
    """Tell whether anything was written into a block."""
    return any(row[name].strip() for name in ("label", "description", "value"))
