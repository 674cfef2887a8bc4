"""Letta clients: their calls, their objects and their errors, on our agents and memories."""

from __future__ import annotations

import contextlib

import pytest

from tests.conftest import running
from tests.models import Model

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
