"""The MCP door (TRUST.md 1): R-M1 to R-M4, over sockets, with the official client in every era."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import sys

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.mcp import methods
from memory import tools
from memory.errors import StoreUnavailable
from tests.conftest import running
from tests.models import Model, call, calls

SECRET = "mg-0123456789abcdef0123"
KEYS = [
    {"name": "app", "key": SECRET, "tenant": "t"},
    {"name": "ann", "key": f"{SECRET}1", "tenant": "t", "trusted": False, "users": ["ann"]},
    {"name": "elsewhere", "key": f"{SECRET}2", "tenant": "u"},
    {"name": "slow", "key": f"{SECRET}3", "tenant": "t", "limits": {"rpm": 2}},
    {"name": "reader", "key": f"{SECRET}4", "tenant": "t", "memory": "read"},
]
MODERN = "2026-07-28"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SEARCH, APPEND = "archival_memory_search", "core_memory_append"
META = "io.modelcontextprotocol/"
NAMES = [
    "archival_memory_insert",
    "archival_memory_search",
    "archival_memory_update",
    "conversation_search",
    "core_memory_append",
    "core_memory_replace",
    "memory_forget",
    "memory_rethink",
    "memory_show",
]
READS = ["archival_memory_search", "conversation_search", "memory_show"]


class Door:
    """A plain client: one POST a message."""

    def __init__(self, live, path="/u/ada/mcp", key=SECRET, **headers):
        self.live, self.path = live, path
        self.headers = {"authorization": f"Bearer {key}", **headers} if key else headers

    async def send(self, content, **headers):
        kind = {"content-type": "application/json"}
        found = {k: v for k, v in {**kind, **self.headers, **headers}.items() if v is not None}
        request = self.live.http.build_request(
            "POST", self.live.root + self.path, content=content, headers=found
        )
        if "authorization" not in found:
            del request.headers["authorization"]
        return await self.live.http.send(request)

    async def ask(self, method, params=None, **headers):
        body = {"jsonrpc": "2.0", "id": 7, "method": method}
        body |= {} if params is None else {"params": params}
        return await self.send(json.dumps(body), **headers)

    async def call(self, name, headers=None, **arguments):
        params = {"name": name, "arguments": arguments}
        got = await self.ask("tools/call", params, **(headers or {}))
        assert got.status_code == 200, got.text
        return got.json()["result"]

    async def text(self, name, **arguments):
        return (await self.call(name, **arguments))["content"][0]["text"]

    async def modern(self, method, params=None, headers=None, **meta):
        envelope = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}, **meta}
        params = {**(params or {}), "_meta": envelope}
        named = params.get("name", params.get("uri"))
        sent = {"mcp-protocol-version": MODERN, "mcp-method": method}
        sent |= {} if named is None else {"mcp-name": named}
        return await self.ask(method, params, **{**sent, **(headers or {})})


@contextlib.asynccontextmanager
async def door(data, config=None, answers=("Hi.",), **options):
    async with (
        Model(*answers) as up,
        running(up.url, data, {"keys": KEYS, **(config or {})}, key=SECRET) as live,
    ):
        found = Door(live, **options)
        found.up = up
        yield found


@contextlib.asynccontextmanager
async def official(found, mode):
    async with httpx2.AsyncClient(headers=found.headers, timeout=30) as http:
        transport = streamable_http_client(found.live.root + found.path, http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def exercise(client):
    """Use all that there is; return the names of the tools."""
    listed = (await client.list_tools()).tools
    told = {}
    for name, arguments in (
        ("core_memory_append", {"label": "human", "content": "Likes tea"}),
        ("core_memory_replace", {"label": "human", "old_content": "tea", "new_content": "mint"}),
        ("memory_rethink", {"label": "human", "new_memory": "Likes coffee"}),
        ("archival_memory_insert", {"content": "Has a dog named Rex"}),
        ("archival_memory_search", {"query": "dog"}),
        ("conversation_search", {}),
        ("memory_show", {}),
    ):
        result = await client.call_tool(name, arguments)
        assert not result.is_error, (name, result)
        told[name] = result
    ident = told["archival_memory_search"].structured_content["hits"][0]["id"]
    arguments = {"id": ident, "content": "Has a cat named Tom"}
    assert not (await client.call_tool("archival_memory_update", arguments)).is_error
    gone = await client.call_tool("memory_forget", {"id": "Has a cat named Tom"})
    assert "Forgotten" in gone.content[0].text
    resources = [str(x.uri) for x in (await client.list_resources()).resources]
    assert "memory://blocks/human" in resources
    block = await client.read_resource("memory://blocks/human")
    assert block.contents[0].text == "Likes coffee"
    changes = (await client.read_resource("memory://changes")).contents[0].text.split("\n")
    assert {json.loads(line)["actor"] for line in changes} == {"mcp"}
    prompts = [x.name for x in (await client.list_prompts()).prompts]
    assert prompts == ["forget", "remember", "show_memory", "what_changed"]
    prompt = await client.get_prompt("remember", {"text": "I am vegan"})
    assert "I am vegan" in prompt.messages[0].content.text
    return [tool.name for tool in listed]


# R-M1


@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
async def test_r_m1_the_official_client_uses_all_that_there_is(data, mode):
    async with door(data) as found, official(found, mode) as client:
        assert await exercise(client) == NAMES


@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
async def test_r_m1_the_official_client_uses_it_over_stdio_of_a_running_gateway(data, mode):
    async with door(data) as found:
        environment = {"MNEMOGATE_URL": found.live.root, "MNEMOGATE_KEY": SECRET}
        command = ["-m", "gateway", "mcp", "--user", "ada"]
        server = StdioServerParameters(command=sys.executable, args=command, env=environment)
        async with Client(stdio_client(server), mode=mode) as client:
            assert await exercise(client) == NAMES


async def test_r_m1_stdio_opens_the_database_where_no_gateway_runs(data):
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {
                "name": "core_memory_append",
                "arguments": {"label": "human", "content": "Likes tea"},
            },
        },
    ]
    sent = b"\n".join([*(json.dumps(line).encode() for line in lines), b"no json", b""])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        "mcp",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"MNEMOGATE_STORAGE__DATA": str(data)},
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate(sent)
    assert process.returncode == 0
    answers = {x["id"]: x for x in map(json.loads, out.splitlines())}
    assert answers[1]["result"]["protocolVersion"] == "2025-11-25"
    assert answers[2]["result"]["content"][0]["text"].startswith("Saved: human")
    assert answers[None]["error"]["code"] == -32700


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_r_m1_a_handshake_echoes_the_revision_that_is_asked(data, revision):
    async with door(data) as found:
        told = (await found.ask("initialize", {"protocolVersion": revision})).json()["result"]
        assert told["protocolVersion"] == revision
        assert told["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}
        assert len(told["instructions"]) <= 600
        unknown = (await found.ask("initialize", {"protocolVersion": "1999-01-01"})).json()
        assert unknown["result"]["protocolVersion"] == "2025-11-25"
        assert (await found.ask("ping")).json()["result"] == {}
        headers = {"mcp-protocol-version": revision, "mcp-session-id": "made-up"}
        listed = await found.ask("tools/list", **headers)
        assert [t["name"] for t in listed.json()["result"]["tools"]] == NAMES
        assert "mcp-session-id" not in listed.headers


async def test_r_m1_the_tools_say_what_they_do(data):
    async with door(data) as found:
        tools = (await found.ask("tools/list")).json()["result"]["tools"]
    for tool in tools:
        hints, reads = tool["annotations"], tool["name"] in READS
        assert tool["title"]
        assert tool["description"]
        assert hints["openWorldHint"] is False
        assert hints["readOnlyHint"] is reads
        assert ("outputSchema" in tool) is reads
        if not reads:
            appends = tool["name"] in ("core_memory_append", "archival_memory_insert")
            rewrites = tool["name"] in ("core_memory_replace", "memory_rethink")
            assert (hints["destructiveHint"], hints["idempotentHint"]) == (
                not appends,
                not rewrites,
            )


async def test_r_m1_the_later_revision_has_no_handshake_and_says_what_may_be_kept(data):
    async with door(data) as found:
        told = (await found.modern("server/discover")).json()["result"]
        assert told["supportedVersions"][0] == MODERN
        assert (told["resultType"], told["ttlMs"], told["cacheScope"]) == ("complete", 0, "private")
        assert told["_meta"][f"{META}serverInfo"]["name"] == "mnemogate"
        for method in ("ping", "initialize", "nothing/here"):
            got = await found.modern(method)
            assert (got.status_code, got.json()["error"]["code"]) == (404, -32601)
        called = await found.modern("tools/call", {"name": "memory_show", "arguments": {}})
        assert "ttlMs" not in called.json()["result"]
        encoded = f"=?base64?{base64.b64encode(b'memory_show').decode()}?="
        params = {"name": "memory_show"}
        got = await found.modern("tools/call", params, {"mcp-name": encoded})
        assert got.status_code == 200


# R-M2

STEPS = [
    ("core_memory_append", {"label": "human", "content": "Likes tea"}),
    ("core_memory_append", {"label": "human", "content": "Likes tea"}),
    ("core_memory_append", {"label": "nowhere", "content": "x"}),
    ("core_memory_replace", {"label": "human", "old_content": "tea", "new_content": "mint"}),
    ("core_memory_replace", {"label": "human", "old_content": "absent", "new_content": ""}),
    ("memory_rethink", {"label": "human", "new_memory": "Likes coffee\nKey: sk-" + "a1B2" * 12}),
    ("memory_rethink", {"label": "human", "new_memory": "x" * 9000}),
    ("archival_memory_insert", {"content": "Has a dog named Rex", "tags": ["pets"]}),
    ("archival_memory_insert", {"content": "Has a dog named Rex"}),
    ("archival_memory_insert", {"content": "y", "type": "wrong"}),
    ("archival_memory_search", {"query": "dog"}),
    ("archival_memory_update", {"content": "Has a dog named Max"}),
    ("archival_memory_search", {"query": "dog"}),
    ("archival_memory_search", {"query": "dog", "since": "soon"}),
    ("archival_memory_search", {}),
    ("conversation_search", {"query": "xylophone"}),
    ("memory_forget", {"id": "Has a dog named Rex"}),
    ("memory_forget", {"id": "Has a dog named Rex"}),
    ("archival_memory_update", {"id": "passage_none", "content": "z"}),
]
VARYING = re.compile(r"passage_[0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:.]+Z")


def arguments_of(given, results):
    """What is given to a step; an update's id is that of a hit of the search before."""
    if set(given) != {"content"} or given["content"] != "Has a dog named Max":
        return given
    return {"id": re.search(r"passage_[0-9a-f]{32}", results[-1])[0], **given}


