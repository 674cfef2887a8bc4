"""What a model reads of files: hits with their place, and numbered lines. Pure."""

from __future__ import annotations

from memory import FileHit, FileText, GrepResult, page_of

NOTHING = "Nothing was found."
CUT = "The search was cut after 2 s: more may be there. Give a text of 3 characters or more."


def describe_place(hit: FileHit) -> str:
    """Return where a hit stands: file, page and lines."""
    page = "" if hit.page is None else f", page {hit.page}"
    if hit.line_start == hit.line_end:
        return f"{hit.name}{page}, line {hit.line_start}"
    return f"{hit.name}{page}, lines {hit.line_start}-{hit.line_end}"


def format_hits(hits: list[FileHit]) -> str:
    """Return the passages or definitions that a search found."""
    if not hits:
        return NOTHING
    parts = []
    for hit in hits:
        symbol = f" ({hit.kind} {hit.symbol})" if hit.symbol else ""
        parts.append(f"[{describe_place(hit)}]{symbol}\n{hit.content}")
    return "\n\n".join(parts)


def format_grep(result: GrepResult, limit: int) -> str:
    """Return the lines that hold a text, and whether there may be more."""
    lines = [f"[{describe_place(hit)}] {hit.content.strip()}" for hit in result.hits]
    if result.is_cut:
        lines.append(CUT)
    elif len(result.hits) >= limit:
        lines.append(f"(the first {limit}; there may be more)")
    return "\n".join(lines) or NOTHING


def format_text(text: FileText) -> str:
    """Return numbered lines, with a line before each page, and how the file goes on."""
    row = text.row
    rows = []
    previous_page: int | None = None
    for number, line in text.lines:
        page = page_of(text.page_lines, number)
        if page != previous_page:
            rows.append(f"--- page {page} of {row.pages} ---")
        previous_page = page
        rows.append(f"{number}: {line}")
    last_number = text.lines[-1][0]
    if last_number < row.lines:
        rows.append(
            f"({row.name} has {row.lines} lines; file_open with line={last_number + 1} goes on)"
        )
    return "\n".join(rows)
