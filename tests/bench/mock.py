"""An upstream for the bench, on bare asyncio protocols.

Every answer is new, about 550 bytes, and says when each piece of it was sent.

Plain, or as 50 events 10 ms apart after 20 ms. The model `calls` first calls a memory tool, where
the request offers one, and the time until its result comes back is kept; `brief` and
`gpt-3.5-turbo`, whose window is known to be small, answer in two words; `quick` streams five events
at once. Asked for facts, it reports one, as a model does. `GET /stats` tells the chat calls
received and those times in ms, and counts anew.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any

import uvloop

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
STREAM = re.compile(rb'"stream"\s*:\s*true')
# Seconds to the first event, and between two.
FIRST, APART, EVENTS = 0.02, 0.01, 50
ARGUMENTS = {
    "core_memory_append": {"label": "human", "content": "Likes tea"},
    "archival_memory_search": {"query": "tea"},
}
HEAD = '"id":"chatcmpl-1","created":1,"model":"mock"'
BYTES_A_TOKEN = 4
QUICK, FEW = re.compile(rb'"model"\s*:\s*"quick"'), 5
BRIEF = re.compile(rb'"model"\s*:\s*"(brief|gpt-3\.5-turbo)"')


def plain(message: str, finish: str, asked: int) -> bytes:
    """asked: bytes of the request."""
    usage = (
        f'{{"prompt_tokens":{asked // BYTES_A_TOKEN},"completion_tokens":80,'
        f'"total_tokens":{asked // BYTES_A_TOKEN + 80}}}'
    )
    body = (
        f'{{{HEAD},"object":"chat.completion","choices":[{{"index":0,"message":{message},'
        f'"finish_reason":"{finish}"}}],"usage":{usage}}}'
    ).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


def event(delta: str, finish: str = "null") -> bytes:
    data = (
        "data: "
        f'{{{HEAD},"object":"chat.completion.chunk","choices":[{{"index":0,"delta":{delta},'
        f'"finish_reason":{finish}}}]}}\n'
        "\n"
    ).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


FACTS = b"<new_messages date="


def one_fact(asked: bytes) -> str:
    """What a model answers that is asked for facts: one, quoted from the newest message."""
    said = json.loads(asked)["messages"][-1]["content"].rpartition("<user>")[2]
    words = said.partition("</user>")[0].split()[:8]
    fact = {"op": "add", "text": f"The user: {' '.join(words)}", "quote": " ".join(words)}
    return json.dumps({"operations": [fact]})


START = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + event('{"role":"assistant","content":""}')
)
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Upstream:
    """What the connections share."""

    def __init__(self) -> None:
        self.calls = 0
        self.rounds: list[float] = []
        self._called: dict[str, float] = {}

    def call(self, body: bytes) -> str | None:
        """The JSON of the memory call that this request gets, if any."""
        request: dict[str, Any] = json.loads(body)
        last = request["messages"][-1]
        if sent := self._called.pop(str(last.get("tool_call_id")), 0.0):
            self.rounds.append((time.perf_counter() - sent) * 1e3)
        offered = [
            t["function"]["name"]
            for t in request.get("tools", [])
            if t["function"]["name"] in ARGUMENTS
        ]
        if last["role"] == "tool" or not offered:
            return None
        name, ident = offered[self.calls % len(offered)], f"call_{self.calls}"
        self._called[ident] = time.perf_counter()
        return json.dumps(
            [
                {
                    "index": 0,
                    "id": ident,
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(ARGUMENTS[name])},
                }
            ]
        )

    def stats(self) -> bytes:
        body = json.dumps({"calls": self.calls, "rounds_ms": self.rounds}).encode()
        self.calls, self.rounds = 0, []
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, upstream: Upstream) -> None:
        self._upstream, self._rest, self._later = (
            upstream,
            b"",
            asyncio.get_running_loop().call_later,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n") + 4) > 3:
            found = LENGTH.search(self._rest, 0, end)
            size = end + (int(found[1]) if found else 0)
            if len(self._rest) < size:
                return
            body, self._rest = self._rest[end:size], self._rest[size:]
            self._answer(body) if body else self.transport.write(self._upstream.stats())

    def _answer(self, body: bytes) -> None:
        up = self._upstream
        up.calls += 1
        call = up.call(body) if b'"model":"calls"' in body else None
        streamed = STREAM.search(body)
        if call and streamed:
            self.transport.write(
                START + event(f'{{"tool_calls":{call}}}') + event("{}", '"tool_calls"') + DONE
            )
        elif call:
            self.transport.write(
                plain(
                    f'{{"role":"assistant","content":null,"tool_calls":{call}}}',
                    "tool_calls",
                    len(body),
                )
            )
        elif FACTS in body:
            said = json.dumps({"role": "assistant", "content": one_fact(body)})
            self.transport.write(plain(said, "stop", len(body)))
        elif streamed and QUICK.search(body):
            said = b"".join(
                event(f'{{"content":" {up.calls}.{i} words in some number"}}') for i in range(FEW)
            )
            self.transport.write(START + said + event("{}", '"stop"') + DONE)
        elif streamed:
            self._later(FIRST, self._piece, 0, up.calls)
        else:
            words = "" if BRIEF.search(body) else f"of {up.calls} words " * 40
            self.transport.write(
                plain(
                    f'{{"role":"assistant","content":"reply {up.calls} {words}"}}',
                    "stop",
                    len(body),
                )
            )

    def _piece(self, i: int, number: int) -> None:
        if self.transport.is_closing():
            return
        if i == EVENTS:
            self.transport.write(event("{}", '"stop"') + DONE)
            return
        data = event(f'{{"content":" {number}.{i} at {time.perf_counter():.6f} "}}')
        self.transport.write(data if i else START + data)
        self._later(APART, self._piece, i + 1, number)


async def main(port: int) -> None:
    upstream = Upstream()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(upstream), "127.0.0.1", port, backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
