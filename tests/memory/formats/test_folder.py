"""A folder of pages, written and read."""

from __future__ import annotations

import os

import pytest

from memory.export_format import (
    BlockLine,
    ConversationLine,
    Export,
    PassageLine,
    PolicyLine,
    VersionLine,
)
from memory.formats import folder as folders
from memory.formats.files import BadSource, Broken
from memory.formats.folder import read_folder, write_folder

LINES = [
    Export(user="ada"),
    PolicyLine(memory="read"),
    BlockLine(label="human", value="Name: Ada\r\n"),
    BlockLine(label="pets", value="a cat"),
    VersionLine(label="human", version=1, after="Name: Ada\r\n"),
    PassageLine(content="Likes tea"),
]


def test_what_is_written_is_read_back_blocks_before_their_versions(tmp_path):
    assert write_folder(tmp_path / "new" / "ada", LINES) == 5
    found = list(read_folder(tmp_path / "new" / "ada"))
    assert [list(b.lines) for b in found] == [LINES[1:2], LINES[2:5], LINES[5:]]


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_pages_are_their_owners_alone_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_folder(tmp_path / "ada", LINES)
    finally:
        os.umask(before)
    paths = [tmp_path / "ada", *(tmp_path / "ada").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}


def test_no_member_of_a_line_names_a_file_outside_the_folder(tmp_path):
    away = "../../../away"
    lines = [
        BlockLine(label=away, value="x"),
        BlockLine(label="/etc/x", value="y"),
        BlockLine(label="a\n<!-- {", value="z", agent=away),
        ConversationLine(id=away, created_at="/../../x", agent="../.."),
        PassageLine(content="Likes tea", agent="..", created_at="x\n<!-- { x"),
    ]
    write_folder(tmp_path / "in" / "ada", lines)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["ada"]
    found = [b for b in read_folder(tmp_path / "in" / "ada") if not isinstance(b, Broken)]
    assert sorted(line.label for b in found for line in b.lines) == [away, "/etc/x", "a\n<!-- {"]


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(BadSource, match="is not empty"):
        write_folder(tmp_path, LINES)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadSource, match="cannot be written"):
        write_folder(tmp_path / "file" / "ada", LINES)


def test_a_folder_without_pages_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(BadSource, match="holds no page"):
            list(read_folder(path))


def test_pages_that_are_none_are_told_and_links_are_not_followed(tmp_path, monkeypatch):
    ada = tmp_path / "ada"
    write_folder(ada, LINES[5:])
    (tmp_path / "other.md").write_text('<!-- {"object":"passage"} -->\nnot mine')
    (ada / "link.md").symlink_to(tmp_path / "other.md")
    (ada / "notes.md").write_text("my own notes")
    (ada / "raw.md").write_bytes(b"\xff\xfe")
    (ada / "blocks").mkdir()
    (ada / "blocks" / "x.md").write_text('<!-- {"object":"block"} -->')
    (ada / "large.md").write_text("x" * 5000)
    monkeypatch.setattr(folders, "PAGE_BYTES", 4000)
    found = list(read_folder(ada))
    assert {b.place for b in found if isinstance(b, Broken)} == {
        "notes.md",
        "raw.md",
        "blocks/x.md",
        "large.md",
    }
    assert [list(b.lines) for b in found if not isinstance(b, Broken)] == [LINES[5:]]
