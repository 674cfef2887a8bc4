"""The laws of streams, over thousands of them: see `tests.odd_streams.play`."""

from __future__ import annotations

import pytest

from tests.odd_streams.play import WIRES, play

STREAMS = 5_000  # of each wire; `make bench BENCH=streams` plays 100,000


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_sees_the_answer_that_was_given_less_our_calls(wire):
    differences = list(play(wire, range(STREAMS)))
    assert not differences, f"{len(differences)} of {STREAMS}; the first: {differences[0]}"
