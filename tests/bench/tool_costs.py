"""`python -m tests.bench.tool_costs`: what tools of the operator cost (row P1 of their contract).

The same chat load, round after round: without tools, with ten that are configured and granted to
nobody, and with ten granted that the model never calls. Then turns in which a model calls one tool
of kind `http` on loopback, beside the same request sent without a gateway.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import uvloop

from gateway.config.tools import HttpToolSettings, ToolboxSettings
from gateway.tools.checked_call import AdmittedCall
from gateway.tools.http_tool import HttpTool
from gateway.tools.kind import ToolCaller
from gateway.tools.kinds import KindServices
from gateway.tools.registry import RegisteredTool, ToolEntry, ToolRegistry
from gateway.tools.tool_runs import ToolRuns
from memory.session.toolbox import RunLedger, RunRecord, StartedRun
from tests.bench.load import OPENING, Load, Result, Shape
from tests.bench.scenarios import measured, talks
from tests.bench.subjects import Mock, Subject, gateway
from tests.bench.watched import ASKS, describe
from tests.e2e.operator_tools import ToolServer
from tests.e2e.wire.child import child
from tests.models import Model, call, calls

ROUNDS = 4
SHAPE = Shape(users=8, conversations=128, turns=18)
TOOLS = 10
CALLS = 200
MAX_CPU_RATIO, MAX_RUN_MS = 1.05, 3.0
CONFIG = """
[toolbox]
grant = ["*"]
[providers.up]
base_url = "{up}"
[routing]
ask_windows = false
[tools.look]
kind = "http"
url = "{server}/look/{{city}}"
parameters = {{ city = {{ type = "string" }} }}
[tools.pay]
kind = "http"
method = "POST"
body = "none"
url = "{server}/pay/{{city}}"
parameters = {{ city = {{ type = "string" }} }}
"""


def _settings() -> dict[str, dict[str, str]]:
    entries = {
        f"tool_{number}": {
            "kind": "http",
            "url": "http://127.0.0.1:9/{item}",
            "description": "Tells what is known of an item of the stock, by its number.",
            "parameters": {"item": {"type": "string", "description": "The item's number"}},
            "required": ["item"],
        }
        for number in range(TOOLS)
    }
    configured = {"tools": json.dumps(entries)}
    return {
        "none": {},
        "no grant": configured,
        "granted": {**configured, "toolbox__grant": '["*"]'},
    }


async def _play(mock: Mock, subject: Subject) -> Result:
    played = talks("tools", SHAPE)
    await Load(subject.url, subject.headers).play(played, SHAPE.users, OPENING)
    return await measured(mock, subject, played, SHAPE.users, SHAPE.turns)


async def compare_requests(folder: Path) -> list[str]:
    """Return what a request costs with and without tools, in lines; the bar's is the last."""
    mock = Mock()
    subjects = {
        name: gateway(name, mock, folder / name, **ASKS, **more)
        for name, more in _settings().items()
    }
    runs: dict[str, list[Result]] = {name: [] for name in subjects}
    try:
        for number in range(ROUNDS):
            for name in subjects if number % 2 else reversed(subjects):
                sys.stderr.write(f"round {number + 1} of {ROUNDS}, {name}\n")
                runs[name].append(await _play(mock, subjects[name]))
    finally:
        for subject in (*subjects.values(), mock):
            subject.stop()
    lines = [describe(name, results) for name, results in runs.items()]
    lines += [
        f"{name:<9} start {s.starts[0]:.2f} s, {s.start_cpu:.2f} s of CPU, {s.idle:.1f} MiB"
        for name, s in subjects.items()
    ]
    medians = {
        name: statistics.median(run.cpu / run.turns for run in results)
        for name, results in runs.items()
    }
    for name in ("no grant", "granted"):
        ratio = medians[name] / medians["none"]
        lines.append(f"CPU of a request, {name}: {ratio:.3f} x (bar {MAX_CPU_RATIO})")
    return lines


