"""`python -m tests.e2e.counting FOLDER`: plays conversations through a gateway in this process and
prints what a turn costs, in counts.

A process of its own, since what is counted is counted at the edges, which are put in place before
anything of ours is imported: the statements that SQLite traces, the calls from other threads that
wake the loop, the JSON that msgspec and json read and write where it is at least as long as a
message, and the calls of the scripted upstream; and the calls of functions, of Python's and of C's,
that the interpreter tells a profiler of. Of five turns the least counts: a poll of the background
may fall into any one of them.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

# Bytes of each message's text: JSON that is shorter is not counted.
LENGTH = 400
# Seconds without an event, after which a turn is over.
QUIET = 0.05
TURNS, LAST = (10, 100), 5
# turns whose calls are counted, the least of so many: on a busy machine a turn wakes the loop more
# often
LONG, CALLED = (
    (60, 400),
    15,
)
# What a client sends of its history: messages, 0 for all.
RESENT = {
    "all of it": 0,
    "its newest 40": 40,
    "its newest, by name": 1,
}
loads, dumps = json.loads, json.dumps
KINDS = (
    "calls",
    "reads before",
    "writes before",
    "hops before",
    "reads",
    "writes",
    "commits",
    "hops",
    "decodes",
    "encodes",
)
# What happened since the turn began; appended by any thread.
EVENTS: list[str] = []


def counting(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        out = call(*args, **options)
        data = args[0] if kind == "decodes" else out
        if len(data if isinstance(data, str) else memoryview(data)) >= LENGTH:
            EVENTS.append(kind)
        return out

    return counted


def counted_coder(real: Any, kind: str) -> type:
    class Coder:
        def __init__(self, *args: Any, **options: Any) -> None:
            self._real = real(*args, **options)
            setattr(self, kind[:-1], counting(kind, getattr(self._real, kind[:-1])))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    return Coder


def traced(connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        wrote = False

        def statement(sql: str) -> None:
            nonlocal wrote
            # "--" of a statement within a statement.
            word = sql.split(None, 1)[0].upper()
            if word in ("SELECT", "WITH"):
                EVENTS.append("reads")
            elif word in ("INSERT", "UPDATE", "DELETE", "REPLACE"):
                EVENTS.append("writes")
                wrote = connection.in_transaction
                EVENTS.extend(() if wrote else ["commits"])
            elif word in ("COMMIT", "END"):
                EVENTS.extend(["commits"] if wrote else ())
                wrote = False

        connection.set_trace_callback(statement)
        return connection

    return connected


def woken(call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(loop: Any, *args: Any, **options: Any) -> Any:
        if threading.get_ident() != loop._thread_id:
            EVENTS.append("hops")
        return call(loop, *args, **options)

    return counted


def instrument() -> None:
    for module, encode, decode in ((msgspec.json, "encode", "decode"), (json, "dumps", "loads")):
        setattr(module, encode, counting("encodes", getattr(module, encode)))
        setattr(module, decode, counting("decodes", getattr(module, decode)))
    msgspec.json.Encoder = counted_coder(msgspec.json.Encoder, "encodes")  # type: ignore[misc]
    msgspec.json.Decoder = counted_coder(msgspec.json.Decoder, "decodes")  # type: ignore[misc]
    sqlite3.connect = traced(sqlite3.connect)  # type: ignore[assignment]
    asyncio.BaseEventLoop.call_soon_threadsafe = woken(asyncio.BaseEventLoop.call_soon_threadsafe)  # type: ignore[method-assign]


class Client:
    """A client that resends its history, or the newest messages of it. mode: of X-Memory."""

    def __init__(self, app: Any, mode: str, stream: bool, newest: int = 0) -> None:
        self._app, self._stream, self._newest = app, stream, newest
        self._user = f"{mode}-{stream}-{newest}"
        self._headers = [
            (b"host", b"127.0.0.1"),
            (b"authorization", b"Bearer k"),
            (b"content-type", b"application/json"),
            (b"x-memory", mode.encode()),
        ]
        if newest == 1:
            self._headers.append((b"x-memory-conversation", b"named"))
        self._history: list[dict[str, str]] = []

    async def turn(self) -> None:
        self._history.append(
            {"role": "user", "content": f"{len(self._history)} of {self._user} ".ljust(LENGTH, "x")}
        )
        body = dumps(
            {
                "model": "m",
                "user": self._user,
                "messages": self._history[-self._newest :],
                "stream": self._stream,
            }
        ).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "root_path": "",
            "headers": [*self._headers, (b"content-length", b"%d" % len(body))],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        asked, sent = [{"type": "http.request", "body": body, "more_body": False}], []

        async def receive() -> Any:
            # The client stays.
            return asked.pop() if asked else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        assert sent[0]["status"] == 200, sent
        assert dict(sent[0]["headers"])[b"x-memory-status"] == (
            b"off" if b"off" in dict(self._headers).values() else b"ok"
        )
        self._history.append(
            {
                "role": "assistant",
                "content": said(b"".join(m.get("body", b"") for m in sent), self._stream),
            }
        )

    async def counts(self, turn: int) -> dict[str, int]:
        """What turn `turn` takes; `before`: of that, what came before the upstream was called.

        messages: in the shortest request of those counted.
        """
        found: list[Counter[str]] = []
        while len(self._history) < 2 * turn:
            EVENTS.clear()
            await self.turn()
            seen = -1
            while len(self._history) > 2 * (turn - LAST) and seen != len(EVENTS):
                seen = len(EVENTS)
                await asyncio.sleep(QUIET)
            events = list(EVENTS)
            first = events[: events.index("calls")]
            found.append(
                Counter(events)
                + Counter(f"{kind} before" for kind in first if kind in ("reads", "writes", "hops"))
            )
        last = found[-LAST:]
        return {
            **{kind: min(f[kind] for f in last) for kind in KINDS},
            "messages": 2 * (turn - LAST) + 1,
        }

    async def calls(self, turn: int) -> int:
        """How many functions turn `turn` calls."""
        while len(self._history) < 2 * (turn - CALLED):
            await self.turn()
        found = []
        for _ in range(CALLED):
            events: Counter[str] = Counter()
            sys.setprofile(lambda frame, event, arg, seen=events: seen.update((event,)))  # type: ignore[misc]
            await self.turn()
            sys.setprofile(None)
            found.append(events["call"] + events["c_call"])
        return min(found)


def answer(number: int) -> str:
    return f"answer {number} ".ljust(LENGTH, "y")


def said(body: bytes, stream: bool) -> str:
    """The text of an answer."""
    if not stream:
        return str(loads(body)["choices"][0]["message"]["content"])
    events = [loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])


async def parts(found: list[bytes]) -> AsyncIterator[bytes]:
    for part in found:
        yield part


async def main(folder: str) -> None:
    from gateway.app import create_app
    from gateway.config.loader import load
    from gateway.upstream.base import UpstreamResponse
    from gateway.upstream.scripted import ScriptedUpstream

    numbers = itertools.count()

    def answered(request: Any) -> UpstreamResponse:
        EVENTS.append("calls")
        asked = loads(request.body)
        text = answer(next(numbers))
        head = {"id": "c", "created": 1, "model": "m"}
        if not asked["stream"]:
            message = {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
            return UpstreamResponse(
                200,
                [(b"content-type", b"application/json")],
                parts(
                    [dumps({**head, "object": "chat.completion", "choices": [message]}).encode()]
                ),
            )
        deltas: list[tuple[Any, Any]] = [
            *(({"content": text[i : i + 40]}, None) for i in range(0, LENGTH, 40)),
            ({}, "stop"),
        ]
        events = [
            dumps(
                {
                    **head,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": d, "finish_reason": f}],
                }
            )
            for d, f in deltas
        ]
        return UpstreamResponse(
            200,
            [(b"content-type", b"text/event-stream")],
            parts([f"data: {e}\n\n".encode() for e in [*events, "[DONE]"]]),
        )

    app = create_app(
        load(
            None,
            {},
            {
                "storage.data": folder,
                "storage.vectors": "none",
                "memory.read_deadline_ms": 10000,
                # What a model costs that uses its memory.
                "memory.recall": "tools",
                "memory.extract": "off",
            },
        ),
        upstreams={"openai": ScriptedUpstream([answered])},
    )
    events: asyncio.Queue[Any] = asyncio.Queue()
    started = asyncio.Event()

    async def told(message: Any) -> None:
        started.set()

    events.put_nowait({"type": "lifespan.startup"})
    life = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, events.get, told)
    )
    await started.wait()
    await app.gateway.memory.wait_until_ready()
    # It has its own time, a turn or many turns later.
    await app.gateway.memory.retrieval.indexing.stop()
    out = {}
    for mode in ("full", "off"):
        for streamed in (False, True):
            client = Client(app, mode, streamed)
            out[f"{mode} {'stream' if streamed else 'plain'}"] = [
                await client.counts(turn) for turn in TURNS
            ]
    await app.gateway.worker.stop()
    await app.gateway.keys.key_store.stop()
    for resent, newest in RESENT.items():
        client = Client(app, "full", False, newest)
        out[resent] = [await client.calls(turn) for turn in LONG]
    gc.collect()
    gc.disable()
    for mode in ("full", "off"):
        for streamed in (False, True):
            client = Client(app, mode, streamed)
            await client.counts(LAST)
            out[f"{mode} {'stream' if streamed else 'plain'}"].append(
                {"left to the collector": gc.collect()}
            )
    events.put_nowait({"type": "lifespan.shutdown"})
    await life
    print(dumps(out))


if __name__ == "__main__":
    instrument()
    asyncio.run(main(sys.argv[1]))
