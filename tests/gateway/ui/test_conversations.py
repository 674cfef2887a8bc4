"""Threads in the dashboard: what was evicted or aborted is marked."""

from __future__ import annotations

import json

from tests.conftest import SENTINEL_KEY
from tests.gateway.ui.looking import shown, words


def said(role, content, **more):
    message = {"role": role, "content": content}
    return {"object": "message", "conversation": "c", "node": "1", "message": message, **more}


async def test_evicted_messages_and_aborted_answers_are_marked(data):
    lines = [
        {"object": "conversation", "id": "c"},
        {"object": "node", "conversation": "c", "id": "1"},
        said("user", "Long ago", source="evicted"),
        said("user", "Now"),
        said("assistant", "I was sa", aborted=True),
    ]
    async with shown(data) as (live, sign_in):
        body = "".join(f"{json.dumps(line)}\n" for line in lines)
        done = await live.memory("POST", "/users/ada/import", content=body)
        assert done.json()["imported"]["messages"] == 3
        looker = await sign_in(SENTINEL_KEY)
        thread = words(await looker.get("/conversation?name=c&user=ada"))
        marks = {part: thread.count(part) for part in ("evicted", "aborted")}
        assert marks == {"evicted": 1, "aborted": 1}
        # The conversation has the words of its first message as its title, too.
        assert thread.index("evicted") < thread.rindex("Long ago") < thread.index("Now")


CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "find_ferry", "arguments": '{"to": "Ghent", "seats": 2}'},
}


async def test_conversations_are_shown_by_what_was_said_first_and_calls_as_they_are_read(data):
    async with shown(data) as (live, sign_in):
        asked = {"role": "user", "content": "Which ferry\nto Ghent is <b>cheap</b>?"}
        answer = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        told = {"role": "tool", "tool_call_id": "c1", "content": "At nine."}
        made = await live.memory(
            "POST", "/users/ada/conversations", json={"messages": [asked, answer, told]}
        )
        name = made.json()["id"]
        await live.memory("PUT", "/users/ada/policy", json={"timezone": "Asia/Kathmandu"})
        looker = await sign_in(SENTINEL_KEY)
        page = await looker.get("/user/conversations?user=ada")
        assert "Which ferry to Ghent is &lt;b&gt;cheap&lt;/b&gt;?" in page.text
        assert "Asia/Kathmandu" in page.text
        found = words(await looker.get("/user/conversations?user=ada&q=ferry"))
        assert "in Which ferry to Ghent" in found
        thread = await looker.get(f"/conversation?name={name}&user=ada")
        assert "<title>Which ferry to Ghent" in thread.text
        text = words(thread)
        assert text.index("find_ferry") < text.index("to Ghent seats 2")
        assert "As the model wrote it" in text
        assert name in text
