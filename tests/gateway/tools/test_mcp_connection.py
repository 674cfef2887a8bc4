"""MCP servers that do not do what the protocol says: words for the model, and the next call works.

The server is written by hand, since the official package answers none of these.
"""

from __future__ import annotations

import gzip
import json

import pytest

from tests.gateway.tools.test_mcp_tool import ANN, database, kind, until
from tests.sockets import RawServer

TOOL = {"name": "t", "description": "A tool.", "inputSchema": {"type": "object"}}
FINE = {"content": [{"type": "text", "text": "fine"}]}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "odd", "version": "1"},
}


class OddServer(RawServer):
    """Answers the first list and the second call as it is told, and all others as it should.

    listed: the result of the first `tools/list`. answer: answers the second call. events: the call
    is answered by a stream.
    """

    def __init__(self, listed=None, answer=None):
        super().__init__(self._answer)
        self.listed, self.second = listed, answer
        self.sessions = self.calls = self.runs = self.lists = 0

    async def _answer(self, seen, wire):
        if seen.method != "POST":
            return await wire.answer(405, b"")
        method, ident = seen.json.get("method"), seen.json.get("id")
        if ident is None:
            return await wire.answer(202, b"")
        if method == "initialize":
            self.sessions += 1
            header = f"mcp-session-id: s{self.sessions}"
            return await wire.json({"jsonrpc": "2.0", "id": ident, "result": HELLO}, 200, header)
        if method == "tools/list":
            self.lists += 1
            listed, self.listed = self.listed or {"tools": [TOOL]}, None
            return await self.give(wire, ident, listed)
        if method != "tools/call":
            error = {"code": -32601, "message": "Method not found"}
            return await wire.json({"jsonrpc": "2.0", "id": ident, "error": error})
        self.calls += 1
        if self.calls == 2 and self.second is not None:
            return await self.second(self, wire, ident)
        return await self.give(wire, ident, FINE)

    async def give(self, wire, ident, result):
        self.runs += result is FINE
        await wire.json({"jsonrpc": "2.0", "id": ident, "result": result})


def status(code, body=b"gone", content_type="text/plain"):
    async def answer(server, wire, ident):
        await wire.answer(code, body, content_type=content_type)

    return answer


def error(message, code=-32000, http=200):
    async def answer(server, wire, ident):
        told = {"code": code, "message": message}
        await wire.json({"jsonrpc": "2.0", "id": ident, "error": told}, http)

    return answer


def result(value):
    async def answer(server, wire, ident):
        await server.give(wire, ident, value)

    return answer


def raw(text, *, as_events=False):
    async def answer(server, wire, ident):
        body = b'{"jsonrpc":"2.0","result":' + text + b',"id":%d}' % ident
        if not as_events:
            await wire.answer(200, body, content_type="application/json")
            return
        await wire.start_stream()
        await wire.part(b"event: message\r\ndata: " + body + b"\r\n\r\n")
        await wire.end()

    return answer


async def packed(server, wire, ident):
    body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": ident, "result": FINE}).encode())
    await wire.answer(200, body, "content-encoding: gzip", content_type="application/json")


def events(*parts):
    async def answer(server, wire, ident):
        await wire.start_stream()
        for part in parts:
            await wire.part(part)
        done = json.dumps({"jsonrpc": "2.0", "id": ident, "result": FINE}).encode()
        await wire.part(b"data: " + done + b"\n\n")
        await wire.end()

    return answer


async def cut(server, wire, ident):
    await wire.start_stream()
    await wire.part(b": keep-alive\n\n")
    await wire.end()


async def reset(server, wire, ident):
    wire.reset()


SAMPLE = b'{"jsonrpc":"2.0","id":99,"method":"sampling/createMessage","params":{}}'
UNREACHABLE = "Error: odd cannot be reached right now."
NO_MCP = "Error: what the server answered is not MCP (ValidationError)"
# What the second call is answered, and what the model reads of it.
CALLS = {
    "an unknown session": (status(404), "fine"),
    "an unknown session, as JSON": (error("Session not found", http=404), "fine"),
    "an unknown session, as 400": (
        error("Bad Request: no valid session ID", http=400),
        UNREACHABLE,
    ),
    "an error about a session of its own": (error("no such session"), "Error: no such session"),
    "an error": (error("bad a", -32602), "Error: bad a"),
    "no content": (result({}), NO_MCP),
    "text as content": (result({"content": "hello"}), "Error: what the server answered is not MCP"),
    "content of an unknown type": (
        result({"content": [{"type": "hologram", "data": "AAAA"}]}),
        "[application/octet-stream, 1 KiB, left out]",
    ),
    "half an emoji": (
        raw(b'{"content":[{"type":"text","text":"cut \\ud83d \\ud83d\\ude00 \\\\ud83d"}]}'),
        "cut \ufffd \U0001f600 \\ud83d",
    ),
    "an encoding of its own": (
        raw(b'{"content":[{"type":"text","text":"caf\xe9"}]}'),
        "caf\ufffd",
    ),
    "a number that is none": (
        raw(b'{"content":[],"structuredContent":{"x":NaN,"y":1000000000000000000000000}}'),
        '{"x":null,"y":1000000000000000000000000}',
    ),
    "more values than are read": (
        raw(b'{"content":[],"structuredContent":{"x":[' + b"1," * 600_000 + b"1]}}"),
        "Error: the server's answer has too many values",
    ),
    "many values": (
        raw(b'{"content":[],"structuredContent":{"x":[' + b"1," * 100_000 + b"1]}}"),
        '{"x":[1,1,1,',
    ),
    "half an emoji in an event": (
        raw(b'{"content":[{"type":"text","text":"cut \\ud83d"}]}', as_events=True),
        "cut \ufffd",
    ),
    "a packed answer": (packed, UNREACHABLE),
    "a failure without words": (
        result({"content": [], "isError": True}),
        "Error: the tool failed, and its server says nothing more",
    ),
    "a page": (status(200, b"<html>", "text/html"), "Error: Unexpected content type: text/html"),
    "a broken connection": (reset, UNREACHABLE),
    "a stream that is cut": (cut, "Error: SSE stream ended without a response"),
    "comments, other events and a request": (
        events(b": ping\n\n", b":\n\n:\n\n", b"event: message\ndata: " + SAMPLE + b"\n\n"),
        "fine",
    ),
    "a picture that is none": (
        result({"content": [{"type": "image", "data": "!!!", "mimeType": "image/png"}]}),
        "[image/png, 1 KiB, not shown]",
    ),
}