def _answer(seen: Any, wire: Any) -> Any:
    """Answer as a model that calls the tool that the user names, once."""
    messages = seen.json["messages"]
    if messages[-1]["role"] == "tool":
        return "Done."
    tool, _, city = messages[-1]["content"].partition(" ")
    return calls(call(tool, {"city": city}, city))


async def _time_runs(client: httpx.AsyncClient, tool: str) -> list[float]:
    """Return how long each run took in a turn of its own, in ms."""
    times = []
    for number in range(CALLS):
        content = f"{tool} {tool}-{number}"
        body = {"model": "m", "messages": [{"role": "user", "content": content}], "user": "ada"}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "Done.", answer.text
        path = f"/memory/v1/explain/{answer.headers['x-memory-explain']}"
        token = {"authorization": f"Bearer {client.headers['x-token']}"}
        (run,) = (await client.get(path, headers=token)).json()["tools"]
        times.append(run["ms"] + run["queued_ms"])
    return times


class _Unobserved:
    """Counts nothing, and keeps nothing. See `RunObserver` and `RunLedger`."""

    records = True

    def came(self) -> None: ...

    def began(self) -> None: ...

    def ended(self, entry: str, status: str, seconds: float | None) -> None: ...

    def count_refusal(self, entry: str) -> None: ...

    def book(self, cost_usd: float) -> None: ...

    async def reserve(self, cost_usd: float) -> bool:
        return True

    async def end(self, record: RunRecord) -> None: ...


async def _cpu_of(run: Callable[[], Awaitable[Any]]) -> float:
    """Return the CPU of one of many runs in ms, the server's own included."""
    await run()
    begun = time.process_time()
    for _ in range(CALLS):
        await run()
    return (time.process_time() - begun) * 1000 / CALLS


async def compare_cpu() -> list[str]:
    """Return what a run adds to its request on a machine that does nothing else, in lines."""
    async with ToolServer() as server, httpx.AsyncClient() as http:
        url = f"{server.root}/look"
        settings = HttpToolSettings(url=url)
        kind = HttpTool("look", settings, cast("KindServices", None))
        tool = RegisteredTool(
            kind.list_tools("t")[0], ToolEntry("look", settings, kind), {}, "", 0, 0
        )
        registry = SimpleNamespace(settings=ToolboxSettings(), slots=asyncio.Semaphore(64))
        nobody = _Unobserved()
        caller = ToolCaller("t", "ada", "default", "req_1")
        runs = ToolRuns(
            cast("ToolRegistry", registry), {"look": tool}, caller, float("inf"), nobody
        )
        started = StartedRun(0, "look", "look", 0, "read", "{}", "")

        async def run() -> None:
            arguments = kind.check_arguments(tool.tool, {})
            call_ = AdmittedCall(started, tool, cast("dict[str, Any]", arguments))
            record = await runs.run(call_, cast("RunLedger", nobody))
            assert record.status == "ok", record

        both = [(await _cpu_of(lambda: http.get(url)), await _cpu_of(run)) for _ in range(ROUNDS)]
        await kind.close()
    direct, ran = (statistics.median(values) for values in zip(*both, strict=True))
    return [
        f"CPU of the request alone {direct:.2f} ms, as a run {ran:.2f} ms: "
        f"adds {ran - direct:.2f} ms (bar {MAX_RUN_MS:g})"
    ]


async def time_turns(folder: Path) -> list[str]:
    """Return how long runs take in turns, in lines: on a busy machine that is its own time."""
    async with ToolServer() as server, Model(_answer) as up:
        config = CONFIG.format(up=up.url, server=server.root)
        async with child(folder, config) as (_, client):
            client.headers["x-token"] = (folder / "data" / "token").read_text().strip()
            lines = []
            for tool, what in (("look", "that reads"), ("pay", "that writes, two commits")):
                times = statistics.quantiles(await _time_runs(client, tool), n=10)
                lines.append(f"a run {what}: p10 {times[0]:.2f} ms, p50 {times[4]:.2f} ms")
    return lines


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="mnemogate-tools-") as name:
        lines = uvloop.run(compare_requests(Path(name)))
        lines += asyncio.run(compare_cpu())
        lines += asyncio.run(time_turns(Path(name) / "runs"))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
