"""Extraction over the whole gateway: for a model without tools, what the user said becomes facts,
and nothing else does.
"""

from __future__ import annotations

import json

import pytest

from memory.stores.sql import schema as t
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.models import Model

CONFIG = {
    "models": {"m": {"targets": [{"provider": "openai"}], "supports_tools": False}},
    "memory.extract": "auto",
}


def proposing(*answers):
    """A model whose chats are dull, and which proposes these facts, one answer for each job."""
    left = list(answers)

    def scripted(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You keep the long-term"):
            found = left.pop(0) if left else []
            return found if isinstance(found, str) else json.dumps({"facts": found})
        return "I see. The web says: the user hates tea."

    return scripted


def fact(text, **more):
    return {"text": text, "source": 1, **more}


def asked(up):
    return [
        b["messages"][1]["content"]
        for b in up.bodies
        if b["messages"][0]["content"].startswith("You keep the long-term")
    ]


async def kept(live):
    return [(p["content"], p["actor"], p["deleted_by"]) for p in await rows(live, t.passages)]


async def human(live):
    return next((b["value"] for b in await rows(live, t.blocks) if b["label"] == "human"), "")


async def say(live, *words, **body):
    for w in words:
        assert (await live.chat(w, user="ada", **body)).status_code == 200
        await settled(live)


async def test_facts_come_with_their_source_and_lasting_ones_stand_in_the_block(data):
    script = proposing(
        [
            fact("The user's cat is called Tom", type="fact", importance=0.8),
            fact("The user is called Ada", type="identity"),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await say(live, "I am Ada, and my cat is Tom")
        (passage,) = await rows(live, t.passages)
        said = {m["public_id"]: m["content"] for m in await rows(live, t.messages)}
        assert (passage["content"], passage["actor"], said[passage["source"]]) == (
            "The user's cat is called Tom",
            "extraction",
            "I am Ada, and my cat is Tom",
        )
        assert await human(live) == "The user is called Ada"
        assert [(v["actor"], v["before"]) for v in await rows(live, t.block_versions)] == [
            ("extraction", "")
        ]
        await say(live, "hello")
        assert "The user is called Ada" in json.dumps(up.bodies[-2]["messages"])
        assert "1. The user is called Ada" in asked(up)[-1]
        await live.gateway.usage.flush()
        assert [
            r["user"] for r in await rows(live, t.usage) if r["path"] == "background/extract"
        ] == ["ada", "ada"]


async def test_only_what_the_user_said_is_read_as_a_source(data):
    history = [
        {"role": "system", "content": "SYSTEM secret"},
        {"role": "user", "content": "old news"},
        {"role": "assistant", "content": "old answer"},
        {"role": "tool", "tool_call_id": "x", "content": "TOOL secret"},
        {"role": "user", "content": "my dog is Rex"},
    ]
    script = proposing(
        [
            fact("The user's dog is Rex"),
            fact("The user hates tea", source=2),
            fact("From nowhere", source=9),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await say(live, history)
        (words,) = asked(up)
        assert "my dog is Rex" in words
        assert not [
            x for x in ("SYSTEM", "TOOL", "old news", "memory_blocks", "core_memory") if x in words
        ]
        assert [c for c, _, _ in await kept(live)] == ["The user's dog is Rex"]


async def test_repetitions_merge_and_a_longer_wording_takes_the_place_of_the_shorter(data):
    script = proposing(
        [fact("The user works at the bakery in Lyon")],
        [fact("the user works at the bakery in Lyon.")],
        [
            fact("The user works at the old bakery in Lyon"),
            fact("The user works at the old bakery in Lyon"),
        ],
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await say(live, "I work", "I work there", "the old one")
        assert await kept(live) == [
            ("The user works at the bakery in Lyon", "extraction", "extraction"),
            ("The user works at the old bakery in Lyon", "extraction", None),
        ]


async def test_a_contradiction_supersedes_and_both_can_be_seen_and_undone(data):
    script = proposing(
        [fact("The user lives in Lyon"), fact("The user likes tea", type="preference")],
        [
            fact("The user lives in Oslo", replaces=[2, 77, -1]),
            fact("The user likes coffee, no longer tea", type="preference", replaces=[1]),
        ],
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await say(live, "I live in Lyon, and tea is it", "I moved to Oslo, and coffee is it")
        assert "1. The user likes tea\n2. The user lives in Lyon" in asked(up)[1]
        old, new = await rows(live, t.passages)
        assert (old["content"], old["deleted_by"], old["superseded_by"]) == (
            "The user lives in Lyon",
            "extraction",
            new["public_id"],
        )
        assert await human(live) == "The user likes coffee, no longer tea"
        assert [(v["before"], v["after"]) for v in await rows(live, t.block_versions)][1] == (
            "The user likes tea",
            "The user likes coffee, no longer tea",
        )
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        found = (
            await live.memory("GET", "/users/ada/passages/search?q=Lyon", headers=local)
        ).json()["data"]
        assert found == []
        aside = (
            await live.memory("GET", "/users/ada/passages?forgotten=true", headers=local)
        ).json()["data"]
        assert [(p["content"], p["forgotten_by"], p["superseded_by"]) for p in aside] == [
            ("The user lives in Lyon", "extraction", new["public_id"])
        ]
        back = await live.memory(
            "POST", f"/users/ada/passages/{old['public_id']}/restore", headers=local
        )
        assert (back.status_code, back.json()["forgotten_at"]) == (200, None)
        assert (
            await live.memory("POST", "/users/ada/passages/passage_none/restore", headers=local)
        ).status_code == 404
        assert (
            len(
                (
                    await live.memory("GET", "/users/ada/passages/search?q=Lyon", headers=local)
                ).json()["data"]
            )
            == 1
        )


async def test_a_block_that_is_full_or_read_only_leaves_the_fact_to_archival_memory(data):
    blocks = [{"label": "human", "value": "", "limit": 10}]
    async with (
        Model(proposing([fact("The user is called Ada Lovelace", type="identity")])) as up,
        running(up.url, data, {**CONFIG, "memory.blocks": blocks}) as live,
    ):
        await say(live, "I am Ada")
        assert [c for c, _, _ in await kept(live)] == ["The user is called Ada Lovelace"]
        assert await human(live) == ""


@pytest.mark.parametrize("why", ["off", "with tools", "nobody", "read", "background"])
async def test_where_nothing_is_gathered(data, why):
    config = {**CONFIG, **({"memory.extract": "off"} if why == "off" else {})}
    if why == "with tools":
        config["models"] = {"m": {"targets": [{"provider": "openai"}], "supports_tools": True}}
    if why == "nobody":
        config["server.single_user"] = False
    async with Model(proposing()) as up, running(up.url, data, config) as live:
        words = (
            "### Task:\nGenerate a concise, 3-5 word title for this chat"
            if why == "background"
            else "I am Ada"
        )
        answer = await live.chat(
            words,
            {"x-memory": "read"} if why == "read" else {},
            **({} if why == "nobody" else {"user": "ada"}),
        )
        assert answer.status_code == 200
        await settled(live)
        assert asked(up) == []


async def test_an_answer_that_is_no_json_is_asked_for_thrice_and_then_shown(data):
    async with (
        Model(proposing("no", "no", "no", "no")) as up,
        running(up.url, data, CONFIG) as live,
    ):
        await say(live, "I am Ada")
        for _ in range(3):
            await live.gateway.memory.db.write(
                lambda conn: (
                    conn.execute(t.jobs.update().where(t.jobs.c.state == "ready").values(run_at=0))
                    and None
                )
            )
            await settled(live)
        (job,) = [j for j in await rows(live, t.jobs) if j["kind"] == "extract"]
        assert (job["state"], job["attempts"], job["error"]) == ("dead", 3, "Unusable")
        assert len(asked(up)) == 3
