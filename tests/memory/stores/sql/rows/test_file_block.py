"""The list of files is bounded, and says of each file what can be done with it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memory.stores.sql.rows.file_block import CHARACTERS, LINES, describe, list_lines


def row(**more):
    return SimpleNamespace(
        **{"name": "a.txt", "status": "ready", "reason": "", "pages": None, "lines": 1, **more}
    )


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (row(), "a.txt (1 line)"),
        (row(lines=3), "a.txt (3 lines)"),
        (row(pages=1, lines=40), "a.txt (1 page)"),
        (row(pages=2), "a.txt (2 pages)"),
        (row(status="received"), "a.txt (is being read)"),
        (row(status="reading"), "a.txt (is being read)"),
        (row(status="failed", reason="encrypted"), "a.txt (cannot be read: encrypted)"),
        (row(status="failed", reason="x" * 400), f"a.txt (cannot be read: {'x' * 100})"),
        (row(name="n" * 255), f"{'n' * 200} (1 line)"),
    ],
)
def test_a_line_says_the_state_of_a_file(file, line):
    assert describe(file) == line


@pytest.mark.parametrize("length", [1, 60, 77, 78, 79, 80, 255])
@pytest.mark.parametrize("count", [1, LINES, LINES + 1, 200])
def test_the_list_has_at_most_fifty_files_and_4000_characters(count, length):
    lines = [describe(row(name="n" * length)) for _ in range(count)]
    text = list_lines(lines)
    assert len(text) <= CHARACTERS == 4000
    listed = text.split("\n")
    missing = count - listed.count(lines[0])
    assert count - missing <= LINES == 50
    assert listed.count(lines[0]) == min(count, LINES) or len(text) > CHARACTERS - 300
    assert (f"({missing} more)" in listed) is (missing > 0)