async def test_r_m2_a_result_is_that_of_a_chat_byte_for_byte(data):
    chat, over_mcp = [], []

    def answer(seen, wire):
        if seen.json["messages"][-1]["role"] == "tool":
            return "Done."
        name, given = STEPS[len(chat)]
        return calls(call(name, arguments_of(given, chat)))

    async with door(data, answers=[answer]) as found:
        history = []
        for _ in STEPS:
            history.append({"role": "user", "content": "Go on."})
            told = await found.live.chat(history, {"x-memory-user": "bob"})
            history.append(told.json()["choices"][0]["message"])
            chat.append(found.up.bodies[-1]["messages"][-1]["content"])
        for name, given in STEPS:
            over_mcp.append(await found.text(name, **arguments_of(given, over_mcp)))
        for step, here, there in zip(STEPS, chat, over_mcp, strict=True):
            assert VARYING.sub("#", there) == VARYING.sub("#", here), step
        assert "Has a dog named Max" in over_mcp[12]
        # Both doors find the same conversation: bob's, who also comes in by this one.
        bob = Door(found.live, "/u/bob/mcp")
        found.up.script = [calls(call("conversation_search", {"query": "Go on"})), "Done."]
        await found.live.chat("What did I say?", {"x-memory-user": "bob"})
        here = found.up.bodies[-1]["messages"][-1]["content"]
        there = await bob.text("conversation_search", query="Go on")
        assert "Go on." in here
        assert here == there


