"""A body in Zstandard unpacks however it is cut, within bounds of what it unpacks to and needs."""

from __future__ import annotations

import sys
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.zstd_body import WINDOW_LOG, ZstdDecompressor
from gateway.wire.compression import CHUNK_BYTES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.data())
def test_a_zstd_body_of_several_frames_unpacks_however_it_is_cut(frames, data):
    packed = b"".join(map(zstd.compress, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packed)), max_size=6)))
    unpacking = ZstdDecompressor()
    places = [0, *cuts, len(packed)]
    out = [unpacking.feed(packed[a:b]) for a, b in pairwise(places)]
    assert b"".join(out) == b"".join(frames)
    assert unpacking.is_between_members
    cut = ZstdDecompressor()
    cut.feed(packed[:-1])
    assert not cut.is_between_members


@pytest.mark.parametrize("unit", [b"\0", b"words that repeat "])
def test_a_small_zstd_body_that_unpacks_to_a_large_one_can_be_stopped_on_the_way(unit):
    packed = zstd.compress(unit * (64 * CHUNK_BYTES // len(unit)))
    assert len(packed) < CHUNK_BYTES // 16
    pieces = ZstdDecompressor().pieces(packed)
    assert all(len(next(pieces)) <= CHUNK_BYTES for _ in range(3))


def test_a_zstd_body_that_needs_more_memory_than_the_rfc_allows_is_refused():
    parameter = zstd.CompressionParameter
    options = {parameter.window_log: WINDOW_LOG + 1, parameter.content_size_flag: 0}
    packing = zstd.ZstdCompressor(options=options)
    packed = packing.compress(b"x" * (3 << WINDOW_LOG)) + packing.flush()
    with pytest.raises(zlib.error):
        ZstdDecompressor().feed(packed)


def test_frames_of_a_zstd_body_are_counted():
    with pytest.raises(zlib.error, match="members"):
        ZstdDecompressor(members=3).feed(zstd.compress(b"") * 4)
