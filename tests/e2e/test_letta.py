"""Letta clients: their calls, their objects and their errors, on our agents and memories."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from sqlalchemy import update

from memory.stores.sql.engine.schema import nodes
from tests.conftest import events, running
from tests.models import Model, call, calls, text

UA = {"user-agent": "Letta/Python 1.12.1"}
SECRET = "mg-0123456789abcdef0123"
KEYS = [
    {"name": "app", "key": SECRET, "tenant": "t"},
    {"name": "strange", "key": f"{SECRET}1", "tenant": "t", "trusted": False, "users": ["ann"]},
    {"name": "elsewhere", "key": f"{SECRET}2", "tenant": "u"},
]
NO_AGENT = "agent-" + "0" * 8 + "-0000-0000-0000-" + "0" * 12


class Letta:
    """What a Letta client sends, below `/letta/v1`."""

    def __init__(self, live, base="/letta/v1", **headers):
        self.live, self.base, self.headers = live, base, headers

    async def ask(self, method, path, status=200, **options):
        url = f"{self.live.root}{self.base}/{path}"
        got = await self.live.http.request(
            method, url, headers={**UA, **self.headers, **options.pop("headers", {})}, **options
        )
        assert got.status_code == status, (got.status_code, got.text)
        return got

    async def get(self, path, status=200, **options):
        return (await self.ask("GET", path, status, **options)).json()

    async def post(self, path, status=200, **body):
        return (await self.ask("POST", path, status, json=body)).json()

    async def patch(self, path, status=200, **body):
        return (await self.ask("PATCH", path, status, json=body)).json()

    async def delete(self, path, status=200):
        return (await self.ask("DELETE", path, status)).json()


@contextlib.asynccontextmanager
async def door(up, data, config=None):
    """A gateway with managed keys, and a Letta client of the first."""
    async with running(up.url, data, {"keys": KEYS, **(config or {})}, key=SECRET) as live:
        yield Letta(live)


def check_error(got, code, param=None):
    body = got.json()
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert body["detail"] == error["message"]
    assert body["detail"]
    assert (error["code"], error["param"]) == (code, param)


async def test_the_door_is_below_letta_v1_and_below_v1_for_letta_clients(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        for base in ("/letta/v1", "/v1"):
            at = Letta(letta.live, base)
            for path in ("health", "health/", "/health//"):
                assert (await at.get(path))["status"] == "ok"
        for name in ("Letta/Python 1.1.2", "AsyncLetta/Python 1.12.1"):
            await Letta(letta.live, "/v1", **{"user-agent": name}).get("tags/", 501)
        assert not up.requests


@pytest.mark.parametrize("path", ["agents", "health", "blocks/b", "tags"])
async def test_v1_is_what_it_was_for_all_other_clients(data, path):
    async with Model((418, {"error": {"message": "relayed"}})) as up, door(up, data) as letta:
        for name in ("letta/1", "OpenAI/Python", "curl Letta/Python"):
            at = Letta(letta.live, "/v1", **{"user-agent": name})
            got = await at.live.http.get(f"{letta.live.url}/{path}", headers={"user-agent": name})
            assert got.status_code in (403, 404, 418)
            assert "detail" not in got.json()
        assert letta.live.root


async def test_server_letta_false_relays_all_of_v1(data):
    async with Model((418, {})) as up, door(up, data, {"server.letta": False}) as letta:
        await letta.ask("GET", "health", 404)
        got = await letta.live.http.get(f"{letta.live.url}/health", headers=UA)
        assert "version" not in got.text


async def test_a_l6_every_other_path_is_501_and_is_not_retried(data):
    paths = [
        ("GET", "runs/"),
        ("POST", "archives/"),
        ("GET", "groups/x"),
        ("POST", f"agents/{NO_AGENT}/messages/async"),
        ("PUT", "identities/"),
        ("GET", "conversations/default/messages"),
        ("GET", "messages/search"),
        ("GET", "no-such-thing"),
        ("GET", ""),
    ]
    async with Model("Hi.") as up, door(up, data) as letta:
        for method, path in paths:
            got = await letta.ask(method, path, 501)
            check_error(got, "not_supported")
            assert got.headers["x-should-retry"] == "false"
        assert not up.requests


async def test_keys_are_those_of_v1_and_errors_are_in_shape(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        for key in ("", "Bearer mg-wrong"):
            got = await letta.ask("GET", "health", 401, headers={"authorization": key})
            check_error(got, "invalid_api_key")


async def test_without_keys_the_local_token_opens_the_door(data):
    async with Model("Hi.") as up, running(up.url, data) as live:
        letta = Letta(live)
        await letta.ask("GET", "health", 401)
        token = (data / "token").read_text().strip()
        await letta.ask("GET", "health", headers={"authorization": f"Bearer {token}"})
        origin = {"authorization": f"Bearer {token}", "origin": "https://elsewhere.example"}
        await letta.ask("GET", "health", 403, headers=origin)
    config = {"server.letta_open": True}
    async with Model("Hi.") as up, running(up.url, data, config) as live:
        await Letta(live).get("health")


BLOCKS = [
    {"label": "human", "value": "Name: Ada."},
    {"label": "persona", "value": "I am Sam.", "description": "Who you are", "limit": 300},
]


async def test_an_agent_is_made_retrieved_changed_listed_and_deleted(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post(
            "agents/",
            model="openai/gpt-4.1",
            memory_blocks=BLOCKS,
            tools=["web_search", "run_code", "send_message"],
            metadata={"team": 7},
            tags=["x", "y"],
            system="Be kind.",
            embedding="openai/text-embedding-3-small",
            context_window_limit=9000,
            timezone="Europe/Berlin",
        )
        assert made["id"].startswith("agent-")
        assert len(made["id"]) == 42
        assert made["name"].startswith("agent-")
        assert len(made["name"]) == 14
        assert (made["agent_type"], made["system"]) == ("letta_v1_agent", "Be kind.")
        assert made["llm_config"] == {
            "model": "gpt-4.1",
            "model_endpoint_type": "openai",
            "context_window": 9000,
            "handle": "openai/gpt-4.1",
        }
        assert (made["model"], made["embedding"]) == (
            "openai/gpt-4.1",
            "openai/text-embedding-3-small",
        )
        assert made["metadata"] == {"team": 7}
        blocks = {b["label"]: b for b in made["blocks"]}
        assert blocks["human"]["limit"] == 20_000
        assert blocks["persona"]["limit"] == 300
        assert made["memory"]["blocks"] == made["blocks"]
        tools = {t["name"]: t for t in made["tools"]}
        assert tools["web_search"]["description"].startswith("Not available here:")
        assert {"core_memory_append", "archival_memory_search", "send_message"} <= tools.keys()
        assert await letta.get(f"agents/{made['id']}/") == made

        changed = await letta.patch(f"agents/{made['id']}", name="Sam", metadata={"a": 1})
        assert (changed["name"], changed["metadata"], changed["system"]) == (
            "Sam",
            {"a": 1},
            "Be kind.",
        )
        assert [t["name"] for t in changed["tools"]] == [t["name"] for t in made["tools"]]
        assert (await letta.get("agents", params={"name": "Sam"}))[0]["id"] == made["id"]
        assert (await letta.delete(f"agents/{made['id']}"))["id"] == made["id"]
        check_error(await letta.ask("GET", f"agents/{made['id']}", 404), "not_found")
        assert await letta.get("agents/") == []
        assert not up.requests


async def test_agents_are_listed_in_pages_by_id_newest_first(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = [
            await letta.post("agents", model="m", name=f"n{i}", tags=[f"t{i % 2}"])
            for i in range(5)
        ]
        ids = [agent["id"] for agent in made]

        async def listed(**params):
            return [agent["id"] for agent in await letta.get("agents/", params=params)]

        assert await listed() == ids[::-1]
        assert await listed(order="asc") == ids
        assert await listed(order="asc", limit=2) == ids[:2]
        assert await listed(order="asc", limit=2, after=ids[1]) == ids[2:4]
        assert await listed(limit=2, after=ids[3]) == [ids[2], ids[1]]
        assert await listed(order="asc", limit=2, before=ids[4]) == ids[2:4]
        assert await listed(after=ids[0]) == []
        assert await listed(after=NO_AGENT) == []
        assert await listed(tags=["t1"]) == [ids[3], ids[1]]
        assert await listed(tags=["t0", "t1"], match_all_tags=True) == []
        assert await listed(query_text="N3") == [ids[3]]
        check_error(await letta.ask("GET", "agents?order=up", 422), "unprocessable", "order")
        check_error(await letta.ask("GET", "agents?limit=-1", 422), "unprocessable", "limit")


NAMES = {
    "gpt-4.1": "gpt-4.1",
    "openai/gpt-4.1": "gpt-4.1",
    "anthropic/claude": "claude",
    "here/other": "other",
    "own/exact": "own/exact",
    "exact": "exact",
    "openai/exact": "exact",
    "nobodys/model": "nobodys/model",
}


async def test_names_of_models_are_resolved(data):
    async with Model("Hi.") as up:
        here = {"base_url": f"{up.url}", "api_key": "sk-up"}
        config = {
            "providers": {"here": here},
            "models": {
                "own/exact": {"targets": [{"provider": "here"}]},
                "exact": {"targets": [{"provider": "here"}]},
                "*": {"targets": [{"provider": "here"}]},
            },
        }
        async with door(up, data, config) as letta:
            for given, meant in NAMES.items():
                made = await letta.post("agents", model=given)
                assert (made["llm_config"]["model"], made["model"]) == (meant, given)
            listed = [m["handle"] for m in await letta.get("models/")]
            assert {"own/exact", "exact"} <= set(listed)
            check_error(await letta.ask("POST", "agents", 422, json={}), "unprocessable", "model")
        config["models"].pop("*")
        async with door(up, data / "b", {**config, "server.letta_model": "exact"}) as letta:
            check_error(
                await letta.ask("POST", "agents", 404, json={"model": "openai/none"}),
                "model_not_found",
                "model",
            )
            assert (await letta.post("agents"))["llm_config"]["model"] == "exact"


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        *(({name: ["x"]}, name) for name in ("identity_ids", "folder_ids", "source_ids")),
        ({"secrets": {"a": "b"}}, "secrets"),
        ({"tool_exec_environment_variables": {"a": "b"}}, "tool_exec_environment_variables"),
        ({"from_template": "t"}, "from_template"),
        ({"memory_blocks": [{"label": "No Label", "value": ""}]}, "memory_blocks.0.label"),
        ({"memory_blocks": [{"label": "a", "value": "xyz", "limit": 2}]}, "memory_blocks.0"),
        ({"memory_blocks": [{"label": "a"}]}, "memory_blocks.0.value"),
        ({"memory_blocks": 7}, "memory_blocks"),
        ({"name": 7}, "name"),
        ({"timezone": "Nowhere"}, "timezone"),
        ({"tags": "x"}, "tags"),
        ({"tool_rules": [{"tool_name": "x", "args": {"a": 1}}]}, "tool_rules"),
        ({"system": "x" * 32_001}, "system"),
    ],
)
async def test_a_l6_members_are_refused_by_name(data, sent, param):
    async with Model("Hi.") as up, door(up, data) as letta:
        got = await letta.ask("POST", "agents", 422, json={"model": "m", **sent})
        assert got.json()["error"]["param"] == param, got.text
        assert await letta.get("agents") == []


async def test_a_l6_members_without_an_effect_are_named(data):
    ignored = {
        "embedding": "openai/x",
        "agent_type": "memgpt_agent",
        "enable_sleeptime": True,
        "include_base_tool_rules": True,
        "reasoning": True,
        "hidden": True,
        "project_id": "p",
        "template": False,
        "not_a_member": 1,
        "secrets": {},
        "source_ids": [],
    }
    async with Model("Hi.") as up, door(up, data) as letta:
        got = await letta.ask("POST", "agents?odd=1", json={"model": "m", **ignored})
        assert got.json()["enable_sleeptime"] is False
        named = got.headers["x-mnemogate-dropped"].split(", ")
        assert set(named) == {*ignored, "odd"}


async def test_unknown_tools_are_404_and_tools_of_the_clients_own_are_403(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        got = await letta.ask("POST", "agents", 404, json={"model": "m", "tools": ["mine"]})
        check_error(got, "tool_not_found", "tools")
        (found,) = await letta.get("tools/", params={"name": "send_message"})
        assert await letta.get(f"tools/{found['id']}") == found
        made = await letta.post("agents", model="m", tool_ids=[found["id"]])
        assert "send_message" in [t["name"] for t in made["tools"]]
        for method, path in (
            ("POST", "tools/"),
            ("PUT", "tools/"),
            ("DELETE", f"tools/{found['id']}"),
        ):
            check_error(await letta.ask(method, path, 403, json={}), "tool_not_allowed")
        await letta.get("tools/tool-" + NO_AGENT[6:], 404)
        plain = await letta.post("agents", model="m", include_base_tools=False)
        assert plain["tools"] == []


async def test_only_trusted_keys_reach_agents_and_tenants_never_meet(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        path = f"agents/{made['id']}"
        strange = Letta(letta.live, authorization=f"Bearer {SECRET}1")
        check_error(await strange.ask("POST", "agents", 403, json={"model": "m"}), "forbidden")
        for method in ("GET", "PATCH", "DELETE"):
            await strange.ask(method, path, 403)
        elsewhere = Letta(letta.live, authorization=f"Bearer {SECRET}2")
        for method in ("GET", "PATCH", "DELETE"):
            check_error(await elsewhere.ask(method, path, 404), "not_found")
        assert await elsewhere.get("agents") == []
        for name in ("x", "agent-x", made["id"].upper(), made["id"] + "0", "agent_" + "0" * 32):
            check_error(await letta.ask("GET", f"agents/{name}", 404), "not_found")


async def test_agents_of_the_configuration_are_listed_and_not_changed(data):
    config = {"agents": {"sam": {"model": "m", "home": "agent"}, "each": {"model": "m"}}}
    async with Model("Hi.") as up, door(up, data, config) as letta:
        (found,) = await letta.get("agents")
        assert found["name"] == "sam"
        assert await letta.get(f"agents/{found['id']}") == found
        for method in ("PATCH", "DELETE"):
            check_error(await letta.ask(method, f"agents/{found['id']}", 403), "agent_in_config")


def kinds(items):
    return [item["message_type"] for item in items]


def thinking(choice, thought):
    return {**choice, "message": {**choice["message"], "reasoning_content": thought}}


APPEND = call("core_memory_append", {"label": "human", "content": "Likes tea."}, "call_a")
SEARCH = call("archival_memory_search", {"query": "tea"}, "call_b")
TURN = [
    thinking(calls(APPEND, SEARCH, content="One moment."), "A fact."),
    thinking(text("Noted, tea."), "Done."),
]
ITEMS = [
    "reasoning_message",
    "assistant_message",
    "tool_call_message",
    "tool_call_message",
    "tool_return_message",
    "tool_return_message",
    "reasoning_message",
    "assistant_message",
]


async def say(letta, made, words, status=200, path="messages", **more):
    sent = {"messages": [{"role": "user", "content": words}], **more}
    return await letta.ask("POST", f"agents/{made['id']}/{path}", status, json=sent)


def check_items(items):
    """The items of TURN: their order, their pairs, their ids."""
    assert kinds(items) == ITEMS
    assert [i.get("reasoning") for i in items if "reasoning" in i] == ["A fact.", "Done."]
    assert [i["content"] for i in items if "content" in i] == ["One moment.", "Noted, tea."]
    called = [i["tool_call"] for i in items if "tool_call" in i]
    assert called == [
        {
            "name": c["function"]["name"],
            "arguments": c["function"]["arguments"],
            "tool_call_id": c["id"],
        }
        for c in (APPEND, SEARCH)
    ]
    returned = [i for i in items if i["message_type"] == "tool_return_message"]
    assert [i["tool_call_id"] for i in returned] == ["call_a", "call_b"]
    assert {i["status"] for i in returned} == {"success"}
    assert len({i["id"] for i in items}) == len(items)
    assert all(i["date"] for i in items)
    steps = [i["step_id"] for i in items]
    assert len(set(steps[:6])) == 1
    assert steps[6] == steps[7] != steps[0]


async def test_a_l4_a_turn_is_answered_in_items(data):
    async with Model(*TURN, "Tea, I know.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS, system="Be kind.")
        got = (await say(letta, made, "I like tea")).json()
        check_items(got["messages"])
        assert got["stop_reason"] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
        usage = got["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (
            200,
            20,
            220,
        )
        assert (usage["step_count"], usage["message_type"]) == (2, "usage_statistics")
        assert usage["run_ids"] == [got["messages"][0]["run_id"]]
        state = await letta.get(f"agents/{made['id']}")
        assert "Likes tea." in {b["label"]: b["value"] for b in state["blocks"]}["human"]
        (again,) = (await say(letta, made, "What do I like?")).json()["messages"]
        assert again["content"] == "Tea, I know."
        told = [m for m in up.bodies[-1]["messages"] if m["role"] in ("user", "assistant")]
        assert next(m["content"] for m in told) == "I like tea"
        assert told[-1]["content"].startswith("What do I like?")
        assert up.bodies[0]["messages"][0]["content"].startswith("Be kind.")

        listed = await letta.get(f"agents/{made['id']}/messages")
        assert kinds(listed) == ["assistant_message", "user_message", *ITEMS[::-1], "user_message"]
        first = [
            {k: v for k, v in i.items() if k not in ("date", "run_id")} for i in got["messages"]
        ]
        stored = [{k: v for k, v in i.items() if k not in ("date", "run_id")} for i in listed]
        assert stored[2:-1][::-1] == first
        state = await letta.get(f"agents/{made['id']}")
        assert state["message_ids"] == [i["id"] for i in listed][::-1]


@pytest.mark.parametrize("path", ["messages", "messages/stream"])
@pytest.mark.parametrize("tokens", [False, True])
async def test_a_l4_the_streamed_turn_gives_the_same_items(data, path, tokens):
    async with Model(*TURN) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        got = await say(letta, made, "I like tea", path=path, streaming=True, stream_tokens=tokens)
        assert "event:" not in got.text
        assert "\x00" not in got.text
        found = events(got.text)
        assert found[-1] == "[DONE]"
        *items, stop, usage = found[:-1]
        assert (stop["stop_reason"], usage["step_count"]) == ("end_turn", 2)
        assert (usage["prompt_tokens"], usage["total_tokens"]) == (200, 220)
        check_items(joined(items) if tokens else items)
        assert not tokens or len(items) > len(ITEMS)


def joined(pieces):
    """The items that pieces of them make up, by their ids."""
    out = {}
    for piece in pieces:
        assert piece["otid"] == piece["id"].removeprefix("message-")
        item = out.setdefault(piece["id"], {**piece})
        if item == piece:
            continue
        for name in ("content", "reasoning"):
            if name in item:
                item[name] += piece[name]
        if "tool_call" in item:
            told = item["tool_call"]
            assert piece["tool_call"]["tool_call_id"] == told["tool_call_id"]
            item["tool_call"] = {
                **told,
                "arguments": told["arguments"] + piece["tool_call"]["arguments"],
            }
    return list(out.values())


async def test_a_l3_the_openai_sdk_and_a_restart_meet_the_same_memory(data):
    async with Model(*TURN, "Tea.") as up:
        async with door(up, data) as letta:
            made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
            await say(letta, made, "I like tea")
        async with door(up, data) as letta:
            state = await letta.get(f"agents/{made['id']}")
            assert "Likes tea." in {b["label"]: b["value"] for b in state["blocks"]}["human"]
            got = await letta.live.chat("And?", model=f"agent:{made['id']}")
            assert got.status_code == 200, got.text
            assert "Likes tea." in json.dumps(up.bodies[-1])
            await say(letta, made, "Again?")
            told = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "user"]
            assert told[0] == "I like tea"
            assert "And?" not in told


async def test_two_messages_at_once_follow_each_other(data):
    async def slow(seen, wire):
        await asyncio.sleep(0.2)
        return text("Yes.")

    async with Model(slow) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        await asyncio.gather(*(say(letta, made, f"n{i}") for i in range(3)))
        sizes = [len([m for m in b["messages"] if m["role"] == "user"]) for b in up.bodies]
        assert sizes == [1, 2, 3]
        assert len(await letta.get(f"agents/{made['id']}/messages")) == 6


async def test_messages_are_listed_in_pages_by_id(data):
    async with Model(*TURN, "Yes.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        path = f"agents/{made['id']}/messages"
        for words in ("I like tea", "b", "c"):
            await say(letta, made, words)

        async def listed(**params):
            return [i["id"] for i in await letta.get(path, params=params)]

        every = await listed(order="asc")
        assert len(every) == 13
        assert await listed() == every[::-1]
        walked, after = [], {}
        while page := await listed(limit=3, order="asc", **after):
            walked += page
            after = {"after": page[-1]}
        assert walked == every
        walked, after = [], {}
        while page := await listed(limit=4, **after):
            walked += page
            after = {"after": page[-1]}
        assert walked == every[::-1]
        assert await listed(before=every[5], limit=2, order="asc") == every[3:5]
        assert await listed(before=every[5], limit=2) == every[::-1][5:7]
        assert await listed(after="message-x") == []
        only = await letta.get(path, params={"include_return_message_types": ["user_message"]})
        assert [i["content"] for i in only] == ["c", "b", "I like tea"]


def spoken_in(body):
    """What a request has of the conversation."""
    return [m["content"] for m in body["messages"] if m["role"] in ("user", "assistant")]


RETRY = {"x-stainless-retry-count": "1"}


@pytest.mark.parametrize("path", ["messages", "messages/stream"])
async def test_a_message_that_repeats_the_one_before_is_a_new_one(data, path):
    async with Model("One.", "Two.", "Three.", "Four.") as up:
        async with door(up, data) as letta:
            made = await letta.post("agents", model="m")
            for _ in range(3):
                await say(letta, made, "continue", path=path)
        # What it knows is read from the store.
        async with door(up, data) as letta:
            await say(letta, made, "continue", path=path)
            listed = await letta.get(f"agents/{made['id']}/messages", params={"order": "asc"})
    answers = ["One.", "Two.", "Three.", "Four."]
    turns = [[text for answer in answers[:n] for text in ("continue", answer)] for n in range(5)]
    assert [spoken_in(body) for body in up.bodies] == [[*t, "continue"] for t in turns[:4]]
    assert [item["content"] for item in listed] == turns[4]


async def test_a_retry_is_told_by_the_client_and_is_no_new_message(data):
    broken = 403, {"error": {"message": "not now"}}
    async with Model("One.", broken, "Two.", "Three.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        sent = {"messages": [{"role": "user", "content": "continue"}]}
        path = f"agents/{made['id']}/messages"
        await letta.post(path, **sent)
        await letta.ask("POST", path, 403, json=sent)
        # Its first attempt was not answered, so it does not repeat the turn before.
        await letta.ask("POST", path, json=sent, headers=RETRY)
        assert spoken_in(up.bodies[2]) == ["continue", "One.", "continue"]
        # Its first attempt was answered, but the answer was lost on the way.
        await letta.ask("POST", path, json=sent, headers=RETRY)
        assert spoken_in(up.bodies[3]) == ["continue", "One.", "continue"]
        listed = await letta.get(path, params={"order": "asc"})
        assert [item["content"] for item in listed] == ["continue", "One.", "continue", "Three."]


async def test_messages_are_reset(data):
    async with Model("Yes.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        path = f"agents/{made['id']}"
        await letta.patch(f"{path}/reset-messages")
        await say(letta, made, "a")
        state = await letta.patch(f"{path}/reset-messages", add_default_initial_messages=True)
        assert (state["message_ids"], len(state["blocks"])) == ([], 2)
        assert await letta.get(f"{path}/messages") == []
        await say(letta, made, "b")
        assert [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "user"] == ["b"]


async def test_an_agent_begins_with_its_initial_messages(data):
    first = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    async with Model("Yes.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", initial_message_sequence=first)
        assert len(made["message_ids"]) == 2
        await say(letta, made, "a")
        told = [m for m in up.bodies[-1]["messages"] if m["role"] != "system"]
        assert [m["content"] for m in told] == ["Hi.", "Hello.", "a"]
        made = await letta.post(
            "agents", model="m", initial_message_sequence=first, message_buffer_autoclear=True
        )
        for words in "ab":
            await say(letta, made, words)
            told = [m for m in up.bodies[-1]["messages"] if m["role"] != "system"]
            assert [m["content"] for m in told] == ["Hi.", "Hello.", words]


async def test_one_request_overrides_model_system_and_steps(data):
    async with Model(*TURN, "x") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS, system="Be kind.")
        got = await say(
            letta, made, "I like tea", max_steps=1, override_model="openai/n", override_system="Hm."
        )
        assert got.json()["stop_reason"]["stop_reason"] == "max_steps"
        assert {b["model"] for b in up.bodies} == {"n"}
        assert up.bodies[0]["messages"][0]["content"].startswith("Hm.")
        assert "tools" not in up.bodies[1]
        await say(letta, made, "b")
        assert up.bodies[-1]["model"] == "m"
        assert up.bodies[-1]["messages"][0]["content"].startswith("Be kind.")


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_tokens_exceeded"), ("stop", "end_turn")]
)
async def test_the_stop_reason_tells_why(data, finish, reason):
    async with Model(text("Hm", finish)) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        assert (await say(letta, made, "a")).json()["stop_reason"]["stop_reason"] == reason


PNG = "iVBORw0KGgo="


async def test_content_may_have_parts(data):
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://e.example/x.png"}},
    ]
    async with Model("Yes.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        path = f"agents/{made['id']}/messages"
        other = [{"role": "user", "content": [*parts, parts[0]]}]
        for sent in ({"input": parts}, {"messages": other}):
            await letta.post(path, **sent)
            content = up.bodies[-1]["messages"][-1]["content"]
            assert [p["type"] for p in content][:3] == ["text", "image_url", "image_url"]
            assert content[1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
        await letta.post(path, input="Hello")
        assert up.bodies[-1]["messages"][-1]["content"].startswith("Hello")
        notes = [{"role": "assistant", "content": "I said"}, {"role": "system", "content": "Now."}]
        await letta.post(path, messages=[*notes, {"role": "user", "content": "b"}])
        await letta.post(path, input="c")
        assert len([m for m in up.bodies[-1]["messages"] if m["role"] == "user"]) == 5


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}], "input": "b"}, "input"),
        ({"input": ""}, "input"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0"),
        ({"messages": [{"type": "approval", "approve": True}]}, "messages.0"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": ["x"]}, "messages.0"),
        ({"input": [{"type": "reasoning", "reasoning": "x"}]}, "input.0"),
        ({"input": "a", "client_tools": [{"name": "x"}]}, "client_tools"),
        ({"input": "a", "return_token_ids": True}, "return_token_ids"),
        ({"input": "a", "max_steps": 0}, "max_steps"),
        ({"input": "a", "streaming": "yes"}, "streaming"),
        ({"input": "a", "include_return_message_types": "x"}, "include_return_message_types"),
    ],
)
async def test_a_l6_messages_that_cannot_be_taken_are_422(data, sent, param):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        got = await letta.ask("POST", f"agents/{made['id']}/messages", 422, json=sent)
        assert got.json()["error"]["param"] == param
        assert not up.requests


async def test_members_of_a_message_without_an_effect_are_named(data):
    ignored = {"use_assistant_message": True, "background": False, "enable_thinking": "x", "odd": 1}
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        for streaming in (False, True):
            got = await say(letta, made, "a", streaming=streaming, **ignored)
            assert set(got.headers["x-mnemogate-dropped"].split(", ")) == set(ignored)


async def test_errors_of_the_upstream_keep_their_status(data):
    fault = {"error": {"message": "Too hot.", "type": "overheated", "param": None, "code": "hot"}}
    async with Model((418, fault)) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        for streaming in (False, True):
            got = await say(letta, made, "a", 418, streaming=streaming)
            assert got.json()["detail"] == "Too hot."
            assert got.json()["error"]["code"] == "hot"
        check_error(
            await letta.ask("POST", f"agents/{NO_AGENT}/messages", 404, json={}), "not_found"
        )


async def test_a_fault_after_the_first_byte_ends_the_stream(data):
    async def break_off(seen, wire):
        await wire.start_stream()
        await wire.event({"id": "x", "choices": [{"index": 0, "delta": {"content": "Half"}}]})
        await wire.event({"error": {"message": "Broken.", "code": "b"}})
        await wire.end()

    async with Model(break_off) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        got = await say(letta, made, "a", streaming=True, stream_tokens=True)
        half, stop, fault = got.text.strip().split("\n\n")
        assert json.loads(half.removeprefix("data: "))["content"] == "Half"
        assert json.loads(stop.removeprefix("data: "))["stop_reason"] == "llm_api_error"
        assert fault.startswith("event: error\ndata: ")
        told = json.loads(fault.partition("\ndata: ")[2])
        assert (told["message_type"], told["error_type"], told["message"]) == (
            "error_message",
            "b",
            "Broken.",
        )
        assert told["detail"] == "Broken."
        assert told["run_id"].startswith("run-")


async def test_a_silent_stream_is_kept_alive_by_pings(data):
    async def slow(seen, wire):
        await wire.start_stream()
        await asyncio.sleep(0.6)
        await wire.event(
            {
                "id": "x",
                "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}],
            }
        )
        await wire.event(b"[DONE]")
        await wire.end()

    config = {"server.keepalive_seconds": 0.1, "server.commit_seconds": 0.1}
    async with Model(slow) as up, door(up, data, config) as letta:
        made = await letta.post("agents", model="m")
        found = events((await say(letta, made, "a", streaming=True)).text)
        pings = [e for e in found if e != "[DONE]" and e["message_type"] == "ping"]
        assert pings
        assert set(pings[0]) == {"message_type", "id", "date"}
        got = await say(letta, made, "b", streaming=True, include_pings=False)
        assert "ping" not in got.text
        assert "\n: " in f"\n{got.text}" or "\n:" in f"\n{got.text}"


async def test_only_kinds_that_are_asked_for_are_returned(data):
    async with Model(*TURN, *TURN) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        wanted = {"include_return_message_types": ["assistant_message"]}
        got = (await say(letta, made, "I like tea", **wanted)).json()["messages"]
        assert kinds(got) == ["assistant_message"] * 2
        found = events((await say(letta, made, "Once more", streaming=True, **wanted)).text)
        assert kinds(found[:-3]) == ["assistant_message"] * 2


async def test_an_untrusted_key_talks_to_agents_that_it_is_given_by_name(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        strange = Letta(letta.live, authorization=f"Bearer {SECRET}1")
        check_error(await say(strange, made, "a", 403), "agent_not_allowed", "model")
        assert not up.requests
        elsewhere = Letta(letta.live, authorization=f"Bearer {SECRET}2")
        check_error(await say(elsewhere, made, "a", 404), "not_found")


async def test_the_blocks_of_an_agent_are_listed_and_changed(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        path = f"agents/{made['id']}/core-memory/blocks"
        listed = await letta.get(path)
        assert listed == made["blocks"]
        assert await letta.get(f"{path}/human") == listed[0]
        changed = await letta.patch(f"{path}/human", value="Name: Bob.", limit=40)
        assert (changed["value"], changed["limit"]) == ("Name: Bob.", 40)
        assert changed["id"] == listed[0]["id"]
        await say(letta, made, "a")
        assert "Name: Bob." in up.bodies[-1]["messages"][0]["content"]
        assert "Name: Ada." not in up.bodies[-1]["messages"][0]["content"]
        check_error(await letta.ask("GET", f"{path}/nothing", 404), "not_found")
        got = await letta.ask("PATCH", f"{path}/human", 422, json={"value": "x" * 41})
        check_error(got, "block_full", "value")
        for sent, param in (
            ({"value": 7}, "value"),
            ({"label": "x"}, "label"),
            ({"limit": 0}, "limit"),
        ):
            got = await letta.ask("PATCH", f"{path}/human", 422, json=sent)
            check_error(got, "unprocessable", param)
        state = await letta.patch(f"{path}/attach/{listed[0]['id']}")
        assert len(state["blocks"]) == 2
        await letta.patch(f"{path}/attach/block-x", 404)


async def system_of(letta, up, made):
    """What an agent's next request has as system message."""
    await say(letta, made, f"What now? {len(up.bodies)}")
    return up.bodies[-1]["messages"][0]["content"]


