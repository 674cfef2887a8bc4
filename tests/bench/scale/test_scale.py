"""The bench of sizes, with few messages: what it fills is what turns would have left."""

from __future__ import annotations

import pytest

from tests.bench.scale import __main__ as scale
from tests.bench.scale import paper
from tests.bench.scale.paper import Costs, Fleet
from tests.postgres_server import binaries


def test_a_filled_conversation_is_recognised_and_goes_on_in_one_statement():
    if binaries() is None:
        pytest.skip("postgres is not installed")
    said: list[str] = []
    arguments = ["--messages=200", "--messages=400", "--conversations=2", "--times=4"]
    found = scale.main(arguments, said.append)
    assert list(found) == ["200", "400"]
    first, second = (
        {name: table["rows"] for name, table in one["sizes"].items()} for one in found.values()
    )
    assert (first["message_terms"], first["usage"]) == (200, 100)
    # the conversation that the others are like had two turns, and nineteen were measured between
    assert (first["messages"], first["nodes"]) == (204, 102)
    assert (second["messages"], second["nodes"]) == (404 + 38, 202 + 19)
    # a turn that began an epoch would not be a plain one
    assert second["epochs"] == second["conversations"] == 9
    for one in found.values():
        assert all(0 < t["p50"] <= t["p95"] for t in one["times"].values())
    assert "times as long" in "\n".join(said)


def test_what_a_fleet_needs_grows_with_its_turns():
    costs = Costs(
        turn_bytes=4000,
        explain_bytes=1000,
        user_bytes=200,
        log_bytes=10_000,
        server_seconds=0.001,
        search_seconds=0.004,
    )
    small, large = (
        paper.needs(Fleet("", 1000, turns, daily), costs)
        for turns, daily in ((1e6, 1e4), (1e9, 1e7))
    )
    assert large["turns a second"] == pytest.approx(1000 * small["turns a second"])
    assert small["TB stored"] == pytest.approx((1e6 * 4000 + 1000 * 200) / 1e12)
    assert paper.full_first(large) == "bytes of the primaries"
    busy = paper.needs(Fleet("", 1000, 1e6, 1e9), costs)
    assert paper.full_first(busy) == "CPU of the primaries"
