"""Tools of the operator at a Letta agent: attached, offered, run, and shown in its answers."""

from __future__ import annotations

import json

import pytest

from tests.conftest import events
from tests.e2e.operator_tools import ToolServer, gateway, granting, offered
from tests.e2e.test_letta import Letta, check_error, say
from tests.models import Model, call, calls, text

SECRET = "mg-0123456789abcdef0123"
SOURCE = '''
def triple(days: int, note: str = "") -> str:
    """Triple a number of days."""
    return f"{days * 3} days {note}"
'''
CALL = call("triple", {"days": "4"}, "c1")


def reply(seen, wire):
    """A model that calls the tool, and then answers."""
    if seen.json["messages"][-1]["role"] == "tool":
        return text("Twelve.")
    return calls(CALL, content="One moment.")


ITEMS = ["assistant_message", "tool_call_message", "tool_return_message", "assistant_message"]
ADMIN = {"authorization": f"Bearer {SECRET}-admin"}
ELSEWHERE = {"authorization": f"Bearer {SECRET}-elsewhere"}


def config_of(**tools):
    config = granting(tools, key={"tools": []})
    elsewhere = {"name": "e", "key": f"{SECRET}-elsewhere", "tenant": "u", "admin": True}
    return {**config, "keys": [*config["keys"], elsewhere]}


def names_of(agent):
    return [tool["name"] for tool in agent["tools"]]


def own_names(up):
    """The operator's tools of the newest request upstream."""
    return [name for name in offered(up.bodies[-1]) if name in ("triple", "web_search", "lookup")]


@pytest.fixture
def sandbox():
    pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")


async def test_a_made_tool_is_attached_offered_run_and_shown(data, sandbox):
    async with Model(reply) as up, gateway(up, data, config_of()) as live:
        admin = Letta(live, **ADMIN)
        tool = await admin.post("tools/", source_code=SOURCE)
        bare = {"model": "m", "include_base_tools": False}
        by_id = await admin.post("agents", **bare, tool_ids=[tool["id"]])
        by_name = await admin.post("agents", **bare, tools=["triple"])
        attached = await admin.post("agents", **bare)
        attached = await admin.patch(f"agents/{attached['id']}/tools/attach/{tool['id']}")
        for agent in (by_id, by_name, attached):
            (shown,) = agent["tools"]
            assert (shown["name"], shown["tool_type"]) == ("triple", "custom")
            assert shown["json_schema"]["parameters"]["required"] == ["days"]
            got = (await say(admin, agent, "How long?")).json()
            assert own_names(up) == ["triple"]
            assert [item["message_type"] for item in got["messages"]] == ITEMS
            _, called, returned, _ = got["messages"]
            assert called["tool_call"] == {
                "name": "triple",
                "arguments": '{"days": "4"}',
                "tool_call_id": "c1",
            }
            assert (returned["status"], returned["tool_call_id"]) == ("success", "c1")
            assert (returned["tool_return"], returned["name"]) == ("12 days ", "triple")
            assert got["usage"]["step_count"] == 2
            listed = await admin.get(f"agents/{agent['id']}/messages", params={"order": "asc"})
            assert [item["message_type"] for item in listed] == ["user_message", *ITEMS]
            assert [i["tool_return"] for i in listed if "tool_return" in i] == ["12 days "]


@pytest.mark.parametrize("tokens", [False, True])
async def test_the_stream_shows_the_call_and_what_it_returned(data, sandbox, tokens):
    async with Model(reply) as up, gateway(up, data, config_of()) as live:
        admin = Letta(live, **ADMIN)
        tool = await admin.post("tools/", source_code=SOURCE)
        agent = await admin.post("agents", model="m", tool_ids=[tool["id"]])
        got = await say(admin, agent, "How long?", path="messages/stream", stream_tokens=tokens)
        items = events(got.text)[:-1]
        kinds = [item.get("message_type", str(item)) for item in items]
        assert list(dict.fromkeys(kinds))[:3] == ITEMS[:3]
        called = [i["tool_call"] for i in items if i["message_type"] == "tool_call_message"]
        assert "".join(c["arguments"] or "" for c in called) == '{"days": "4"}'
        assert called[0]["name"] == "triple"
        (returned,) = [i for i in items if i["message_type"] == "tool_return_message"]
        assert (returned["tool_return"], returned["tool_call_id"]) == ("12 days ", "c1")
        assert returned["tool_call_id"] == called[0]["tool_call_id"]