async def call(made):
    (tool,) = made.list_tools("t")
    return (await made.run(tool, {}, ANN)).text


async def test_t_m1_whatever_a_server_answers_is_words_and_the_next_call_works(tmp_path):
    async with database(tmp_path) as pins:
        for name, (answer, words) in CALLS.items():
            server = OddServer(answer=answer)
            async with server, kind(pins, "odd", url=f"http://127.0.0.1:{server.port}/mcp") as made:
                await until(lambda made=made: made.list_tools("t"))
                texts = [await call(made) for _ in range(3)]
                assert texts[0] == texts[2] == "fine", name
                assert texts[1].startswith(words), (name, texts)
                # Only what the server refused with its session is asked again.
                asked_again = name.startswith("an unknown session") and words == "fine"
                assert server.calls == 3 + asked_again, name
                assert server.sessions == 1 + (asked_again or words == UNREACHABLE), name


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ({"tools": "none"}, "what the server answered is not MCP"),
        ({"tools": [TOOL] * 1001, "nextCursor": "more"}, "lists more than 1000 tools"),
    ],
)
async def test_t_m1_a_list_that_is_none_fails_the_entry_until_it_is_one(tmp_path, listed, words):
    server = OddServer(listed=listed)
    async with database(tmp_path) as pins:
        async with server, kind(pins, "odd", url=f"http://127.0.0.1:{server.port}/mcp") as made:
            await until(lambda: made.last_error)
            assert words in made.last_error
            # At once, in place of a second later.
            made._refresh_event.set()
            await until(lambda: made.pins)
            # It was reached before, so a person looks at what it lists now.
            assert (made.list_tools("t"), made.last_error) == ((), "")
            assert await made.accept() == ["t"]
            assert (await call(made), made.problem) == ("fine", "")


SCHEMAS = {
    "no_schema": None,
    "a_list": {"type": "array"},
    "a_choice": {"type": ["object", "null"]},
    "elsewhere": {"type": "object", "properties": {"n": {"$ref": "https://example.com/n"}}},
    "a_loop": {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}},
    "odd_properties": {"type": "object", "properties": []},
    "odd_required": {"type": "object", "required": "x"},
}


async def test_t_m1_one_odd_definition_does_not_cost_the_others(tmp_path):
    odd = [{"name": name, "inputSchema": schema} for name, schema in SCHEMAS.items()]
    talkative = {"name": "u", "description": 5, "inputSchema": {"type": "object"}}
    # Checking a result by this would take for ever.
    checked = {"type": "object", "properties": {"x": {"pattern": "^(a+)+$"}}}
    strict = {**TOOL, "outputSchema": checked, "annotations": {"readOnlyHint": "maybe"}}
    nameless = [{"description": "nameless"}, "t", None]
    found = {"structuredContent": {"x": "a" * 40 + "!"}}
    plain = {"name": "v", "inputSchema": {"properties": {"x": {"type": "string"}}}}
    listed = {"tools": [*odd, talkative, strict, plain, *nameless]}
    server = OddServer(listed=listed, answer=result(found))
    async with database(tmp_path) as pins:
        async with server, kind(pins, "odd", url=f"http://127.0.0.1:{server.port}/mcp") as made:
            await until(lambda: made.list_tools("t"))
            assert [tool.name for tool in made.list_tools("t")] == ["odd_t", "odd_u", "odd_v"]
            assert made.list_tools("t")[2].parameters["type"] == "object"
            refused = {t["name"] for t in made.describe() if t["status"] == "refused"}
            assert refused == SCHEMAS.keys()
            tool = made.list_tools("t")[0]
            texts = [(await made.run(tool, {}, ANN)).text for _ in range(2)]
            assert texts[0] == "fine"
            assert texts[1].startswith('{"x":"aaaa')


async def test_t_m1_a_call_costs_one_request_also_on_a_connection_of_its_own(tmp_path):
    server = OddServer()
    options = {"session": "user", "user_header": "x-user"}
    async with database(tmp_path) as pins, server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        async with kind(pins, "odd", url=url, **options) as made:
            await until(lambda: made.list_tools("t"))
            assert [await call(made) for _ in range(3)] == ["fine"] * 3
            assert (server.calls, server.lists, server.sessions) == (3, 1, 2)
