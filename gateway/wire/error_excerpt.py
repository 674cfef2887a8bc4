"""What of a foreign text may be quoted to a client: its first line, without markup, traceback or
address. Pure.

Every pattern begins where no other match of it can, so that a text of any kind is read once.
"""

from __future__ import annotations

import re

# Characters that are looked at.
READ = 4000
# Characters of the line before its addresses are taken out.
LINE = 600
QUOTED = 200
TRACEBACK = re.compile(r"Traceback \(most recent|File \"|at \S+\(")
TAGS = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<(/?\w*)[^<>]*>", re.IGNORECASE | re.DOTALL)
INLINE = frozenset({"a", "b", "code", "em", "font", "i", "span", "strong", "tt", "u"})
NAME = r"[\w-]++"
ADDRESSES = [
    (re.compile(r"(?<![\w+.-])[A-Za-z][\w+.-]*+://\S+"), "[address]"),
    (re.compile(r"(?<![\w/.~])(?:~|\.{1,2})?/(?!v\d+/)[\w.@%+-]++(?:/[\w.@%+-]*+)+"), "[path]"),
    (re.compile(r"(?<!\w)[A-Za-z]:\\\S+|\\\\\S+"), "[path]"),
    (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.]*\d)"), "[address]"),
    (
        re.compile(
            r"(?<![\w:])\[?(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]*(?:::|(?::[0-9A-Fa-f]+){4})[0-9A-Fa-f:.]*+\]?(?::\d{1,"
            r"5})?"
        ),
        "[address]",
    ),
    (re.compile(rf"(?<![\w.-])(?=[A-Za-z]){NAME}(?:\.{NAME})*:\d{{2,5}}(?!\w)"), "[address]"),
    (re.compile(rf"(?<![\w.-])(?:{NAME}\.)+[A-Za-z]{{2,63}}(?![\w-])"), "[address]"),
]


def excerpt(data: bytes) -> str:
    """Give the first line of a text in at most 200 characters; "" where nothing of it can be
    quoted.
    """
    text = TAGS.sub(_gap, data[:READ].decode("utf-8", "replace"))
    lines = (" ".join(line.split()) for line in text.splitlines())
    line = next(filter(None, lines), "")[:LINE]
    if TRACEBACK.match(line):
        return ""
    for pattern, placeholder in ADDRESSES:
        line = pattern.sub(placeholder, line)
    return line[:QUOTED]


def _gap(tag: re.Match[str]) -> str:
    """Give what stands for a tag: most of them begin another line."""
    if (tag[2] or "").lstrip("/").lower() in INLINE:
        return " "
    return "\n"