async def test_a_l7_an_edit_through_one_agent_is_in_the_prompt_of_the_other(data):
    async with Model(lambda seen, wire: text("Hi.")) as up, door(up, data) as letta:
        board = await letta.post("blocks/", label="board", value="Plan: none.")
        one = await letta.post("agents", model="m", memory_blocks=BLOCKS, block_ids=[board["id"]])
        two = await letta.post("agents", model="m")
        assert [b["label"] for b in one["blocks"]] == ["board", "human", "persona"]
        shown = await letta.patch(f"agents/{two['id']}/core-memory/blocks/attach/{board['id']}")
        assert shown["blocks"] == [board]
        agents = await letta.get(f"blocks/{board['id']}/agents")
        assert [a["id"] for a in agents] == [two["id"], one["id"]]
        for made in (one, two):
            assert "Plan: none." in await system_of(letta, up, made)

        path = f"agents/{one['id']}/core-memory/blocks/board"
        changed = await letta.patch(path, value="Plan: tea.")
        assert changed == await letta.get(f"blocks/{board['id']}")
        for made in (one, two):
            told = await system_of(letta, up, made)
            assert "Plan: tea." in told
            assert "Plan: none." not in told

        path = f"agents/{two['id']}/core-memory/blocks"
        assert (await letta.patch(f"{path}/detach/{board['id']}"))["blocks"] == []
        again = await letta.ask("PATCH", f"{path}/detach/{board['id']}", 404)
        check_error(again, "not_found")
        # Sentences name things as the client knows them.
        assert board["id"] in again.json()["detail"]
        assert "Plan" not in json.dumps(await system_of(letta, up, two))
        assert "Plan: tea." in await system_of(letta, up, one)
        assert [a["id"] for a in await letta.get(f"blocks/{board['id']}/agents")] == [one["id"]]
        await letta.delete(f"blocks/{board['id']}")
        assert "Plan" not in await system_of(letta, up, one)
        assert "Name: Ada." in await system_of(letta, up, one)


