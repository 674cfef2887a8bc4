"""What reaches the upstream of a request: all that is the client's, and ours in its places."""

from __future__ import annotations

import json

import pytest

from tests.conftest import SENTINEL_KEY, running
from tests.e2e.messages.client import (
    MARK,
    REMEMBER,
    TEA,
    WEATHER,
    ask,
    marks,
    ours_of,
    request,
    result,
    said,
    text,
    text_in,
    unmarked,
    user,
)
from tests.wire_models import MessagesModel, native, say, think, use

OSLO = use("weather", {"city": "Oslo"})
BILLING = text("x-anthropic-billing-header: cc_version=2; cch=ab12;")
PROMPT = text("You are a coder.", **MARK)
UNKNOWN = {"type": "hologram", "beam": {"w": 3, "deep": [1, None, {"x": 1e-7}]}}
BLOCKS = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
    UNKNOWN,
    text("Look.", cache_control={"type": "ephemeral", "ttl": "1h"}),
]
SERVER_CALL = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
SERVER_TOOLS = [
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    {"type": "memory_20250818", "name": "memory"},
    WEATHER,
]


async def test_every_block_reaches_the_upstream_equal(data, stream):
    thought = [
        think("Long\nthought \u2028 \u00e9 \U0001f980."),
        native({"type": "redacted_thinking", "data": "Zm9v=="}),
    ]
    async with MessagesModel([*thought, say("Hi.")], "Yes.") as up, running(up.url, data) as live:
        first = await ask(live, [user(*BLOCKS)], stream=stream)
        sent = [user(*BLOCKS), said(first), user("And?", UNKNOWN)]
        await ask(live, sent, stream=stream)
        assert up.bodies[1]["messages"] == sent
        assert json.dumps(sent[1]) in json.dumps(up.bodies[1])


async def test_unknown_members_and_the_vendors_own_reach_the_upstream_equal(data, stream):
    own = {
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "output_config": {"effort": "low"},
        "mcp_servers": [{"type": "url", "url": "https://x", "name": "m"}],
        "thinking": {"type": "adaptive"},
        "stop_sequences": ["END"],
        "service_tier": "auto",
        "container": "c_1",
        "tools": SERVER_TOOLS,
    }
    async with (
        MessagesModel([native(SERVER_CALL), native(FOUND), say("Hi.")]) as up,
        running(up.url, data) as live,
    ):
        answer = await ask(live, "Hello", stream=stream, **own)
        body = up.bodies[0]
        assert {k: body[k] for k in own if k != "tools"} == {
            k: v for k, v in own.items() if k != "tools"
        }
        assert body["tools"][:3] == SERVER_TOOLS
        names = ours_of(body)
        assert names == sorted(names) == [t["name"] for t in body["tools"][3:]]
        assert answer.content == [SERVER_CALL, FOUND, text("Hi.")]


