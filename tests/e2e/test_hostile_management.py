"""Bad input to the management API is refused by name, never a fault of ours."""

from __future__ import annotations

import json
import threading

import pytest

import memory.tools
from gateway.management.schemas import cursor_of
from tests.conftest import running
from tests.models import Model, call, calls


def token(data):
    return {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}


@pytest.mark.parametrize("place", [10**30, 2**63, -(2**70), -1])
async def test_a_cursor_beyond_every_list_is_refused(data, place):
    async with Model("ok") as up, running(up.url, data) as live:
        await live.chat("hi", user="ada")
        for path in ("passages", "conversations", "messages/search", "passages/search"):
            response = await live.memory(
                "GET", f"/users/ada/{path}?cursor={cursor_of(place)}", headers=token(data)
            )
            assert response.status_code == 400, path


@pytest.mark.parametrize(
    "line",
    [
        {"object": "block", "label": "a", "version": 10**23},
        {"object": "block", "label": "a", "version": 2**63 - 1},
        {"object": "block", "label": "a", "limit": 10**23},
        {"object": "version", "label": "a", "version": 2**63},
        {"object": "version", "label": "a", "version": 1, "undoes": 10**23},
        {
            "object": "message",
            "conversation": "c",
            "message": {"role": "assistant", "tool_calls": 5},
        },
        {
            "object": "message",
            "conversation": "c",
            "message": {"role": "assistant", "tool_calls": ["x"]},
        },
    ],
)
async def test_an_import_line_that_cannot_be_stored_is_refused(data, line):
    async with Model("ok") as up, running(up.url, data) as live:
        response = await live.memory(
            "POST", "/users/ada/import", content=json.dumps(line).encode(), headers=token(data)
        )
        assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_line")


async def test_a_brought_chat_with_strange_ids_is_served_as_history(data):
    async with Model("ok") as up, running(up.url, data) as live:
        said = [
            {"role": "user", "content": [{"type": {"a": 1}, "text": "x"}]},
            {"role": "assistant", "content": "y", "tool_calls": [{"id": {"a": 1}}]},
        ]
        response = await live.memory(
            "POST",
            "/users/ada/conversations",
            json={"id": "odd", "messages": said},
            headers=token(data),
        )
        assert response.status_code == 200
        assert (await live.chat("go on", {"x-memory-conversation": "odd"}, user="ada")).headers[
            "x-memory-status"
        ] == "ok"


async def test_a_block_that_takes_long_to_edit_is_edited_off_the_event_loop(data, monkeypatch):
    edit, threads = memory.tools.append_line, []

    def noting(block, content):
        threads.append(threading.current_thread())
        return edit(block, content)

    monkeypatch.setattr(memory.tools, "append_line", noting)
    script = (
        calls(call("core_memory_append", {"label": "big", "content": "the last line"})),
        "done",
        calls(call("core_memory_append", {"label": "big", "content": "the last line"})),
        "done",
    )
    roomy = {"memory.block_characters": 1_000_000}
    async with Model(*script) as up, running(up.url, data, roomy) as live:
        block = {"description": "d", "value": "a\n" * 200_000, "limit": 1_000_000}
        assert (
            await live.memory("PUT", "/users/ada/blocks/big", json=block, headers=token(data))
        ).status_code == 200
        for _ in range(2):
            assert (await live.chat("hi", user="ada")).headers["x-memory-status"] == "ok"
        kept = (await live.memory("GET", "/users/ada/blocks/big", headers=token(data))).json()[
            "value"
        ]
    assert kept.count("the last line") == 1
    assert len(threads) == 2
    assert threading.main_thread() not in threads