async def test_what_one_agents_model_writes_reaches_the_other(data):
    append = call("core_memory_append", {"label": "board", "content": "Likes tea."})

    def reply(seen, wire):
        said = json.dumps(seen.json["messages"][-1])
        return calls(append) if "Save it" in said else text("Hi.")

    async with Model(reply) as up, door(up, data) as letta:
        one = await letta.post("agents", model="m", memory_blocks=[{"label": "board", "value": ""}])
        (board,) = one["blocks"]
        two = await letta.post("agents", model="m", block_ids=[board["id"]])
        await say(letta, two, "Hello")
        await say(letta, one, "Save it")
        assert (await letta.get(f"blocks/{board['id']}"))["value"] == "Likes tea."
        await say(letta, two, "And?")
        assert "Likes tea." in json.dumps(up.bodies[-1]["messages"])


async def test_blocks_stand_by_themselves(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("blocks", label="human", value="Ada.")
        assert (made["limit"], made["read_only"], made["description"]) == (20_000, False, "")
        assert await letta.get(f"blocks/{made['id']}/") == made
        assert await letta.get(f"blocks/{made['id']}/agents") == []
        changed = await letta.patch(f"blocks/{made['id']}", value="Bob.", description="Who")
        assert changed == {**made, "value": "Bob.", "description": "Who"}
        gone = await letta.delete(f"blocks/{made['id']}")
        assert gone == {"id": made["id"], "object": "block", "deleted": True}
        for method, path in (
            ("GET", f"blocks/{made['id']}"),
            ("PATCH", f"blocks/{made['id']}"),
            ("DELETE", f"blocks/{made['id']}"),
            ("GET", "blocks/block-x"),
        ):
            check_error(await letta.ask(method, path, 404, json={}), "not_found")
        assert not up.requests


@pytest.mark.parametrize(
    ("sent", "param", "code"),
    [
        ({"label": "No Label", "value": ""}, "label", "unprocessable"),
        ({"label": "memory_blocks", "value": ""}, "label", "unprocessable"),
        ({"value": ""}, "label", "unprocessable"),
        ({"label": "a"}, "value", "unprocessable"),
        ({"label": "a", "value": 7}, "value", "unprocessable"),
        ({"label": "a", "value": "", "limit": 0}, "limit", "unprocessable"),
        ({"label": "a", "value": "", "limit": True}, "limit", "unprocessable"),
        ({"label": "a", "value": "xyz", "limit": 2}, "value", "block_full"),
        ({"label": "a", "value": "", "description": "x" * 10_001}, "description", "unprocessable"),
    ],
)
async def test_a_block_that_cannot_be_is_refused_by_its_member(data, sent, param, code):
    async with Model("Hi.") as up, door(up, data) as letta:
        check_error(await letta.ask("POST", "blocks", 422, json=sent), code, param)
        of_agent = {"model": "m", "memory_blocks": [sent]}
        got = (await letta.ask("POST", "agents", 422, json=of_agent)).json()["error"]["param"]
        assert got in (f"memory_blocks.0.{param}", "memory_blocks.0")
        assert await letta.get("blocks") == await letta.get("agents") == []


async def test_blocks_are_listed_in_pages_by_id_oldest_first(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = [await letta.post("blocks", label=f"l{i % 2}", value=str(i)) for i in range(5)]
        ids = [block["id"] for block in made]

        async def listed(**params):
            return [block["id"] for block in await letta.get("blocks/", params=params)]

        assert await listed() == ids
        assert await listed(order="desc") == ids[::-1]
        assert await listed(limit=2) == ids[:2]
        assert await listed(limit=2, after=ids[1]) == ids[2:4]
        assert await listed(order="desc", limit=2, after=ids[3]) == [ids[2], ids[1]]
        assert await listed(limit=2, before=ids[4]) == ids[2:4]
        assert await listed(order="desc", limit=2, before=ids[0]) == [ids[2], ids[1]]
        assert await listed(after=ids[0], before=ids[3]) == ids[1:3]
        assert await listed(after=ids[4]) == await listed(after="block-x") == []
        assert await listed(after=f"block-{NO_AGENT[6:]}") == []
        assert await listed(label="l1") == [ids[1], ids[3]]
        await letta.delete(f"blocks/{ids[2]}")
        assert await listed(after=ids[2]) == ids[3:]
        elsewhere = Letta(letta.live, authorization=f"Bearer {SECRET}2")
        assert await elsewhere.get("blocks") == []
        for method in ("GET", "PATCH", "DELETE"):
            check_error(await elsewhere.ask(method, f"blocks/{ids[0]}", 404, json={}), "not_found")
        theirs = await elsewhere.post("agents", model="m")
        path = f"agents/{theirs['id']}/core-memory/blocks/attach/{ids[0]}"
        check_error(await elsewhere.ask("PATCH", path, 404), "not_found")
        strange = Letta(letta.live, authorization=f"Bearer {SECRET}1")
        for method, path in (("GET", "blocks"), ("POST", "blocks"), ("GET", f"blocks/{ids[0]}")):
            check_error(await strange.ask(method, path, 403, json=BLOCKS[0]), "forbidden")


async def test_what_an_agent_has_is_listed_in_pages_in_either_order(data):
    blocks = [{"label": label, "value": ""} for label in ("a", "b", "c")]
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=blocks)
        for path in (f"agents/{made['id']}/core-memory/blocks", f"agents/{made['id']}/tools"):
            ids = [item["id"] for item in await letta.get(path)]
            for order, ordered_ids in (("asc", ids), ("desc", ids[::-1])):
                seen_ids = []
                while page := await letta.get(
                    path,
                    params={"order": order, "limit": 2, "after": seen_ids[-1] if seen_ids else ""},
                ):
                    seen_ids += [item["id"] for item in page]
                assert seen_ids == ordered_ids
                params = {"order": order, "before": ordered_ids[2], "limit": 1}
                assert [item["id"] for item in await letta.get(path, params=params)] == [
                    ordered_ids[1]
                ]
            check_error(
                await letta.ask("GET", path, 422, params={"order": "up"}), "unprocessable", "order"
            )


async def test_blocks_made_with_an_agent_go_with_the_last_one_that_has_them(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        alone = await letta.post("blocks", label="board", value="Plan.")
        locked = {"label": "rules", "value": "Be kind.", "read_only": True}
        one = await letta.post(
            "agents", model="m", memory_blocks=[*BLOCKS, locked], block_ids=[alone["id"]]
        )
        ids = {b["label"]: b["id"] for b in one["blocks"]}
        two = await letta.post("agents", model="m", block_ids=[ids["human"]])
        assert (await letta.delete(f"agents/{one['id']}"))["erased"]["blocks"] == 2

        async def left():
            return {b["label"]: b["id"] for b in await letta.get("blocks")}

        assert await left() == {"board": alone["id"], "human": ids["human"]}
        assert [a["id"] for a in await letta.get(f"blocks/{ids['human']}/agents")] == [two["id"]]
        await letta.delete(f"agents/{two['id']}")
        assert await left() == {"board": alone["id"]}


async def test_an_agent_shows_one_block_of_each_label_and_no_more_than_fit(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        one = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        second = await letta.post("blocks", label="human", value="Bob.")
        path = f"agents/{one['id']}/core-memory/blocks"
        got = await letta.ask("PATCH", f"{path}/attach/{second['id']}", 409)
        check_error(got, "label_taken")
        assert got.headers["x-should-retry"] == "false"
        both = {"model": "m", "memory_blocks": BLOCKS, "block_ids": [second["id"]]}
        check_error(await letta.ask("POST", "agents", 409, json=both), "label_taken")
        twice = {"model": "m", "memory_blocks": [BLOCKS[0]] * 2}
        check_error(
            await letta.ask("POST", "agents", 422, json=twice), "unprocessable", "memory_blocks"
        )
        none = {"model": "m", "block_ids": [f"block-{NO_AGENT[6:]}"]}
        check_error(await letta.ask("POST", "agents", 404, json=none), "not_found")
        much = [{"label": f"l{i}", "value": "x" * 20_000} for i in range(4)]
        got = await letta.ask("POST", "agents", 409, json={"model": "m", "memory_blocks": much})
        check_error(got, "block_space")
        assert [a["id"] for a in await letta.get("agents")] == [one["id"]]
        assert len(await letta.get("blocks")) == 3


async def test_block_ids_of_a_change_replace_those_that_an_agent_shows(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        board = await letta.post("blocks", label="board", value="Plan.")
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        human = made["blocks"][0]
        path = f"agents/{made['id']}"
        changed = await letta.patch(path, block_ids=[human["id"], board["id"]])
        assert changed["blocks"] == [board, human]
        assert (await letta.patch(path, name="Sam"))["blocks"] == [board, human]
        check_error(await letta.ask("PATCH", path, 404, json={"block_ids": ["x"]}), "not_found")
        assert (await letta.patch(path, block_ids=[]))["blocks"] == []
        assert len(await letta.get("blocks")) == 3


async def test_the_blocks_of_an_agent_of_ours_are_shown_beside_attached_ones(data):
    profile = {"model": "m", "home": "agent", "inherit_blocks": False}
    blocks = [{"label": "human", "value": "Name: Ada."}, {"label": "persona", "value": "Sam."}]
    async with Model("Hi.") as up, door(up, data) as letta:
        live = letta.live
        url = f"{live.root}/memory/v1/agents/sam"
        await live.http.put(url, json={**profile, "blocks": blocks})
        (sam,) = await letta.get("agents")
        board = await letta.post("blocks", label="human", value="Name: Bob.")
        path = f"agents/{sam['id']}/core-memory/blocks"
        own = sam["blocks"][0]
        changed = await letta.patch(f"{path}/human", value="Name: Max.")
        assert changed == {**own, "value": "Name: Max."}
        await letta.patch(f"{path}/attach/{own['id']}")
        shown = (await letta.patch(f"{path}/attach/{board['id']}"))["blocks"]
        assert [b["value"] for b in shown] == ["Name: Bob.", "Sam."]
        persona = shown[1]["id"]
        check_error(await letta.ask("PATCH", f"{path}/detach/{persona}", 501), "not_supported")
        assert "Name: Bob." in await system_of(letta, up, sam)
        shown = (await letta.patch(f"{path}/detach/{board['id']}"))["blocks"]
        assert [b["value"] for b in shown] == ["Name: Max.", "Sam."]


async def test_deleted_blocks_take_no_place_of_an_agent(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        path = f"agents/{made['id']}/core-memory/blocks/attach"
        for number in range(66):
            block = await letta.post("blocks", label=f"l{number}", value="")
            await letta.patch(f"{path}/{block['id']}")
            await letta.delete(f"blocks/{block['id']}")


async def test_a_secret_is_no_value_of_a_block(data):
    secret = "sk-proj-" + "a1B2c3D4" * 8
    async with Model("Hi.") as up, door(up, data) as letta:
        sent = {"label": "a", "value": f"Key: {secret}"}
        check_error(await letta.ask("POST", "blocks", 422, json=sent), "unprocessable", "value")


async def test_the_passages_of_an_agent(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        path = f"agents/{made['id']}/archival-memory"
        texts = ["Ada likes tea.", "Bob plays chess.", "Ada owns a boat."]
        stored = [(await letta.post(path, text=words, tags=[words[:3]]))[0] for words in texts]
        assert [p["text"] for p in stored] == texts
        ids = [p["id"] for p in stored]

        async def listed(**params):
            return [p["id"] for p in await letta.get(path, params=params)]

        assert await listed() == ids
        assert await listed(ascending=False) == ids[::-1]
        assert await listed(after=ids[0], limit=1) == [ids[1]]
        assert await listed(before=ids[2], limit=1) == [ids[1]]
        assert await listed(after=ids[2], ascending=False) == [ids[1], ids[0]]
        assert await listed(before=ids[0], ascending=False, limit=1) == [ids[1]]
        assert await listed(after=ids[2]) == []
        assert await listed(after="passage-x") == []
        assert await listed(search="chess") == [ids[1]]
        found = await letta.get(f"{path}/search", params={"query": "tea"})
        assert (found["count"], found["results"][0]["id"]) == (1, ids[0])
        assert set(found["results"][0]) == {"id", "content", "timestamp", "tags"}
        for mode, count in (("any", 3), ("all", 0)):
            params = {"query": "", "tags": ["Ada", "Bob"], "tag_match_mode": mode}
            assert (await letta.get(f"{path}/search", params=params))["count"] == count
        await letta.delete(f"{path}/{ids[0]}")
        assert await listed() == ids[1:]
        check_error(await letta.ask("DELETE", f"{path}/{ids[0]}", 404), "not_found")
        for sent, param in (
            ({}, "text"),
            ({"text": "a", "tags": 7}, "tags"),
            ({"text": "a", "created_at": "x"}, "created_at"),
        ):
            check_error(await letta.ask("POST", path, 422, json=sent), "unprocessable", param)
        await letta.ask("POST", path, 422, json={"text": " "})


async def test_a_project_of_the_client_is_a_part_of_the_agents_memory(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        human = {"label": "human", "value": "Name: Ada."}
        made = await letta.post("agents", model="m", memory_blocks=[human])
        path = f"agents/{made['id']}"
        inside = Letta(letta.live, **{"x-project": "apollo"})
        ours = Letta(letta.live, **{"x-memory-project": "apollo", "x-project": "gemini"})
        await letta.post(f"{path}/archival-memory", text="Ada likes tea.")
        got = await inside.ask("POST", f"{path}/archival-memory", json={"text": "Launch in May."})
        assert got.headers["x-memory-project"] == "apollo"
        got = await say(inside, made, "Inside")
        assert got.headers["x-memory-project"] == "apollo"
        assert human["value"] in str(up.bodies[-1])
        await say(letta, made, "Outside")
        assert "Inside" not in str(up.bodies[-1])
        for client, text, words in (
            (letta, "Ada likes tea.", "Outside"),
            (inside, "Launch in May.", "Inside"),
            (ours, "Launch in May.", "Inside"),
        ):
            assert [p["text"] for p in await client.get(f"{path}/archival-memory")] == [text]
            listed = await client.get(f"{path}/messages", params={"order": "asc"})
            assert [m["content"] for m in listed] == [words, "Hi."]
        await letta.live.memory("PUT", "/projects/apollo", json={"users": ["ann"]})
        for method, rest, sent in (
            ("GET", "messages", None),
            ("POST", "archival-memory", {"text": "x"}),
            ("POST", "messages", {"input": "x"}),
        ):
            refused = await inside.ask(method, f"{path}/{rest}", 403, json=sent)
            check_error(refused, "project_not_allowed", "x-memory-project")


async def test_the_tools_of_an_agent_are_attached_and_detached(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", include_base_tools=False)
        path = f"agents/{made['id']}/tools"
        (search,) = await letta.get("tools", params={"name": "web_search"})
        state = await letta.patch(f"{path}/attach/{search['id']}")
        assert [t["name"] for t in state["tools"]] == ["web_search"]
        assert await letta.get(path) == state["tools"]
        (memory,) = await letta.get("tools", params={"name": "memory_insert"})
        state = await letta.patch(f"{path}/attach/{memory['id']}")
        assert {"core_memory_append", "memory_insert"} <= {t["name"] for t in state["tools"]}
        state = await letta.patch(f"{path}/detach/{search['id']}")
        assert "web_search" not in {t["name"] for t in state["tools"]}
        await letta.patch(f"{path}/attach/tool-x", 404)
        await say(letta, made, "a")
        assert "web_search" not in json.dumps(up.bodies[-1].get("tools", []))


def without_ids(file):
    """A file as it is but for ids and times."""
    if isinstance(file, dict):
        left = {k: v for k, v in file.items() if k not in ("id", "created_at")}
        return {k: without_ids(v) for k, v in left.items()}
    return [without_ids(v) for v in file] if isinstance(file, list) else file


async def test_a_l5_an_agent_goes_out_as_a_file_and_comes_in_again(data):
    async with Model(*TURN, "Yes.") as up, door(up, data) as letta:
        made = await letta.post(
            "agents",
            model="openai/m",
            name="Sam",
            memory_blocks=BLOCKS,
            system="Be kind.",
            tools=["web_search"],
            tags=["x"],
            metadata={"a": 1},
            timezone="Europe/Berlin",
            description="About",
            embedding="openai/e",
        )
        await say(letta, made, "I like tea")
        await letta.post(
            f"agents/{made['id']}/archival-memory", text="Ada owns a boat.", tags=["b"]
        )
        first = (await letta.ask("GET", f"agents/{made['id']}/export")).text

        async def bring(text, status=200, **form):
            files = {"file": ("sam.af", text.encode())}
            got = await letta.ask("POST", "agents/import", status, files=files, data=form)
            return got.json() if status != 200 else got.json()["agent_ids"]

        (ident,) = await bring(first)
        second = (await letta.ask("GET", f"agents/{ident}/export")).text
        assert without_ids(json.loads(second)) == without_ids(json.loads(first))
        state = await letta.get(f"agents/{ident}")
        assert (state["name"], state["model"], state["system"]) == ("Sam", "openai/m", "Be kind.")
        await say(letta, {"id": ident}, "And?")
        told = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "user"]
        assert told[0] == "I like tea"

        form = {"append_copy_suffix": "true", "strip_messages": "true", "model": "openai/n"}
        (ident,) = await bring(first, **form)
        state = await letta.get(f"agents/{ident}")
        assert (state["name"], state["model"], state["message_ids"]) == ("Sam_copy", "openai/n", [])
        (ident,) = await bring(first, override_name="Max")
        assert (await letta.get(f"agents/{ident}"))["name"] == "Max"
        for text in ("{}", "[]", "x"):
            assert (await bring(text, 422))["detail"]
        assert (await bring(first, 422, secrets='{"a": "b"}'))["error"]["param"] == "secrets"


OLD_FILE = {
    "agents": [
        {
            "id": "agent-0",
            "name": "Old",
            "system": "Be old.",
            "agent_type": "memgpt_agent",
            "llm_config": {"model": "gpt-4o-mini", "handle": "openai/gpt-4o-mini"},
            "block_ids": ["block-0"],
            "tool_ids": ["tool-0", "tool-1"],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": '{"type": "user_message", "message": "Hi"}'}
                    ],
                },
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "They greet."}],
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {
                                "name": "send_message",
                                "arguments": '{"message": "Hello!"}',
                            },
                        }
                    ],
                },
                {"role": "tool", "content": [{"type": "text", "text": '{"status": "OK"}'}]},
            ],
        }
    ],
    "blocks": [{"id": "block-0", "label": "human", "value": "Ada.", "limit": 5000}],
    "tools": [{"id": "tool-0", "name": "send_message"}, {"id": "tool-1", "name": "own"}],
    "groups": [],
    "files": [],
    "sources": [],
    "mcp_servers": [],
}


