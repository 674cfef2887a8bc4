"""A closed-loop load in one process: so many connections, each a conversation that resends what it really got."""
from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from dataclasses import dataclass, field

import aiohttp

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "many", "small", "clouds", "drift", "across", "the", "wide", "evening", "sky", "above", "town"]
SYSTEM = {"role": "system", "content": "You are a helpful assistant. " * 20}


@dataclass
class Result:
    """cpu: seconds of the server's process over the run. Times in milliseconds."""

    requests: int = 0
    events: int = 0
    errors: int = 0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list, repr=False)
    firsts: list[float] = field(default_factory=list, repr=False)

    @property
    def cpu_us(self) -> float:
        return self.cpu * 1e6 / max(1, self.requests)

    @property
    def cpu_us_event(self) -> float:
        return self.cpu * 1e6 / max(1, self.events)

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies or [0.0])

    @property
    def first(self) -> float:
        return statistics.median(self.firsts or [0.0])


class Load:
    """url and headers of the subject. turns: requests of one conversation before a new one begins."""

    numbers = itertools.count()

    def __init__(self, url: str, headers: dict[str, str], *, connections: int, stream: bool, turns: int) -> None:
        self.url, self.headers, self.connections, self.stream, self.turns = url, headers, connections, stream, turns

    async def run(self, seconds: float) -> Result:
        result = Result()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            until = time.perf_counter() + seconds
            await asyncio.gather(*(self._user(session, until, result) for _ in range(self.connections)))
        return result

    async def _user(self, session: aiohttp.ClientSession, until: float, result: Result) -> None:
        while time.perf_counter() < until:
            number = next(self.numbers)
            headers = {**self.headers, **({"x-memory-user": f"u{number % 200}"} if "x-memory-user" in self.headers else {})}
            messages = [SYSTEM]
            for turn in range(self.turns):
                if self.turns == 1:
                    messages += [{"role": "user", "content": self._line(number, i)} for i in range(6)]
                messages.append({"role": "user", "content": self._line(number, 100 + turn)})
                reply = await self._ask(session, messages, headers, result)
                messages.append({"role": "assistant", "content": reply})
                if time.perf_counter() >= until:
                    return

    @staticmethod
    def _line(number: int, i: int) -> str:
        return f"({number}.{i}) " + " ".join(WORDS[(number * 7 + i * 3 + k) % len(WORDS)] for k in range(50))

    async def _ask(self, session: aiohttp.ClientSession, messages: list[dict[str, str]], headers: dict[str, str], result: Result) -> str:
        body = json.dumps({"model": "mock", "messages": messages, "stream": self.stream})
        begun = time.perf_counter()
        async with session.post(self.url, data=body, headers={"content-type": "application/json", **headers}) as response:
            if response.status != 200:
                result.errors += 1
                await response.read()
                return ""
            if not self.stream:
                text = json.loads(await response.read())["choices"][0]["message"]["content"]
            else:
                text = await self._read(response, begun, result)
        result.requests += 1
        result.latencies.append((time.perf_counter() - begun) * 1000)
        return str(text)

    @staticmethod
    async def _read(response: aiohttp.ClientResponse, begun: float, result: Result) -> str:
        rest, parts, first = b"", [], True
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event.startswith(b"data: {"):
                    if first:
                        result.firsts.append((time.perf_counter() - begun) * 1000)
                        first = False
                    result.events += 1
                    choices = json.loads(event[6:])["choices"]
                    parts.append((choices[0]["delta"].get("content") or "") if choices else "")
        return "".join(parts)
