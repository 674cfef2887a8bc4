"""Projects: parts of a memory, who may name them (AGENTS.md, rows T2 and T3)."""

from __future__ import annotations

from tests.e2e.test_shared_blocks import gateway
from tests.e2e.test_teams import send
from tests.models import Model


async def test_projects_are_declared_listed_and_deleted(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await send(live, "PUT", "/teams/platform", {})
        rules = {"description": "To the moon", "teams": ["platform"], "users": ["ann"]}
        made = await send(live, "PUT", "/projects/apollo", {**rules, "write": True})
        assert {name: made[name] for name in rules} == rules
        assert (made["everyone"], made["write"]) == (False, True)
        made = await send(live, "PUT", "/projects/apollo", {"everyone": True})
        assert (made["teams"], made["users"], made["everyone"]) == ([], [], True)
        listed = (await send(live, "GET", "/projects"))["data"]
        assert [project["name"] for project in listed] == ["apollo"]
        await send(live, "PUT", "/projects/other", {"teams": ["none"]}, 404)
        await send(live, "POST", "/projects/apollo/passages", {"content": "Codeword ocelot"})
        receipt = await send(live, "DELETE", "/projects/apollo")
        assert receipt["erased"] == {"members": 0, "shared_blocks": 0, "passages": 1}
        await send(live, "GET", "/projects/apollo", status=404)
