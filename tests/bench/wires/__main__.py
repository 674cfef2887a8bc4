"""`make bench BENCH=wires`: what memory costs on Responses and Messages.

The same conversations on every subject in turn, round after round: the bare pass-through of the
same format (`floor`), the gateway with memory `off` and `on`, the third turn and later. Then the
delay of each piece of text in turns with memory calls, and the bill of long agent sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import uvloop

from tests.bench.load import OPENING, SETTLE
from tests.bench.subjects import UVICORN, Subject
from tests.bench.wires import bills
from tests.bench.wires.mock import CALLS
from tests.sockets import free_port

PATHS = ("responses", "messages")
USERS, TALKS, TURNS = 16, 64, 6
SENT = re.compile(rb"at (\d+\.\d{6})")
WORDS = "the quick brown fox jumps over a lazy dog while many small clouds drift by " * 7
Body = dict[str, Any]
Figures = dict[str, float]


class Server(Subject):
    """A subject of these formats."""

    def __init__(
        self, name: str, module: list[str], env: dict[str, str], headers: dict[str, str]
    ) -> None:
        port = free_port()
        self.root = f"http://127.0.0.1:{port}/v1"
        module = [m.replace("PORT", str(port)) for m in module]
        super().__init__(name, module, port, env, headers)

    def _answers(self) -> bool:
        body = json.dumps({"model": "mock", "input": "hi", "store": False}).encode()
        headers = {"content-type": "application/json", "authorization": "Bearer k", **self.headers}
        request = urllib.request.Request(f"{self.root}/responses", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except OSError:
            return False


class Talk:
    """One conversation as its app keeps it."""

    def __init__(self, path: str, user: str, *, stream: bool, model: str) -> None:
        self.path, self.user, self.stream, self.model = path, user, stream, model
        self.said: list[Body] = []
        # Of its conversation, by the gateway.
        self.names: set[str | None] = set()

    def ask(self) -> Body:
        self.said.append({"role": "user", "content": f"{len(self.said)} {self.user} {WORDS}"})
        body: Body = {"model": self.model, "stream": self.stream}
        if self.path == "messages":
            system = [{"type": "text", "text": "Be brief."}]
            return {**body, "max_tokens": 512, "system": system, "messages": self.said}
        return {**body, "store": False, "instructions": "Be brief.", "input": self.said}

    def hear(self, text: str) -> None:
        self.said.append({"role": "assistant", "content": text})


async def play(server: Server, talks: Sequence[Talk], turns: int) -> tuple[int, list[float]]:
    """Play some turns of each. Returns the events that came and the delays of texts in ms."""
    places, delays, events = asyncio.Semaphore(USERS), list[float](), [0]
    limits = httpx.Limits(max_connections=USERS, max_keepalive_connections=USERS)

    async def one(http: httpx.AsyncClient, talk: Talk) -> None:
        async with places:
            for _ in range(turns):
                headers = {"authorization": "Bearer k", "x-memory-user": talk.user}
                request = http.build_request(
                    "POST",
                    f"{server.root}/{talk.path}",
                    json=talk.ask(),
                    headers={**headers, **server.headers},
                )
                answer, got = await http.send(request, stream=True), b""
                async for part in answer.aiter_raw():
                    now = time.perf_counter()
                    if (talk.stream and b"_delta" in part) or b".delta" in part:
                        delays.extend((now - float(t)) * 1e3 for t in SENT.findall(part))
                    got += part
                await answer.aclose()
                assert answer.status_code == 200, got
                talk.names.add(answer.headers.get("x-memory-conversation"))
                # An unrecognised turn, or one without its memory, is no measure of a warm one.
                assert len(talk.names) == 1, talk.names
                assert answer.headers.get("x-memory-status") != "degraded"
                events[0] += got.count(b"\ndata: ")
                talk.hear(text_of(talk, got))

    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as http:
        await asyncio.gather(*(one(http, t) for t in talks))
    return events[0], delays


def text_of(talk: Talk, got: bytes) -> str:
    """The words of an answer."""
    if talk.stream:
        found = [json.loads(x[6:]) for x in got.split(b"\n") if x.startswith(b"data: {")]
        deltas = (e.get("delta") for e in found if str(e["type"]).endswith("delta"))
        return "".join(d if isinstance(d, str) else d.get("text", "") for d in deltas if d)
    body = json.loads(got)
    if talk.path == "messages":
        return "".join(b.get("text", "") for b in body["content"])
    parts = (p for i in body["output"] if i["type"] == "message" for p in i["content"])
    return "".join(p["text"] for p in parts)


async def measure(
    server: Server, path: str, name: str, *, stream: bool, model: str = "mock"
) -> Figures:
    """Return CPU us a request and an event of warm turns, and the delays of their texts."""
    many = TALKS if model == "mock" else TALKS // 4
    talks = [Talk(path, f"{name}-{i}", stream=stream, model=model) for i in range(many)]
    await play(server, talks, OPENING)
    cpu = server.cpu()
    events, delays = await play(server, talks, TURNS - OPENING)
    await asyncio.sleep(SETTLE)
    spent = (server.cpu() - cpu) * 1e6
    out = {"request": spent / many / (TURNS - OPENING)}
    if stream:
        out["event"] = spent / events
        delays.sort()
        out["p50 ms"], out["p99 ms"] = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
        out["most ms"] = delays[-1]
    return out


def start(data: str) -> list[Server]:
    mock = Server("wires-mock", ["tests.bench.wires.mock", "PORT"], {}, {})
    floor = ["uvicorn", "tests.bench.wires.floor:app", "--port", "PORT", *UVICORN]
    bare = {"FLOOR_UPSTREAM": mock.root, "FLOOR_CLIENT": "aiohttp"}
    serve = ["gateway", "serve", "--port", "PORT"]
    base = {
        "MNEMOGATE_STORAGE__VECTORS": "none",
        "MNEMOGATE_MEMORY__READ_DEADLINE_MS": "10000",
        # The mock's model asks its memory only where it is the load: what the gateway does for
        # models that do not ask is another bench's (junk).
        "MNEMOGATE_MEMORY__RECALL": "tools",
        "MNEMOGATE_MEMORY__EXTRACT": "off",
        "MNEMOGATE_PROVIDERS": json.dumps(
            {"mock": {"base_url": mock.root, "wires": ["chat", *PATHS]}}
        ),
    }
    return [
        mock,
        Server("floor", floor, bare, {}),
        *(
            Server(name, serve, {**base, "MNEMOGATE_STORAGE__DATA": f"{data}/{name}"}, headers)
            for name, headers in (("off", {"x-memory": "off"}), ("on", {}))
        ),
    ]


async def compare(
    servers: Sequence[Server], rounds: int, told: Callable[[str], None]
) -> dict[str, dict[str, Figures]]:
    """By load and server: medians over the rounds."""
    runs: dict[str, dict[str, list[Figures]]] = {}
    for i in range(rounds):
        for path in PATHS:
            for stream in (False, True):
                load = f"{path}, {'streamed' if stream else 'plain'}"
                for server in servers:
                    told(f"{load}: round {i + 1} of {rounds}, {server.name}")
                    found = await measure(server, path, f"{load[:4]}-{i}-{stream}", stream=stream)
                    runs.setdefault(load, {}).setdefault(server.name, []).append(found)
            on, load = servers[-1], f"{path}, {CALLS + 1} rounds"
            for server in (servers[0], on):
                told(f"{load}: round {i + 1} of {rounds}, {server.name}")
                found = await measure(server, path, f"r-{path}-{i}", stream=True, model="rounds")
                runs.setdefault(load, {}).setdefault(server.name, []).append(found)
    return {
        load: {
            name: {k: statistics.median(f[k] for f in found) for k in found[0]}
            for name, found in by.items()
        }
        for load, by in runs.items()
    }


def table(found: dict[str, dict[str, Figures]]) -> str:
    lines = []
    for load, by in found.items():
        lines.append(f"\n## {load}")
        for name, figures in by.items():
            told = ", ".join(
                f"{k} {v:,.2f}" + (f" (x{v / by['floor'][k]:.2f})" if k in CPU else "")
                for k, v in figures.items()
            )
            lines.append(f"{name:6} {told}")
        if "rounds" in load:
            over = by["on"]["request"] - by["floor"]["request"]
            lines.append(f"CPU a round over the bare relay: {over / (CALLS + 1) / 1e3:.2f} ms")
    return "\n".join(lines)


CPU = ("request", "event")


def main(argv: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    begun = time.time()

    def told(what: str) -> None:
        print(f"{time.time() - begun:5.0f} s  {what}", file=sys.stderr)

    servers: list[Server] = []
    with tempfile.TemporaryDirectory() as data:
        try:
            servers += start(data)
            found = uvloop.run(compare(servers[1:], args.rounds, told))
        finally:
            for server in reversed(servers):
                server.stop()
    print(f"CPU in us of the server process, medians of {args.rounds} rounds")
    print(table(found))
    text, figures = bills.report()
    print(f"\n{text}")
    return {"cost": found, "bills": figures}


if __name__ == "__main__":
    main(sys.argv[1:])
