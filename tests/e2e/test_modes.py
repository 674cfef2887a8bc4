"""`X-Memory: write` between turns with memory, and recognition among many equal answers."""

from __future__ import annotations

import json

from tests.conftest import running
from tests.models import Model, call, calls

REMEMBER = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_0")


async def test_write_injects_nothing_into_a_chat_that_had_memory(data):
    async with Model(calls(REMEMBER), "A", "B", "C") as up, running(up.url, data) as live:
        chat = [{"role": "user", "content": "1"}]
        for mode, question in (("full", "2"), ("write", "3"), ("full", "")):
            response = await live.chat(chat, {"x-memory": mode}, user="ada")
            if mode == "write":
                assert up.bodies[-1]["messages"] == chat
                assert "tools" not in up.bodies[-1]
            chat = [
                *chat,
                response.json()["choices"][0]["message"],
                {"role": "user", "content": question},
            ]
        assert "Likes tea" in up.bodies[-1]["messages"][0]["content"]
        assert "removed" not in json.dumps(up.bodies[-1])


async def test_one_of_very_many_equal_answers_is_found_by_its_history(data):
    async with Model("Done.") as up, running(up.url, data) as live:
        first = await live.chat("special", user="ada")
        for i in range(70):
            await live.chat(f"thing {i}", user="ada")
        said = [
            {"role": "user", "content": "special"},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "more"},
        ]
        again = await live.chat(said, user="ada")
        assert again.headers["x-memory-conversation"] == first.headers["x-memory-conversation"]