async def test_a_grant_counts_from_the_next_message_in_the_same_conversation(data, sandbox):
    async with Model("Hi.") as up, gateway(up, data, config_of()) as live:
        admin = Letta(live, **ADMIN)
        tool = await admin.post("tools/", source_code=SOURCE)
        agent = await admin.post("agents", model="m")
        path = f"agents/{agent['id']}/tools"

        async def seen(words):
            await say(admin, agent, words)
            return own_names(up)

        assert await seen("one") == []
        await admin.patch(f"{path}/attach/{tool['id']}")
        assert await seen("two") == await seen("three") == ["triple"]
        bodies = [json.dumps(body["tools"]) for body in up.bodies[-2:]]
        assert bodies[0] == bodies[1]
        state = await admin.patch(f"{path}/detach/{tool['id']}")
        assert "triple" not in names_of(state)
        assert await seen("four") == []
        await admin.patch(f"agents/{agent['id']}", tool_ids=[tool["id"]])
        assert await seen("five") == ["triple"]
        await admin.delete(f"tools/{tool['id']}")
        assert await seen("six") == []
        (shown,) = [t for t in await admin.get(path) if t["name"] == "triple"]
        assert shown["description"].startswith("Not available here:")
        await admin.post("tools/", source_code=SOURCE)
        assert await seen("seven") == ["triple"]
        await admin.delete(f"tools/{tool['id']}")
        await admin.patch(f"{path}/detach/{tool['id']}")
        assert "triple" not in [t["name"] for t in await admin.get(path)]


async def test_a_made_tool_is_changed_listed_and_upserted(data, sandbox):
    async with Model(reply) as up, gateway(up, data, config_of()) as live:
        admin = Letta(live, **ADMIN)
        tool = await admin.post("tools/", source_code=SOURCE, description="Says three times.")
        assert tool["description"] == "Says three times."
        agent = await admin.post("agents", model="m", tool_ids=[tool["id"]])
        four = SOURCE.replace("* 3", "* 4")
        changed = await admin.patch(f"tools/{tool['id']}", source_code=four)
        assert (changed["id"], changed["description"]) == (tool["id"], "Says three times.")
        changed = await admin.patch(f"tools/{tool['id']}", description="Says it again.")
        assert (changed["source_code"], changed["description"]) == (four, "Says it again.")
        got = (await say(admin, agent, "How long?")).json()
        assert [i["tool_return"] for i in got["messages"] if "tool_return" in i] == ["16 days "]
        upserted = (await admin.ask("PUT", "tools/", json={"source_code": SOURCE})).json()
        assert upserted["id"] == tool["id"]
        assert (await admin.get("tools/", params={"name": "triple"}))[0]["id"] == tool["id"]
        for members, param in (
            ({"pip_requirements": [{"name": "x"}]}, "pip_requirements"),
            ({"npm_requirements": [{"name": "x"}]}, "npm_requirements"),
            ({"source_type": "typescript"}, "source_type"),
        ):
            sent = {"source_code": SOURCE, **members}
            refused = await admin.ask("POST", "tools/", 422, json=sent)
            check_error(refused, "not_supported", param)
        other = SOURCE.replace("triple", "other")
        check_error(
            await admin.ask("PATCH", f"tools/{tool['id']}", 422, json={"source_code": other}),
            "invalid_source",
            "source_code",
        )


