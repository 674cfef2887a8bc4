"""Load as apps make it: conversations that resend their history with the replies they really got,
over bare asyncio connections.

A measurement is a fixed number of turns, so that a slow server and a fast one are asked the same.
The first turns of a conversation open it and are not measured; what a server puts off until after
the answer is.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

import httptools

# Turns, not measured.
OPENING = 2
# Seconds after the last answer in which work put off until then still counts.
SETTLE = 0.2
TEXT = re.compile(rb'"content":\s*"([^"\\]*)"')
SENT = re.compile(rb" at (\d+\.\d{6})")
WORDS = (
    b"the quick brown fox jumps over a lazy dog while many small clouds drift across wide evening "
    b"sky above our town"
).split()
SYSTEM = (
    b'{"role":"system","content":"You are a helpful assistant. Answer briefly and to the point."}'
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of conversation.

    users: at once. old: messages that are there before the first turn. size: bytes of a user's
    message, and of an old one. newest: how many messages a client resends, the system's not
    counted; 0: all of them. earlier: conversations that each user had before, in many words.
    """

    users: int
    conversations: int
    turns: int = OPENING + 1
    old: int = 0
    size: int = 300
    stream: bool = False
    model: str = "mock"
    newest: int = 0
    earlier: int = 0


@cache
def many_words(count: int = 3000) -> tuple[tuple[bytes, ...], tuple[float, ...]]:
    """Words of a made-up language, and how often each is said: some always, most hardly ever."""
    rng = random.Random(7)
    sounds = [a + b for a in (*"bcdfgklmnprstvz", "st", "gr") for b in "aeiou"]
    found = ["".join(rng.choices(sounds, k=rng.randint(1, 4))) for _ in range(count)]
    return tuple(w.encode() for w in found), tuple(1 / (i + 10) for i in range(count))


class Talk:
    """One conversation as the user's app keeps it.

    named: the client names it and sends its newest message alone.
    """

    def __init__(self, shape: Shape, number: int, user: str, named: bool = False) -> None:
        self.shape, self.number, self.user, self.named = shape, number, user, named
        self.turn = 0
        self.thread = b""
        self.messages = [self._message(i) for i in range(shape.old)]

    def _words(self, i: int) -> bytes:
        count = self.shape.size // 5
        if self.shape.earlier:
            rng = random.Random(self.number * 100_003 + i)
            return b" ".join(rng.choices(*many_words(), k=count))
        return b" ".join(
            WORDS[(self.number * 7 + i * 3 + k * k) % len(WORDS)] for k in range(count)
        )

    def _message(self, i: int) -> bytes:
        words = self._words(i)
        return b'{"role":"%s","content":"(%d.%d) %s"}' % (
            b"assistant" if i % 2 else b"user",
            self.number,
            i,
            words[: self.shape.size],
        )

    def ask(self) -> bytes:
        """The body of the next request."""
        self.turn += 1
        self.messages.append(self._message(2 * (5000 + self.turn)))
        sent = self.messages[-1:] if self.named else self.messages[-self.shape.newest :]
        return b'{"model":"%s","messages":[%s],"temperature":0.7,"max_tokens":512%s}' % (
            self.shape.model.encode(),
            b",".join([SYSTEM, *sent]),
            b',"stream":true' if self.shape.stream else b"",
        )

    def hear(self, reply: bytes) -> None:
        self.messages.append(b'{"role":"assistant","content":"%s"}' % reply)


@dataclass(slots=True)
class Reply:
    """Times in seconds on the clock that the mock has too.

    hops: of each event, from the mock to here.
    """

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: list[bytes] = field(default_factory=list)
    hops: list[float] = field(default_factory=list)
    first: float = 0.0
    broken: bool = True


