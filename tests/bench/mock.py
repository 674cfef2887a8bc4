"""A fast upstream for the bench: fixed answers, plain or as 50 events, on bare asyncio protocols."""
from __future__ import annotations

import asyncio
import json
import re
import sys

import uvloop

HEAD = {"id": "chatcmpl-1", "created": 1, "model": "mock"}
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def _plain(n: int) -> bytes:
    text = f"reply {n} " + "word " * 80
    body = json.dumps({**HEAD, "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                       "usage": {"prompt_tokens": 1000, "completion_tokens": 80, "total_tokens": 1080}}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _chunk(delta: object, finish: str | None = None) -> bytes:
    data = b"data: " + json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


WORD = [_chunk({"content": f" word{i}"}) for i in range(50)]
START = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + _chunk({"role": "assistant", "content": ""})
END = _chunk({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Conn(asyncio.Protocol):
    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self.rest, 0, end)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self.rest) < size:
                return
            body, self.rest = self.rest[end + 4 : size], self.rest[size:]
            Conn.count += 1
            if re.search(rb'"stream"\s*:\s*true', body):
                self.transport.write(START + _chunk({"content": f"reply {Conn.count}"}))  # type: ignore[attr-defined]
                asyncio.get_running_loop().call_later(0.01, self.word, 0)
            else:
                self.transport.write(_plain(Conn.count))  # type: ignore[attr-defined]

    def word(self, i: int) -> None:
        if self.transport.is_closing():
            return
        if i < len(WORD):
            self.transport.write(WORD[i])  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_later(0.005, self.word, i + 1)
        else:
            self.transport.write(END)  # type: ignore[attr-defined]


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Conn, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
