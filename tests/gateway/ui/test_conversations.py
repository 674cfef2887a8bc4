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
        assert thread.index("evicted") < thread.index("Long ago") < thread.index("Now")
