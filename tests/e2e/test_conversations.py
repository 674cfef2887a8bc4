"""Recognition from the history a stateless app resends; retries that do not write twice."""

from __future__ import annotations

import asyncio
import json

import pytest
from sqlalchemy import func, select

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import VERSION_SECONDS
from tests.conftest import running
from tests.models import Model, call, calls

REMEMBER = call("archival_memory_insert", {"content": "Ada likes tea."}, "call_0")


def user(content):
    return {"role": "user", "content": content}


def said(response):
    return response.json()["choices"][0]["message"]


async def rows(live, table):
    return await live.gateway.memory.db.read(
        lambda c: c.execute(select(func.count()).select_from(table)).scalar()
    )


async def texts(live):
    return await live.gateway.memory.db.read(
        lambda c: list(c.execute(select(t.messages.c.content).order_by(t.messages.c.id)).scalars())
    )


def numbered():
    count = iter(range(1, 1000))
    return lambda seen, wire: f"answer {next(count)}"


async def talk(live, turns, **body):
    """A chat of so many turns. Returns its history and the conversation of each turn."""
    history, found = [], []
    for i in range(turns):
        history.append(user(f"question {i + 1}"))
        response = await live.chat(history, **body)
        found.append(response.headers["x-memory-conversation"])
        history.append(said(response))
    return history, found


async def test_a_resent_history_adds_nothing(data):
    async with Model(numbered()) as up, running(up.url, data) as live:
        _, found = await talk(live, 4, user="ada")
        assert len(set(found)) == 1
        assert await texts(live) == [
            x for i in range(1, 5) for x in (f"question {i}", f"answer {i}")
        ]


@pytest.mark.parametrize("named", [True, False])
async def test_an_edited_history_forks(data, named):
    extra = {"user": "ada"} if named else {}
    async with (
        Model(numbered()) as up,
        running(up.url, data, {"server.single_user": False}) as live,
    ):
        history, found = await talk(live, 2, **extra)
        edited = [*history[:2], user("another question")]
        response = await live.chat(edited, **extra)
        fork = response.headers["x-memory-conversation"]
        assert fork != found[0]
        after = await live.chat([*edited, said(response), user("and")], **extra)
        assert after.headers["x-memory-conversation"] == fork
        back = await live.chat([*history, user("go on")], **extra)
        # The first continuation keeps the id.
        assert back.headers["x-memory-conversation"] == found[0]


async def test_a_regeneration_is_a_fork(data):
    async with Model(numbered()) as up, running(up.url, data) as live:
        history, found = await talk(live, 2, user="ada")
        again = await live.chat(history[:3], user="ada")
        assert again.headers["x-memory-conversation"] != found[0]


@pytest.mark.parametrize(
    "how", ["trimmed", "context added", "answer trimmed of white space", "parts"]
)
async def test_a_client_that_changes_its_history_is_still_recognised(data, how):
    async with Model(numbered()) as up, running(up.url, data) as live:
        history, found = await talk(live, 4, user="ada")
        if how == "trimmed":
            history = history[4:]
        elif how == "context added":
            history = [
                user(m["content"] + "\n\n[page 3]") if m["role"] == "user" else m for m in history
            ]
        elif how == "parts":
            history = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in history]
        else:
            history = [{"role": m["role"], "content": m["content"] + "  \n"} for m in history]
        response = await live.chat([*history, user("more")], user="ada")
        assert response.headers["x-memory-conversation"] == found[0]


async def test_half_of_an_aborted_answer_is_still_recognised(data):
    async def long(seen, wire):
        await wire.start_stream()
        for word in ["one ", "two ", "three "]:
            await wire.event(
                {
                    "id": "c",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [{"index": 0, "delta": {"content": word}}],
                }
            )
        await asyncio.sleep(30)

    async with Model(long, "fine") as up, running(up.url, data) as live:
        async with live.http.stream(
            "POST",
            f"{live.url}/chat/completions",
            json={"model": "m", "messages": [user("count")], "stream": True, "user": "ada"},
        ) as response:
            first = response.headers["x-memory-conversation"]
            async for line in response.aiter_lines():
                if "three" in line:
                    break
        await up.requests[0].leaves()
        async with asyncio.timeout(3):
            while "one two three " not in await texts(live):
                await asyncio.sleep(0.02)
        response = await live.chat(
            [user("count"), {"role": "assistant", "content": "one two"}, user("go on")], user="ada"
        )
        assert response.headers["x-memory-conversation"] == first


