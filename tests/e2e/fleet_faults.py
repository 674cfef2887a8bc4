"""Several workers while what they share fails: Postgres, Redis, the way to them, and the clock.

Clients talk without a pause, plainly and in streams. Every request must be answered whatever is
away. What an answer with the status `ok` promised must be stored once, and all must be well soon
after the fault is over. Used by a test, and for longer by `make bench BENCH=faults`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import mmap
import random
import string
import struct
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
from sqlalchemy.engine import make_url

from tests import stores
from tests.e2e.round_trips import CountingProxy
from tests.gateway.cli.command import ROOT, Process, started
from tests.models import Model, call, calls, text
from tests.postgres_server import PASSWORD, PostgresServer
from tests.redis_server import RedisServer

KEY = "sk-sentinel-fleet"
# A `sitecustomize` for the workers.
CLOCK = Path(__file__).with_name("shifted_clock")
# The one that may be cut off.
CUT_WORKER = 0
# Of a conversation, before another begins.
MOST_TURNS = 6
FAULTS = ("stopped", "promoted", "redis_killed", "redis_frozen", "cut_off", "skewed")
RECOVERY_SECONDS = 5.0
CUT_SECONDS = 30.0
SKEW_SECONDS = 300.0
CONFIG = """
[providers.p]
base_url = "{upstream}"
api_key = "sk-sentinel-upstream"

[models."*"]
targets = [{{ provider = "p" }}]

