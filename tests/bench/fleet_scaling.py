"""What a second worker adds: the turns of one and of two, each held to a quarter of a core.

128 connections talk without a pause, to `serve` and to `serve --workers 2`, in turn. A quarter of a
core leaves the rest to the server, the mock and the clients, so a machine of two cores shows what a
larger one would. Each worker has a quota of the kernel's (cgroup), where this process may set one,
else it is stopped and continued in a rhythm of 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvloop

from tests.bench.fleet_cpu import SECRET, Gateway
from tests.bench.load import OPENING, Load, Result, Shape
from tests.bench.scenarios import talks
from tests.bench.subjects import Mock
from tests.postgres_server import postgres_server
from tests.redis_server import RedisServer

# Of a core, for each worker.
SHARE = 0.25
# Times the turns of one worker.
MUST = 1.7
SHAPE = Shape(users=128, conversations=256, turns=OPENING + 4, stream=True)
PERIOD_SECONDS = 0.01
# Of version 1 and of version 2.
GROUPS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
# Before whatever else runs.
MOST_WEIGHT = {"cpu.shares": "262144", "cpu.weight": "10000"}
Runs = dict[str, list[Result]]


def main(rounds: int, told: Callable[[str], None]) -> Runs:
    """Play all rounds; return the results by subject."""
    runs: Runs = {"one worker": [], "two workers": []}
    with ExitStack() as stack:
        _go_first(stack)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemogate-scale-")))
        server, redis = stack.enter_context(postgres_server()), RedisServer(folder)
        redis.start()
        stack.callback(redis.stop)
        mock = Mock()
        stack.callback(mock.stop)
        for i in range(rounds):
            for workers, name in enumerate(runs, 1):
                told(f"round {i + 1} of {rounds}, {name}")
                more = {
                    "storage__database": server.database(SECRET),
                    "storage__secret": SECRET.hex(),
                    "storage__redis": redis.url,
                }
                gateway = Gateway(name, mock, folder / f"{i}{workers}", workers, **more)
                with ExitStack() as playing:
                    playing.callback(gateway.stop)
                    runs[name].append(uvloop.run(_play(gateway, workers)))
    return runs


async def _play(gateway: Gateway, workers: int) -> Result:
    found = talks("scaling", SHAPE)
    load = Load(gateway.url, gateway.headers)
    await load.play(found, SHAPE.users, OPENING)
    pids = _children(gateway.process.pid) if workers > 1 else [gateway.process.pid]
    assert len(pids) == workers, pids
    with held(pids):
        cpu = gateway.cpu()
        result = await load.play(found, SHAPE.users, SHAPE.turns)
        result.cpu = gateway.cpu() - cpu
    return result


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = [int(x) for task in tasks for x in (task / "children").read_text().split()]
    return [x for x in found if b"--" in Path(f"/proc/{x}/cmdline").read_bytes()]


@contextlib.contextmanager
def held(pids: Sequence[int]) -> Iterator[None]:
    """Hold each process to its share of a core."""
    with ExitStack() as stack:
        for pid in pids:
            if not _hold_by_quota(pid, stack):
                _hold_by_signals(pid, stack)
        yield


def _go_first(stack: ExitStack) -> None:
    """Let this process and its children run before others, where it may be set."""
    for root in GROUPS:
        group = root / f"mnemogate-bench-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            stack.callback(_leave, root, group)
            _write_limits(group, MOST_WEIGHT)
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return


def _write_limits(group: Path, limits: dict[str, str]) -> None:
    for name, value in limits.items():
        if (group / name).exists():
            (group / name).write_text(value)


def _hold_by_quota(pid: int, stack: ExitStack) -> bool:
    period = round(PERIOD_SECONDS * 1e6)
    quota = round(period * SHARE)
    for root in GROUPS:
        group = root / f"mnemogate-bench-{pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        stack.callback(_leave, root, group)
        limits = {"cpu.max": f"{quota} {period}"}
        if (group / "cpu.cfs_quota_us").exists():
            limits = {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
        if all((group / name).exists() for name in limits):
            _write_limits(group, {**limits, **MOST_WEIGHT})
            (group / "cgroup.procs").write_text(str(pid))
            return True
    return False


def _leave(root: Path, group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        (root / "cgroup.procs").write_text(pid)
    group.rmdir()


def _hold_by_signals(pid: int, stack: ExitStack) -> None:
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD_SECONDS * (1 - SHARE))
            os.kill(pid, signal.SIGCONT)
            time.sleep(PERIOD_SECONDS * SHARE)

    thread = threading.Thread(target=hold, name=f"hold-{pid}")
    thread.start()
    stack.callback(thread.join)
    stack.callback(over.set)


def report(runs: Runs) -> str:
    """Return the table."""
    lines = [
        f"\n{'a quarter of a core each':26} {'turns/s':>8} {'range':>12} {'CPU':>5} {'warm':>5}"
    ]
    middles = []
    for name, results in runs.items():
        rates = sorted(r.turns / r.seconds for r in results)
        middles.append(statistics.median(rates))
        cores = statistics.median(r.cpu / r.seconds for r in results)
        warm = statistics.median(r.warm / r.turns for r in results)
        span = f"{rates[0]:.0f}-{rates[-1]:.0f}"
        lines.append(f"{name:26} {middles[-1]:8.1f} {span:>12} {cores:5.2f} {warm:5.2f}")
    one, two = ([r.turns / r.seconds for r in results] for results in runs.values())
    ratios = sorted(b / a for a, b in zip(one, two, strict=True))
    ratio, errors = statistics.median(ratios), sum(r.errors for x in runs.values() for r in x)
    said = "" if ratio >= MUST else "NOT MET"
    lines.append(
        f"{'two workers over one':26} {ratio:8.2f} {ratios[0]:5.2f}-{ratios[-1]:.2f}, must be "
        f"{MUST:.2f} {said}; errors: {errors}"
    )
    return "\n".join(lines)
