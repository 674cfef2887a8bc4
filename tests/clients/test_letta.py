"""The Letta client at two versions, with strict validation of every answer, sync and async.

Run by `make test-clients`.
"""

from __future__ import annotations

import json

import pytest

from tests.clients.test_clients import Client, played
from tests.conftest import running
from tests.models import Model, call, calls, text

SECRET = "mg-0123456789abcdef0123"
VERSIONS = {"1.12.1": "letta1_12", "1.1.2": "letta1_1"}
KINDS = [
    "reasoning_message",
    "assistant_message",
    "tool_call_message",
    "tool_return_message",
    "reasoning_message",
    "assistant_message",
]
USED_KINDS = [*dict.fromkeys(KINDS), "stop_reason", "usage_statistics"]
APPEND = call("core_memory_append", {"label": "human", "content": "Likes tea."})


def reply(seen, wire):
    """A model that saves what it is told, and answers by what it is shown."""
    messages = seen.json["messages"]
    if messages[-1]["role"] == "tool":
        return thinking(text("Noted."))
    if "Triple 4" in json.dumps(messages[-1]):
        return thinking(calls(call("triple", {"days": "4"}), content="One moment."))
    if "What do I like?" in json.dumps(messages[-1]):
        return text("Tea." if "Likes tea." in json.dumps(messages) else "I do not know.")
    return thinking(calls(APPEND, content="One moment."))


def thinking(choice):
    return {**choice, "message": {**choice["message"], "reasoning_content": "Hm."}}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_l1_l2_a_letta_client_is_answered_in_every_call(version, tmp_path):
    command = Client(VERSIONS[version], "use_letta.py").command()
    data = tmp_path / "data"
    async with Model(reply) as model:
        targets = {"targets": [{"provider": "here"}]}
        config = {
            "keys": [
                {"name": "app", "key": SECRET, "tenant": "t"},
                {"name": "maker", "key": f"{SECRET}1", "tenant": "t", "admin": True},
            ],
            "providers": {"here": {"base_url": model.url}},
            "models": {"listed": targets, "*": targets},
        }
        async with running(model.url, data, config, key=SECRET) as live:
            scenes, _ = await played([*command, live.root, SECRET])
            kept = scenes.pop("kept")
            assert kept["version"] == version
            for mode in ("sync", "async"):
                check(
                    mode,
                    {
                        k.removeprefix(f"{mode}_"): v
                        for k, v in scenes.items()
                        if k.startswith(mode)
                    },
                )
        async with running(model.url, data, config, key=SECRET) as live:
            again, _ = await played([*command, live.root, SECRET, kept["agent"]])
            assert again["again"]["text"] == "Tea."


def check(mode, scenes):
    assert scenes["agent"] == {"model": "openai/gpt-4.1", "tools": ["web_search", "run_code"]}
    assert scenes["message"] == {
        "kinds": KINDS,
        "text": ["One moment.", "Noted."],
        "usage": [200, 220, 2],
        "stop": "end_turn",
    }
    for scene in ("streaming", "stream", "tokens"):
        assert scenes[scene] == {"kinds": USED_KINDS, "text": "One moment.Noted."}, (mode, scene)
    assert scenes["made_tool"] == {
        "kinds": KINDS,
        "calls": ["triple"],
        "returns": ["12 days"],
    }
    assert list(dict.fromkeys(scenes["made_tool_stream"]["kinds"])) == USED_KINDS
    assert scenes["listed"]["kinds"][:3] == ["user_message", *KINDS[:2]]
    faults = scenes["faults"]
    assert faults["missing"] == ["NotFoundError", 404, "0"]
    assert faults["refused"] == ["UnprocessableEntityError", 422, "0"]
    assert faults["own_tool"] == ["PermissionDeniedError", 403, "0"]
    assert faults["later"] in (None, ["InternalServerError", 501, "0"])