async def test_a_l5_an_older_file_with_send_message_is_read(data):
    async with Model("Yes.") as up, door(up, data) as letta:
        files = {"file": ("old.af", json.dumps(OLD_FILE).encode())}
        got = await letta.ask("POST", "agents/import", files=files)
        assert got.headers["x-mnemogate-dropped"] == "tools"
        (ident,) = got.json()["agent_ids"]
        state = await letta.get(f"agents/{ident}")
        assert state["llm_config"]["model"] == "gpt-4o-mini"
        assert state["blocks"][0]["value"] == "Ada."
        await say(letta, {"id": ident}, "And?")
        told = [m for m in up.bodies[-1]["messages"] if m["role"] != "system"]
        assert [m["content"] for m in told] == ["Hi", "Hello!", "And?"]


async def bring_file(letta, file, status=200):
    files = {"file": ("file.af", json.dumps(file).encode())}
    return (await letta.ask("POST", "agents/import", status, files=files)).json()


async def test_a_l5_a_file_of_several_agents_comes_in_whole_or_not_at_all(data):
    """A block that they share in the file is one block here too."""
    (first,) = OLD_FILE["agents"]
    wrong = {"timezone": "Mars/Base"}, {"llm_config": {}}
    async with Model("Yes.") as up, door(up, data) as letta:
        for change in wrong:
            agents = [first, {**first, "id": "agent-1", **change}]
            await bring_file(letta, {**OLD_FILE, "agents": agents}, 422)
            assert await letta.get("agents") == []
            assert await letta.get("blocks") == []
        agents = [first, {**first, "id": "agent-1", "name": "Second"}]
        ids = (await bring_file(letta, {**OLD_FILE, "agents": agents}))["agent_ids"]
        (block,) = await letta.get("blocks")
        for ident in ids:
            assert [b["id"] for b in (await letta.get(f"agents/{ident}"))["blocks"]] == [
                block["id"]
            ]
        await letta.patch(f"agents/{ids[0]}/core-memory/blocks/human", value="Eve.")
        await say(letta, {"id": ids[1]}, "And?")
        assert "Eve." in str(up.bodies[-1]["messages"][0])


