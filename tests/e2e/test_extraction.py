"""Extraction over the whole gateway: for a model without tools, what the user said becomes facts,
and nothing else does.
"""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.jobs import QueuedJob, enqueue
from tests.bench import cue_facts
from tests.bench.cue_people import PEOPLE
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.models import Model, call, calls
from tests.sockets import within

CONFIG = {
    "models": {"m": {"targets": [{"provider": "openai"}], "supports_tools": False}},
    "memory.extraction.every_turns": 1,
}
CALM = {**CONFIG, "memory.extraction.every_turns": 6}


def proposing(*answers):
    """A model whose chats are dull, and which proposes these facts, one answer for each job."""
    left = list(answers)

    def scripted(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You keep the long-term"):
            found = left.pop(0) if left else []
            return found if isinstance(found, str) else json.dumps({"operations": found})
        return "I see. The web says: the user hates tea."

    return scripted


def fact(text, quote, **more):
    return {"op": "add", "text": text, "quote": quote, **more}


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


class Chat:
    """One conversation of a user, whose history is resent."""

    def __init__(self, live, user="ada"):
        self.live, self.user, self.history = live, user, []

    async def say(self, *words, headers=None, **body):
        for text in words:
            self.history.append({"role": "user", "content": text})
            answer = await self.live.chat(self.history, headers, user=self.user, **body)
            assert answer.status_code == 200
            self.history.append(answer.json()["choices"][0]["message"])
            await settled(self.live)


async def talk(live, *words, **body):
    """A conversation that begins with a greeting, since a single turn is not read."""
    chat = Chat(live)
    await chat.say("hello", *words, **body)
    return chat


async def due(live, *which):
    """Jobs that wait for a user to be idle, or for another attempt, are due now."""
    await live.gateway.memory.db.write(
        lambda conn: conn.execute(t.jobs.update().where(*which).values(run_at=0)) and None
    )
    await settled(live)


async def test_facts_come_with_their_source_and_lasting_ones_stand_in_the_block(data):
    script = proposing(
        [
            fact("The user's cat is called Tom", "my cat is Tom", type="fact", importance=0.8),
            fact("The user is called Ada", "I am Ada", type="identity"),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = await talk(live, "I am Ada, and my cat is Tom")
        (passage,) = await rows(live, t.passages)
        said = {m["public_id"]: m["content"] for m in await rows(live, t.messages)}
        assert (passage["content"], passage["actor"], said[passage["source"]]) == (
            "The user's cat is called Tom",
            "extraction",
            "I am Ada, and my cat is Tom",
        )
        assert await human(live) == "The user is called Ada"
        (version,) = await rows(live, t.block_versions)
        assert (version["actor"], version["before"]) == ("extraction", "")
        assert said[version["tool_call_id"]] == "I am Ada, and my cat is Tom"
        await chat.say("I live in Lyon")
        assert "The user is called Ada" in json.dumps(up.bodies[-2]["messages"])
        assert "1. The user is called Ada" in asked(up)[-1]
        await live.gateway.usage.flush()
        found = [r for r in await rows(live, t.usage) if r["path"] == "background/extract"]
        assert [r["user"] for r in found] == ["ada", "ada"]


async def test_only_what_the_user_wrote_is_read(data):
    history = [
        {"role": "system", "content": "SYSTEM secret"},
        {"role": "user", "content": "I told old news"},
        {"role": "assistant", "content": "old answer"},
        {"role": "tool", "tool_call_id": "x", "content": "TOOL secret"},
        {"role": "user", "content": "my dog is Rex, see:\n```\nmy_cat = 'CODE'\n```"},
    ]
    script = proposing(
        [
            fact("The user's dog is Rex", "my dog is Rex"),
            fact("The user hates tea", "the user hates tea"),
            fact("The user's dog is old", "my dog is very old"),
            fact("The user is a pilot", "my dog is Rex"),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live)
        chat.history = history[:-1]
        await chat.say(history[-1]["content"], "I walk him daily")
        words = asked(up)[0]
        assert "my dog is Rex" in words
        hidden = ("SYSTEM", "TOOL", "CODE", "old news", "memory_blocks", "core_memory")
        assert not [x for x in hidden if x in words]
        assert [c for c, _, _ in await kept(live)] == ["The user's dog is Rex"]


async def test_repetitions_merge_and_a_longer_wording_takes_the_place_of_the_shorter(data):
    longer = fact("The user really works at the bakery in Lyon", "it really is the bakery")
    script = proposing(
        [fact("The user works at the bakery in Lyon", "I work at the bakery")],
        [fact("the user works at the bakery in Lyon.", "I work there, at the bakery")],
        [longer, longer],
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        words = ("I work at the bakery", "I work there, at the bakery", "it really is the bakery")
        await talk(live, *words)
        assert await kept(live) == [
            ("The user works at the bakery in Lyon", "extraction", "extraction"),
            ("The user really works at the bakery in Lyon", "extraction", None),
        ]


async def test_a_contradiction_supersedes_and_both_can_be_seen_and_undone(data):
    script = proposing(
        [
            fact("The user lives in Lyon", "I live in Lyon"),
            fact("The user likes tea", "I like tea", type="preference"),
        ],
        [
            fact("The user lives in Oslo", "I moved to Oslo", op="supersede", id=2),
            fact(
                "The user likes coffee, no longer tea",
                "coffee it is",
                op="supersede",
                id=1,
                type="preference",
            ),
            fact("The user owns a boat in Oslo", "I moved to Oslo", op="update", id=77),
        ],
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I live in Lyon, and I like tea", "I moved to Oslo, and coffee it is")
        assert "1. The user likes tea\n2. The user lives in Lyon" in asked(up)[1]
        old, new, _ = await rows(live, t.passages)
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


async def test_what_a_user_wants_forgotten_is_set_aside_at_once(data):
    wish = "my address is wrong, forget it"
    script = proposing(
        [fact("The user's address is 12 Elm Street", "my address is 12 Elm Street")],
        [
            fact("", wish, op="supersede", id=1),
            fact("", wish, op="supersede", id=2),
        ],
    )
    async with Model(script) as up, running(up.url, data, CALM) as live:
        await talk(live, "my address is 12 Elm Street", "my dog is Rex")
        assert asked(up) == []
        await due(live)
        assert [c for c, _, _ in await kept(live)] == ["The user's address is 12 Elm Street"]
        # A conversation of its own, of a single turn.
        await Chat(live).say(wish)
        assert [by for _, _, by in await kept(live)] == ["extraction"]
        await Chat(live).say("What is my address on Elm?")
        shown = json.dumps(up.bodies[-1]["messages"])
        # Neither as a fact nor as the message that told it.
        assert "12 Elm" not in shown


async def test_turns_are_read_six_at_a_time_or_when_the_user_is_idle_and_never_twice(data):
    async with Model(proposing()) as up, running(up.url, data, CALM) as live:
        words = [f"I own boat number {i}" for i in range(16)]
        chat = Chat(live)
        await chat.say(*words[:15])
        assert len(asked(up)) == 2
        await due(live)
        assert len(asked(up)) == 3
        found = [[w for w in words if f"{w}<" in text] for text in asked(up)]
        assert [w for some in found for w in some] == words[:15]
        await due(live)
        assert len(asked(up)) == 3


async def test_a_turn_that_ended_while_others_were_read_waits_for_five_more(data):
    async with Model(proposing()) as up, running(up.url, data, CALM) as live:
        chat = Chat(live)
        await chat.say(*[f"I own boat number {i}" for i in range(8)])
        assert len(asked(up)) == 1
        # As such a turn queues it: those that are read are not marked yet.
        (scope,) = {n["scope_id"] for n in await rows(live, t.nodes)}
        job = QueuedJob("extract", {"model": "m"}, scope, f"extract-turns-{scope}")
        await live.gateway.memory.db.write(lambda conn: enqueue(conn, job))
        await settled(live)
        assert len(asked(up)) == 1
        await chat.say(*[f"I own boat number {i}" for i in range(8, 13)])
        assert len(asked(up)) == 2
        assert all(f"I own boat number {i}<" in asked(up)[1] for i in range(7, 12))


async def test_what_one_call_has_no_room_for_is_read_by_the_next(data):
    config = {**CONFIG, "memory.extraction.every_turns": 20}
    async with Model(proposing()) as up, running(up.url, data, config) as live:
        words = [f"I own boat number {i}" for i in range(21)]
        await Chat(live).say(*words)
        shown = [[w for w in words if f"{w}<" in text] for text in asked(up)]
        assert [w for some in shown for w in some] == words
        assert len(shown) == 2


async def test_chats_of_one_turn_are_read_at_idle_all_of_a_user_together(data):
    boats = [fact(f"The user owns boat number {i}", f"I own boat number {i}") for i in (0, 7)]
    async with Model(proposing(boats)) as up, running(up.url, data, CONFIG) as live:
        for number in range(8):
            await Chat(live).say(f"I own boat number {number}")
        await Chat(live).say("What is a monad?")
        assert asked(up) == []
        await due(live)
        assert len(asked(up)) == 1
        assert all(f"I own boat number {i}<" in asked(up)[0] for i in range(8))
        assert "monad" not in asked(up)[0]
        assert [c for c, _, _ in await kept(live)] == [b["text"] for b in boats]
        await due(live)
        assert len(asked(up)) == 1


async def test_one_question_a_chat_costs_no_background_call(data):
    async with Model(proposing()) as up, running(up.url, data, CONFIG) as live:
        for topic in ("monads", "heat pumps", "the moon"):
            await Chat(live).say(f"How do {topic} work?")
            await due(live)
        assert asked(up) == []


async def test_small_talk_questions_and_code_cost_no_call(data):
    async with Model(proposing()) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "How are you?", "What is a monad?", "```\nx = 1\n```", "thanks a lot!")
        assert asked(up) == []


async def test_the_operator_chooses_instructions_and_categories(data):
    more = {
        "memory.extraction.instructions": "Only health counts.",
        "memory.extraction.categories": {"health": "illness and allergies"},
    }
    script = proposing(
        [
            fact("The user is allergic to nuts", "I am allergic to nuts", category="health"),
            fact("The user owns a boat", "I own a boat", category="boats"),
        ]
    )
    async with Model(script) as up, running(up.url, data, {**CONFIG, **more}) as live:
        await talk(live, "I am allergic to nuts, and I own a boat")
        system = up.bodies[-1]["messages"][0]["content"]
        assert "Only health counts." in system
        assert "health: illness and allergies" in system
        (passage,) = await rows(live, t.passages)
        assert (passage["content"], passage["tags"]) == (
            "The user is allergic to nuts",
            '["health"]',
        )


@pytest.mark.parametrize("does", ["nothing", "searches alone", "saves in vain"])
async def test_a_model_that_saves_nothing_is_helped_after_eight_turns(data, does):
    config = {"memory.extraction.every_turns": 6}
    first = fact("The user owns boat number 0", "I own boat number 0")
    propose = proposing([first])
    calling = {
        "searches alone": calls(call("archival_memory_search", {"query": "boat"})),
        "saves in vain": calls(call("archival_memory_insert", {"content": ""})),
    }

    def scripted(seen, wire):
        if seen.json.get("tools") and seen.json["messages"][-1]["role"] == "user":
            return calling.get(does) or propose(seen, wire)
        return propose(seen, wire)

    async with Model(scripted) as up, running(up.url, data, config) as live:
        chat = Chat(live)
        await chat.say(*(f"I own boat number {i}" for i in range(8)))
        assert asked(up) == []
        await chat.say("I own boat number 8")
        # What was said before counts too.
        assert "boat number 0<" in asked(up)[0]
        assert [c for c, _, _ in await kept(live)] == ["The user owns boat number 0"]
        records = await rows(live, t.explains)
        why = json.loads(records[-1]["record"])["decisions"]["extract"]
        assert why == {
            "on": True,
            "why": "no save by the model in its last 8 turns with the memory tools",
        }


async def test_a_block_that_is_full_or_read_only_leaves_the_fact_to_archival_memory(data):
    blocks = [{"label": "human", "value": "", "limit": 10}]
    name = fact("The user is called Ada Lovelace", "I am Ada", type="identity")
    async with (
        Model(proposing([name])) as up,
        running(up.url, data, {**CONFIG, "memory.blocks": blocks}) as live,
    ):
        await talk(live, "I am Ada")
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
        for said in ([words], [words, "so it is", "I am Ada Lovelace"]):
            roles = ("user", "assistant", "user")
            history = [{"role": r, "content": c} for r, c in zip(roles, said, strict=False)]
            answer = await live.chat(
                history,
                {"x-memory": "read"} if why == "read" else {},
                **({} if why == "nobody" else {"user": "ada"}),
            )
            assert answer.status_code == 200
            await settled(live)
        assert asked(up) == []


async def test_an_answer_that_is_no_json_is_asked_for_thrice_and_then_shown(data):
    async with (
        Model(proposing(*["no"] * 9)) as up,
        running(up.url, data, CONFIG) as live,
    ):
        await talk(live, "I am Ada")
        for _ in range(3):
            await due(live, t.jobs.c.attempts > 0)
        (job,) = [j for j in await rows(live, t.jobs) if j["state"] == "dead"]
        assert (job["state"], job["attempts"], job["error"]) == ("dead", 3, "Unusable")
        assert len(asked(up)) == 3
        assert await kept(live) == []
        # set aside, to be read again later: what a user told is not lost
        assert {n["unread"] for n in await rows(live, t.nodes)} == {2}

        # A model that never answers in JSON is asked once, and for twice as many turns.
        chat = await talk(live, "I live in Ghent")
        assert not [j for j in await rows(live, t.jobs) if "extract-turns" in str(j["dedupe"])]
        await chat.say("I own a boat")
        again = t.jobs.c.dedupe.like("extract-again-%")
        await due(live, t.jobs.c.state == "ready", ~again)
        tries = sorted(j["attempts"] for j in await rows(live, t.jobs) if j["state"] == "dead")
        assert (tries, len(asked(up))) == ([1, 3], 4)
        assert {n["unread"] for n in await rows(live, t.nodes)} == {2}
        await due(live, again)
        assert len(asked(up)) == 5
        assert "I am Ada" in asked(up)[-1]
        assert "I live in Ghent" in asked(up)[-1]
        assert "I own a boat" in asked(up)[-1]
        assert {n["unread"] for n in await rows(live, t.nodes)} == {3}


async def test_turns_that_no_model_could_read_are_read_once_one_answers_as_it_should(data):
    script = proposing(
        "no", "", "<think>cut", [], [fact("The user is called Ada", "I am Ada", type="identity")]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I am Ada")
        for _ in range(3):
            await due(live, t.jobs.c.attempts > 0)
        assert len(asked(up)) == 3
        assert await human(live) == ""
        await talk(live, "I live in Ghent", "I own a boat")
        await due(live, t.jobs.c.state == "ready")
        assert await human(live) == "The user is called Ada"
        assert not [n for n in await rows(live, t.nodes) if n["unread"]]


@pytest.mark.parametrize("policy", ["read", "off"])
async def test_what_waits_is_not_read_once_the_user_no_longer_wants_it(data, policy):
    script = proposing([fact("Likes tea.", "I like tea.", type="preference")])
    async with Model(script) as up, running(up.url, data, CALM) as live:
        await talk(live, "I like tea.")
        token = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        put = await live.memory("PUT", "/users/ada/policy", headers=token, json={"memory": policy})
        assert put.status_code == 200
        await due(live, t.jobs.c.kind == "extract")
        assert asked(up) == []
        assert not await human(live)


@pytest.mark.parametrize(
    ("headers", "config", "offset"),
    [
        ({}, {}, "+00:00"),
        ({}, {"memory.timezone": "Asia/Kolkata"}, "+05:30"),
        ({"x-memory-timezone": "Asia/Kathmandu"}, {"memory.timezone": "Asia/Kolkata"}, "+05:45"),
    ],
)
async def test_extraction_tells_the_time_in_the_users_zone(data, headers, config, offset):
    script = proposing([fact("The user is called Ada", "I am Ada", type="identity")])
    async with Model(script) as up, running(up.url, data, {**CONFIG, **config}) as live:
        said = []
        for words in ("hello", "I am Ada"):
            said.append({"role": "user", "content": words})
            answer = await live.chat(said, headers, user="ada")
            said.append(answer.json()["choices"][0]["message"])
            await settled(live)
        assert re.search(rf'at="\w{{3}} \d{{4}}-\d\d-\d\d \d\d:\d\d \{offset}">', asked(up)[0])
        assert await human(live) == "The user is called Ada"


async def test_extraction_tells_the_time_in_the_zone_of_the_users_policy(data):
    script = proposing([fact("The user is called Ada", "I am Ada", type="identity")])
    config = {**CONFIG, "memory.timezone": "Asia/Kolkata"}
    async with Model(script) as up, running(up.url, data, config) as live:
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        zone = {"timezone": "Asia/Kathmandu"}
        put = await live.memory("PUT", "/users/ada/policy", headers=local, json=zone)
        assert put.status_code == 200, put.text
        await Chat(live).say("hello", "I am Ada")
        assert "+05:45" in asked(up)[0]
        assert await human(live) == "The user is called Ada"


async def test_a_time_zone_that_is_none_is_refused_before_anything_is_sent(data):
    async with Model("ok") as up, running(up.url, data, CONFIG) as live:
        headers = {"x-memory-timezone": "Mars/Olympus"}
        answer = await live.chat("I am Ada", headers, user="ada")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "x-memory-timezone"
        assert "Europe/Berlin" in answer.json()["error"]["message"]
        assert up.bodies == []
        assert await rows(live, t.messages) == []


@pytest.mark.parametrize("language", PEOPLE)
async def test_what_is_told_is_shown_and_kept_and_what_is_no_longer_true_is_replaced(language):
    """A scripted extractor, of whose answers one in five has a slip, see `cue_facts`."""
    figures = await cue_facts.play(language)
    assert figures.shown >= cue_facts.TARGETS["shown"], figures.misses
    assert figures.kept >= cue_facts.TARGETS["kept"], figures.misses
    assert figures.standing == 0, figures.misses


async def test_a_turn_that_another_overtook_is_read_though_long_ones_fill_the_batch(data):
    """Their requests are stored in another order than their turns are numbered."""
    late, long = asyncio.Event(), " ".join(f"I own a boat called number {i}." for i in range(180))

    async def answer(seen, wire):
        content = seen.json["messages"][-1]["content"]
        if "You keep the long-term" in seen.json["messages"][0]["content"]:
            return '{"operations": []}'
        if "Rex" in content:
            await late.wait()
        return "I see."

    async with Model(answer) as up, running(up.url, data, CALM) as live:
        live.gateway.memory.db.filer.is_paused = True
        begun = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "I see."}]
        for user in range(3):
            await live.chat([{"role": "user", "content": f"hello {user}"}], user="ada")
        slow = asyncio.create_task(
            live.chat([*begun, {"role": "user", "content": "My dog is called Rex"}], user="ada")
        )
        await within(5, lambda: "Rex" in up.bodies[-1]["messages"][-1]["content"])
        for more in ("a", "b"):
            words = f"{long} {more}"
            await live.chat([*begun, {"role": "user", "content": words}], user="ada")
        late.set()
        await slow
        live.gateway.memory.db.filer.is_paused = False
        for _ in range(4):
            await due(live, t.jobs.c.kind == "extract")
        assert "My dog is called Rex" in "\n".join(asked(up))
        assert [n["id"] for n in await rows(live, t.nodes) if n["unread"]] == []
