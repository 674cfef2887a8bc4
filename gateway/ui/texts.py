"""Formats values for pages. Pure.

Stored text is shown as it is, up to a limit. Invisible characters are made visible, since marks of
writing direction could change what a reader sees.
"""

from __future__ import annotations

import difflib
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from gateway.wire.chat import decode
from memory import parse_zone

# Of a text in a list.
MAX_SHOWN_CHARACTERS = 2_000
TITLE_CHARACTERS = 64
# Of a call that are read.
MAX_ARGUMENT_CHARACTERS = 100_000
# Of each side; longer texts are not compared.
MAX_DIFF_LINES = 200
MAX_LINE_CHARACTERS = 1_000
# Of lines of both sides; comparing takes that many steps for each line.
MAX_EQUAL_PAIRS = 2_000
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
STEPS = ((60.0, "s", 1.0), (3600.0, "min", 60.0), (86_400.0, "h", 3600.0))


def render_text(value: Any, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """Return at most so many characters of a text, with invisible ones spelt out."""
    if isinstance(value, str):
        text = value
    else:
        text = str(value)
    shortened = text[:limit]
    out = INVISIBLE.sub(lambda m: f"\u27e8U+{ord(m[0]):04X}\u27e9", shortened.replace("\r\n", "\n"))
    if len(text) <= limit:
        return out
    return f"{out}\u2026 ({len(text):,} characters in all)"


def ago(moment: str | float | None, now: float | None = None) -> str:
    """Return how long ago a time was: `5 min ago`. moment: ISO 8601, or a Unix time."""
    if moment is None:
        return "never"
    if isinstance(moment, int | float):
        at = moment
    else:
        at = datetime.fromisoformat(moment).timestamp()
    seconds = max((time.time() if now is None else now) - at, 0.0)
    if seconds < 1:
        return "now"
    for until, unit, size in STEPS:
        if seconds < until:
            return f"{int(seconds / size)} {unit} ago"
    days = int(seconds / 86_400)
    return f"{days} day{'s' if days > 1 else ''} ago"


def moment(at: str | float, zone: str = "") -> str:
    """Return a time as people read it. at: ISO 8601, or a Unix time. zone: its name, "" for UTC."""
    if isinstance(at, int | float):
        instant = datetime.fromtimestamp(at, UTC)
    else:
        instant = datetime.fromisoformat(at)
    local_time = instant.astimezone(parse_zone(zone) if zone else UTC)
    return f"{local_time:%Y-%m-%d %H:%M:%S} {zone or 'UTC'}"


def title(text: str) -> str:
    """Return the first words of a text, as the title of a conversation; "" for none."""
    line = " ".join(text.split())
    if len(line) <= TITLE_CHARACTERS:
        return line
    prefix = line[:TITLE_CHARACTERS]
    words = prefix.rpartition(" ")[0]
    return f"{words if len(words) > TITLE_CHARACTERS // 2 else prefix}\u2026"


class ShownCall(NamedTuple):
    """A call of a tool as people read it.

    arguments: by name, empty where they are no object. raw: as the model wrote them.
    """

    name: str
    arguments: Sequence[tuple[str, str]]
    raw: str

    @property
    def line(self) -> str:
        """The arguments on one line."""
        return ", ".join(f"{name}: {value}" for name, value in self.arguments) or self.raw


def read_call(name: str, arguments: Any) -> ShownCall:
    """Return a call. arguments: JSON text, or what it says."""
    if isinstance(arguments, str):
        argument_text = arguments
    else:
        argument_text = msgspec.json.encode(arguments).decode()
    value = arguments
    if isinstance(arguments, str):
        try:
            value = decode(arguments[:MAX_ARGUMENT_CHARACTERS].encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
    if not isinstance(value, dict):
        return ShownCall(name, (), argument_text)
    return ShownCall(
        name,
        [(key, _argument_text(member_value)) for key, member_value in value.items()],
        argument_text,
    )


def read_calls(calls: Any) -> list[ShownCall]:
    """Return the calls of a message as people read them."""
    if not isinstance(calls, list):
        return []
    out = []
    for call in calls:
        if isinstance(call, dict):
            function = call.get("function", call)
        else:
            function = {}
        if isinstance(function, dict):
            arguments = function.get("arguments", function.get("input", ""))
            out.append(read_call(str(function.get("name", "?")), arguments))
    return out


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(x, str | int | float) for x in value):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and all(isinstance(x, str | int | float) for x in value.values()):
        return ", ".join(
            f"{name}: {_argument_text(member_value)}" for name, member_value in value.items()
        )
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return msgspec.json.encode(value).decode()


def number(value: float | None) -> str:
    """Return a number with thin spaces between groups; a dash for None."""
    if value is None:
        return "\u2013"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) >= 0.1:
        return f"{value:,.2f}"
    return f"{value:.4f}"


