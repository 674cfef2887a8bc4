"""What a deleted agent leaves, and what undo brings back: its shared blocks, or a word on each."""

from __future__ import annotations

from tests.e2e.operator_tools import ADMIN, gateway, granting
from tests.e2e.test_letta import Letta
from tests.models import Model

BLOCKS = [{"label": "human", "value": "Ada."}, {"label": "persona", "value": "Sam."}]


async def share(live, label, **members):
    body = {"label": label, "value": f"On {label}.", "members": [members]}
    return (await live.memory("POST", "/shared-blocks", json=body, headers=ADMIN)).json()["id"]


async def members_of(live, block):
    listed = await live.memory("GET", f"/shared-blocks/{block}/members", headers=ADMIN)
    return [(m.get("agent"), m["write"]) for m in listed.json()["data"]]


async def ask(live, method, path, status=200, **options):
    answer = await live.memory(method, path, headers=ADMIN, **options)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_undo_of_a_deletion_restores_the_memberships_or_names_them(data):
    async with Model("Hi.") as up, gateway(up, data, granting({})) as live:
        await ask(live, "PUT", "/agents/sam", json={"model": "m"})
        blocks = [
            await share(live, label, agent="sam", write=write)
            for label, write in (("plan", True), ("rules", False), ("gone", True))
        ]
        receipt = await ask(live, "DELETE", "/agents/sam")
        assert receipt["erased"] == {}
        assert [await members_of(live, block) for block in blocks] == [[], [], []]
        await ask(live, "DELETE", f"/shared-blocks/{blocks[2]}")
        restored = await ask(live, "POST", "/agents/sam/undo")
        assert restored["name"] == "sam"
        assert restored["not_restored"] == [
            {"block": blocks[2], "label": "gone", "reason": "the block is deleted"}
        ]
        assert await members_of(live, blocks[0]) == [("sam", True)]
        assert await members_of(live, blocks[1]) == [("sam", False)]
        assert "not_restored" not in await ask(live, "GET", "/agents/sam")
        # Undo of what made the agent leaves nothing behind either.
        assert (await ask(live, "POST", "/agents/sam/undo"))["deleted"] is True
        assert await members_of(live, blocks[0]) == []


async def test_blocks_made_with_an_agent_go_with_it_by_either_api_and_come_back(data):
    async with Model("Hi.") as up, gateway(up, data, granting({})) as live:
        letta = Letta(live, **ADMIN)
        board = await letta.post("blocks", label="board", value="Plan.")
        for way in ("memory", "letta"):
            made = await letta.post(
                "agents", model="m", memory_blocks=BLOCKS, block_ids=[board["id"]]
            )
            name = made["id"]
            if way == "memory":
                receipt = await ask(live, "DELETE", f"/agents/{name}")
            else:
                receipt = await letta.delete(f"agents/{name}")
            assert receipt["erased"]["blocks"] == 2
            assert [b["label"] for b in await letta.get("blocks")] == ["board"]
            assert await letta.get(f"blocks/{board['id']}/agents") == []
            assert "not_restored" not in await ask(live, "POST", f"/agents/{name}/undo")
            values = {
                b["label"]: b["value"] for b in await letta.get(f"agents/{name}/core-memory/blocks")
            }
            assert values == {"board": "Plan.", "human": "Ada.", "persona": "Sam."}
            await letta.delete(f"agents/{name}")


async def test_a_deleted_agent_whose_memory_is_kept_keeps_its_blocks(data):
    async with Model("Hi.") as up, gateway(up, data, granting({})) as live:
        letta = Letta(live, **ADMIN)
        made = await letta.post("agents", model="m", memory_blocks=BLOCKS)
        await ask(live, "DELETE", f"/agents/{made['id']}?memory=keep")
        assert sorted(b["label"] for b in await letta.get("blocks")) == ["human", "persona"]
        for block in await letta.get("blocks"):
            assert await letta.get(f"blocks/{block['id']}/agents") == []
