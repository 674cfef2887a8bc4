"""Whose memory a message is about, which conversation it belongs to, and what has no part in it."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.e2e.messages.client import OWN, REMEMBER, TEA, ask, ours_of, request, said, text_in, user
from tests.wire_models import MessagesModel, use

DEVICE = "d" * 64


def claude(session, account="", device=DEVICE):
    return json.dumps({"device_id": device, "account_uuid": account, "session_id": session})


FORMS = [
    ("ada", "ada"),
    (claude("s1"), DEVICE),
    (claude("s1", "acc-1"), "acc-1"),
    (f"user_{DEVICE}_account_9_session_77", f"user_{DEVICE}_account_9"),
    ("{no json", "{no json"),
    ("_session_1", "_session_1"),
    (json.dumps({"session_id": "s"}), json.dumps({"session_id": "s"})),
]


@pytest.mark.parametrize(("told", "name"), FORMS)
async def test_the_user_is_read_from_every_form_of_user_id(data, stream, told, name):
    async with MessagesModel("Hi.") as up, running(up.url, data, OWN) as live:
        answer = await ask(live, "Hello", stream=stream, metadata={"user_id": told})
        assert up.bodies[0]["metadata"] == {"user_id": told}
        users = (await live.memory("GET", "/users")).json()["data"]
        assert [u["id"] for u in users] == [name]
        assert answer.response.headers["x-memory-user"]


async def test_the_header_wins_over_the_path_and_that_over_the_body(data):
    async with MessagesModel("Hi.") as up, running(up.url, data, OWN) as live:

        async def asked(root, headers=None):
            response = await live.http.post(
                f"{root}/messages", json=request("Hi", stream=False), headers=headers or {}
            )
            return response.headers["x-memory-user"]

        path = f"{live.root}/u/bob/v1"
        assert await asked(live.url) == "ada"
        assert await asked(path) == "bob"
        assert await asked(path, {"x-memory-user": "eve"}) == "eve"
        assert up.requests[1].path == "/v1/messages"


async def test_two_sessions_of_one_device_share_the_memory_but_not_the_conversation(data, stream):
    script = ([REMEMBER], "Noted.", "Tea.")
    async with MessagesModel(*script) as up, running(up.url, data, OWN) as live:
        names = []
        for session in ("s-1", "s-2"):
            answer = await ask(
                live,
                "The same words",
                stream=stream,
                headers={"x-claude-code-session-id": session},
                metadata={"user_id": claude(session)},
            )
            names.append(answer.response.headers["x-memory-conversation"])
        assert names == ["s-1", "s-2"]
        assert TEA["content"] in text_in(up.bodies[-1]["system"])


async def test_the_conversations_header_wins_over_the_sessions(data):
    headers = {"x-claude-code-session-id": "s-1", "x-memory-conversation": "mine"}
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        answer = await ask(live, "Hello", stream=False, headers=headers)
        assert answer.response.headers["x-memory-conversation"] == "mine"
        assert "x-memory-conversation" not in str(up.requests[0].headers).lower()


async def test_a_conversation_without_a_name_is_known_by_its_history(data, stream):
    async with MessagesModel("Hi.", "Well.") as up, running(up.url, data) as live:
        first = await ask(live, "Hello", stream=stream)
        second = await ask(live, [user("Hello"), said(first), user("And?")], stream=stream)
        name = "x-memory-conversation"
        assert second.response.headers[name] == first.response.headers[name]
        assert up.bodies[0]["system"] == up.bodies[1]["system"]


async def test_a_session_that_begins_another_history_gets_none_of_the_first(data, stream):
    """A program's helpers ask in its session, with histories of their own."""
    headers = {"x-claude-code-session-id": "s-1"}
    async with (
        MessagesModel([REMEMBER], "Noted.", "Found.", "Well.") as up,
        running(up.url, data) as live,
    ):
        first = await ask(live, "I like tea", stream=stream, headers=headers)
        helper = await ask(live, "Find the file", stream=stream, headers=headers)
        assert up.bodies[-1]["messages"][0]["role"] == "user"
        assert "I like tea" not in text_in(up.bodies[-1]["messages"])
        assert helper.text == "Found."
        # It knows what is remembered, from the core text or a note.
        assert TEA["content"] in text_in(up.bodies[-1])
        talk = [user("I like tea"), said(first), user("And?")]
        await ask(live, talk, stream=stream, headers=headers)
        assert REMEMBER.name in text_in(up.bodies[-1]["messages"])


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_keys_policy_decides_whom_it_may_name(data, trusted):
    key = {
        "name": "app",
        "key": "mg-0123456789abcdef0123",
        "tenant": "t",
        "trusted": trusted,
        "users": ["ada"],
    }
    headers = {"x-api-key": key["key"]}
    async with MessagesModel("Hi.") as up, running(up.url, data, {"keys": [key]}, key="") as live:
        await ask(live, "Hello", stream=False, headers=headers)
        body = request("Hello", stream=False, metadata={"user_id": claude("s", "acc-2")})
        response = await live.http.post(f"{live.url}/messages", json=body, headers=headers)
        if trusted:
            assert response.headers["x-memory-user"] == "acc-2"
        else:
            assert response.status_code == 403
            assert response.json()["error"]["type"] == "permission_error"
            assert len(up.bodies) == 1


