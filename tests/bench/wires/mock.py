"""An upstream of Responses and Messages for the bench, on bare asyncio protocols.

Plain, or as 50 events 10 ms apart after 20 ms, each telling when it was sent. The model `rounds`
says something and calls a memory tool, three times, where the request offers one; then it answers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from tests.bench.mock import APART, EVENTS, FIRST, LENGTH

CALL, CALLS = "core_memory_append", 3
ARGUMENTS = {"label": "human", "content": "Likes tea"}
Event = dict[str, Any]


def responses(number: int, words: list[str], call: bool) -> tuple[list[Event], list[Event]]:
    """The events before the text, and those after it."""
    told = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "mock"}
    told |= {"status": "in_progress", "output": [], "store": False, "instructions": None}
    told |= {"tools": [], "tool_choice": "auto", "usage": None, "previous_response_id": None}
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": []}
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    before = [
        {"type": "response.created", "response": told},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **where, "part": part},
    ]
    part = {**part, "text": "".join(words)}
    item = {**item, "status": "completed", "content": [part]}
    after: list[Event] = [
        {"type": "response.output_text.done", **where, "text": part["text"]},
        {"type": "response.content_part.done", **where, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    output = [item]
    if call:
        asked = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}"}
        asked |= {"name": CALL, "arguments": json.dumps(ARGUMENTS), "status": "completed"}
        output.append(asked)
        after += [
            {"type": "response.output_item.added", "output_index": 1, "item": asked},
            {"type": "response.output_item.done", "output_index": 1, "item": asked},
        ]
    usage = {"input_tokens": 900, "output_tokens": 80, "total_tokens": 980}
    whole = {**told, "status": "completed", "output": output, "usage": usage}
    return before, [*after, {"type": "response.completed", "response": whole}]


def messages(number: int, words: list[str], call: bool) -> tuple[list[Event], list[Event]]:
    """As `responses`."""
    usage = {"input_tokens": 900, "output_tokens": 1}
    told = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "mock"}
    told |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    before: list[Event] = [
        {"type": "message_start", "message": told},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    after: list[Event] = [{"type": "content_block_stop", "index": 0}]
    if call:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": CALL, "input": {}}
        piece = {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)}
        after += [
            {"type": "content_block_start", "index": 1, "content_block": block},
            {"type": "content_block_delta", "index": 1, "delta": piece},
            {"type": "content_block_stop", "index": 1},
        ]
    delta = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    after += [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 80}},
        {"type": "message_stop"},
    ]
    return before, after


def said(number: int, call: bool) -> list[str]:
    return [f" {number}.{i} " for i in range(5 if call else EVENTS)]


def delta(path: str, number: int, text: str) -> Event:
    if path == "messages":
        piece = {"type": "text_delta", "text": text}
        return {"type": "content_block_delta", "index": 0, "delta": piece}
    kind = "response.output_text.delta"
    where = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    return {"type": kind, **where, "delta": text}


def plain(path: str, number: int, call: bool) -> Event:
    """The same as one body."""
    words = said(number, call)
    if path == "responses":
        return dict(responses(number, words, call)[1][-1]["response"])
    before, after = messages(number, words, call)
    content: list[Event] = [{"type": "text", "text": "".join(words)}]
    if call:
        content.append({**after[1]["content_block"], "input": ARGUMENTS})
    return {**before[0]["message"], **after[-2]["delta"], "content": content}


def _calls(path: str, asked: Event) -> int:
    """How many calls have been answered since the user's newest words."""
    said = asked.get("messages") if path == "messages" else asked["input"]
    count = 0
    for item in reversed(said if isinstance(said, list) else []):
        results = str(item).count("tool_result")
        count += results or item.get("type") == "function_call_output"
        if item.get("role") == "user" and not results:
            break
    return count


class Connection(asyncio.Protocol):
    transport: asyncio.Transport
    numbers = 0

    def __init__(self) -> None:
        self._rest, self._later = b"", asyncio.get_running_loop().call_later

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n") + 4) > 3:
            found = LENGTH.search(self._rest, 0, end)
            size = end + (int(found[1]) if found else 0)
            if len(self._rest) < size:
                return
            path = "messages" if b"/messages" in self._rest[:200] else "responses"
            body, self._rest = self._rest[end:size], self._rest[size:]
            self._answer(path, body)

    def _answer(self, path: str, body: bytes) -> None:
        Connection.numbers += 1
        number, asked = Connection.numbers, json.loads(body)
        numbering = iter(range(10_000)) if path == "responses" else None
        offered = any(t.get("name") == CALL for t in asked.get("tools") or ())
        call = asked["model"] == "rounds" and offered and _calls(path, asked) < CALLS
        if not asked.get("stream"):
            whole = json.dumps(plain(path, number, call)).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (len(whole), whole)
            )
            return
        events = responses if path == "responses" else messages
        words = said(number, call)

        def framed(event: Event) -> bytes:
            if numbering is not None:
                event = {**event, "sequence_number": next(numbering)}
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            return b"%x\r\n%s\r\n" % (len(data), data)

        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
            + b"".join(map(framed, events(number, words, call)[0]))
        )

        def piece(i: int) -> None:
            if self.transport.is_closing():
                return
            if i == len(words):
                # With the words as they were sent.
                after = events(number, words, call)[1]
                self.transport.write(b"".join(map(framed, after)) + b"0\r\n\r\n")
                return
            words[i] = f"{words[i]}at {time.perf_counter():.6f} "
            self.transport.write(framed(delta(path, number, words[i])))
            self._later(APART, piece, i + 1)

        self._later(FIRST, piece, 0)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", port, backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