async def test_r_m2_what_is_told_in_one_door_is_known_in_the_other(data):
    remember = call("core_memory_append", {"label": "human", "content": "Plays the oboe"})
    answers = ["Hello.", "Noted.", calls(remember), "Saved.", "Bye."]
    async with door(data, {"memory.recall": "always"}, answers) as found:
        named = {"x-memory-user": "ada"}
        first = await found.live.chat("Hello there", named)
        await found.call("core_memory_append", label="human", content="Likes green tea")
        detail = "The user owns a sailing boat named Fulmar"
        await found.call("archival_memory_insert", content=detail)
        history = [
            {"role": "user", "content": "Hello there"},
            first.json()["choices"][0]["message"],
            {"role": "user", "content": "What is my sailing boat called?"},
        ]
        second = await found.live.chat(history, named)
        sent = json.dumps(found.up.bodies[-1])
        assert "Likes green tea" in sent
        assert "Fulmar" in sent
        # By a fresh core text, not by a note: the epoch is a new one.
        assert "Likes green tea" in found.up.bodies[-1]["messages"][0]["content"]
        explain = second.headers["x-memory-explain"]
        told = (await found.live.memory("GET", f"/explain/{explain}")).json()
        assert told["epoch"]["began"]
        await found.live.chat("I play the oboe", named)
        assert "Plays the oboe" in await found.text("memory_show")
        assert "sailing boat called" in await found.text("conversation_search", query="sailing")


async def test_r_m2_a_block_is_rewritten_only_by_who_was_shown_it(data):
    async with door(data) as found:
        one = Door(found.live, **{"user-agent": "one/1"})
        two = Door(found.live, **{"user-agent": "two/1"})
        assert "Saved" in await one.text("core_memory_append", label="human", content="A")
        refused = await two.text("memory_rethink", label="human", new_memory="B")
        assert refused.startswith("Error:")
        assert "changed since you saw it" in refused
        assert "Saved" in await one.text("memory_rethink", label="human", new_memory="C")
        await two.call("memory_show")
        assert "Saved" in await two.text("memory_rethink", label="human", new_memory="D")
        assert "changed" in await one.text("memory_rethink", label="human", new_memory="E")
        assert "Saved" in await one.text("memory_rethink", label="human", new_memory="E")


