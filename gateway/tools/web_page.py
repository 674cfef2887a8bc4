"""The text of a web page, in one pass over its HTML. Pure.

Pages are hostile: every search goes forward only, and a mark that is missing is looked for once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape

TITLE_CHARACTERS = 300
SNIFFED_BYTES = 2048
TAG = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{0,30}")
ENDS_OR_QUOTES = re.compile(r"[>\"']")
# Of HTML, and of XML.
META_CHARSET = re.compile(
    rb"<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,200}?encoding)\s{0,9}=\s{0,9}"
    rb"[\"']?([A-Za-z0-9_-]{1,40})",
    re.I,
)
CHARSET = re.compile(r"charset\s{0,9}=\s{0,9}[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
SPACE = re.compile(r"\s+")
# Encodings of web pages. Others of Python's (punycode, idna) take quadratic time.
ENCODINGS = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-125\d|cp125\d|"
    r"koi8-[ru]|shift[_-]jis|sjis|euc-jp|iso-2022-jp|gb2312|gbk|gb18030|big5|euc-kr|macintosh",
    re.IGNORECASE,
)
# Elements whose text nobody reads.
HIDDEN = frozenset("script style noscript template svg iframe object head".split())  # noqa: SIM905
RAW = frozenset("script style title textarea iframe noscript xmp".split())  # noqa: SIM905
BLOCKS = frozenset(
    """
    address article aside blockquote br dd details dialog div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol option p pre section summary table
    tbody tfoot thead tr ul
    """.split()  # noqa: SIM905
)
CELLS = ("td", "th")
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


@dataclass(frozen=True, slots=True)
class PageText:
    """The title and the text of a page."""

    title: str
    text: str


@dataclass(slots=True)
class _Page:
    """What was read of a page so far."""

    parts: list[str] = field(default_factory=list)
    title: str = ""
    # Open elements whose text is not read.
    hidden: list[str] = field(default_factory=list)
    preformatted: int = 0

    def add_text(self, text: str) -> None:
        if self.hidden or not text:
            return
        text = unescape(text)
        self.parts.append(text if self.preformatted else SPACE.sub(" ", text))

    def open(self, name: str) -> None:
        if name in HIDDEN:
            self.hidden.append(name)
        elif not self.hidden:
            self._open_visible(name)

    def _open_visible(self, name: str) -> None:
        if name in CELLS:
            self.parts.append("\t")
        elif name in BLOCKS:
            self.parts.append("\n" + HEADINGS.get(name, "- " if name == "li" else ""))
        if name == "pre":
            self.preformatted += 1

    def close(self, name: str) -> None:
        if name in self.hidden[-8:]:
            while self.hidden and self.hidden.pop() != name:
                pass
        elif not self.hidden and name in BLOCKS:
            self.parts.append("\n")
        if name == "pre" and self.preformatted:
            self.preformatted -= 1


def read_html(html: str) -> PageText:
    """Return the title and the visible text of a page."""
    page = _Page()
    at = 0
    lower_text = _LowerText(html)
    while at < len(html):
        tag_start = html.find("<", at)
        if tag_start < 0:
            page.add_text(html[at:])
            break
        page.add_text(html[at:tag_start])
        at = _read_markup(html, tag_start, page, lower_text)
    return PageText(page.title, tidy("".join(page.parts)))


class _LowerText:
    """The page in lower case, made once it is needed, and which searches failed already."""

    def __init__(self, html: str) -> None:
        self._html = html
        self._text: str | None = None
        self._missing_parts: set[str] = set()

    def find(self, part: str, at: int) -> int:
        """Return where a part begins, or -1. What is missing once is missing further on too."""
        if part in self._missing_parts:
            return -1
        if self._text is None:
            # Some letters have more than one in lower case: those of tags are ASCII.
            self._text = self._html.translate(ASCII_LOWER)
        index = self._text.find(part, at)
        if index < 0:
            self._missing_parts.add(part)
        return index


ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _read_markup(html: str, tag_start: int, page: _Page, lower_text: _LowerText) -> int:
    """Read what begins with `<`, and return where it ends."""
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">")):
        if html.startswith(opening, tag_start):
            end = lower_text.find(closing, tag_start + len(opening))
            if end < 0:
                return len(html)
            return end + len(closing)
    closes = html.startswith("</", tag_start)
    name_match = TAG.match(html, tag_start + (2 if closes else 1))
    if name_match is None:
        page.add_text("<")
        return tag_start + 1
    name = name_match[0].lower()
    end = _find_end(html, name_match.end(), lower_text)
    if closes:
        page.close(name)
        return end
    is_empty = html[end - 2 : end] == "/>" and name == "svg"
    if name in RAW:
        return _read_raw(html, name, end, page, lower_text)
    if not is_empty:
        page.open(name)
    return end


def _find_end(html: str, at: int, lower_text: _LowerText) -> int:
    """Return where a tag ends. A `>` in a quoted value is none of its ends."""
    while match := ENDS_OR_QUOTES.search(html, at):
        if match[0] == ">":
            return match.end()
        closing = lower_text.find(match[0], match.end())
        if closing < 0:
            at = match.end()
        else:
            at = closing + 1
    return len(html)


def _read_raw(html: str, name: str, at: int, page: _Page, lower_text: _LowerText) -> int:
    """Read an element that holds no elements, and return where it ends."""
    end = lower_text.find(f"</{name}", at)
    if end < 0:
        if name in HIDDEN:
            return len(html)
        return at
    if name == "title" and not page.title:
        page.title = SPACE.sub(" ", unescape(html[at:end])).strip()[:TITLE_CHARACTERS]
    elif name not in HIDDEN and name != "title":
        page.add_text(html[at:end])
    return _find_end(html, end + len(name) + 2, lower_text)


def tidy(text: str) -> str:
    """Return text without needless blanks, and with at most one empty line in a row."""
    lines: list[str] = []
    for line in text.split("\n"):
        if "\t" not in line:
            line = BLANKS.sub(" ", line).strip()
        else:
            line = line.strip()
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip()


def read_bytes(body: bytes, content_type: str) -> str:
    """Return a body as text, by its byte order mark, its header, or what it says itself."""
    for byte_order_mark, encoding in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if body.startswith(byte_order_mark):
            return body.decode(encoding, "replace").lstrip("\ufeff")
    header = CHARSET.search(content_type[:1000])
    meta = META_CHARSET.search(body[:SNIFFED_BYTES])
    encoding_name = header[1] if header else meta[1].decode("ascii") if meta else "utf-8"
    if not ENCODINGS.fullmatch(encoding_name):
        encoding_name = "utf-8"
    try:
        return body.decode(encoding_name, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")