async def test_a_key_without_the_right_names_tools_that_are_then_not_offered(data):
    """It is never a 403: the name is kept, and says that the tool is not available."""
    async with ToolServer(web_search="found it") as server, Model("Hi.") as up:
        config = config_of(web_search=server.entry("web_search"), lookup=server.entry("lookup"))
        async with gateway(up, data, config) as live:
            app, admin = Letta(live), Letta(live, **ADMIN)
            named = ["web_search", "run_code", "fetch_webpage", "lookup"]
            agent = await app.post("agents", model="m", tools=named)
            tools = {tool["name"]: tool for tool in agent["tools"]}
            for name in named:
                assert tools[name]["description"].startswith("Not available here:"), name
            await say(app, agent, "Hi")
            assert own_names(up) == []
            listed = {tool["name"] for tool in await app.get("tools/")}
            assert {*named[:3]} <= listed
            assert "lookup" not in listed
            listed = {tool["name"]: tool for tool in await admin.get("tools/")}
            assert listed["web_search"]["description"] == "Tells the web_search of a city."
            assert listed["run_code"]["description"].startswith("Not available here:")
            assert "lookup" in listed

            agent = await admin.post("agents", model="m", tools=named)
            tools = {tool["name"]: tool["description"] for tool in agent["tools"]}
            assert tools["web_search"] == "Tells the web_search of a city."
            assert tools["run_code"].startswith("Not available here:")
            await say(admin, agent, "Hi")
            assert own_names(up) == ["lookup", "web_search"]
            # What an admin key granted, a key without the right leaves alone.
            refused = await app.ask("PATCH", f"agents/{agent['id']}", 403, json={"name": "Max"})
            check_error(refused, "tool_not_allowed", "tools")


async def test_a_trusted_key_grants_what_its_own_tools_grant(data):
    async with ToolServer() as server, Model("Hi.") as up:
        tools = {name: server.entry(name) for name in ("web_search", "lookup")}
        config = granting(tools, key={"tools": ["look*"], "tools_max": ["lookup", "web*"]})
        async with gateway(up, data, config) as live:
            for pattern, status in (
                ("lookup", 200),
                ("web_search", 403),
                ("look*", 403),
                ("*", 403),
            ):
                members = {"model": "m", "tools": [pattern]}
                got = await live.memory("PUT", "/agents/x", json=members)
                assert got.status_code == status, pattern
            app = Letta(live)
            agent = await app.post("agents", model="m", tools=["lookup", "web_search"])
            tools = {tool["name"]: tool["description"] for tool in agent["tools"]}
            assert tools["lookup"] == "Tells the lookup of a city."
            assert tools["web_search"].startswith("Not available here:")


async def test_grants_by_a_pattern_are_listed_and_taken_back_in_the_profile(data):
    async with ToolServer() as server, Model("Hi.") as up:
        async with gateway(up, data, config_of(lookup=server.entry("lookup"))) as live:
            admin = Letta(live, **ADMIN)
            members = {"model": "m", "home": "agent", "tools": ["look*"]}
            made = await live.memory("PUT", "/agents/x", json=members, headers=ADMIN)
            ident = "agent-" + made.json()["id"].removeprefix("agent_")
            ident = f"{ident[:14]}-{ident[14:18]}-{ident[18:22]}-{ident[22:26]}-{ident[26:]}"
            tools = {tool["name"]: tool["id"] for tool in await admin.get(f"agents/{ident}/tools")}
            path = f"agents/{ident}/tools/detach/{tools['lookup']}"
            refused = await admin.ask("PATCH", path, 409, json={})
            assert refused.json()["error"]["code"] == "granted_by_pattern"


async def test_a_tool_of_another_tenant_is_404_by_every_route(data, sandbox):
    async with Model("Hi.") as up, gateway(up, data, config_of()) as live:
        admin, elsewhere = Letta(live, **ADMIN), Letta(live, **ELSEWHERE)
        tool = await admin.post("tools/", source_code=SOURCE)
        agent = await elsewhere.post("agents", model="m")
        ident, path = tool["id"], f"agents/{agent['id']}/tools"
        await elsewhere.get(f"tools/{ident}", 404)
        await elsewhere.patch(f"tools/{ident}", 404, source_code=SOURCE)
        await elsewhere.delete(f"tools/{ident}", 404)
        await elsewhere.patch(f"{path}/attach/{ident}", 404)
        await elsewhere.patch(f"{path}/detach/{ident}", 404)
        await elsewhere.post("agents", 404, model="m", tool_ids=[ident])
        await elsewhere.post("agents", 404, model="m", tools=["triple"])
        await elsewhere.patch(f"agents/{agent['id']}", 404, tool_ids=[ident])
        assert "triple" not in json.dumps(await elsewhere.get("tools/"))
        # Of its own tenant a key that makes no tools sees the tool, and not its source.
        app = Letta(live)
        assert (await app.get(f"tools/{ident}", 404))["error"]["code"]