async def test_r_m2_each_call_leaves_a_record_and_versions_name_the_door(data):
    async with door(data) as found:
        params = {"name": "core_memory_append", "arguments": {"label": "human", "content": "A"}}
        got = await found.ask("tools/call", params, **{"user-agent": "claude-code/2.1 (cli)"})
        path = f"/explain/{got.headers['x-memory-explain']}"
        told = (await found.live.memory("GET", path)).json()
        assert (told["wire"], told["user"]) == ("mcp", "ada")
        assert told["client"] == {"name": "claude-code", "version": "2.1"}
        assert told["tools"][0]["name"] == "core_memory_append"
        assert told["tools"][0]["result"].startswith("Saved")
        strange = {"authorization": f"Bearer {SECRET}2"}
        assert (await found.live.memory("GET", path, headers=strange)).status_code == 404
        versions = await found.live.memory("GET", "/users/ada/blocks/human/versions")
        assert versions.json()["data"][0]["actor"] == "mcp"
        await found.live.memory("DELETE", "/users/ada")
        assert (await found.live.memory("GET", path)).status_code == 404
        page = await found.live.http.get(f"{found.live.root}/ui/request?id={path[9:]}")
        assert page.status_code < 500


# R-M3


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b"7", 400, -32600),
        (b'{"id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 500, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b"1," * 200_000, 400, -32600),
        (b" " * ((1 << 20) + 1), 413, -32600),
    ],
)
async def test_r_m3_a_body_that_is_no_message(data, content, status, code):
    async with door(data) as found:
        got = await found.send(content)
        assert (got.status_code, got.json()["error"]["code"]) == (status, code)
        assert got.json()["jsonrpc"] == "2.0"
        assert got.json()["error"]["message"]


async def test_r_m3_what_is_unknown_or_of_another_revision(data):
    async with door(data) as found:

        async def both(method, params, legacy, modern):
            got = await found.ask(method, params)
            assert (got.status_code, got.json()["error"]["code"]) == (200, legacy)
            assert got.json()["id"] == 7
            got = await found.modern(method, params)
            assert (got.status_code, got.json()["error"]["code"]) == (400, modern)

        await both("tools/call", {"name": "no_such"}, -32602, -32602)
        await both("prompts/get", {"name": "no_such"}, -32602, -32602)
        await both("prompts/get", {"name": "remember"}, -32602, -32602)
        await both("resources/read", {"uri": "memory://blocks/none"}, -32002, -32602)
        await both("resources/read", {"uri": "file:///etc/passwd"}, -32002, -32602)
        got = await found.ask("no/such")
        assert (got.status_code, got.json()["error"]["code"]) == (200, -32601)
        got = await found.ask("tools/list", **{"mcp-protocol-version": "1999-01-01"})
        assert (got.status_code, got.json()["error"]["code"]) == (400, -32022)
        assert got.json()["error"]["data"]["requested"] == "1999-01-01"
        assert MODERN in got.json()["error"]["data"]["supported"]
        wrong = await found.call("core_memory_append", label=3)
        assert wrong["isError"]
        for name in ("memory_forget", "memory_show"):
            listed = await found.ask("tools/call", {"name": name, "arguments": [1]})
            assert listed.json()["result"]["isError"]


async def test_r_m3_an_envelope_that_lacks_something_or_differs_from_the_headers(data):
    async with door(data) as found:
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
        for params in (None, {"_meta": {}}, {"_meta": {f"{META}protocolVersion": MODERN}}):
            got = await found.ask("tools/list", params, **headers)
            assert (got.status_code, got.json()["error"]["code"]) == (400, -32602)
        show = {"name": "memory_show"}
        for wrong in (
            {"mcp-method": "tools/call"},
            {"mcp-method": None},
        ):
            got = await found.modern("tools/list", None, wrong)
            assert (got.status_code, got.json()["error"]["code"]) == (400, -32020)
        for name in ("other", None, "=?base64?!!?=", "=?base64?bWVtb3J5X3Nob3c?=", ""):
            got = await found.modern("tools/call", show, {"mcp-name": name})
            assert (got.status_code, got.json()["error"]["code"]) == (400, -32020), name
        meta = {f"{META}protocolVersion": "2025-11-25"}
        got = await found.modern("tools/list", None, None, **meta)
        assert (got.status_code, got.json()["error"]["code"]) == (400, -32020)


