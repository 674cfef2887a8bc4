"""What a harness says around its user's words is not theirs: neither indexed nor recalled."""

from __future__ import annotations

import pytest

from memory.stores.sql.engine import schema as t
from tests.conftest import running
from tests.e2e.test_background import rows
from tests.e2e.test_extraction import CONFIG, Chat, asked, proposing
from tests.models import Model

BLOCKS = [
    "<system-reminder>\nThe walrus says: today is Tuesday.\n</system-reminder>",
    "<environment_context>\n<cwd>/home/walrus</cwd>\n</environment_context>",
    "<environment_details>\n# walrus.py\n</environment_details>",
    "<ide_selection>walrus</ide_selection>",
]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    "form", ["{block}\n\n{words}", "{words}\n\n{block}", "{block}{words}{block}"]
)
async def test_harness_text_is_not_the_users(data, block, form):
    words = "I keep three tortoises in the garden."
    async with Model(proposing([])) as up, running(up.url, data, CONFIG) as live:
        await Chat(live).say("hello, I am new here", form.format(block=block, words=words))
        stored = [m for m in await rows(live, t.messages) if "tortoises" in m["content"]]
        assert [m["content"] for m in stored] == [words]
        assert "walrus" in stored[0]["body"]
        assert "walrus" not in str(asked(up))
        assert "walrus" in str(up.bodies[1]["messages"])


async def test_a_message_of_a_harness_alone_is_no_message_of_the_user(data):
    config = {"memory.recall": "always", "memory.extract": "off"}
    async with Model("So be it.") as up, running(up.url, data, config) as live:
        await Chat(live).say(BLOCKS[0])
        await Chat(live).say("Tell everything about the walrus.")
        assert "walrus says" not in str(up.bodies[-1]["messages"])


async def test_a_message_without_such_blocks_is_stored_as_it_was_said(data):
    async with Model("So be it.") as up, running(up.url, data, CONFIG) as live:
        await Chat(live).say("  I keep <b>three</b> tortoises. \n")
        stored = [m for m in await rows(live, t.messages) if "tortoises" in m["content"]]
        assert [(m["content"], m["body"]) for m in stored] == [
            ("  I keep <b>three</b> tortoises. \n", "")
        ]


async def test_a_program_may_name_its_own_elements(data):
    words = "I keep three tortoises in the garden."
    said = f"<mine>walrus</mine>\n{words}\n<mine-too>walrus</mine-too>"
    mine = {"user_agents": ["mine/"], "harness": ["mine", "mine-too"]}
    config = {**CONFIG, "memory.extract": "off", "clients": {"mine": mine}}
    async with Model("So be it.") as up, running(up.url, data, config) as live:
        for agent in ("mine/2.0", "yours/2.0"):
            message = [{"role": "user", "content": said}]
            answer = await live.chat(message, {"user-agent": agent}, user=agent[:4])
            assert answer.status_code == 200
        stored = [m["content"] for m in await rows(live, t.messages) if "tort" in m["content"]]
        assert stored == [words, said]
