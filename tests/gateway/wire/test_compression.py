"""Compressed bodies are unpacked as they come, however they are cut and however much they hold."""

from __future__ import annotations

import gzip
import zlib

import pytest

from gateway.wire.compression import CHUNK_BYTES, Decompressor

TEXT = b"some words about it " * 100


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_body_unpacks_however_it_is_cut(pack, step):
    packed, reader = pack(TEXT), Decompressor()
    parts = [reader.feed(packed[at : at + step]) for at in range(0, len(packed), step)]
    assert b"".join(parts) == TEXT
    assert reader.is_between_members


def test_members_follow_one_another_up_to_their_limit():
    three = gzip.compress(b"a") + gzip.compress(b"b") + gzip.compress(b"c")
    assert Decompressor().feed(three) == Decompressor(3).feed(three) == b"abc"
    with pytest.raises(zlib.error, match="more than 2 members"):
        Decompressor(2).feed(three)


def test_a_body_that_is_cut_is_not_whole():
    reader = Decompressor()
    reader.feed(gzip.compress(TEXT)[:-1])
    assert not reader.is_between_members


def test_a_large_body_comes_in_pieces_that_can_be_stopped():
    pieces = Decompressor().pieces(gzip.compress(b" " * (2 * CHUNK_BYTES + 5)))
    assert [len(p) for p in pieces] == [CHUNK_BYTES, CHUNK_BYTES, 5]


def test_what_is_not_compressed_is_refused():
    with pytest.raises(zlib.error):
        Decompressor().feed(b"plain text")