async def test_r_m3_a_routing_header_that_comes_twice_is_a_mismatch(data):
    async with door(data) as found:
        envelope = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope}}
        headers = [
            ("authorization", f"Bearer {SECRET}"),
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/list"),
            ("mcp-method", "tools/list"),
        ]
        got = await found.live.http.post(found.live.root + "/mcp", json=body, headers=headers)
        assert (got.status_code, got.json()["error"]["code"]) == (400, -32020)


async def test_r_m3_who_may_not_is_told_how_to_ask(data):
    async with door(data) as found:
        for key in (None, "mg-unknown"):
            got = await Door(found.live, key=key).ask("tools/list")
            assert (got.status_code, got.json()["error"]["code"]) == (401, -32001)
            assert got.headers["www-authenticate"] == 'Bearer realm="mnemogate"'
        # The handshake says so as well, so that a wrong setting is seen at once.
        for method in ("initialize", "ping", "tools/list"):
            got = await Door(found.live, "/u/bob/mcp", f"{SECRET}1").ask(method)
            assert (got.status_code, got.json()["error"]["code"]) == (403, -32001)
            for path, headers in (("/mcp?agnet=x", {}), ("/mcp", {"x-memory": "banana"})):
                got = await Door(found.live, path, **headers).ask(method)
                assert (got.status_code, got.json()["error"]["code"]) == (400, -32600)
        got = await Door(found.live, "/u/ann/mcp", f"{SECRET}1").ask("tools/list")
        assert got.status_code == 200
        for method in ("GET", "DELETE", "PUT"):
            got = await found.live.http.request(method, found.live.root + "/mcp")
            assert (got.status_code, got.headers["allow"]) == (405, "POST")
        for headers in ({"content-type": "text/plain"}, {"content-type": None}):
            got = await found.ask("ping", **headers)
            assert (got.status_code, got.json()["error"]["code"]) == (415, -32600)
        for accept in ("text/html", "text/event-stream", "application/json;q=0"):
            got = await found.ask("ping", accept=accept)
            assert (got.status_code, got.json()["error"]["code"]) == (406, -32600)
        got = await Door(found.live, "/mcp?key=x").ask("tools/list")
        assert got.status_code == 400
        assert "`key`" in got.json()["error"]["message"]


async def test_r_m3_a_notification_and_a_response_have_no_answer(data):
    async with door(data) as found:
        for body in (
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 3, "result": {}},
            {"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "x"}},
        ):
            got = await found.send(json.dumps(body))
            assert (got.status_code, got.content) == (202, b"")


LISTED = "https://chat.example"
ORIGINS = [
    "null",
    "",
    "https://evil.example",
    "https://chat.example.evil.example",
    "https://chat.example:444",
    "http://chat.example",
    "https://Chat.example",
    "https://chat.example@evil.example",
    "https://chat.xn--exampl-gva",
    "file://",
    "chrome-extension://abcdef",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1:1",
    "http://127.0.0.1",
    "http://localhost:{port}",
    "http://127.0.0.1.evil.example:{port}",
    "http://127.0.0.1:{port}.evil.example",
    "http://127.0.0.1:{port}@evil.example",
    "http://127.0.0.1:{port}/x",
    "http://127.0.0.1:{port}?x",
    "http://127.0.0.1:{port}#x",
    "http://[::1]:{port}",
    "http://0.0.0.0:{port}",
    "http://127.1:{port}",
    "http://2130706433:{port}",
    "http://0x7f000001:{port}",
    "http://127.0.0.1:0{port}",
    "HTTP://127.0.0.1:{port}",
    "ws://127.0.0.1:{port}",
    "//127.0.0.1:{port}",
    "127.0.0.1:{port}",
    "http://127.0.0.1:{port}, https://evil.example",
    "http://127.0.0.1:{port} https://evil.example",
    "https://chat.example, https://evil.example",
    "https://chat.example https://evil.example",
    "https://chat.example/path",
    "*",
    "undefined",
    "http://",
    "data:text/html,x",
]


@pytest.mark.parametrize("mode", ["managed", "single"])
async def test_r_m3_pages_of_other_origins_are_refused_in_every_mode(data, mode):
    config = {"server.cors_origins": [LISTED]}
    if mode == "single":
        config["keys"] = []
    async with door(data, config) as found:
        key = SECRET if mode == "managed" else (data / "token").read_text().strip()
        asking = Door(found.live, key=key)
        port = found.live.root.rsplit(":", 1)[1]
        assert len(ORIGINS) == 40
        for origin in ORIGINS:
            got = await asking.ask("tools/list", origin=origin.replace("{port}", port))
            assert (got.status_code, origin) == (403, origin)
            assert got.json()["error"]["code"] == -32600
            assert "access-control-allow-origin" not in got.headers
        for origin in (LISTED, found.live.root):
            assert (await asking.ask("tools/list", origin=origin)).status_code == 200
        twice = [("origin", LISTED), ("origin", LISTED), ("authorization", f"Bearer {key}")]
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        got = await found.live.http.post(found.live.root + "/mcp", json=body, headers=twice)
        assert got.status_code == 403
        if mode == "single":
            for headers in ({"host": "evil.example"}, {"x-forwarded-for": "1.2.3.4"}):
                got = await asking.ask("tools/list", **headers)
                assert (got.status_code, got.json()["error"]["code"]) == (403, -32600)
            shown = await Door(found.live, "/mcp", key).text("memory_show")
            assert "<memory_blocks>" in shown


