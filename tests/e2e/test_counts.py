"""What a turn costs, in counts that do not depend on the machine: a warm one, the third or later of
a conversation that an app resends.

Whoever makes a turn cheaper lowers the table; whoever makes it dearer has to say why it is worth
that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import counting

ROOT = Path(counting.__file__).parent.parent.parent
COLUMNS = (*counting.KINDS, "encodes a message")
EXPECTED = {
    # upstream | before it is called:   | in all:                      | JSON as long as a message
    # or longer:
    # calls  | reads  writes    hops  | reads writes commits hops    | decodes  encodes  and for
    # each message resent
    # Of the new messages one decode more, which leaves them unread: it finds where they stand in
    # half of the time of a scan (7 us and 15).
    "full plain": (1, 0, 0, 0, 0, 1, 1, 0, 3, 4, 0),
    "full stream": (1, 0, 0, 0, 0, 2, 2, 0, 2, 4, 0),
    "off plain": (1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0),
    "off stream": (1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By way: the counts of an early turn and of a late one."""
    command = [sys.executable, "-m", "tests.e2e.counting", str(tmp_path_factory.mktemp("counts"))]
    process = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("way", EXPECTED)
def test_a_warm_turn_costs_what_the_table_says(found, way):
    early, late, _ = found[way]
    a_message = (late["encodes"] - early["encodes"]) / (late["messages"] - early["messages"])
    fixed = early["encodes"] - a_message * early["messages"]
    assert (
        tuple(
            {**early, "encodes": fixed, "encodes a message": a_message}[column]
            for column in COLUMNS
        )
        == EXPECTED[way]
    )


@pytest.mark.parametrize("way", EXPECTED)
def test_a_late_turn_of_a_conversation_costs_what_an_early_one_does(found, way):
    early, late = (
        {kind: n for kind, n in counts.items() if kind not in ("encodes", "messages")}
        for counts in found[way][:2]
    )
    assert late == early


@pytest.mark.parametrize("resent", counting.RESENT)
def test_a_late_turn_calls_no_more_functions_than_an_early_one(found, resent):
    """Whatever a client sends of its history: what grows with it is copied, not gone through."""
    early, late = found[resent]
    assert late <= 1.05 * early


def test_memory_off_waits_for_no_storage(found):
    for way in ("off plain", "off stream"):
        assert [
            c[kind]
            for c in found[way][:2]
            for kind in ("reads before", "writes before", "hops before")
        ] == [0] * 6


@pytest.mark.parametrize("way", EXPECTED)
def test_a_turn_leaves_nothing_to_the_garbage_collector(found, way):
    """What holds itself stays until a collection: with it stayed whole requests, of megabytes at
    times.
    """
    assert found[way][2]["left to the collector"] == 0
