"""A stream that comes faster than it is read gives others their turn."""

import asyncio

import pytest

from gateway.http import pacing
from gateway.http.pacing import SLICE_BYTES, PacedStream


async def pieces(*found):
    for piece in found:
        yield piece


@pytest.mark.parametrize(
    "found",
    [
        [],
        [b"a"],
        [b"a" * SLICE_BYTES],
        [b"a" * SLICE_BYTES + b"b", b"", b"c"],
        [bytes(range(256)) * 100],
    ],
)
async def test_all_bytes_come_in_order_and_no_piece_is_long(found):
    got = [piece async for piece in PacedStream(pieces(*found))]
    assert b"".join(got) == b"".join(found)
    assert all(len(piece) <= SLICE_BYTES for piece in got)


async def test_others_have_their_turn_while_a_stream_is_read(monkeypatch):
    monkeypatch.setattr(pacing, "BUSY_SECONDS", 0.0)
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    async for _ in PacedStream(pieces(b"a" * SLICE_BYTES * 20)):
        pass
    beside.cancel()
    assert turns >= 10


async def test_a_pause_is_long_enough_for_a_request_not_for_one_turn_of_it(monkeypatch):
    monkeypatch.setattr(pacing, "BUSY_SECONDS", 0.0)
    pauses = []

    async def note(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(pacing.asyncio, "sleep", note)
    count = len([piece async for piece in PacedStream(pieces(b"a" * SLICE_BYTES * 20))])
    assert len(pauses) >= count - 1
    assert set(pauses) == {pacing.LOOP_PAUSE_SECONDS}
    assert pacing.LOOP_PAUSE_SECONDS >= pacing.BUSY_SECONDS / 4


async def test_to_close_it_closes_what_it_reads_from():
    source = pieces(b"a", b"b")
    paced = PacedStream(source)
    assert await anext(paced) == b"a"
    await paced.aclose()
    assert [piece async for piece in source] == []
