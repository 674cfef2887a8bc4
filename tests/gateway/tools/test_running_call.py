"""Times of a run: from when it came, and from when it had its slot."""

from __future__ import annotations

import time

from gateway.tools.running_call import RunTiming


def test_a_run_waits_until_it_has_its_slot_and_runs_from_then_on():
    timing = RunTiming()
    time.sleep(0.01)
    assert not timing.has_begun
    assert timing.seconds == 0.0
    assert timing.queued_ms >= 10
    timing.begin()
    queued_ms = timing.queued_ms
    time.sleep(0.01)
    assert timing.has_begun
    assert timing.queued_ms == queued_ms
    assert timing.seconds >= 0.01
