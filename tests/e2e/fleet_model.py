"""Random operations on several workers of one Postgres database, each checked against a model.

Each user has words that nobody else has: they must be in what the model is sent for that user, and
nowhere else. Used by a test, and for longer by `make bench BENCH=model`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests import stores
from tests.gateway.cli.command import Process, started
from tests.models import Model, call, calls, text

# Steps, after which all rows are looked at.
CHECK_EVERY = 100
USERS = ("ada", "bob", "eve")
KEY = "sk-sentinel-model"
# Until what a busy worker could not store is stored.
RECOVERY_SECONDS = 15.0
# Of a conversation, before another begins.
MAX_TURNS = 6


@dataclass
class Person:
    """What a user's memory must hold.

    shown: values that are in every request. erased: that must be nowhere. histories: of the
    conversations under way.
    """

    shown: dict[str, str] = field(default_factory=dict)
    histories: list[list[dict[str, Any]]] = field(default_factory=list)


class Unfinished(Exception):
    """A stream ended before its answer did."""


class FleetModel:
    """Workers, and what is known of the memory that they share."""

    def __init__(self, url: str, folder: Path, workers: int, seed: int, **settings: str) -> None:
        self.url, self._folder, self._size = url, folder, workers
        # Of every worker, as environment variables.
        self._settings = settings
        self.random = random.Random(seed)
        self.people = {name: Person() for name in USERS}
        self.erased: set[str] = set()
        self.acknowledged: set[str] = set()
        self.done: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        # Who asked a question.
        self._asked: dict[str, str] = {}
        self._problems: list[AssertionError] = []
        self._under_load = False
        self._workers: list[Process] = []
        self._stack = contextlib.ExitStack()

    def _answer(self, seen: Any, wire: Any) -> Any:
        """Answer with words that occur once; note what a message asks for."""
        body = seen.json
        messages = body["messages"]
        try:
            self._check_body(body)
            self._check_pairs(messages)
        except AssertionError as e:  # for the step that asked
            self._problems.append(e)
        asked = messages[-1]
        # Recalled words follow.
        noted = re.search(r"please note: (\S+)", str(asked["content"]))
        if asked["role"] == "user" and noted and str(asked["content"]).startswith("please note"):
            return calls(call("core_memory_append", {"label": "human", "content": noted[1]}))
        return text(f"answer {next(self._numbers)}.")

    @staticmethod
    def _check_pairs(messages: list[dict[str, Any]]) -> None:
        asked = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
        told = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
        assert sorted(asked) == sorted(told), messages

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Start the workers; end them with the context."""
        async with (
            Model(self._answer) as self._upstream,
            httpx.AsyncClient(timeout=60) as self._http,
        ):
            with self._stack:
                self._workers = [self._start(i) for i in range(self._size)]
                for worker in self._workers:
                    await self._wait_for(worker)
                yield self

    def _start(self, number: int) -> Process:
        return self._stack.enter_context(
            started(
                self._folder / str(number),
                *("serve", "--port", "0", "--upstream", self._upstream.url),
                MNEMOGATE_STORAGE__DATABASE=self.url,
                MNEMOGATE_STORAGE__SECRET=stores.SECRET.hex(),
                MNEMOGATE_SERVER__SINGLE_USER="false",
                MNEMOGATE_MEMORY__READ_DEADLINE_MS="5000",
                MNEMOGATE_MEMORY__EXTRACT="off",
                MNEMOGATE_ROUTING__ASK_WINDOWS="false",
                **self._settings,
            )
        )

    async def _wait_for(self, worker: Process) -> None:
        url = await asyncio.to_thread(lambda: worker.url)
        for _ in range(300):
            if (await self._http.get(f"{url}/ready")).json()["status"] == "ok":
                return
            await asyncio.sleep(0.05)
        raise AssertionError("\n".join(worker.lines))

    async def run(self, steps: int) -> None:
        """Do random operations, and check each."""
        operations = {
            self.turn: 55,
            self.edit: 15,
            self.note: 10,
            self.fork: 6,
            self.repeat: 6,
            self.together: 4,
            self.erase: 2,
            self.kill: 0.3,
        }
        for step in range(1, steps + 1):
            (operation,) = self.random.choices(list(operations), operations.values())
            self.done[operation.__name__] += 1
            await operation()
            self._upstream.requests.clear()
            self._asked.clear()
            if step % CHECK_EVERY == 0 or step == steps:
                await self.check_rows()

    def _worker(self) -> Process:
        return self.random.choice(self._workers)

    def _new_word(self, name: str) -> str:
        return f"{name}-word-{next(self._numbers)}-"

    async def _chat(
        self, worker: Process, name: str, messages: list[dict[str, Any]], **more: Any
    ) -> dict[str, Any]:
        """Have one answer, and check what the model was sent for it."""
        key = more.pop("key", "")
        headers = {"authorization": f"Bearer {KEY}", "x-memory-user": name}
        headers |= {"idempotency-key": key} if key else {}
        body = {"model": "m", "messages": messages, **more}
        self._asked[messages[-1]["content"]] = name
        found = await self._http.post(
            f"{worker.url}/v1/chat/completions", json=body, headers=headers
        )
        assert found.status_code == 200, found.text
        status = found.headers["x-memory-status"]
        if status == "degraded" and self._under_load:
            # Told so, and nothing promised.
            raise Unfinished
        assert status == "ok", (found.headers, worker.lines[-5:])
        if self._problems:
            raise self._problems[0]
        if more.get("stream"):
            events = [
                json.loads(line[6:])
                for line in found.text.splitlines()
                if line.startswith("data: {")
            ]
            if "data: [DONE]" not in found.text:
                raise Unfinished
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
        else:
            said = found.json()["choices"][0]["message"]["content"]
        return {"role": "assistant", "content": said}

    def _check_body(self, sent: Any) -> None:
        whole = json.dumps(sent)
        asked = [str(m["content"]) for m in sent["messages"] if m["role"] == "user"][-1]
        name = next(who for words, who in self._asked.items() if asked.startswith(words))
        for other in USERS:
            assert other == name or f"{other}-word-" not in whole, (name, whole)
        assert not [w for w in self.erased if w in whole], (name, whole)
        missing = [w for w in self.people.get(name, Person()).shown.values() if w not in whole]
        assert not missing, (name, missing, whole)

    def _pick(self) -> tuple[str, list[dict[str, Any]]]:
        """Return a user and the history of one conversation, new or under way."""
        name = self.random.choice(USERS)
        person = self.people[name]
        if person.histories and self.random.random() < 0.8:
            history = self.random.choice(person.histories)
            if len(history) < 2 * MAX_TURNS:
                return name, history
            person.histories.remove(history)
        person.histories.append(history := [])
        return name, history

    async def _say(self, name: str, history: list[dict[str, Any]], words: str, **more: Any) -> None:
        asked = {"role": "user", "content": words}
        stream = {"stream": True} if self.random.random() < 0.3 else {}
        answer = await self._chat(self._worker(), name, [*history, asked], **stream, **more)
        history += [asked, answer]
        self.acknowledged.add(answer["content"])

    async def turn(self) -> None:
        name, history = self._pick()
        await self._say(name, history, f"question {next(self._numbers)}?")

    async def note(self) -> None:
        """Let the model keep a word with its tool."""
        name, history = self._pick()
        word = self._new_word(name)
        await self._say(name, history, f"please note: {word}")
        self.people[name].shown[word] = word

    async def edit(self) -> None:
        """Replace a block; the next request anywhere has the new one."""
        name = self.random.choice(USERS)
        word = self._new_word(name)
        found = await self._http.put(
            f"{self._worker().url}/memory/v1/users/{name}/blocks/human",
            json={"value": word},
            headers={"authorization": f"Bearer {KEY}"},
        )
        assert found.status_code in (200, 201), found.text
        self.people[name].shown = {"human": word}

    async def fork(self) -> None:
        """Go on otherwise from an earlier answer."""
        name, history = self._pick()
        if len(history) < 4:
            return
        other = history[: 2 * self.random.randrange(1, len(history) // 2)]
        self.people[name].histories.append(other)
        await self._say(name, other, f"otherwise {next(self._numbers)}?")

    async def repeat(self) -> None:
        """Send one request with one key to two workers at once."""
        name, history = self._pick()
        asked = {"role": "user", "content": f"once {next(self._numbers)}?"}
        key = f"key-{next(self._numbers)}"
        both = await asyncio.gather(
            *(
                self._chat(worker, name, [*history, asked], key=key)
                for worker in self.random.sample(self._workers, 2)
            )
        )
        kept = await self._stored([answer["content"] for answer in both])
        assert sum(kept.values()) == 1, (both, kept)
        history += [asked, next(answer for answer in both if kept[answer["content"]])]
        self.acknowledged.add(history[-1]["content"])

    async def together(self) -> None:
        """Say the same at two workers at once; both answers are kept."""
        name, history = self._pick()
        asked = {"role": "user", "content": f"both {next(self._numbers)}?"}
        both = await asyncio.gather(
            *(
                self._chat(worker, name, [*history, asked])
                for worker in self.random.sample(self._workers, 2)
            )
        )
        self.acknowledged |= {answer["content"] for answer in both}
        other = [*history, asked, both[1]]
        history += [asked, both[0]]
        self.people[name].histories.append(other)

    async def erase(self) -> None:
        name = self.random.choice(USERS)
        found = await self._http.delete(
            f"{self._worker().url}/memory/v1/users/{name}",
            headers={"authorization": f"Bearer {KEY}"},
        )
        assert found.status_code == 200, found.text
        person = self.people[name]
        self.erased |= set(person.shown.values())
        self.people[name] = Person()
        whose = await self._stored(self.acknowledged)
        self.acknowledged = {answer for answer in self.acknowledged if whose[answer]}

    async def kill(self) -> None:
        """End a worker at once, and start another in its place."""
        i = self.random.randrange(self._size)
        self._workers[i].popen.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._workers[i].popen.wait)
        self._workers[i] = self._start(i)
        await self._wait_for(self._workers[i])

    async def _stored(self, answers: Collection[str]) -> Counter[str]:
        rows = await asyncio.to_thread(
            stores.on_server,
            self.url,
            "SELECT content, count(*) FROM messages WHERE source = 'answer' GROUP BY content",
        )
        return Counter({content: count for content, count in rows if content in answers})

    async def check_rows(self, seconds: float = 0.0) -> None:
        """Check what all tables hold.

        seconds: in which a worker may still store what it kept in its recovery file.
        """
        until = time.monotonic() + seconds
        while True:
            kept = await self._stored(self.acknowledged)
            wrong = {a: kept[a] for a in self.acknowledged if kept[a] != 1}
            if not wrong or time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        assert not wrong, wrong
        for problem, query in self._invariants():
            rows = await asyncio.to_thread(stores.on_server, self.url, query)
            assert not rows, (problem, rows[:3])

    def _invariants(self) -> Iterator[tuple[str, str]]:
        """Yield what must not be, and the query that would find it."""
        yield (
            "a block's versions have a gap",
            "SELECT block_id FROM block_versions GROUP BY block_id "
            "HAVING max(version) - min(version) + 1 <> count(*)",
        )
        yield (
            "a node is held though nobody works",
            "SELECT id FROM nodes WHERE holder IS NOT NULL AND state <> 'open'",
        )
        for table, column in (
            ("messages", "content"),
            ("blocks", "value"),
            ("block_versions", "after"),
            ("epochs", "core"),
            ("nodes", "note"),
            ("nodes", "hidden"),
            ("explains", "record"),
        ):
            for word in sorted(self.erased)[-40:]:
                yield (
                    f"{table}.{column} holds what was erased",
                    f"SELECT id FROM {table} WHERE position('{word}' IN {column}) > 0 LIMIT 1",
                )

    async def kill_under_load(self, cycles: int, clients: int = 32) -> None:
        """Kill a worker at a random moment again and again, while many talk to all of them."""
        over, self._under_load = asyncio.Event(), True
        talking = [asyncio.create_task(self._talk(f"guest{i}", over)) for i in range(clients)]
        try:
            for _ in range(cycles):
                await asyncio.sleep(self.random.uniform(0.1, 0.5))
                await self.kill()
                self.done["kill"] += 1
        finally:
            over.set()
            await asyncio.gather(*talking)
        await self.check_rows(RECOVERY_SECONDS)

    async def _talk(self, name: str, over: asyncio.Event) -> None:
        """Talk until it is over; who meets a dead worker asks another one again."""
        history: list[dict[str, Any]] = []
        while not over.is_set():
            asked = {"role": "user", "content": f"question {next(self._numbers)}?"}
            try:
                answer = await self._chat(
                    self._worker(), name, [*history, asked], stream=self.random.random() < 0.5
                )
            except (httpx.TransportError, Unfinished):
                self.done["cut"] += 1
                await asyncio.sleep(0.05)
                continue
            self.done["turn"] += 1
            self.acknowledged.add(answer["content"])
            history = [] if len(history) > 2 * MAX_TURNS else [*history, asked, answer]