async def test_equal_answers_in_many_conversations_are_told_apart(data):
    async with Model("OK") as up, running(up.url, data) as live:
        chats = []
        for name in ("alpha", "beta", "gamma"):
            history = [user(f"about {name}")]
            response = await live.chat(history, user="ada")
            chats.append(([*history, said(response)], response.headers["x-memory-conversation"]))
        for history, conversation in chats:
            response = await live.chat([*history, user("more")], user="ada")
            assert response.headers["x-memory-conversation"] == conversation


async def test_a_client_sending_only_its_newest_message_gets_the_kept_history(data):
    async with Model(numbered()) as up, running(up.url, data) as live:
        named = {"x-memory-conversation": "thread%201"}
        for i in range(3):
            response = await live.chat(f"question {i + 1}", named, user="ada")
            assert response.headers["x-memory-conversation"] == "thread%201"
        sent = [m["content"] for m in up.bodies[-1]["messages"][1:]]
        assert sent == ["question 1", "answer 1", "question 2", "answer 2", "question 3"]
        # The newest again: a regeneration.
        await live.chat("question 3", named, user="ada")
        assert [m["content"] for m in up.bodies[-1]["messages"][1:]] == sent
        await live.chat("hello", named, user="bob")
        assert [m["content"] for m in up.bodies[-1]["messages"][1:]] == ["hello"]


async def test_strangers_whose_chats_began_alike_never_meet_after_the_fork(data):
    secret = calls(
        call("core_memory_append", {"label": "human", "content": "PIN is 4711"}),
        call("archival_memory_insert", {"content": "zebra secret"}),
    )
    probe = calls(
        call("archival_memory_search", {"query": "zebra secret"}),
        call("conversation_search", {"query": "zebra mine"}),
    )
    async with (
        Model("hello", secret, "ok", probe, "nothing", "again") as up,
        running(up.url, data, {"server.single_user": False}) as live,
    ):
        one = [user("hi")]
        one.append(said(await live.chat(one)))
        # Continues nothing: no tools.
        assert "tools" not in up.bodies[0]
        both = list(one)
        one.append(user("zebra mine"))
        one.append(said(await live.chat(one)))
        assert "tools" in up.bodies[1]
        other = [*both, user("and I am another")]
        await live.chat(other)
        results = [m["content"] for m in up.bodies[4]["messages"] if m["role"] == "tool"]
        assert all("Nothing found" in r for r in results), results
        assert "4711" not in json.dumps(up.bodies[3])
        await live.chat([*one, user("what is it?")])
        assert "4711" in json.dumps(up.bodies[5])


async def test_an_off_turn_and_an_unknown_past_stay_unrecorded(data):
    async with Model(numbered()) as up, running(up.url, data) as live:
        past = [user("old"), {"role": "assistant", "content": "from elsewhere"}, user("new")]
        await live.chat(past, user="ada")
        await live.chat([user("secret")], {"x-memory": "off"}, user="ada")
        assert await texts(live) == ["new", "answer 1"]


async def test_read_stores_nothing_and_write_injects_nothing(data):
    async with Model("a") as up, running(up.url, data) as live:
        await live.chat("hello", {"x-memory": "read"}, user="ada")
        assert await texts(live) == []
        assert {x["function"]["name"] for x in up.bodies[0]["tools"]} == {
            "archival_memory_search",
            "conversation_search",
        }
        await live.chat("hello", {"x-memory": "write"}, user="ada")
        assert up.bodies[1] == {"model": "m", "messages": [user("hello")], "user": "ada"}
        assert await texts(live) == ["hello", "a"]


