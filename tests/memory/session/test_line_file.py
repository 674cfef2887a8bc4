"""Lines of any length are found, appended and removed, in pieces of any size."""

from __future__ import annotations

import errno
import tempfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.session import line_file
from memory.session.line_file import (
    append_lines,
    digest_of,
    ended_lines,
    find_lines,
    join_parts,
    rewrite_lines,
)

BYTES = st.lists(st.sampled_from([b"a", b"b", b"\t", b"\n"]), max_size=30).map(b"".join)
PIECES = st.integers(1, 8)


@given(BYTES, PIECES)
def test_lines_are_those_of_a_split(content, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_file, "PIECE_BYTES", piece)
        lines = list(find_lines(BytesIO(content)))
        expected = [line for line in content.split(b"\n") if line]
        assert [b"".join(line.pieces()) for line in lines] == expected
        assert [line.digest for line in lines] == list(map(digest_of, expected))
        assert [list(line.split(b"\t")) for line in lines] == [e.split(b"\t") for e in expected]
        assert join_parts(ended_lines(lines)) == b"".join(e + b"\n" for e in expected)


@given(st.lists(BYTES.filter(lambda x: b"\n" not in x and x), max_size=6), PIECES)
def test_what_stays_is_what_is_left_and_an_empty_file_is_removed(lines, piece):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_file, "PIECE_BYTES", piece)
        path = Path(folder) / "lines"
        for line in lines:
            append_lines(path, [line, b"\n"])
        rewrite_lines(path, lambda line: b"a" in b"".join(line.pieces()))
        left = [line for line in lines if b"a" in line]
        if left:
            assert path.read_bytes() == b"".join(line + b"\n" for line in left)
            assert path.stat().st_mode & 0o777 == 0o600
        assert [p.name for p in Path(folder).iterdir()] == ["lines"] * bool(left)


def test_a_file_that_is_replaced_is_read_to_its_end(tmp_path):
    path = tmp_path / "lines"
    append_lines(path, [b"one\ntwo\n"])
    with path.open("rb", buffering=0) as file:
        first, second = find_lines(file)
        rewrite_lines(path, lambda line: line.digest != second.digest)
        append_lines(path, [b"three\n"])
        assert [b"".join(line.pieces()) for line in (first, second)] == [b"one", b"two"]
    assert path.read_bytes() == b"one\nthree\n"


def test_a_torn_line_is_ended_and_what_fails_leaves_nothing(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"torn")
    append_lines(path, [b"whole", b"\n"])

    def parts():
        yield b"half"
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError):
        append_lines(path, parts())
    assert path.read_bytes() == b"torn\nwhole\n"
