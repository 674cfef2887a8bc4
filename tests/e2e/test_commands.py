"""Commands in a chat: answered by the gateway in every format, never seen by the model."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running, said
from tests.e2e.responses.asking import ask as respond
from tests.e2e.responses.asking import check_stream, texts
from tests.models import Model, call, calls
from tests.wire_models import ResponsesModel

ON = {"memory.commands": True}
APPEND = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))


def ask(text):
    return [{"role": "user", "content": text}]


async def reply(live, text, **options):
    response = await live.chat(ask(text), user="ada", **options)
    assert response.status_code == 200, response.text
    assert (response.headers["x-memory-status"], response.headers["x-memory-reason"]) == (
        "off",
        "command",
    )
    return response.json()["choices"][0]["message"]["content"]


async def accepted(live):
    """Let the model accept the key: on one person's machine another's key proves nothing."""
    await live.chat("Hello", user="zoe")


async def test_what_is_remembered_is_shown_forgotten_and_undone(data):
    async with Model("Hm.", APPEND, "Noted.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        assert await reply(live, "/memory") == "Nothing is remembered yet."
        await live.chat("I like tea", user="ada")
        sent = len(up.bodies)
        assert "Remembered: Grace arrives" in await reply(live, "/remember Grace arrives on Friday")
        shown = await reply(live, " /memory\n")
        assert "Likes tea" in shown
        assert "Grace arrives on Friday (passage_" in shown
        assert "Forgotten: Grace" in await reply(live, "/forget Grace")
        assert "Grace" not in await reply(live, "/memory")
        assert "Undone: the detail is remembered again: Grace" in await reply(live, "/undo")
        assert "Grace" in await reply(live, "/memory")
        assert "Undone: the detail is forgotten again: Grace" in await reply(live, "/undo")
        assert "human now reads" in await reply(live, "/undo")
        assert "no change" in (await reply(live, "/undo")).replace("no edit", "no change")
        assert "no edit" in await reply(live, "/undo persona")
        why = await reply(live, "/why")
        assert "core_memory_append" in why
        assert "extract was" in why
        assert len(up.bodies) == sent


async def test_which_one_is_meant_is_asked(data):
    async with Model("Noted.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        for text in ("Tea in the morning", "Tea in the evening"):
            await reply(live, f"/remember {text}")
        asked = await reply(live, "/forget tea")
        assert asked.startswith("Which of these?")
        chosen = asked.splitlines()[1].partition(": ")[2]
        assert "Forgotten" in await reply(live, chosen)
        assert (await reply(live, "/forget")).startswith("What should be forgotten?")


@pytest.mark.parametrize(
    "text",
    [
        "/memory of a computer: how does it work?",
        "/why is the sky blue?",
        "remember this",
        "/remembering",
        "/help",
        "please /memory",
        "/memory\x00x",
    ],
)
async def test_other_messages_go_to_the_model(data, text):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        response = await live.chat(ask(text), user="ada")
        assert response.json()["choices"][0]["message"]["content"] == "Hm."
        assert up.bodies[-1]["messages"][-1]["content"] == text


@pytest.mark.parametrize("text", ["/remeber I like tea", "/forgett tea", "/clear-memory", "/init"])
async def test_a_near_miss_reaches_no_model_and_says_what_there_is(data, text):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        answer = await reply(live, text)
        assert "/remember TEXT" in answer or "/forget TEXT" in answer
        assert "tea" not in await reply(live, text, headers={"x-memory": "read"})
        assert up.bodies == []


async def test_a_near_miss_that_the_apps_instructions_name_goes_to_the_model(data):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        told = {"role": "system", "content": "You are a game; /init begins anew."}
        answer = await live.chat([told, *ask("/init")], user="ada")
        assert answer.json()["choices"][0]["message"]["content"] == "Hm."
        assert up.bodies[-1]["messages"][-1]["content"] == "/init"
        local = {"input": "/init", "instructions": told["content"], "model": "m"}
        responded = await live.http.post(f"{live.url}/responses", json=local)
        assert responded.headers.get("x-memory-reason") != "command"


@pytest.mark.parametrize("text", ["/Memory", "/MEMORY", "\uff0fmemory"])
async def test_a_command_may_be_typed_as_keyboards_write_it(data, text):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        assert await reply(live, text) == "Nothing is remembered yet."


async def test_a_command_among_what_a_program_adds_is_one(data):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        text = "<system-reminder>\nBe brief.\n</system-reminder>\n/memory"
        assert await reply(live, text) == "Nothing is remembered yet."


async def test_off_by_default_and_with_memory_off(data):
    async with Model("Hm.") as up:
        async with running(up.url, data) as live:
            assert (await live.chat(ask("/memory"), user="ada")).json()["choices"][0]["message"][
                "content"
            ] == "Hm."
        async with running(up.url, data, ON) as live:
            response = await live.chat(ask("/memory"), {"x-memory": "off"}, user="ada")
            assert response.json()["choices"][0]["message"]["content"] == "Hm."


async def test_a_stream_of_chat_completions_is_whole(data):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        options = {"stream_options": {"include_usage": True}}
        _, found = await live.stream(ask("/memory"), user="ada", **options)
        assert said(found) == "Nothing is remembered yet."
        assert found[-1] == "[DONE]"
        assert found[-2]["usage"]["total_tokens"] == 0
        assert len(up.bodies) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_messages_and_responses_answer_too(data, stream):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        common = {"model": "m", "stream": stream}
        by = {"x-memory-user": "ada"}
        message = await live.http.post(
            f"{live.url}/messages",
            json={
                **common,
                "max_tokens": 10,
                "messages": ask("/memory"),
                "thinking": {"type": "enabled", "budget_tokens": 1024},
            },
            headers=by,
        )
        response = await live.http.post(
            f"{live.url}/responses", json={**common, "input": "/memory"}, headers=by
        )
        for found in (message, response):
            assert found.status_code == 200, found.text
            assert found.headers["x-memory-reason"] == "command"
        text = "Nothing is remembered yet."
        if stream:
            assert any(text in e.get("delta", {}).get("text", "") for e in _data(message.text))
            assert any(e.get("text") == text for e in _data(response.text))
        else:
            assert message.json()["content"][0]["text"] == text
            assert response.json()["output"][0]["content"][0]["text"] == text
        assert len(up.requests) == 1


def _data(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def test_a_policy_a_secret_and_nobody_are_told(data):
    async with (
        Model("Hm.") as up,
        running(up.url, data, {**ON, "server.single_user": False, "server.open": True}) as live,
    ):
        nobody = await live.chat(ask("/memory"))
        assert "Nobody is named" in nobody.json()["choices"][0]["message"]["content"]
        key = "sk-proj-" + "a1B2" * 12
        assert "Remembered" not in await reply(live, f"/remember my key is {key}")
        assert "may only read" in await reply(live, "/remember tea", headers={"x-memory": "read"})
        assert "may only write" in await reply(live, "/memory", headers={"x-memory": "write"})


async def test_a_key_that_no_upstream_has_accepted_changes_nothing(data):
    async with (
        Model("Hm.") as up,
        running(up.url, data, {**ON, "server.single_user": False}) as live,
    ):
        assert "No upstream has accepted" in await reply(live, "/remember tea")
        await live.chat("Hello", user="ada")
        assert "Remembered" in await reply(live, "/remember tea")


async def test_another_key_on_one_persons_machine_sees_and_changes_nothing(data):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        assert "Remembered" in await reply(live, "/remember tea")
        other = {"authorization": "Bearer nobody"}
        for text in ("/memory", "/remember coffee", "/undo", "/why"):
            assert "No upstream has accepted" in await reply(live, text, headers=other)
        assert "coffee" not in await reply(live, "/memory")


async def test_a_command_that_a_limit_refuses_does_nothing(data):
    secret = "mg-0123456789abcdef0123"
    key = {"name": "app", "key": secret, "tenant": "t", "limits": {"rpm": 1}}
    async with Model("Hm.") as up, running(up.url, data, {**ON, "keys": [key]}, key="") as live:
        live.http.headers["authorization"] = f"Bearer {secret}"
        assert "Remembered" in await reply(live, "/remember tea")
        refused = await live.chat(ask("/remember coffee"), user="ada")
        assert refused.status_code == 429
        found = (await live.memory("GET", "/users/ada/passages")).json()["data"]
        assert [p["content"] for p in found] == ["tea"]


async def test_to_count_a_command_runs_nothing(data):
    async with Model("Hm.") as up, running(up.url, data, ON) as live:
        await accepted(live)
        by = {"x-memory-user": "ada"}
        asked = {"model": "m", "messages": ask("/remember tea")}
        http = await live.http.post(f"{live.url}/messages/count_tokens", json=asked, headers=by)
        assert http.headers.get("x-memory-reason") != "command"
        assert "tea" not in await reply(live, "/memory")


async def test_why_tells_of_the_same_agents_turns_alone(data):
    async with Model(APPEND, "Noted.") as up, running(up.url, data, ON) as live:
        await live.chat("I like tea", {"x-memory-agent": "b"}, user="ada")
        assert await reply(live, "/why") == "No recent turn of yours is on record."
        assert "core_memory_append" in await reply(live, "/why", headers={"x-memory-agent": "b"})


STATELESS = {"models": {"*": {"targets": [{"provider": "openai", "stateful": False}]}}}
PLACES = pytest.mark.parametrize("kept_here", [False, True])


def at(kept_here):
    return {**ON, **(STATELESS if kept_here else {})}


@PLACES
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chain_goes_on_from_a_command(data, stream, kept_here):
    async with ResponsesModel("One.", "Two.", "Three.") as up:
        async with running(up.url, data, at(kept_here)) as live:
            first, _ = await respond(live, "Say one")
            name = first["id"]
            for text in ("/memory", "/remember Grace arrives on Friday"):
                told, events = await respond(live, text, stream=stream, previous_response_id=name)
                if stream:
                    check_stream(events)
                assert (told["store"], told["previous_response_id"]) == (True, name)
                name = told["id"]
            assert "Remembered" in texts(told)[0]
            shown, _ = await respond(live, "Say two", stream=stream, previous_response_id=name)
            assert (texts(shown), shown["previous_response_id"]) == (["Two."], name)
            sent = json.dumps(up.bodies[-1])
            assert '"/memory"' not in sent
            assert "Remembered" not in sent
            if kept_here:
                assert "Say one" in sent
            else:
                assert up.bodies[-1]["previous_response_id"] == first["id"]
            await respond(live, "Say three", previous_response_id=shown["id"])
            assert len(up.bodies) == 3


@PLACES
async def test_a_chain_may_begin_with_a_command(data, kept_here):
    async with ResponsesModel("Hm.", "One.", "Two.") as up:
        async with running(up.url, data, at(kept_here)) as live:
            await accepted_response(live)
            told, _ = await respond(live, "/memory")
            for _ in range(2):
                told, _ = await respond(live, "Say it", previous_response_id=told["id"])
            assert '"/memory"' not in json.dumps(up.bodies)
            assert texts(told) == ["Two."]


@PLACES
async def test_the_answer_of_a_command_is_a_response_of_its_owner(data, kept_here):
    ada, bob = {"x-memory-user": "ada"}, {"x-memory-user": "bob"}
    async with ResponsesModel("One.") as up, running(up.url, data, at(kept_here)) as live:
        first, _ = await respond(live, "Say one")
        told, _ = await respond(live, "/memory", previous_response_id=first["id"])
        path = f"{live.url}/responses/{told['id']}"
        assert (await live.http.get(path, headers=ada)).json() == told
        listed = (await live.http.get(f"{path}/input_items", headers=ada)).json()
        assert [i["content"] for i in listed["data"]] == ["/memory"]
        assert (await live.http.get(path, headers=bob)).status_code == 404
        assert (await live.http.delete(path, headers=ada)).json()["deleted"] is True
        assert (await live.http.get(path, headers=ada)).status_code == 404
        asked = {"model": "m", "input": "x", "user": "ada", "previous_response_id": told["id"]}
        http = await live.http.post(f"{live.url}/responses", json=asked)
        assert http.status_code == (400 if kept_here else 404)
        # and the response before it is still there
        shown, _ = await respond(live, "Again", previous_response_id=first["id"])
        assert shown["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_command_in_a_conversation_is_no_part_of_it(data, stream):
    async with ResponsesModel("One.", "Two.") as up:
        async with running(up.url, data, at(kept_here=True)) as live:
            made = await live.http.post(f"{live.url}/conversations", json={})
            name = made.json()["id"]
            await respond(live, "Say one", conversation=name)
            told, _ = await respond(live, "/memory", stream=stream, conversation=name)
            assert told["conversation"] == {"id": name}
            await respond(live, "Say two", conversation=name)
            await respond(live, "Branch", previous_response_id=told["id"])
            assert '"/memory"' not in json.dumps(up.bodies)
            assert "Say one" in json.dumps(up.bodies[-1])
            assert "Say two" not in json.dumps(up.bodies[-1])


async def test_an_app_may_name_the_answer_of_a_command_by_its_id(data):
    """As Vercel's SDK does in the history that it resends."""
    async with ResponsesModel("One.") as up, running(up.url, data, ON) as live:
        await accepted_response(live)
        told, _ = await respond(live, "/memory")
        asked = {"role": "user", "content": "/memory"}
        named = {"type": "item_reference", "id": told["output"][0]["id"]}
        await respond(live, [asked, named, {"role": "user", "content": "Go on"}])
        assert up.bodies[-1]["input"][1] == told["output"][0]


async def test_a_command_that_is_not_stored_cannot_be_gone_on_from(data):
    async with ResponsesModel("One.") as up, running(up.url, data, ON) as live:
        first, _ = await respond(live, "Say one")
        told, _ = await respond(live, "/memory", previous_response_id=first["id"], store=False)
        assert told["store"] is False
        asked = {"model": "m", "input": "x", "user": "ada", "previous_response_id": told["id"]}
        http = await live.http.post(f"{live.url}/responses", json=asked)
        assert http.status_code == 404


async def accepted_response(live):
    """Let the model accept the key."""
    await respond(live, "Hello", user="zoe")