async def test_a_request_repeated_after_a_failed_round_resumes_and_writes_once(data):
    failure = (500, {"error": {"message": "boom", "type": "x", "code": None, "param": None}})
    async with (
        Model(calls(REMEMBER, content="Saving."), failure, "Saved!", "Again") as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        assert (await live.chat("I like tea", user="ada")).status_code == 500
        answer = await live.chat("I like tea", user="ada")
        assert said(answer)["content"] == "Saving.\n\nSaved!"
        # The finished round was not run again.
        assert len(up.requests) == 3
        assert [m["role"] for m in up.bodies[2]["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]
        assert up.bodies[2]["messages"] == up.bodies[1]["messages"]
        assert await rows(live, t.passages) == 1
        assert await texts(live) == ["I like tea", "Saving.\n\nSaved!"]
        # The same body after a success is a new request.
        await live.chat("I like tea", user="ada")
        assert await texts(live) == ["I like tea", "Saving.\n\nSaved!", "I like tea", "Again"]


async def test_an_answer_that_says_nothing_is_known_again_at_its_very_history(data):
    history, threads = [], []
    async with Model("one", "", "two", "three") as up:
        for words in ("a", "b", "c", "d"):
            history.append({"role": "user", "content": words})
            # Each time anew: nothing is kept.
            async with running(up.url, data) as live:
                answer = await live.chat(history, user="ada")
            history.append(answer.json()["choices"][0]["message"])
            threads.append(answer.headers["x-memory-conversation"])
    assert len(set(threads)) == 1


@pytest.mark.parametrize(
    "retried", [{}, {"idempotency-key": "k"}, {"x-stainless-retry-count": "1"}]
)
async def test_the_same_words_in_another_conversation_are_no_repetition_of_a_failed_request(
    data, retried
):
    async with (
        Model((500, {"error": {"message": "down"}}), "hello") as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        failed = await live.chat(
            [{"role": "user", "content": "hi"}],
            {"x-memory-conversation": "a", **retried},
            user="ada",
        )
        assert failed.status_code == 500
        for name in ("b", "a"):
            answer = await live.chat(
                [{"role": "user", "content": "hi"}],
                {"x-memory-conversation": name, **retried},
                user="ada",
            )
            assert answer.headers["x-memory-conversation"] == name
        token = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        for name in ("a", "b"):
            found = (
                await live.memory("GET", f"/users/ada/conversations/{name}/messages", headers=token)
            ).json()["data"]
            assert [m["content"] for m in found] == ["hi", "hello"]


async def test_a_request_repeated_after_a_failure_is_told_what_changed_since(data):
    async def remembers(live, up, content):
        up.script = [
            calls(call("core_memory_append", {"label": "human", "content": content}, content)),
            "noted",
        ]
        await live.chat("elsewhere", user="ada")

    async with Model("fine") as up, running(up.url, data, {"routing.retries": 0}) as live:
        first = await live.chat("hello", user="ada")
        history = [user("hello"), said(first), user("so?")]
        await remembers(live, up, "Likes tea")
        up.script = [(500, {"error": {"message": "busy"}})]
        assert (await live.chat(history, user="ada")).status_code == 500
        assert "Likes tea" in up.bodies[-1]["messages"][-1]["content"]
        await remembers(live, up, "Likes jam")
        up.script = ["fine"]
        await live.chat(history, user="ada")
        assert "Likes jam" in up.bodies[-1]["messages"][-1]["content"]


async def test_a_repetition_that_resumes_rounds_is_told_what_those_were_told(data):
    async def remembers(live, up, content):
        up.script = [
            calls(call("core_memory_append", {"label": "human", "content": content}, content)),
            "noted",
        ]
        await live.chat("elsewhere", user="ada")

    busy = (500, {"error": {"message": "busy"}})
    async with Model("fine") as up, running(up.url, data, {"routing.retries": 0}) as live:
        first = await live.chat("hello", user="ada")
        history = [user("hello"), said(first), user("so?")]
        await remembers(live, up, "Likes tea")
        up.script = [busy]
        await live.chat(history, user="ada")
        await remembers(live, up, "Likes jam")
        up.script = [calls(REMEMBER), busy]
        await live.chat(history, user="ada")
        told = up.bodies[-1]["messages"]
        assert "Likes jam" in told[3]["content"]
        up.script = ["fine"]
        await live.chat(history, user="ada")
        assert up.bodies[-1]["messages"][3] == told[3]


async def test_a_retry_resumes_across_a_restart(data):
    async def die(seen, wire):
        wire.reset()

    async with Model(
        # A kept connection that dies is replaced by a fresh one.
        calls(REMEMBER),
        die,
        die,
        "Saved!",
    ) as up:
        async with running(up.url, data, {"routing.retries": 0}) as live:
            assert (await live.chat("I like tea", user="ada")).status_code == 502
        async with running(up.url, data) as live:
            answer = await live.chat(
                "I like tea", {"x-stainless-retry-count": "1"}, user="ada", stream=True
            )
            assert "Saved!" in answer.text
            assert len(up.requests) == 4
            assert await rows(live, t.passages) == 1


async def test_an_sdk_retry_writes_once(data, sdk):
    async def slow(seen, wire):
        await asyncio.sleep(30)

    def model(seen, wire):
        return (
            "Saved!"
            if any(m["role"] == "tool" for m in seen.json["messages"])
            else calls(call("core_memory_append", {"label": "human", "content": "x1"}))
        )

    async with (
        Model(model, slow, model) as up,
        running(up.url, data) as live,
        sdk(live, max_retries=2, timeout=1.0) as client,
    ):
        answer = await client.chat.completions.create(
            model="m", messages=[user("I like tea")], user="ada"
        )
        assert answer.choices[0].message.content == "Saved!"
        versions = await rows(live, t.block_versions)
        assert versions == 1


async def test_a_duplicate_key_in_flight_waits(data):
    started = asyncio.Event()

    async def first(seen, wire):
        started.set()
        await asyncio.sleep(0.3)
        await wire.json(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, **calls(REMEMBER)}],
            }
        )

    async with Model(first, "one", "two") as up, running(up.url, data) as live:
        key = {"idempotency-key": "k1"}
        a = asyncio.create_task(live.chat("I like tea", key, user="ada"))
        await started.wait()
        b = await live.chat("I like tea", key, user="ada")
        assert said(await a)["content"] == "one"
        assert said(b)["content"] == "two"
        assert await rows(live, t.passages) == 1
        assert [m["role"] for m in up.bodies[2]["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]


async def test_nothing_is_kept_of_refused_credentials(data):
    refused = (
        401,
        {"error": {"message": "bad key", "type": "x", "code": "invalid_api_key", "param": None}},
    )
    async with Model(refused) as up, running(up.url, data, {"server.single_user": False}) as live:
        response = await live.chat("I like tea", user="ada")
        assert response.status_code == 401
        assert response.json()["error"]["message"] == "bad key"
        for table in (t.scopes, t.messages, t.nodes, t.conversations):
            assert await rows(live, table) == 0


def slowly(seen, wire):
    async def answer():
        await asyncio.sleep(0.2)
        said = f"answer to {seen.json['messages'][-1]['content']}"
        await wire.json(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": said},
                        "finish_reason": "stop",
                    }
                ],
            }
        )

    return answer()