async def test_with_the_local_token_the_providers_key_is_the_last_one_that_was_sent(data):
    async with Model("Hi.") as up, running(up.url, data) as live:
        token = (data / "token").read_text().strip()
        letta = Letta(live, authorization=f"Bearer {token}")
        made = await letta.post("agents", model="m")
        await say(letta, made, "a")
        assert token not in str(up.requests[-1].headers)
        await live.chat("Hello", {"authorization": "Bearer sk-of-the-provider"})
        await say(letta, made, "b")
        assert "sk-of-the-provider" in str(up.requests[-1].headers)


@pytest.mark.parametrize("tokens", [False, True])
async def test_a_long_stream_is_the_text_that_the_model_gave(data, tokens):
    words = " ".join(f"word{i}" for i in range(300))
    async with Model(words) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        got = await say(letta, made, "a", streaming=True, stream_tokens=tokens)
        found = [e for e in events(got.text) if e != "[DONE]"]
        pieces = [e["content"] for e in found if e["message_type"] == "assistant_message"]
        assert (len(pieces) > 1) == tokens
        assert "".join(pieces) == words
        assert got.text.startswith("data: ")
        listed = await letta.get(f"agents/{made['id']}/messages")
        assert listed[0]["content"] == words


PIECES = ['a "b"', "\n\n", " ä€😀", "\\u0041", "{", "}", "\u2028", "0", " "] * 40


