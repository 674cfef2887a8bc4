"""The SDKs and frameworks that speak Responses, against a live gateway and a strict server: what
their users see, memory on and off.

Run by `make test-clients`.
"""

from __future__ import annotations

import pytest

from memory.core.tool_definitions import OURS
from tests.clients.keen_responses import KeenResponses
from tests.clients.test_clients import MODES, Client, played
from tests.conftest import running

FRAMEWORKS = (
    "openai_raw",
    "openai_chained",
    "agents",
    "agents_streamed",
    "pydantic_ai",
    "langchain",
)
OWN = {"server.single_user": False}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("which", FRAMEWORKS)
async def test_a_framework_sees_a_plain_server(which, mode, tmp_path):
    command = Client("openai3", "use_responses.py").command()
    async with KeenResponses() as model, running(model.url, tmp_path / "data", OWN) as live:
        scenes, out = await played([*command, live.url, mode, "ada", which])
        facts = scenes["all"]
        full = mode == "full"
        assert facts["told"].endswith("Hello, Ada.")
        assert facts["asked"] == ("You like tea." if full else "I do not know.")
        assert facts["weather"].endswith("Rain.")
        assert facts["cities"] == ["Oslo"]
        assert "ended before the answer was complete" in facts["fault"]
        assert not [tool for tool in OURS if tool in out], "a memory call was seen"
        block = await live.memory("GET", "/users/ada/blocks/human")
        assert ("Likes tea" in block.json().get("value", "")) == full


@pytest.mark.parametrize("mode", MODES)
async def test_vercel_sees_a_plain_server(mode, tmp_path):
    command = Client("node", "use_vercel_responses.mjs").command()
    async with KeenResponses() as model, running(model.url, tmp_path / "data", OWN) as live:
        scenes, out = await played([*command, live.url, mode, "ada"])
        facts = scenes["all"]
        full = mode == "full"
        knows = "You like tea." if full else "I do not know."
        assert facts["told"].endswith("Hello, Ada.")
        assert facts["asked"] == facts["went_on"] == knows
        assert (facts["weather"], facts["cities"]) == ("Rain.", ["Oslo"])
        assert "stream_incomplete" in facts["fault"]["told"]
        assert not [tool for tool in OURS if tool in out], "a memory call was seen"
        # What was hidden stands in place of the references to what was shown.
        assert ("item_reference" in str(model.bodies)) == (not full)
