"""Programs that are known by what they send: their users, conversations, calls and summaries."""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.e2e.messages import client as messages
from tests.e2e.responses import asking as responses
from tests.models import Model
from tests.wire_models import MessagesModel, ResponsesModel, use

OWN = {"server.single_user": False}
WEBUI = "x-openwebui"
NAME = "x-memory-conversation"


async def chat(live, text, headers, *before):
    told = [*before, {"role": "user", "content": text}]
    sent = {"model": "m", "messages": told}
    http = await live.http.post(f"{live.url}/chat/completions", json=sent, headers=headers)
    assert http.status_code == 200, http.text
    return http


async def recorded(live, user, name):
    """What a conversation has recorded, as (role, text)."""
    path = f"/users/{user}/conversations/{name}/messages"
    rows = (await live.memory("GET", path)).json()["data"]
    return [(r["role"], r["content"]) for r in rows]


async def test_open_webui_names_users_and_chats(data):
    async with Model("Noted.") as up, running(up.url, data, OWN) as live:
        for user, name in (("u-1", "c-1"), ("u-1", "c-2"), ("u-2", "c-3")):
            headers = {f"{WEBUI}-user-id": user, f"{WEBUI}-chat-id": name}
            http = await chat(live, "I like tea", headers)
            assert http.headers["x-memory-user"] == user
            assert http.headers[NAME] == name
        found = (await live.memory("GET", "/users/u-1/conversations")).json()["data"]
        assert {c["id"] for c in found} == {"c-1", "c-2"}


async def test_a_chat_that_is_named_by_its_program_gets_no_history_it_did_not_send(data):
    """The first message is edited, or asked again: the program sends all that is to be said."""
    async with Model("Noted.") as up, running(up.url, data, OWN) as live:
        headers = {f"{WEBUI}-user-id": "u-1", f"{WEBUI}-chat-id": "c-1"}
        await chat(live, "I like tea", headers)
        await chat(live, "I like coffee", headers)
        assert "tea" not in str(up.bodies[-1]["messages"])
        answer = {"role": "assistant", "content": "Noted."}
        first = {"role": "user", "content": "I like coffee"}
        http = await chat(live, "And?", headers, first, answer)
        assert http.headers[NAME] == "c-1"
        told = [text for role, text in await recorded(live, "u-1", "c-1") if role == "user"]
        assert told == ["I like tea", "I like coffee", "And?"]


async def test_an_operators_client_names_its_users_and_chats(data):
    mine = {"conversation_headers": ["x-mine-chat"], "user_headers": ["x-mine-user"]}
    config = {**OWN, "clients.mine": mine}
    async with Model("Noted.") as up, running(up.url, data, config) as live:
        http = await chat(live, "Hi", {"x-mine-chat": "c", "x-mine-user": "eve"})
        assert (http.headers["x-memory-user"], http.headers[NAME]) == ("eve", "c")
        named = {"x-mine-chat": "c", "x-memory-user": "ada", NAME: "mine"}
        http = await chat(live, "Hi", named)
        assert (http.headers["x-memory-user"], http.headers[NAME]) == ("ada", "mine")


CODEX = {"thread-id": "t-1", "user-agent": "codex_exec/0.169.0", "x-memory-user": "ada"}
HANDOFF = "Another language model started to solve this problem and produced a summary. Tea."


@pytest.mark.parametrize("stream", [False, True])
async def test_codex_goes_on_after_its_own_summary(data, stream):
    """The same conversation, a core text of its own; nothing is recorded twice, nor the summary."""
    script = [[use(responses.APPEND, responses.FACT)], "Noted.", "Tea."]
    async with ResponsesModel(*script) as up, running(up.url, data, OWN) as live:
        first = responses.user("I like tea")
        developer = {"role": "developer", "content": "You are an agent."}
        sent = {"store": False, "headers": CODEX, "stream": stream}
        await responses.ask(live, [developer, first], **sent)
        after = [developer, first, responses.user(HANDOFF), responses.user("And now?")]
        await responses.ask(live, after, **sent)
        assert [i["role"] for i in up.bodies[-1]["input"]] == ["developer", *["user"] * 3]
        assert HANDOFF in str(up.bodies[-1]["input"][2])
        # A new epoch: what was learnt stands in the core text, not in a note.
        assert "Likes tea" in str(up.bodies[-1]["input"][0])
        assert "memory_updates" not in str(up.bodies[-1]["input"][1:])
        assert await recorded(live, "ada", "t-1") == [
            ("user", "I like tea"),
            ("assistant", "Noted."),
            ("user", "And now?"),
            ("assistant", "Tea."),
        ]


CLAUDE = {"x-claude-code-session-id": "s-1", "user-agent": "claude-cli/2.1.197"}
CONTINUED = "This session is being continued from a previous conversation that ran out. Tea."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("apart", [False, True])
async def test_claude_code_goes_on_after_its_own_summary(data, stream, apart):
    script = [[messages.REMEMBER], "Noted.", "Tea."]
    async with MessagesModel(*script) as up, running(up.url, data, OWN) as live:
        asked = {"stream": stream, "headers": CLAUDE}
        await messages.ask(live, "I like tea", **asked)
        blocks = [{"type": "text", "text": t} for t in (CONTINUED, "And now?")]
        together = [{"role": "user", "content": blocks}]
        told = [messages.user(CONTINUED), messages.user("And now?")] if apart else together
        await messages.ask(live, told, **asked)
        sent = up.bodies[-1]["messages"]
        assert [m["role"] for m in sent] == ["user"] * len(told)
        assert CONTINUED in str(sent[0])
        assert messages.TEA["content"] in str(up.bodies[-1]["system"])
        assert await recorded(live, "ada", "s-1") == [
            ("user", "I like tea"),
            ("assistant", "Noted."),
            ("user", "And now?"),
            ("assistant", "Tea."),
        ]


async def test_the_log_tells_once_of_a_program_and_path_without_memory(data, caplog):
    caplog.set_level("INFO", "mnemogate")

    def lines():
        return [r.getMessage() for r in caplog.records if "no memory" in r.getMessage()]

    async with Model("Hi.") as up, running(up.url, data) as live:
        for agent, path in (("legacy/1.0 x", "completions"), ("legacy/2.0", "completions")):
            sent = {"model": "m", "prompt": "Hi"}
            headers = {"user-agent": agent}
            http = await live.http.post(f"{live.url}/{path}", json=sent, headers=headers)
            assert http.headers["x-memory-reason"] == "path"
        (line,) = lines()
        assert line.startswith("legacy calls /v1/completions, which has no memory")
        for i in range(3):
            await live.http.post(f"{live.url}/batches/{i}/cancel", headers={"user-agent": ""})
        assert len(lines()) == 2
        assert lines()[1].startswith("a client without a name calls /v1/batches/.../cancel, ")
        await live.http.get(f"{live.url}/files")
        assert len(lines()) == 2


async def test_whoever_invents_programs_cannot_fill_the_log(data, caplog, monkeypatch):
    monkeypatch.setattr("gateway.relay.endpoint.MOST_TOLD", 3)
    caplog.set_level("INFO", "mnemogate")
    async with Model("Hi.") as up, running(up.url, data) as live:
        for i in range(6):
            await live.http.post(f"{live.url}/x", headers={"user-agent": f"p{i}"})
        assert sum("no memory" in r.getMessage() for r in caplog.records) == 3
