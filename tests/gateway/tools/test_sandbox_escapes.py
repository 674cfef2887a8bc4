"""Probes that try to leave a sandbox: no secret comes back, no packet leaves, nothing stays."""

from __future__ import annotations

import asyncio
import os
import resource
import time

import pytest

from gateway.tools.bubblewrap_sandbox import BubblewrapSandbox
from gateway.tools.monty_sandbox import MontySandbox
from gateway.tools.sandbox import SandboxLimits, SandboxProgram
from tests.gateway.tools.escapes import PROBES, fill
from tests.gateway.tools.web_servers import CountingListener

pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
SECRET = "s3cr3t-0f-th3-0perat0r"
LIMITS = SandboxLimits(seconds=1, memory_mib=32)
FAMILIES = sorted({name.split(":")[0] for name in PROBES})
AT_ONCE = 4


def children() -> set[str]:
    """Processes of this machine that descend from this one, and have not ended."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                state, parent, *_ = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z":
            parents[pid] = parent
    mine, grown = {str(os.getpid())}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        mine |= more
        grown = bool(more)
    return mine - {str(os.getpid())}


async def make_sandbox(kind: str):
    if kind == "monty":
        return MontySandbox(AT_ONCE)
    sandbox = BubblewrapSandbox(AT_ONCE)
    if problem := await sandbox.find_problem():
        pytest.skip(f"bubblewrap cannot run here: {problem}")
    return sandbox


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["monty", "bubblewrap"])
async def test_no_probe_leaves_the_sandbox(kind, family, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SECRET_CANARY", SECRET)
    canary = tmp_path / "canary"
    canary.write_text(f"secret = '{SECRET}'\n")
    probes = {name: code for name, code in PROBES.items() if name.startswith(f"{family}:")}
    before, resident = children(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sandbox = await make_sandbox(kind)
    slots = asyncio.Semaphore(AT_ONCE)
    faults = []

    async def probe(name: str, code: str) -> None:
        async with slots:
            begun = time.monotonic()
            outcome = await sandbox.run(SandboxProgram(code), LIMITS)
            seconds = time.monotonic() - begun
        shown = outcome.show()
        if SECRET in shown or "CANARY-ROOM" in shown or str(canary) + "-ROOM" in shown:
            faults.append((name, shown[:200]))
        if seconds > LIMITS.seconds + 3:
            faults.append((name, f"{seconds:.1f} s"))

    async with CountingListener() as listener, CountingListener(host="::1") as second:
        await asyncio.gather(
            *(
                probe(name, fill(code, str(canary), listener.port, os.getpid()))
                for name, code in probes.items()
            )
        )
        assert (await sandbox.run(SandboxProgram("1 + 1"), LIMITS)).text == "2"
    await sandbox.close()
    assert faults == []
    assert (listener.connections, second.connections) == (0, 0)
    assert canary.read_text() == f"secret = '{SECRET}'\n"
    await asyncio.sleep(0.2)
    assert children() - before == set()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 50 << 10
    assert capfd.readouterr() == ("", "")
    assert not os.path.exists("/canary-written")
    assert os.listdir(tmp_path) == ["canary"]
