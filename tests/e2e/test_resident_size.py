"""A request or an answer of 60 MiB costs three times `max_body_mib` at most, in a process apart."""

import sys
from pathlib import Path

import pytest

from tests.bench.freeze import dimensions, format_dimensions
from tests.bench.freeze.stage import Stage

BODY_MIB = 64  # the default of server.max_body_mib
PLAYED = {
    **{d.name: d for d in dimensions.REQUESTS + dimensions.ANSWERS},
    **{d.name: d for d in format_dimensions.REQUESTS + format_dimensions.ANSWERS},
}
IMAGES = ["bytes of an image", "responses: bytes of an image", "messages: bytes of an image"]
ANSWERS = [
    "words of a whole answer",
    "responses: words of a whole answer",
    "messages: words of a whole answer",
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")


@linux
@pytest.mark.parametrize("name", [*IMAGES, *ANSWERS])
def test_a_large_body_costs_three_times_the_limit_at_most(tmp_path: Path, name: str):
    with Stage(tmp_path) as stage:
        stage.settle()
        idle = stage.gateway.resident()
        outcome = stage.play(PLAYED[name], dimensions.BODY_BYTES)
        assert outcome.status == 200
        grown = stage.peak() / dimensions.MIB - idle
    assert grown <= 3 * BODY_MIB, f"{grown:.0f} MiB"
