"""The household of config/: its files agree, and its gateway gives each person a memory."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import yaml

from gateway.config.loader import load
from tests.conftest import running
from tests.models import Model, call, calls

CONFIG = Path(__file__).parents[2] / "config"
TEAMS = Path(__file__).parents[2] / "docs" / "teams.md"
KEY = "household-key"
TEA = {"label": "human", "content": "Likes tea"}


def compose():
    return yaml.safe_load((CONFIG / "compose.household.yaml").read_text())


def test_the_services_reach_each_other():
    services, settings = (
        compose()["services"],
        load(CONFIG / "household.toml", {"HOUSEHOLD_KEY": KEY}),
    )
    asked = services["open-webui"]["environment"]["OPENAI_API_BASE_URL"]
    assert asked == f"http://mnemogate:{settings.server.port}/v1"
    assert settings.providers["ollama"].base_url == "http://ollama:11434/v1"
    assert services["open-webui"]["environment"]["ENABLE_FORWARD_USER_INFO_HEADERS"] == "true"
    window = services["ollama"]["environment"]["OLLAMA_CONTEXT_LENGTH"]
    assert settings.models["*"].context_window == int(window)
    assert "ports" not in services["mnemogate"]
    inside = services["mnemogate"]["command"][2]
    assert f"./config/household.toml:{inside}:ro" in services["mnemogate"]["volumes"]


def test_every_volume_is_declared():
    found = compose()
    used = {v.partition(":")[0] for s in found["services"].values() for v in s["volumes"]}
    assert {v for v in used if not v.startswith(".")} == set(found["volumes"])


def test_only_open_webui_has_a_key():
    settings = load(CONFIG / "household.toml", {"HOUSEHOLD_KEY": KEY})
    assert (settings.mode, settings.single_user) == ("managed", False)
    assert [(k.name, k.trusted) for k in settings.keys] == [("open-webui", True)]


async def test_each_person_has_a_memory_and_each_chat_is_a_conversation(data):
    given = tomllib.loads((CONFIG / "household.toml").read_text())
    config = {name: given[name] for name in ("providers", "models", "keys")}
    config["keys"][0]["key"] = KEY

    async def ask(live, person, chat, words):
        headers = {
            "authorization": f"Bearer {KEY}",
            "X-OpenWebUI-User-Id": person,
            "X-OpenWebUI-User-Name": "Ada%20L",
            "X-OpenWebUI-User-Email": f"{person}@home.example",
            "X-OpenWebUI-Chat-Id": chat,
        }
        sent = {"model": "llama3.2", "messages": [{"role": "user", "content": words}]}
        http = await live.http.post(f"{live.url}/chat/completions", json=sent, headers=headers)
        assert http.status_code == 200, http.text
        assert http.headers["x-memory-user"] == person
        return http.headers["x-memory-conversation"]

    async with (
        Model(calls(call("core_memory_append", TEA)), "Noted.", "Tea.") as up,
        running(up.url, data, config) as live,
    ):
        assert await ask(live, "u-1", "c-1", "I like tea") == "c-1"
        assert await ask(live, "u-1", "c-2", "What do I like?") == "c-2"
        assert "Likes tea" in str(up.bodies[-1]["messages"][0])
        assert await ask(live, "u-2", "c-3", "What do I like?") == "c-3"
        assert "Likes tea" not in str(up.bodies[-1])


async def test_the_recipes_family_is_told_what_they_share_by_the_names_that_it_gives_them(data):
    """With the configuration that stands in the recipe, the users are those of its commands."""
    recipe = TEAMS.read_text().partition("## Recipe: a household")[2]
    (snippet,) = re.findall(r"```toml\n(.*?)```", recipe.partition("\n## ")[0], re.DOTALL)
    members = re.findall(r"--user (\S+@\S+?)[ `]", recipe)
    config = {"keys": [{"name": "open-webui", "key": KEY, "tenant": "t"}]}
    config |= tomllib.loads(textwrap.dedent(snippet))
    async with Model("Hi.") as up, running(up.url, data, config, key=KEY) as live:
        await live.memory("PUT", "/teams/family", json={"description": ""})
        for member in members:
            got = await live.memory("PUT", f"/teams/family/members/{member}", json={"write": True})
            assert got.status_code == 200, got.text
        block = {"label": "family", "value": "Dinner is at seven."}
        sent = {**block, "members": [{"team": "family", "write": True}]}
        assert (await live.memory("POST", "/shared-blocks", json=sent)).status_code == 201
        for person, is_told in ((members[0], True), (members[1], True), ("eve@example.com", False)):
            headers = {"X-OpenWebUI-User-Id": "u-1", "X-OpenWebUI-User-Email": person}
            assert (await live.chat("Hi", headers)).status_code == 200
            assert ("Dinner is at seven." in up.requests[-1].body.decode()) is is_told