CLI = {"user-agent": "claude-cli/2.1.197 (external, cli)"}
TITLE = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}


@pytest.mark.parametrize("body", [TITLE, {"max_tokens": 1}])
async def test_what_claude_code_asks_for_itself_has_no_memory(data, stream, body):
    async with MessagesModel("Hi.") as up, running(up.url, data, OWN) as live:
        answer = await ask(live, "Title?", stream=stream, headers=CLI, **body)
        assert answer.response.headers["x-memory-status"] == "off"
        assert up.bodies[0] == request("Title?", stream=stream, **body)
        assert not (await live.memory("GET", "/users/ada/conversations")).json().get("data")
        # The same of anybody else is a message as any other.
        other = await ask(live, "Title?", stream=stream, **body)
        assert other.response.headers["x-memory-status"] == "ok"


@pytest.mark.parametrize("mode", ["full", "read", "write", "off"])
async def test_the_modes_hold(data, stream, mode):
    async with MessagesModel([REMEMBER], "Noted.", "Hi.") as up, running(up.url, data, OWN) as live:
        await ask(live, "I like tea", stream=stream)
        before = (await live.memory("GET", "/users/ada/conversations")).json()["data"]
        answer = await ask(live, "Hello", stream=stream, headers={"x-memory": mode})
        sent = up.bodies[-1]
        assert answer.response.headers["x-memory-status"] == ("off" if mode == "off" else "ok")
        assert (TEA["content"] in text_in(sent)) == (mode in ("full", "read"))
        assert bool(ours_of(sent)) == (mode in ("full", "read"))
        assert (REMEMBER.name in ours_of(sent)) == (mode == "full")
        after = (await live.memory("GET", "/users/ada/conversations")).json()["data"]
        assert len(after) - len(before) == (mode in ("full", "write"))


async def test_memory_off_leaves_every_byte_as_it_is(data, stream):
    # Spaces, the order of members and events are the client's and the upstream's.
    body = json.dumps(request("Hello \u2028", stream=stream, unknown=[1e-7]), indent=1).encode()
    answer = b'event: message_start\ndata: { "type":"message_start" , "message":{}}\n\n'
    answer += b': comment\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'

    async def raw(seen, wire):
        if stream:
            await wire.start_stream()
            await wire.part(answer)
            await wire.end()
        else:
            await wire.answer(200, b'{ "id" : "msg_1",\n "content":[] }')

    async with MessagesModel(raw) as up, running(up.url, data) as live:
        up.check = lambda body: ()
        headers = {"x-memory": "off", "content-type": "application/json"}
        response = await live.http.post(f"{live.url}/messages", content=body, headers=headers)
        assert up.requests[0].body == body
        assert response.content == (answer if stream else b'{ "id" : "msg_1",\n "content":[] }')
        assert response.headers["x-memory-status"] == "off"
        assert response.headers["x-memory-reason"] == "request"


async def test_a_turn_of_one_round_leaves_the_upstreams_bytes(data):
    async with (
        MessagesModel([use("weather", {"city": "Oslo"})]) as up,
        running(up.url, data) as live,
    ):
        sent = []

        async def kept(seen, wire):
            for event in up.events(up.reply(CALL, seen.json)):
                if event["type"] == "message_delta":
                    event["usage"] = {**event["usage"], **dict.fromkeys(INPUT, 1)}
                sent.append(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            await wire.start_stream()
            await wire.part(b"".join(sent))
            await wire.end()

        up.script = [kept]
        body = request("Weather?", stream=True, tools=[])
        response = await live.http.post(f"{live.url}/messages", json=body)
        assert response.content == b"".join(sent)


CALL = [use("weather", {"city": "Oslo"})]
INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