def render_count(value: float, noun: str) -> str:
    """Return a count with its noun: `1 passage`, `2 passages`."""
    if noun.endswith("ch"):
        plural = f"{noun}es"
    else:
        plural = f"{noun}s"
    return f"{number(value)} {noun if value == 1 else plural}"


def percent(value: float | None) -> str:
    """Return a share as per cent."""
    if value is None:
        return "\u2013"
    return f"{value * 100:.0f} %"


def link(path: str, **members: Any) -> str:
    """Return a path of the dashboard with a query of the members that have a value."""
    query = urlencode({k: v for k, v in members.items() if v not in (None, "", False)})
    if query:
        return f"/ui{path}?{query}"
    return f"/ui{path}"


def diff_lines(before: str | None, after: str | None) -> Iterator[tuple[str, str]]:
    """Yield the lines of both texts, each with `-`, `+` or a blank in front of it."""
    old_lines = (before or "").splitlines()
    new_lines = (after or "").splitlines()
    too_many = f"{len(old_lines):,} lines became {len(new_lines):,}; too many lines to compare."
    if max(len(old_lines), len(new_lines)) > MAX_DIFF_LINES:
        yield " ", too_many
        return
    old_lines, new_lines = (
        [x[:MAX_LINE_CHARACTERS] for x in lines] for lines in (old_lines, new_lines)
    )
    head = _count_common(old_lines, new_lines)
    tail = _count_common(old_lines[head:][::-1], new_lines[head:][::-1])
    common_head = old_lines[:head]
    common_tail = old_lines[len(old_lines) - tail :]
    old_lines = old_lines[head : len(old_lines) - tail]
    new_lines = new_lines[head : len(new_lines) - tail]
    counts = Counter(new_lines)
    if sum(counts[line] for line in old_lines) > MAX_EQUAL_PAIRS:
        yield " ", too_many
        return
    yield from ((" ", line) for line in common_head)
    yield from _diff_middle(old_lines, new_lines)
    yield from ((" ", line) for line in common_tail)


def _count_common(old_lines: Sequence[str], new_lines: Sequence[str]) -> int:
    """Return how many lines both sides begin with."""
    pairs = enumerate(zip(old_lines, new_lines, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(old_lines), len(new_lines)))


def _diff_middle(old_lines: Sequence[str], new_lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for operation, old_start, i_end, new_start, j_end in matcher.get_opcodes():
        if operation == "equal":
            yield from ((" ", line) for line in old_lines[old_start:i_end])
            continue
        yield from (("-", line) for line in old_lines[old_start:i_end])
        yield from (("+", line) for line in new_lines[new_start:j_end])


def text_of_content(content: Any) -> str:
    """Return what a message says; a part that is no text by its type."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(p["text"]) if isinstance(p, dict) and "text" in p else f"[{_kind(p)}]" for p in content
    )


def _kind(part: Any) -> str:
    if isinstance(part, dict):
        return str(part.get("type", "part"))
    return "part"