[[keys]]
name = "fleet"
key = "{key}"
tenant = "fleet"
limits = {{ rpm = 1000000, concurrent = 1000 }}
"""


class FaultyFleet:
    """Workers on servers that fail, and what their clients were promised.

    cut: seconds that one worker is cut off from Postgres. soon: seconds in which all must be well
    after a fault. pause: seconds that a client takes between two turns, at most.
    """

    def __init__(
        self,
        seed: int,
        workers: int = 3,
        cut: float = CUT_SECONDS,
        soon: float = RECOVERY_SECONDS,
        pause: float = 0.1,
    ) -> None:
        # Of the workers.
        self._sources = ROOT
        self._size, self._cut, self._soon, self._pause = workers, cut, soon, pause
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.recoveries: list[float] = []
        # Acknowledged.
        self.answers: set[str] = set()
        self.questions: set[str] = set()
        self.notes: set[str] = set()
        # All of these, and by which worker.
        self._promised: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._workers: list[Process] = []
        self._clocks: list[mmap.mmap] = []
        self._stack = contextlib.ExitStack()
        # Not one of pytest's, which another run of it takes from the user who runs Postgres.
        name = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemogate-faults-"))
        folder = self._folder = Path(name)
        for name in ("a", "b", "redis"):
            (folder / name).mkdir(parents=True)
        self.primary, self.standby = PostgresServer(folder / "a"), PostgresServer(folder / "b")
        self.redis = RedisServer(folder / "redis")

    @contextlib.asynccontextmanager
    async def running(self, clients: int = 8) -> AsyncIterator[FaultyFleet]:
        """Start all, and let clients talk; end all with the context, and check what is left."""
        with self._stack:
            await asyncio.to_thread(self._start_servers)
            async with (
                Model(self._answer) as self._upstream,
                CountingProxy(self.primary.url()) as one,
                CountingProxy(self.standby.url()) as other,
                httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=200)) as http,
            ):
                self._http, self._proxies = http, (one, other)
                through = [make_url(each.url).port for each in self._proxies]
                direct = [self.primary.port, self.standby.port]
                self._workers = [
                    self._start(i, self._url_over(through if i == CUT_WORKER else direct))
                    for i in range(self._size)
                ]
                await asyncio.gather(*map(self._wait_until_ready, self._workers))
                over = asyncio.Event()
                talking = [asyncio.create_task(self._talk(i, over)) for i in range(clients)]
                try:
                    await asyncio.sleep(0.5)
                    yield self
                finally:
                    over.set()
                    await asyncio.gather(*talking)
                await self.check()

    def _start_servers(self) -> None:
        for server in (self.primary, self.standby):
            self._stack.callback(server.stop)
        self.primary.create()
        self.primary.start()
        self._database = self._make_database().rsplit("/", 1)[1]
        self.redis.start()
        self._stack.callback(self.redis.stop)

    def _make_database(self) -> str:
        """Return the URL of the database that the workers share."""
        return self.primary.database(stores.SECRET)

    def _url_over(self, ports: Sequence[int | None]) -> str:
        hosts = "&".join(f"host=127.0.0.1:{port}" for port in ports)
        return (
            f"postgresql+asyncpg://mnemogate:{PASSWORD}@/{self._database}?{hosts}"
            "&target_session_attrs=read-write&ssl=disable"
        )

    def _start(self, number: int, url: str) -> Process:
        folder = self._folder / f"worker{number}"
        folder.mkdir()
        clock, config = folder / "clock", folder / "gateway.toml"
        clock.write_bytes(bytes(8))
        with clock.open("r+b") as file:
            self._clocks.append(mmap.mmap(file.fileno(), 8))
        config.write_text(CONFIG.format(upstream=self._upstream.url, key=KEY), encoding="utf-8")
        return self._stack.enter_context(
            started(
                folder,
                *("serve", "--port", "0", "--config", str(config)),
                root=self._sources,
                MNEMOGATE_STORAGE__DATABASE=url,
                MNEMOGATE_STORAGE__SECRET=stores.SECRET.hex(),
                MNEMOGATE_STORAGE__REDIS=self.redis.url,
                MNEMOGATE_MEMORY__EXTRACT="off",
                MNEMOGATE_MEMORY__READ_DEADLINE_MS="1000",
                MNEMOGATE_ROUTING__ASK_WINDOWS="false",
                PYTHONPATH=str(CLOCK),
                SHIFTED_CLOCK=str(clock),
            )
        )

    async def _wait_until_ready(self, worker: Process) -> None:
        url = await asyncio.to_thread(lambda: worker.url)
        for _ in range(300):
            if (await self._http.get(f"{url}/ready")).json()["status"] == "ok":
                return
            await asyncio.sleep(0.05)
        raise AssertionError("\n".join(worker.lines))

    def _answer(self, seen: Any, wire: Any) -> Any:
        """Answer with words that occur once; keep what a message asks to be kept."""
        messages = seen.json["messages"]
        asked = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
        told = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
        assert sorted(asked) == sorted(told), messages
        last = messages[-1]
        if last["role"] == "tool":
            kept = "kept" if last["content"].startswith("Stored") else "not kept"
            return text(f"answer {next(self._numbers)}. {kept}")
        words = str(last["content"])
        if words.startswith("please keep: ") and seen.json.get("tools"):
            word = words.removeprefix("please keep: ").split("\n")[0]
            return calls(
                call("archival_memory_insert", {"content": word}, f"c{next(self._numbers)}")
            )
        return text(f"answer {next(self._numbers)}.")

    async def _talk(self, number: int, over: asyncio.Event) -> None:
        """Talk to all workers in turn until it is over; each request must be answered."""
        name, history, said = f"guest{number}", [], 0
        ask = self._ask_by_sdk if number % 4 == 0 else self._ask
        while not over.is_set():
            said += 1
            word = "".join(self.random.choices(string.ascii_lowercase, k=16))
            words = f"please keep: {word}" if said % 4 == 0 else f"question {word}?"
            asked = {"role": "user", "content": words}
            by = self.random.randrange(self._size)
            status, answer = await ask(self._workers[by], name, [*history, asked])
            self.done[status] += 1
            if status == "ok":
                self.answers.add(answer)
                self.questions.add(words)
                self._promised |= {answer: by, words: by}
                if answer.endswith(" kept") and not answer.endswith("not kept"):
                    self.notes.add(word)
                    self._promised[word] = by
            else:
                assert status == "degraded", status
            history += [asked, {"role": "assistant", "content": answer}]
            if len(history) >= 2 * MOST_TURNS:
                history = []
            await asyncio.sleep(self.random.uniform(0.2, 1.0) * self._pause)

    async def _ask(
        self, worker: Process, name: str, messages: list[dict[str, Any]]
    ) -> tuple[str, str]:
        """Return the status of the memory and the whole answer."""
        stream = self.random.random() < 0.5
        found = await self._http.post(
            f"{worker.url}/v1/chat/completions",
            json={"model": "m", "messages": messages, "stream": stream},
            headers={"authorization": f"Bearer {KEY}", "x-memory-user": name},
        )
        assert found.status_code == 200, found.text
        if not stream:
            said = found.json()["choices"][0]["message"]["content"]
            return found.headers["x-memory-status"], said
        lines = found.text.splitlines()
        assert "data: [DONE]" in lines, found.text
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        deltas = [c["delta"].get("content") or "" for e in events for c in e["choices"]]
        return found.headers["x-memory-status"], "".join(deltas)

    async def _ask_by_sdk(
        self, worker: Process, name: str, messages: list[dict[str, Any]]
    ) -> tuple[str, str]:
        async with openai.AsyncOpenAI(
            api_key=KEY, base_url=f"{worker.url}/v1", max_retries=0, timeout=60
        ) as client:
            asking = client.chat.completions.with_raw_response
            stream = self.random.random() < 0.5
            found = await asking.create(
                model="m",
                messages=messages,
                stream=stream,
                extra_headers={"x-memory-user": name},
            )
            status = found.headers["x-memory-status"]
            if not stream:
                return status, found.parse().choices[0].message.content
            parts = [c.delta.content or "" async for e in found.parse() for c in e.choices]
            return status, "".join(parts)

    async def play(self, fault: str, cycles: int, but: int | None = None) -> None:
        """Let something fail so many times, while clients talk; check after each.

        but: a worker that is cut off meanwhile, of which nothing is asked.
        """
        if fault == "promoted":
            await asyncio.to_thread(self._make_standby)
        for _ in range(cycles):
            await asyncio.sleep(self.random.uniform(0.2, 0.6))
            await getattr(self, f"_{fault}")()
            await self._recover(but)
            self.done[fault] += 1

    async def play_beside_a_cut(self, faults: Sequence[str], cycles: int) -> None:
        """Cut one worker off so many times, and let each of the others happen meanwhile."""
        for _ in range(cycles):
            until = time.monotonic() + self._cut
            self._let_pass(passes=False)
            for fault in self.random.sample(faults, len(faults)):
                await self.play(fault, 1, but=CUT_WORKER)
            await asyncio.sleep(until - time.monotonic())
            self._let_pass(passes=True)
            await self._recover()
            self.done["cut_off"] += 1

    async def _stopped(self) -> None:
        """Stop Postgres at once, and start it again."""
        await asyncio.to_thread(self.primary.stop)
        await asyncio.sleep(self.random.uniform(0.2, 1.0))
        await asyncio.to_thread(self.primary.start)

    async def _promoted(self) -> None:
        """Stop the primary at once, and promote its standby."""
        await asyncio.to_thread(self.primary.stop)
        await asyncio.sleep(self.random.uniform(0.0, 0.5))
        await asyncio.to_thread(self.standby.promote)
        self.primary, self.standby = self.standby, self.primary
        await self._recover()
        await asyncio.to_thread(self._make_standby)

    def _make_standby(self) -> None:
        self.standby.create_standby(self.primary)
        self.standby.start()
        self.primary.commit_with_standby()

    async def _redis_killed(self) -> None:
        self.redis.stop()
        await asyncio.sleep(self.random.uniform(0.2, 1.0))
        await asyncio.to_thread(self.redis.start)

    async def _redis_frozen(self) -> None:
        self.redis.freeze()
        await asyncio.sleep(self.random.uniform(0.5, 1.5))
        self.redis.thaw()

    async def _cut_off(self) -> None:
        """Pass nothing between one worker and Postgres."""
        self._let_pass(passes=False)
        await asyncio.sleep(self._cut)
        self._let_pass(passes=True)

    def _let_pass(self, *, passes: bool) -> None:
        for proxy in self._proxies:
            proxy.passes.set() if passes else proxy.passes.clear()

    async def _skewed(self) -> None:
        """Set the clocks of the workers otherwise, by up to five minutes."""
        for clock in self._clocks:
            struct.pack_into("d", clock, 0, self.random.choice((-1, 0, 1)) * SKEW_SECONDS)
        await asyncio.sleep(1.0)

    async def _recover(self, but: int | None = None) -> None:
        """Wait until each worker serves with memory, and stored what it promised meanwhile."""
        # Not what is promised from now on, of which a busy machine always has some to store.
        back = time.monotonic()
        promised = {words for words, by in self._promised.items() if by != but}
        asked = [worker for i, worker in enumerate(self._workers) if i != but]
        await asyncio.gather(*(self._serves(worker, back) for worker in asked))
        self.recoveries.append(time.monotonic() - back)
        while problem := await self._find_problem(promised):
            assert time.monotonic() - back < self._soon, (problem, self._logged())
            await asyncio.sleep(0.2)
        self.recoveries[-1] = time.monotonic() - back

    async def _serves(self, worker: Process, back: float) -> None:
        while True:
            status, _ = await self._ask(worker, "probe", [{"role": "user", "content": "well?"}])
            ready = await self._http.get(f"{worker.url}/ready")
            if status == "ok" and ready.json()["status"] == "ok":
                return
            assert time.monotonic() - back < self._soon, (ready.text, worker.lines[-8:])
            await asyncio.sleep(0.05)

    async def check(self) -> None:
        """Check that all that was promised is stored once."""
        # What was under way may wait to be stored.
        until = time.monotonic() + self._soon
        promised = set(self._promised)
        while problem := await self._find_problem(promised):
            assert time.monotonic() < until, (problem, self._logged())
            await asyncio.sleep(0.2)

    def _logged(self) -> list[list[str]]:
        """Return what the workers said lately, but for their requests, and what waits."""
        waits = [str(p) for p in self._folder.glob("worker*/spill*") if p.stat().st_size]
        told = [[x for x in w.lines if " info " not in x][-6:] for w in self._workers]
        return [*told, waits]

    async def _find_problem(self, promised: set[str]) -> str:
        for kind, words, query in (
            ("answers", self.answers, "SELECT content FROM messages WHERE source = 'answer'"),
            ("questions", self.questions, "SELECT content FROM messages WHERE source = 'chat'"),
            ("notes", self.notes, "SELECT content FROM passages"),
        ):
            wanted = words & promised
            rows = await asyncio.to_thread(self.primary.run, query, database=self._database)
            kept = Counter(row[0] for row in rows)
            if wrong := {one: kept[one] for one in wanted if kept[one] != 1}:
                return f"{len(wrong)} of {len(wanted)} {kind}: {list(wrong.items())[:4]}"
        return ""