async def speak(seen, wire):
    """An answer whose thoughts and text come in small pieces."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    async def delta(part, finish=None):
        choice = {"index": 0, "delta": part, "finish_reason": finish}
        await wire.event({**head, "choices": [choice]})

    await wire.start_stream()
    await delta({"role": "assistant", "content": ""})
    for piece in PIECES:
        await delta({"reasoning_content": piece})
    for piece in PIECES:
        await delta({"content": piece})
    await delta({}, "stop")
    await wire.event(b"[DONE]")
    await wire.end()


@pytest.mark.parametrize("kinds", [None, ["reasoning_message"], ["assistant_message"]])
async def test_pieces_that_are_known_by_their_bytes_are_those_that_came(data, kinds):
    wanted = {"assistant_message": "content", "reasoning_message": "reasoning"}
    async with Model(lambda seen, wire: speak(seen, wire)) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        options = {"include_return_message_types": kinds} if kinds else {}
        got = await say(letta, made, "a", streaming=True, stream_tokens=True, **options)
        items = [e for e in events(got.text) if e != "[DONE]" and e["message_type"] in wanted]
        for kind, member in wanted.items():
            mine = [e for e in items if e["message_type"] == kind]
            assert [e[member] for e in mine] == (PIECES if not kinds or kind in kinds else [])
            fixed = [{k: v for k, v in e.items() if k != member} for e in mine]
            assert all(e == fixed[0] for e in fixed)
        (listed,) = await letta.get(
            f"agents/{made['id']}/messages",
            params={"include_return_message_types": ["assistant_message"]},
        )
        assert listed["content"] == "".join(PIECES)


async def test_memory_off_answers_in_items_too(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m")
        off = Letta(letta.live, **{"x-memory": "off"})
        for streaming in (False, True):
            got = await say(off, made, "a", streaming=streaming)
            assert got.headers["x-memory-status"] == "off"
            items = events(got.text) if streaming else got.json()["messages"]
            assert items[0]["content"] == "Hi."
        assert await letta.get(f"agents/{made['id']}/messages") == []


async def test_calls_are_listed_when_what_retries_need_is_gone(data):
    async with Model(*TURN) as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        got = (await say(letta, made, "I like tea")).json()["messages"]
        db = letta.live.gateway.memory.db
        await db.write(lambda conn: conn.execute(update(nodes).values(rounds=None)))
        listed = await letta.get(f"agents/{made['id']}/messages", params={"order": "asc"})
        named = {(i["id"], i["message_type"]) for i in listed if "tool_" in i["message_type"]}
        assert named == {(i["id"], i["message_type"]) for i in got if "tool_" in i["message_type"]}
        assert [i["content"] for i in listed if "content" in i] == [
            "I like tea",
            "One moment.\n\nNoted, tea.",
        ]
        called = [i["tool_call"]["tool_call_id"] for i in listed if "tool_call" in i]
        returned = [i["tool_call_id"] for i in listed if "tool_return" in i]
        assert called == returned


LETTA_RULES = [
    {"type": "run_first", "tool_name": "memory_insert"},
    {"type": "constrain_child_tools", "tool_name": "conversation_search", "children": ["a"]},
    {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 2},
    {"tool_name": "b", "children": ["a"]},
    {"type": "exit_loop", "tool_name": "core_memory_append", "prompt_template": "x"},
]


async def test_tool_rules_are_rules_of_the_profile_and_shown_as_given(data):
    async with Model("Hi.") as up, door(up, data) as letta:
        made = await letta.post("agents", model="m", tool_rules=LETTA_RULES)
        assert made["tool_rules"] == LETTA_RULES
        path = f"/agents/agent_{made['id'].removeprefix('agent-').replace('-', '')}"
        profile = (await letta.live.memory("GET", path)).json()
        kinds = [(rule["type"], rule.get("tools")) for rule in profile["tool_rules"]]
        assert kinds == [
            ("first", ["core_memory_append"]),
            ("children", ["a"]),
            ("max_count", ["a"]),
            ("children", ["a"]),
            ("ends_turn", ["core_memory_append"]),
        ]
        ours = [{"type": "max_count", "tools": ["z"], "count": 1}, {"type": "deny", "tools": ["y"]}]
        changed = await letta.live.memory("PATCH", path, json={"tool_rules": ours})
        assert changed.status_code == 200, changed.text
        told = {"type": "max_count_per_step", "max_count_limit": 1, "tool_name": "z"}
        assert (await letta.get(f"agents/{made['id']}"))["tool_rules"] == [told]
        back = await letta.patch(f"agents/{made['id']}", tool_rules=LETTA_RULES[:1])
        assert back["tool_rules"] == LETTA_RULES[:1]
        for wrong in ({"type": "nonsense", "tool_name": "x"}, {"type": "max_count_per_step"}):
            got = await letta.ask("POST", "agents", 422, json={"model": "m", "tool_rules": [wrong]})
            assert got.json()["error"]["param"] == "tool_rules", got.text


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_tool_that_exits_the_loop_ends_the_turn_with_its_result(data, streaming):
    remember = call("core_memory_append", {"label": "human", "content": "Likes tea."})
    async with Model(calls(remember), "Never asked.") as up, door(up, data) as letta:
        blocks = [{"label": "human", "value": ""}]
        rules = LETTA_RULES[-1:]
        made = await letta.post("agents", model="m", memory_blocks=blocks, tool_rules=rules)
        sent = {"messages": [{"role": "user", "content": "I like tea"}]}
        if streaming:
            path = f"agents/{made['id']}/messages/stream"
            told = await letta.ask("POST", path, json=sent)
            items = [json.loads(d[6:]) for d in told.text.split("\n\n") if d.startswith("data: {")]
        else:
            got = await letta.post(f"agents/{made['id']}/messages", **sent)
            items = [*got["messages"], got["stop_reason"]]
        kinds = [item["message_type"] for item in items]
        assert kinds[:3] == ["tool_call_message", "tool_return_message", "stop_reason"]
        assert (items[2]["stop_reason"], len(up.bodies)) == ("tool_rule", 1)