@pytest.mark.parametrize("first", [True, False])
async def test_turns_at_once_in_one_kept_conversation_are_all_on_its_line(data, first):
    named = {"x-memory-conversation": "c"}
    async with Model("fine") as up, running(up.url, data) as live:
        if not first:
            await live.chat("hello", named, user="ada")
        up.script = [slowly]
        answers = await asyncio.gather(
            *(live.chat(x, named, user="ada") for x in ("one", "two", "three"))
        )
        assert {a.headers["x-memory-status"] for a in answers} == {"ok"}
        await live.chat("now", named, user="ada")
        sent = [m["content"] for m in up.bodies[-1]["messages"][1:]]
        for x in ("one", "two", "three"):
            assert sent[sent.index(x) + 1] == f"answer to {x}"
        await live.chat("then", named, user="ada")
        assert [m["content"] for m in up.bodies[-1]["messages"][1:]] == [
            *sent,
            "answer to now",
            "then",
        ]


async def test_a_turn_that_another_overtook_is_in_what_the_next_is_sent(data):
    began, go = asyncio.Event(), asyncio.Event()

    async def late(seen, wire):
        began.set()
        await go.wait()
        await slowly(seen, wire)

    named = {"x-memory-conversation": "c"}
    async with Model("fine", late, "quick", "last") as up, running(up.url, data) as live:
        await live.chat("hello", named, user="ada")
        first = asyncio.create_task(live.chat("one", named, user="ada"))
        await began.wait()
        # As a job does, or the API.
        await live.gateway.memory.db.write(lambda conn: None)
        await live.chat("two", named, user="ada")
        go.set()
        await first
        await live.chat("now", named, user="ada")
        assert [m["content"] for m in up.bodies[-1]["messages"][1:]] == [
            "hello",
            "fine",
            "two",
            "quick",
            "one",
            "answer to one",
            "now",
        ]


async def test_a_failed_retry_in_a_kept_conversation_is_recorded_once(data):
    named = {"x-memory-conversation": "c"}
    async with (
        Model("fine", "fine", (500, {"error": {"message": "busy"}})) as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        await live.chat("hello", named, user="ada")
        # Its writes are not the turn's.
        await live.stop_worker()
        await asyncio.sleep(2 * VERSION_SECONDS)
        await live.chat("again", named, user="ada")
        assert (
            await live.chat("one", {**named, "x-stainless-retry-count": "1"}, user="ada")
        ).status_code == 500
        up.script = ["fine"]
        await live.chat("one", named, user="ada")
        said = await live.gateway.memory.db.read(
            lambda c: [
                r.content for r in c.exec_driver_sql("SELECT content FROM messages ORDER BY id")
            ]
        )
        assert said == ["hello", "fine", "again", "fine", "one", "fine"]


async def test_two_continuations_at_once_are_two_conversations(data):
    async with Model("fine", slowly) as up, running(up.url, data) as live:
        first = await live.chat("hello", user="ada")
        history = [user("hello"), said(first)]
        answers = await asyncio.gather(
            *(live.chat([*history, user(x)], user="ada") for x in ("one", "two"))
        )
        names = [a.headers["x-memory-conversation"] for a in answers]
        assert len(set(names)) == 2
        assert first.headers["x-memory-conversation"] in names
        assert not live.gateway.memory.in_flight.continued