async def test_r_m3_a_key_has_its_limit_and_a_store_that_is_down_says_so(data, monkeypatch):
    async with door(data) as found:
        slow = Door(found.live, key=f"{SECRET}3")
        for _ in range(2):
            assert "<memory_blocks>" in await slow.text("memory_show")
        params = {"name": "memory_show", "arguments": {}}
        got = await slow.ask("tools/call", params)
        assert (got.status_code, got.json()["error"]["code"]) == (429, -32003)
        assert int(got.headers["retry-after"]) >= 1
        assert (await slow.ask("tools/list")).status_code == 200

        async def fail():
            raise StoreUnavailable("gone")

        monkeypatch.setattr(found.live.gateway.memory, "wait_until_ready", fail)
        got = await found.ask("tools/call", params)
        assert (got.status_code, got.json()["error"]["code"]) == (503, -32003)
        assert got.headers["retry-after"] == "1"


@pytest.mark.parametrize("name", ["memory_show", SEARCH, APPEND])
async def test_r_m3_a_call_that_takes_too_long_is_an_error(data, monkeypatch, name):
    async def hang(*_, **__):
        await asyncio.sleep(60)

    assert tools.CALL_SECONDS == 10
    given = {SEARCH: {"query": "x"}, APPEND: {"label": "human", "content": "x"}}.get(name, {})
    async with door(data) as found:
        assert not (await found.call(name, **given))["isError"]
        with monkeypatch.context() as slow:
            slow.setattr(tools, "CALL_SECONDS", 0.3)
            slow.setattr(found.live.gateway.memory.db, "write", hang)
            async with asyncio.timeout(5):
                late = await found.call(name, **given)
        assert late["isError"]
        assert "did not finish within" in late["content"][0]["text"]
        assert not (await found.call(name, **given))["isError"]


async def test_r_m3_over_sixty_four_calls_of_one_key_wait(data, monkeypatch):
    running_calls, most = 0, 0
    answer = methods.answer

    async def count(*args):
        nonlocal running_calls, most
        running_calls += 1
        most = max(most, running_calls)
        try:
            await asyncio.sleep(0.05)
            return await answer(*args)
        finally:
            running_calls -= 1

    monkeypatch.setattr(methods, "answer", count)
    async with door(data) as found:
        texts = await asyncio.gather(*(found.text("memory_show") for _ in range(150)))
    assert len([text for text in texts if "<memory_blocks>" in text]) == 150
    assert most == 64


async def test_r_m3_nothing_of_it_is_loaded_before_it_is_used(data):
    code = (
        "import sys; from gateway.app import create_app; from gateway.config.loader import load; "
        f"create_app(load(None, {{}}, {{'storage.data': {str(data)!r}, "
        "'upstream': 'http://127.0.0.1:1'}));"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('mcp', 'mcp_types') "
        "or m.startswith('gateway.mcp.')))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "['gateway.mcp.entrance']"


# R-M4


async def test_r_m4_appends_side_by_side_all_survive(data):
    async with door(data) as found:
        clients = [Door(found.live, **{"user-agent": f"client-{i}/1"}) for i in range(10)]
        told = await asyncio.gather(
            *(
                clients[i % 10].text("core_memory_append", label="human", content=f"Line {i:02}")
                for i in range(50)
            )
        )
        assert all(text.startswith("Saved") for text in told)
        block = (await found.live.memory("GET", "/users/ada/blocks/human")).json()
        assert sorted(block["value"].split("\n")) == [f"Line {i:02}" for i in range(50)]
        assert block["version"] == 50
        page = await found.live.memory("GET", "/users/ada/blocks/human/versions?limit=200")
        assert len(page.json()["data"]) == 50


async def test_r_m4_keys_tenants_and_agents_never_see_each_other(data):
    async with door(data) as found:
        owners = []
        for key, user in ((SECRET, "bob"), (f"{SECRET}1", "ann"), (f"{SECRET}2", "ann")):
            for agent in ("one", "two"):
                owner = Door(found.live, f"/u/{user}/mcp?agent={agent}", key)
                owner.mark = f"sentinel{len(owners)}word"
                owners.append(owner)
        for owner in owners:
            await owner.call("core_memory_append", label="human", content=owner.mark)
            await owner.call("archival_memory_insert", content=f"Detail {owner.mark}")
        looks = [
            (owner, name, given)
            for owner in owners
            for name, given in (
                ("memory_show", {}),
                ("archival_memory_search", {"query": "detail"}),
                ("conversation_search", {}),
                ("memory_rethink", {"label": "persona", "new_memory": "x"}),
                ("memory_rethink", {"label": "human", "new_memory": "y" * 9000}),
            )
        ] * 10
        texts = await asyncio.gather(*(o.text(name, **given) for o, name, given in looks))
        assert len(texts) == 300
        for (owner, name, _), text in zip(looks, texts, strict=True):
            own_marks = {owner.mark} if name in ("memory_show", SEARCH) else set()
            assert set(re.findall(r"sentinel\d+word", text)) == own_marks


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("read", READS),
        ("write", [n for n in NAMES if n not in READS]),
        ("off", []),
        ("full", NAMES),
    ],
)
async def test_r_m4_a_mode_lists_and_runs_what_it_allows(data, mode, names):
    async with door(data) as found:
        limited = Door(found.live, **{"x-memory": mode})
        listed = (await limited.ask("tools/list")).json()["result"]["tools"]
        assert [t["name"] for t in listed] == names
        for name, given in (
            ("memory_show", {}),
            ("archival_memory_search", {"query": "x"}),
            ("core_memory_append", {"label": "human", "content": "x"}),
        ):
            assert (await limited.call(name, **given))["isError"] is (name not in names)
        resources = (await limited.ask("resources/list")).json()["result"]["resources"]
        assert bool(resources) is (mode in ("full", "read"))


