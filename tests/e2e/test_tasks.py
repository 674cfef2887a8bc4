"""A task is no talk: a program's templated one-shot prompts leave as without memory, and become
none; whoever opens a new chat for each question and says each time something else keeps it.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from memory.stores.sql.engine import schema as t
from tests.conftest import running
from tests.e2e.postgres_chat import storage
from tests.e2e.test_background import rows, settled
from tests.models import Model, call, calls
from tests.wire_models import MessagesModel, ResponsesModel, use

# Each key is a tenant, which may look at its memory. The store may be late on a busy machine.
OWN = {"server.single_user": False, "memory.read_deadline_ms": 20_000}
RECALLS = {**OWN, "memory.recall": "always", "memory.extract": "always"}
SYSTEM = "You are part of a pipeline. Answer with one word."
REVIEWS = [
    "I love the camera of this phone, it is the best I ever had.",
    "The battery died after two days and nobody answers my mails.",
    "My sister gave me this phone, the screen is great.",
    "Arrived broken. I live in Lyon and the parcel came from Berlin.",
    "The camera of this phone is fine, but I hate the colour.",
    "I am allergic to nickel, and this case gave me a rash.",
    "A good phone for my mother, who is 84.",
]
FRONT = {
    "English": "Classify the sentiment of this review as positive, negative or neutral: ",
    "German": "Bestimme, ob die folgende Bewertung positiv, negativ oder neutral ist: ",
    "Spanish": "Clasifica el sentimiento de esta reseña como positivo, negativo o neutro: ",
    "Russian": "Определи тональность отзыва: положительная, отрицательная или нейтральная: ",
    "Chinese": "请将以下用户评论的情感分类为正面、负面或中性，并且只回答一个词：",
    "Arabic": "صنف مشاعر المراجعة التالية إلى إيجابية أو سلبية أو محايدة بكلمة واحدة: ",
}
BEHIND = {
    "English": "\n\nIs the review above positive, negative or neutral? Answer with one word.",
    "German": "\n\nIst die Bewertung oben positiv, negativ oder neutral? Antworte mit einem Wort.",
    "Spanish": "\n\n¿Es la reseña anterior positiva, negativa o neutra? Responde con una palabra.",
    "Russian": "\n\nЭтот отзыв положительный, отрицательный или нейтральный? Ответь одним словом.",
    "Chinese": "\n\n上面的用户评论是正面的、负面的还是中性的？请只回答一个词，不要解释。",
    "Arabic": "\n\nهل المراجعة أعلاه إيجابية أم سلبية أم محايدة؟ أجب بكلمة واحدة فقط من فضلك.",
}
PLACES = {
    "front": lambda language, text: FRONT[language] + text,
    "behind": lambda language, text: text + BEHIND[language],
    "around": lambda language, text: FRONT[language] + text + BEHIND[language],
}
# By API: its upstream, path and members.
WIRES = {
    "chat": (Model, "/chat/completions", "messages", {}),
    "responses": (ResponsesModel, "/responses", "input", {"store": False}),
    "messages": (MessagesModel, "/messages", "messages", {"max_tokens": 9}),
}
UNLIKE = [
    "What is the capital of Australia, and how many people live there?",
    "I have to be at the airport at seven tomorrow, when should I get up?",
    "Suggest a dinner for two that takes less than half an hour to cook.",
    "How do I get red wine out of a white carpet before my parents come?",
    "Who wrote the novel about the man who turns into a beetle one morning?",
    "Turn the lights in the living room off in an hour, please, and the radio too.",
    "My daughter wants to learn the violin. How old should a child be for that?",
    "Translate 'the early bird catches the worm' into Portuguese for my letter.",
    "Is it going to rain in Vienna on the weekend, or can we go to the lake?",
    "Tell me a joke about programmers that my grandmother would understand.",
]


class App:
    """A program that asks each time anew."""

    def __init__(self, live, wire="chat", *, system=False, stream=False, user="pipeline"):
        self.live, self.system, self.stream, self.user = live, system, stream, user
        self.wire, (_, self.path, self.member, self.more) = wire, WIRES[wire]

    async def ask(self, content, headers=None, **body):
        named = {"user": self.user}
        if self.wire == "messages":
            named = {"metadata": {"user_id": self.user}}
        messages = content
        if isinstance(content, str):
            messages = [{"role": "user", "content": content}]
        if self.system and self.wire == "chat":
            messages = [{"role": "system", "content": SYSTEM}, *messages]
        elif self.system:
            body["instructions" if self.wire == "responses" else "system"] = SYSTEM
        sent = {"model": "m", self.member: messages, **self.more, **named, **body}
        if self.stream:
            sent["stream"] = True
        found = await self.live.http.post(self.live.url + self.path, json=sent, headers=headers)
        assert found.status_code == 200, found.text
        return found


@pytest.fixture(autouse=True)
def _patient_store(monkeypatch):
    """What is asked is what a request is taken for, not how soon the one before it was stored."""
    for name in ("TOGETHER_SECONDS", "WRITE_SECONDS"):
        monkeypatch.setattr(f"memory.session.recorder.{name}", 20.0)


async def explained(live, answer):
    name = answer.headers["x-memory-explain"]
    return (await live.memory("GET", f"/explain/{name}")).json()


async def sent_plain(app, up, content):
    """The body that leaves for a request without memory."""
    await app.ask(content, {"x-memory": "off"})
    return up.bodies[-1]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("place", PLACES)
async def test_a_templated_prompt_leaves_as_without_memory(data, wire, place, stream):
    """From the fourth on, in six languages, with and without a system text."""
    async with WIRES[wire][0]("neutral") as up, running(up.url, data, RECALLS) as live:
        for number, language in enumerate(FRONT):
            system = (number + list(PLACES).index(place)) % 2 == 0
            app = App(live, wire, system=system, stream=stream, user=language)
            for i, review in enumerate(REVIEWS[:5]):
                prompt = PLACES[place](language, review)
                answer = await app.ask(prompt)
                record = await explained(live, answer)
                assert ("task" in record["decisions"]) == (i > 2), (language, i)
            sent = up.bodies[-1]
            assert sent == await sent_plain(app, up, prompt), language
            on = {name: decision["on"] for name, decision in record["decisions"].items()}
            assert on == {"task": True, "recall": False, "extract": False}
            assert record["tokens"]["injected"] == 0


async def test_only_blocks_with_a_value_are_shown_to_a_task(data):
    config = {
        **OWN,
        "memory.blocks": [
            {"label": "human", "description": "About the user"},
            {"label": "house", "value": "Write in British English.", "read_only": True},
        ],
    }
    async with Model("neutral") as up, running(up.url, data, config) as live:
        app = App(live)
        for review in REVIEWS:
            await app.ask(FRONT["English"] + review)
        core = up.bodies[-1]["messages"][0]["content"]
        assert "British English" in core
        assert "<human" not in core
        assert "tools" not in up.bodies[-1]


@pytest.mark.parametrize("wire", WIRES)
async def test_who_says_each_time_something_else_keeps_memory(data, wire):
    """A new chat for each question, as voice assistants and stateless bots have it."""
    tools = [use("core_memory_append", {"label": "human", "content": "Likes tea."})]
    if wire == "chat":
        tools = calls(call("core_memory_append", {"label": "human", "content": "Likes tea."}))
    async with WIRES[wire][0](tools, "Noted.") as up, running(up.url, data, OWN) as live:
        app = App(live, wire, system=True)
        for question in [*UNLIKE, *(f"{q} And why?" for q in UNLIKE)]:
            answer = await app.ask(question)
            assert "archival_memory_insert" in json.dumps(up.bodies[-1].get("tools"))
            assert "task" not in (await explained(live, answer))["decisions"]
        assert "Likes tea." in json.dumps(up.bodies[-1])


# Forty columns, and one less; what follows differs from its first letter to its last.
FORTY = "Say in one word whether it is spam, pls."
OTHERS = ["alpha bravo", "Bruno is a cat", "can you come", "dear Dr Deer", "Eva", "fine, Fred"]


async def test_forty_columns_three_times_among_the_last_eight_are_a_task(data):
    """The numbers of the law, as its users meet them."""
    assert len(FORTY) == 40
    async with Model("no") as up, running(up.url, data, OWN) as live:

        async def are_tasks(user, *prompts):
            app, tasks = App(live, user=user), []
            for prompt in prompts:
                decisions = (await explained(live, await app.ask(prompt)))["decisions"]
                tasks.append("task" in decisions)
            return tasks

        four = [FORTY + text for text in OTHERS[:4]]
        assert await are_tasks("forty", *four) == [False, False, False, True]
        shorter = [FORTY[1:] + text for text in OTHERS]
        assert await are_tasks("less", *shorter) == [False] * len(OTHERS)
        # The three are among the last eight, and then one of them no longer.
        for user, talks in (("eight", UNLIKE[:5]), ("nine", UNLIKE[:6])):
            *_, newest = await are_tasks(user, *four[:3], *talks, four[3])
            assert newest == (user == "eight"), user


async def test_a_second_turn_ends_a_task(data):
    async with Model("neutral") as up, running(up.url, data, OWN) as live:
        app = App(live)
        for review in REVIEWS[:4]:
            first = {"role": "user", "content": FRONT["English"] + review}
            answer = await app.ask([first])
        assert "tools" not in up.bodies[-1]
        history = [first, answer.json()["choices"][0]["message"]]
        answer = await app.ask([*history, {"role": "user", "content": "Why?"}])
        assert len(up.bodies[-1]["tools"]) > 4
        assert "<human" in up.bodies[-1]["messages"][0]["content"]
        assert "task" not in (await explained(live, answer))["decisions"]
        kept = {c["task"] for c in await rows(live, t.conversations) if c["opening"] is None}
        assert kept == {False}
        unread = [n["unread"] for n in await rows(live, t.nodes)]
        assert unread == [None, None, None, 1, 1]


async def test_a_second_turn_whose_history_is_kept_here_ends_a_task(data):
    async with Model("neutral") as up, running(up.url, data, OWN) as live:
        app = App(live)
        for i, review in enumerate(REVIEWS[:4]):
            await app.ask(FRONT["English"] + review, {"x-memory-conversation": f"review {i}"})
        assert "tools" not in up.bodies[-1]
        answer = await app.ask("Why?", {"x-memory-conversation": "review 3"})
        assert len(up.bodies[-1]["tools"]) > 4
        said = [m["content"] for m in up.bodies[-1]["messages"][1:]]
        assert said == [FRONT["English"] + REVIEWS[3], "neutral", "Why?"]
        assert "task" not in (await explained(live, answer))["decisions"]


async def test_extraction_reads_no_task(data):
    """Not even where something is to be forgotten, which does not wait for a second turn."""
    async with Model("neutral") as up, running(up.url, data, RECALLS) as live:
        app = App(live)
        for review in REVIEWS[:4]:
            await app.ask(f"{FRONT['English']}{review} It is wrong, forget it.")
        await settled(live)
        before = len(up.bodies)
        for review in REVIEWS[4:]:
            await app.ask(f"{FRONT['English']}{review} It is wrong, forget it.")
        await settled(live)
        assert len(up.bodies) == before + len(REVIEWS[4:])
        await app.ask("Please forget that I like tea.")
        await settled(live)
        read = json.dumps(up.bodies[-1]["messages"])
        assert "forget that I like tea" in read
        assert "Classify the sentiment" not in read


async def test_requests_that_were_continued_do_not_count(data):
    """Whoever begins each chat alike and goes on with it talks."""
    async with Model("Good morning!") as up, running(up.url, data, OWN) as live:
        app = App(live)
        for city in ("Vienna", "Lyon", "Oslo", "Rome", "Bern", "Bonn"):
            words = f"Good morning! Tell me please, what is the weather like in {city}?"
            history = [{"role": "user", "content": words}]
            answer = await app.ask(history)
            assert "tools" in up.bodies[-1], city
            history += [answer.json()["choices"][0]["message"], {"role": "user", "content": "Hm"}]
            await app.ask(history)


async def test_full_memory_that_a_request_asks_for_ends_a_task(data):
    async with Model("neutral") as up, running(up.url, data, OWN) as live:
        app = App(live)
        for i, review in enumerate(REVIEWS):
            await app.ask(FRONT["English"] + review, {"x-memory": "Full"} if i > 3 else None)
            assert ("tools" in up.bodies[-1]) == (i != 3)


async def test_the_setting_ends_tasks(data):
    config = {**OWN, "memory.tasks": "off"}
    async with Model("neutral") as up, running(up.url, data, config) as live:
        app = App(live)
        for review in REVIEWS:
            await app.ask(FRONT["English"] + review)
            assert "tools" in up.bodies[-1]


async def test_the_same_request_again_is_no_other_one(data):
    """Retries, regenerations, and one question for several models."""
    async with Model("neutral") as up, running(up.url, data, OWN) as live:
        app = App(live)
        for i in range(9):
            await app.ask(FRONT["English"] + REVIEWS[0], temperature=i / 10)
            assert "tools" in up.bodies[-1]
        for review in REVIEWS[1:]:
            await app.ask(FRONT["English"] + review)
        assert "tools" not in up.bodies[-1]


@pytest.mark.parametrize("shared", [False, True], ids=["sqlite", "postgres"])
async def test_a_pipeline_is_known_after_a_restart_and_by_other_workers(
    shared, request, data, tmp_path
):
    config = storage(request.getfixturevalue("postgres_url"), **OWN) if shared else OWN
    async with Model("neutral") as up:
        async with running(up.url, data, config) as live:
            for review in REVIEWS[:2]:
                await App(live).ask(FRONT["English"] + review)
        elsewhere = tmp_path / "other" if shared else data
        async with running(up.url, elsewhere, config) as live:
            await App(live).ask(FRONT["English"] + REVIEWS[2])
            assert "tools" in up.bodies[-1]
            for review in REVIEWS[3:]:
                await App(live).ask(FRONT["English"] + review)
                assert "tools" not in up.bodies[-1]
            found = await rows(live, t.conversations)
            assert [c["task"] for c in found] == [True] * len(REVIEWS)
            assert {n["unread"] for n in await rows(live, t.nodes)} == {None}
            await live.memory("DELETE", "/users/pipeline")
            await App(live).ask(FRONT["English"] + REVIEWS[0])
            assert "tools" in up.bodies[-1]


async def test_of_many_requests_at_once_the_first_three_teach(data):
    async def slow(seen, wire):
        await asyncio.sleep(0.3)
        return "neutral"

    async with Model(slow) as up, running(up.url, data, OWN) as live:
        app = App(live)
        prompts = [f"{FRONT['English']} {i} {REVIEWS[i % 7]}" for i in range(32)]
        await asyncio.gather(*map(app.ask, prompts))
        assert sum("tools" in body for body in up.bodies) <= 3


async def test_what_a_pipeline_sent_is_not_recalled_in_a_talk(data):
    async with Model("positive") as up, running(up.url, data, RECALLS) as live:
        app = App(live)
        await app.ask("I bought a phone with a telescopic camera lens in Lisbon.")
        for review in REVIEWS:
            await app.ask(FRONT["English"] + review)
        await app.ask("Which camera does my phone have, and where did I buy the phone?")
        recalled = up.bodies[-1]["messages"][-1]["content"]
        assert "telescopic camera lens" in recalled
        assert "Classify the sentiment" not in recalled


async def test_the_metrics_count_tasks(data):
    async with Model("neutral") as up, running(up.url, data, OWN) as live:
        for review in REVIEWS:
            await App(live).ask(FRONT["English"] + review)
        told = (await live.http.get(f"{live.root}/metrics")).text
        assert f"mnemogate_memory_tasks_total {float(len(REVIEWS) - 3)}" in told