async def test_server_tools_of_hidden_rounds_are_shown_where_they_ran(data, stream):
    script = ([native(SERVER_CALL), native(FOUND), REMEMBER], "Noted.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "Find", stream=stream, tools=SERVER_TOOLS)
        assert answer.content == [SERVER_CALL, FOUND, text("Noted.")]
        assert up.bodies[1]["messages"][-2]["content"][:2] == [SERVER_CALL, FOUND]


async def test_the_clients_memory_tool_is_the_clients(data, stream):
    call = use("memory", {"command": "view", "path": "/memories"})
    async with MessagesModel([call]) as up, running(up.url, data) as live:
        answer = await ask(live, "Recall", stream=stream, tools=SERVER_TOOLS)
        assert [b["name"] for b in answer.content] == ["memory"]
        assert len(up.bodies) == 1


async def test_a_tool_of_the_client_with_a_name_of_ours_is_the_clients(data, stream):
    own = {"name": REMEMBER.name, "input_schema": {"type": "object"}}
    async with MessagesModel([REMEMBER]) as up, running(up.url, data) as live:
        body = request("I like tea", stream=stream, tools=[own])
        answer = await live.http.post(f"{live.url}/messages", json=body)
        assert REMEMBER.name in answer.text
        assert ours_of(up.bodies[0]).count(REMEMBER.name) == 1
        assert own in up.bodies[0]["tools"]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_headers_and_query_reach_the_upstream_and_the_key_is_recognised(
    data, kind, name, mode
):
    headers = {
        "x-memory": mode,
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "context-1m-2025-08-07,interleaved-thinking-2025-05-14",
        name: f"Bearer {SENTINEL_KEY}" if name == "authorization" else SENTINEL_KEY,
    }
    async with MessagesModel("Hi.") as up:
        config = {"providers": {"main": {"kind": kind, "base_url": up.url}}}
        async with running("", data, config, key="") as live:
            path = "/messages?beta=true&x=%C3%A9"
            await ask(live, "Hello", stream=False, headers=headers, path=path)
            seen = up.requests[0]
            assert seen.path == "/v1/messages?beta=true&x=%C3%A9"
            for member in ("anthropic-version", "anthropic-beta"):
                assert seen.header(member) == headers[member]
            if kind == "anthropic":
                assert (seen.header("x-api-key"), seen.header("authorization")) == (
                    SENTINEL_KEY,
                    None,
                )
            else:
                assert seen.header("authorization") == f"Bearer {SENTINEL_KEY}"


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
async def test_a_managed_key_is_replaced_by_the_providers(data, name):
    mine = "mg-0123456789abcdef0123"
    async with MessagesModel("Hi.") as up:
        config = {
            "providers": {"main": {"kind": "anthropic", "base_url": up.url, "api_key": "sk-ant-1"}},
            "keys": [{"name": "app", "key": mine, "tenant": "t"}],
        }
        value = f"Bearer {mine}" if name == "authorization" else mine
        async with running("", data, config, key="") as live:
            await ask(live, "Hello", stream=True, headers={name: value})
            assert up.requests[0].header("x-api-key") == "sk-ant-1"
            assert mine not in str(up.requests[0].headers)


async def test_a_head_request_to_the_root_needs_no_key(data):
    async with MessagesModel("Hi.") as up, running(up.url, data, key="") as live:
        assert (await live.http.head(f"{live.root}/")).status_code == 200
        assert not up.requests


async def test_other_paths_below_messages_are_relayed(data):
    def batches(seen, wire):
        return (200, {"id": "batch_1", "path": seen.path, "sent": seen.json})

    async with MessagesModel(batches) as up, running(up.url, data) as live:
        up.check = lambda body: ()
        for root, path in (
            (live.url, "/messages/batches"),
            (f"{live.root}/u/ada/v1", "/messages/new?x=1"),
        ):
            response = await live.http.post(root + path, json={"requests": [1]})
            assert response.json() == {
                "id": "batch_1",
                "path": f"/v1{path}",
                "sent": {"requests": [1]},
            }
            assert response.headers["x-memory-status"] == "off"
            assert response.headers["x-memory-reason"] == "path"


@pytest.mark.parametrize("system", [None, "Be brief.", [BILLING, text("You are C."), PROMPT]])
async def test_the_core_stands_behind_the_clients_system(data, stream, system):
    body = {} if system is None else {"system": system}
    async with MessagesModel([REMEMBER], "Noted.", "Hi.") as up, running(up.url, data) as live:
        await ask(live, "I like tea", stream=stream, **body)
        await ask(live, "Hello", stream=stream, **body)
        found = up.bodies[-1]["system"]
        if isinstance(system, list):
            assert found[:-1] == system
            assert set(found[-1]) == {"type", "text"}
            core = found[-1]["text"]
        else:
            core = found.removeprefix(system + "\n\n") if system else found
            assert not system or found.startswith(system)
        assert core.startswith("Elements tagged")
        assert TEA["content"] in core


@pytest.mark.parametrize("count", range(5))
async def test_the_upstream_never_sees_more_marks_than_the_client_set(data, stream, count):
    places = [MARK if i < count else {} for i in range(4)]
    system = [text("A.", **places[0]), text("B.", **places[1])]
    tools = [{**WEATHER, **places[2]}]
    script = ([REMEMBER], "Noted.", "Hi.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        body = {"stream": stream, "system": system, "tools": tools}
        first = await ask(live, [user(text("I like tea", **places[3]))], **body)
        await ask(live, [user("I like tea"), said(first), user(text("Hi", **places[3]))], **body)
        assert [marks(b) for b in up.bodies] == [min(count, 4)] * 3


async def test_a_note_stands_at_the_end_of_the_opener(data, stream):
    script = ("Hi.", [REMEMBER], "Noted.", "Sure.", [OSLO], "Four.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        body = {"stream": stream, "tools": [WEATHER]}
        first = await ask(live, "Hello", **body)
        # Another conversation changes what is remembered.
        await ask(live, "I like tea", **body)
        talk = [user("Hello"), said(first)]
        picture = BLOCKS[0]
        system = {"role": "system", "content": "The date has changed."}
        sent = [*talk, user("Now?", picture)]
        second = await ask(live, sent, **body)
        opener = up.bodies[-1]["messages"][2]["content"]
        assert opener[:2] == sent[2]["content"]
        assert TEA["content"] in opener[2]["text"]
        assert set(opener[2]) == {"type", "text"}
        # It stays there, and stands nowhere else.
        more = [*sent, said(second), user("Weather?")]
        third = await ask(live, more, **body)
        told = user(result(third.content[0]))
        await ask(live, [*more, said(third), told, system], **body)
        last = up.bodies[-1]["messages"]
        assert last[2]["content"] == opener
        assert text_in(last).count(TEA["content"]) == 1
        assert last[-2:] == [told, system]


@pytest.mark.parametrize(
    "ending",
    [
        [{"role": "assistant", "content": "The answer is"}],
        [{"role": "system", "content": "Go on."}],
    ],
)
async def test_no_note_stands_at_a_prefill_or_a_system_message(data, stream, ending):
    async with (
        MessagesModel("Hi.", [REMEMBER], "Noted.", "Tea.") as up,
        running(up.url, data) as live,
    ):
        first = await ask(live, "Hello", stream=stream)
        await ask(live, "I like tea", stream=stream)
        sent = [user("Hello"), said(first), user("What?"), *ending]
        await ask(live, sent, stream=stream)
        found = up.bodies[-1]["messages"]
        assert found[-1] == ending[-1]
        assert [m["role"] for m in found] == [m["role"] for m in sent]


async def test_a_system_message_among_the_messages_stays_and_is_nobodys_words(data, stream):
    system = {"role": "system", "content": "Today is a holiday."}
    async with (
        MessagesModel("Hi.") as up,
        running(up.url, data, {"server.single_user": False}) as live,
    ):
        await ask(live, [user("Hello"), system], stream=stream)
        assert up.bodies[0]["messages"] == [user("Hello"), system]
        found = (await live.memory("GET", "/users/ada/conversations")).json()["data"][0]["id"]
        kept = (await live.memory("GET", f"/users/ada/conversations/{found}/messages")).json()
        assert [m["content"] for m in kept["data"] if m["role"] != "system"] == ["Hello", "Hi."]


CHOICES = [
    {"tool_choice": {"type": "any"}, "tools": [WEATHER]},
    {"tool_choice": {"type": "tool", "name": "weather"}, "tools": [WEATHER]},
    {"tool_choice": {"type": "none"}, "tools": [WEATHER]},
    {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    {"messages": [user("Hi"), {"role": "assistant", "content": "The"}]},
]


@pytest.mark.parametrize("body", CHOICES)
async def test_a_forced_choice_a_form_or_a_prefill_gets_no_tool_of_ours(data, stream, body):
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        messages = body.get("messages", "Hello")
        rest = {k: v for k, v in body.items() if k != "messages"}
        await ask(live, messages, stream=stream, **rest)
        sent = up.bodies[0]
        assert not ours_of(sent)
        assert {k: sent[k] for k in rest} == rest
        # The blocks are there all the same.
        assert "system" in sent


async def test_a_free_choice_stays_as_it_was(data, stream):
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        await ask(live, "Hello", stream=stream, tools=[WEATHER], tool_choice=choice)
        assert up.bodies[0]["tool_choice"] == choice
        assert ours_of(up.bodies[0])


async def test_a_long_turn_of_tools_keeps_its_prefix(data, stream):
    """What the upstream has cached up to the client's mark of one request is the beginning of the
    next, the marks aside.
    """
    steps = 30
    script = []
    for i in range(steps):
        mine = {"label": "human", "content": f"Step {i}."}
        more = {
            0: [[think("Hm."), use("core_memory_append", mine)], [OSLO]],
            1: [[think("Both."), OSLO, use("core_memory_append", mine)]],
        }.get(i % 5, [[think("On."), OSLO]])
        script += more
    async with MessagesModel(*script, "Done.", "Sure.") as up, running(up.url, data) as live:
        up.binds = True
        system = [BILLING, PROMPT]
        body = {"stream": stream, "system": system, "tools": [WEATHER]}
        talk, before = [user("Go", text("on", **MARK))], None
        for _ in range(steps + 2):
            answer = await ask(live, talk, **body)
            calls = [result(b) for b in answer.content if b["type"] == "tool_use"]
            if calls:
                calls[-1] |= MARK
            after = user(*calls) if calls else user(text("And?", **MARK))
            talk = [*unmarked(talk), said(answer), after]
        for body in up.bodies:
            lasts = (unmarked(body["tools"]), unmarked(body["system"]))
            prefix = before_mark(body["messages"])
            if before is not None:
                assert lasts == before[0]
                begins = unmarked(body["messages"])
                assert flat(begins)[: len(before[1])] == before[1]
            before = (lasts, flat(prefix))


def before_mark(messages):
    """The messages up to the last block that has a mark."""
    at = max(i for i, m in enumerate(messages) if "cache_control" in json.dumps(m))
    content = messages[at]["content"]
    end = max(i for i, b in enumerate(content) if "cache_control" in b)
    return unmarked([*messages[:at], {**messages[at], "content": content[: end + 1]}])


def flat(messages):
    """The blocks with the role of each: how they are put into messages is nothing to a cache."""
    out = []
    for m in messages:
        blocks = m["content"]
        blocks = [text(blocks)] if isinstance(blocks, str) else blocks
        out += [(m["role"], json.dumps(b)) for b in blocks]
    return out