@pytest.mark.parametrize("mode", ["read", "write", "full", "off"])
async def test_r_m4_each_call_leaves_a_record_whatever_its_mode_unless_memory_is_off(data, mode):
    async with door(data) as found:
        await found.call("archival_memory_insert", content="Ada likes tea.")
        passages = "/users/ada/passages"
        before = (await found.live.memory("GET", passages)).json()
        limited = Door(found.live, **{"x-memory": mode})
        for name, arguments in (
            ("memory_show", {}),
            (SEARCH, {"query": "tea"}),
            (APPEND, {"label": "human", "content": "x"}),
        ):
            got = await limited.ask("tools/call", {"name": name, "arguments": arguments})
            explain = got.headers.get("x-memory-explain")
            if mode == "off":
                assert explain is None
                continue
            record = (await found.live.memory("GET", f"/explain/{explain}")).json()
            (call,) = record["tools"]
            assert (record["wire"], call["name"]) == ("mcp", name)
            refused = mode == ("write" if name in READS else "read")
            assert call["result"].startswith("Error:") is refused
        if mode == "read":
            assert (await found.live.memory("GET", passages)).json() == before


async def test_r_m4_a_policy_of_key_or_user_is_never_exceeded(data):
    async with door(data) as found:
        reader = Door(found.live, key=f"{SECRET}4")
        assert (await reader.call("core_memory_append", label="human", content="x"))["isError"]
        put = await found.live.memory("PUT", "/users/ada/policy", json={"memory": "off"})
        assert put.status_code == 200
        assert (await found.call("memory_show"))["isError"]
        assert (await found.ask("tools/list")).json()["result"]["tools"] == []


async def test_r_m4_where_nobody_is_named_lists_answer_and_calls_say_how(data):
    async with door(data, path="/mcp") as found:
        assert len((await found.ask("tools/list")).json()["result"]["tools"]) == 9
        assert (await found.ask("resources/list")).json()["result"]["resources"] == []
        told = await found.text("memory_show")
        assert "X-Memory-User" in told
        assert "/u/USER/mcp" in told


async def test_who_calls_an_agents_own_memory_is_no_member_of_what_it_shares(data):
    """Their record is their own, but they have no memory with that agent."""
    config = {"agents": {"support": {"model": "m", "home": "agent"}}}
    async with door(data, config, path="/u/ann/mcp?agent=support") as found:
        shared = {"label": "plan", "value": "Codeword quetzal", "members": [{"agent": "support"}]}
        assert (await found.live.memory("POST", "/shared-blocks", json=shared)).status_code == 201
        assert "quetzal" in await found.text("memory_show")
        key = {"authorization": f"Bearer {SECRET}1"}
        for path in ("/users/ann/export", "/shared-blocks", "/users/ann/agents"):
            got = await found.live.memory("GET", path, headers=key)
            assert (got.status_code, "quetzal" in got.text) == (200, False)
            assert "support" not in got.text


async def shares(live):
    """Make a team with ann in it, its passage, and a shared block of ann's."""
    sent = {"json": {"write": True}}
    await live.memory("PUT", "/teams/platform", json={})
    await live.memory("PUT", "/teams/platform/members/ann", **sent)
    await live.memory("POST", "/teams/platform/passages", json={"content": "Deploys on Friday"})
    members = [{"user": "ann", "write": True}]
    block = {"label": "board", "value": "Build the boat", "members": members}
    return (await live.memory("POST", "/shared-blocks", json=block)).json()["id"]


