"""Anthropic's SDK against a search that stands in for the vendor's (T-W2).

Run by `make test-clients`. The other SDKs' types are checked by tests/e2e/test_search_stand_in.py.
"""

from __future__ import annotations

import json

import pytest

from tests.chat_only_model import ChatOnlyModel
from tests.clients.test_clients import HERE, ROOT
from tests.clients.test_mcp import run
from tests.e2e.operator_tools import SECRET, gateway
from tests.e2e.test_search_stand_in import ANSWER, ROWS, config_of, searches
from tests.gateway.tools.web_servers import CountingListener
from tests.wire_models import use


def answer(seen, wire):
    """Search once for each question about the weather."""
    newest = seen.json["messages"][-1]
    if newest["role"] == "tool":
        return ANSWER
    if newest["content"] == "Sure?":
        return "Yes."
    return [use("look_up", {"query": "rain"})]


async def test_anthropics_sdk_reads_the_search_as_the_vendors(tmp_path):
    python = ROOT / ".clients" / "anthropic2" / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment anthropic2: make test-clients sets it up")
    async with CountingListener(searches) as server, ChatOnlyModel(answer) as up:
        async with gateway(up, tmp_path / "data", config_of(server, up)) as live:
            out = await run(str(python), str(HERE / "use_search.py"), live.root, SECRET)
    told = json.loads(out.splitlines()[-1])
    seen = {
        "types": ["server_tool_use", "web_search_tool_result", "text"],
        "query": "rain",
        "urls": [row["url"] for row in ROWS],
        "text": ANSWER,
        "cited": ["web_search_result_location", "https://e.com/1", "It rains."],
        "requests": 1,
        "stop": "end_turn",
    }
    assert told == {"plain": seen, "streamed": seen, "again": ["Yes.", "Yes."]}