class Connection(asyncio.Protocol):
    transport: asyncio.Transport
    _done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_message_complete(broken=True)

    async def ask(self, data: bytes) -> Reply:
        """Raises ConnectionError when the server has closed the connection meanwhile."""
        if self.transport.is_closing():
            raise ConnectionError("the server closed a connection between two requests")
        self._reply, self._done = Reply(), asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(data)
        await self._done
        return self._reply

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reply.headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        reply, now = self._reply, time.perf_counter()
        reply.body.append(data)
        if found := SENT.findall(data):
            reply.first = reply.first or now
            reply.hops += [now - float(sent) for sent in found]

    def on_message_complete(self, broken: bool = False) -> None:
        if self._done is not None and not self._done.done():
            self._reply.status, self._reply.broken = self._parser.get_status_code(), broken
            self._done.set_result(None)


@dataclass(slots=True)
class Result:
    """Of the turns measured.

    cpu: seconds of the server's process. Times in ms. warm: turns answered with memory, in the
    conversation of the turn before.
    """

    turns: int = 0
    errors: int = 0
    warm: int = 0
    events: int = 0
    sent: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    recorded: int = 0
    calls: int = 0
    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    hops: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float | None]:
        """By name: microseconds of CPU, milliseconds, shares."""
        n = max(1, self.turns)

        def middle(values: list[float]) -> float | None:
            return statistics.median(values) if values else None

        return {
            "turns": self.turns,
            "errors": self.errors,
            "cpu_us": self.cpu * 1e6 / n,
            "cpu_us_event": self.cpu * 1e6 / self.events if self.events else None,
            "rps": self.turns / self.seconds if self.seconds else None,
            "p50_ms": middle(self.latencies),
            "first_ms": middle(self.firsts),
            "hop_ms": middle(self.hops),
            "round_ms": middle(self.rounds),
            "warm": self.warm / n,
            "recorded": self.recorded / n,
            "calls": self.calls / n,
            "bytes": self.sent / n,
        }


class Load:
    """url: of the chat endpoint. headers: on every request, beside the talk's own."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        common = "".join(
            f"{k}: {v}\r\n"
            for k, v in {
                "authorization": "Bearer k",
                "content-type": "application/json",
                **headers,
            }.items()
        )
        self._head = f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\n{common}".encode()

    async def play(self, talks: Iterable[Talk], users: int, until: int) -> Result:
        """Brings each talk to turn `until`, `users` of them at a time."""
        result, waiting, begun = Result(), iter(talks), time.perf_counter()
        await asyncio.gather(*(self._user(waiting, until, result) for _ in range(users)))
        result.seconds = time.perf_counter() - begun
        return result

    async def _user(self, waiting: Iterator[Talk], until: int, result: Result) -> None:
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection, self._host, self._port
        )
        for talk in waiting:
            while talk.turn < until:
                await self._turn(connection, talk, result)
        connection.transport.close()

    async def _turn(self, connection: Connection, talk: Talk, result: Result) -> None:
        body = talk.ask()
        head = b"%sx-memory-user: %s\r\ncontent-length: %d\r\n" % (
            self._head,
            talk.user.encode(),
            len(body),
        )
        if talk.named:
            head += b"x-memory-conversation: talk-%d\r\n" % talk.number
        begun = time.perf_counter()
        reply = await connection.ask(b"%s\r\n%s" % (head, body))
        result.latencies.append((time.perf_counter() - begun) * 1e3)
        text = b"".join(TEXT.findall(b"".join(reply.body)))
        result.turns += 1
        result.errors += reply.broken or reply.status != 200 or not text
        result.sent += len(body)
        result.events += len(reply.hops)
        result.hops += [h * 1e3 for h in reply.hops]
        if reply.first:
            result.firsts.append((reply.first - begun) * 1e3)
        thread = reply.headers.get(b"x-memory-conversation", b"")
        result.warm += (
            bool(thread)
            and thread == talk.thread
            and reply.headers.get(b"x-memory-status") == b"ok"
        )
        talk.thread = thread
        talk.hear(text)