async def test_a_t1_the_door_reads_and_writes_the_layers_of_its_user_until_they_leave(data):
    async with door(data, path="/u/ann/mcp", key=f"{SECRET}1") as ann:
        bob = Door(ann.live, "/u/bob/mcp", SECRET)
        (before,) = [t for t in await listed(ann) if t["name"] == "archival_memory_insert"]
        assert "share" not in before["inputSchema"]["properties"]
        block = await shares(ann.live)
        (insert,) = [t for t in await listed(ann) if t["name"] == "archival_memory_insert"]
        assert insert["inputSchema"]["properties"]["share"]["enum"] == ["team:platform"]
        assert [t for t in await listed(bob) if t["name"] == insert["name"]] == [before]
        found = await ann.call(SEARCH, query="deploys")
        (hit,) = found["structuredContent"]["hits"]
        assert (hit["layer"], hit["content"]) == ("team:platform", "Deploys on Friday")
        told = await ann.text(insert["name"], content="Rolls back on Monday", share=hit["layer"])
        assert told == "Stored in team:platform."
        assert "Nothing found" in await bob.text(SEARCH, query="deploys")
        refused = await bob.call(insert["name"], content="x", share="team:platform")
        assert refused["isError"]
        calls = (
            (SEARCH, {"query": "deploys"}, "Friday"),
            ("memory_show", {}, "boat"),
            (APPEND, {"label": "board", "content": "and the oars"}, "oars"),
        )
        records = []
        for name, arguments, word in calls:
            params = {"name": name, "arguments": arguments}
            got = await ann.ask("tools/call", params)
            path = f"/explain/{got.headers['x-memory-explain']}"
            records.append((path, word))
            shown = await ann.live.memory("GET", path, headers=ann.headers)
            assert word in str(shown.json()["tools"])
        for path in (f"/shared-blocks/{block}/members/ann", "/teams/platform/members/ann"):
            await ann.live.memory("DELETE", path)
        assert "Nothing found" in await ann.text(SEARCH, query="deploys")
        for path, word in records:
            # Who left is not told by what was recorded either; the operator is.
            shown = (await ann.live.memory("GET", path, headers=ann.headers)).json()["tools"]
            assert word not in str(shown)
            assert "(layer left)" in str(shown)
            assert word in str((await ann.live.memory("GET", path)).json()["tools"])


async def listed(found):
    return (await found.ask("tools/list")).json()["result"]["tools"]


async def test_a_t3_what_the_door_writes_in_a_project_is_in_that_project_alone(data):
    async with door(data, path="/u/ann/mcp") as ann:
        await ann.live.memory("PUT", "/projects/apollo", json={"users": ["ann"]})
        await ann.call(APPEND, label="human", content="Likes tea")
        await ann.call("archival_memory_insert", content="Owns a boat")
        inside = Door(ann.live, "/u/ann/mcp?project=apollo")
        got = await inside.ask("tools/call", {"name": "memory_show"})
        assert got.headers["x-memory-project"] == "apollo"
        blocks = {b["label"]: b for b in got.json()["result"]["structuredContent"]["blocks"]}
        assert (blocks["human"]["value"], blocks["human"]["read_only"]) == ("Likes tea", True)
        assert not blocks["project"]["read_only"]
        assert (await inside.call(APPEND, label="human", content="x"))["isError"]
        by_header = Door(ann.live, "/u/ann/mcp", **{"x-memory-project": "apollo"})
        for label, call in (
            (APPEND, {"label": "project", "content": "Launch in May"}),
            ("archival_memory_insert", {"content": "The boat is for the launch"}),
        ):
            assert not (await by_header.call(label, **call))["isError"]
        hits = (await inside.call(SEARCH, query="boat"))["structuredContent"]["hits"]
        assert {h["content"] for h in hits} == {"Owns a boat", "The boat is for the launch"}
        for other in (ann, Door(ann.live, "/u/ann/mcp?project=gemini")):
            hits = (await other.call(SEARCH, query="boat"))["structuredContent"]["hits"]
            assert [h["content"] for h in hits] == ["Owns a boat"]
            assert "Launch" not in await other.text("memory_show")
        for path in ("/u/bob/mcp?project=apollo", "/u/ann/mcp?project=apollo&project=x"):
            refused = await Door(ann.live, path).ask("tools/call", {"name": "memory_show"})
            assert refused.status_code == (403 if "bob" in path else 400)
        chat = await ann.live.chat("Hi", {"x-memory-project": "apollo"}, user="ann")
        assert chat.status_code == 200
        assert "Launch in May" in str(ann.up.bodies[-1])
