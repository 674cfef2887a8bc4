"""What is made for good is out of the searches for garbage; what a request made is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from gateway.server import garbage
from tests.conftest import running
from tests.models import Model, text

COUNTS = """
import gc
from gateway.server.garbage import begin_searches, keep_for_good

keep_for_good()
print(gc.get_freeze_count())
begin_searches()
begun = gc.get_freeze_count()
held = [[] for _ in range(1000)]
keep_for_good()
print(gc.isenabled(), begun > 0, gc.get_freeze_count() - begun >= 1000)
"""


def test_only_a_process_that_began_them_takes_anything_out_of_the_searches():
    done = subprocess.run(
        [sys.executable, "-c", COUNTS], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["0", "True", "True", "True"]


async def test_what_is_made_for_good_is_taken_out(data, monkeypatch):
    kept = asyncio.Queue()
    monkeypatch.setattr(garbage.gc, "get_threshold", lambda: garbage.THRESHOLDS)
    monkeypatch.setattr(garbage.gc, "freeze", lambda: kept.put_nowait("kept"))
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        # The memory is open.
        assert await asyncio.wait_for(kept.get(), 20) == "kept"
        answer = await live.http.get(f"{live.root}/schema/openapi.json")
        assert answer.status_code == 200
        # The framework is built.
        assert kept.qsize() == 1
