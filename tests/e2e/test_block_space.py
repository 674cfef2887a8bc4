"""A user's blocks are limited in number and length at every door, and never fill a window."""

from __future__ import annotations

import json

import pytest

from tests.gateway.management.managing import as_key, managed
from tests.models import call, calls

SMALL = {"memory.blocks_per_user": 4, "memory.block_characters": 1000}


async def put(live, label, size, status=200, **members):
    body = {"value": "x" * size, "limit": 10_000, **members}
    http = await live.memory("PUT", f"/users/ada/blocks/{label}", json=body)
    assert http.status_code == status, http.text
    return http.json()


async def test_the_api_refuses_a_block_too_many_and_a_character_too_many(data):
    async with managed(data, **SMALL) as live:
        for label in ("a", "b"):
            await put(live, label, 100)
        refused = await put(live, "c", 1, status=409)
        assert refused["error"]["code"] == "too_many_blocks"
        assert "memory.blocks_per_user" in refused["error"]["message"]
        refused = await put(live, "a", 900, status=409)
        assert refused["error"]["code"] == "block_space"
        assert "at most 1000 characters" in refused["error"]["message"]
        refused = await put(live, "a", 100, status=409, description="y" * 900)
        assert refused["error"]["code"] == "block_space"
        await put(live, "a", 50)
        undone = await live.memory("POST", "/users/ada/blocks/a/undo")
        assert undone.status_code == 200
        gone = await live.memory("DELETE", "/users/ada/blocks/b")
        assert gone.status_code == 200
        await put(live, "c", 1)
        undone = await live.memory("POST", "/users/ada/blocks/b/undo")
        assert (undone.status_code, undone.json()["error"]["code"]) == (409, "too_many_blocks")


async def test_an_import_is_held_to_the_same_limits(data):
    async with managed(data, **SMALL) as live:
        lines = [{"object": "block", "label": f"b{i}", "value": "x" * 90} for i in range(3)]
        sent = "\n".join(map(json.dumps, lines))
        http = await live.memory("POST", "/users/ada/import", content=sent)
        assert (http.status_code, http.json()["error"]["code"]) == (409, "too_many_blocks")
        long = json.dumps({"object": "block", "label": "b", "value": "x" * 999})
        http = await live.memory("POST", "/users/ada/import", content=long)
        assert (http.status_code, http.json()["error"]["code"]) == (409, "block_space")


async def test_a_model_is_told_what_to_do(data):
    append = call("core_memory_append", {"label": "a", "content": "y" * 400})
    async with managed(data, calls(append), "Noted.", **SMALL) as live:
        await put(live, "a", 800)
        await live.chat("Remember y", {"x-memory-user": "ada"})
        results = [m["content"] for m in live.model.bodies[-1]["messages"] if m["role"] == "tool"]
        assert len(results) == 1
        assert results[0].startswith("Error: All memory blocks together hold at most 1000")
        assert "archival_memory_insert" in results[0]


async def test_a_model_makes_no_block_too_many(data):
    append = call("core_memory_append", {"label": "c", "content": "y"})
    async with managed(data, calls(append), "Noted.", **SMALL) as live:
        for label in ("a", "b"):
            await put(live, label, 10)
        await live.chat("Remember y", {"x-memory-user": "ada"})
        results = [m["content"] for m in live.model.bodies[-1]["messages"] if m["role"] == "tool"]
        assert len(results) == 1
        assert results[0].startswith("Error: ")
        listed = (await live.memory("GET", "/users/ada/blocks")).json()["data"]
        assert "c" not in [block["label"] for block in listed]


@pytest.mark.parametrize("again", [1, 2])
async def test_core_text_takes_at_most_half_of_a_window_and_the_record_names_the_others(
    data, again
):
    window = {"models": {"*": {"targets": [{"provider": "openai"}], "context_window": 4000}}}
    async with managed(data, **window) as live:
        for label in ("a", "b", "c"):
            await put(live, label, 0, value="word " * 1000)
        texts = []
        for _ in range(again):
            http = await live.chat("Hi", {"x-memory-user": "ada"})
            assert http.headers["x-memory-status"] == "ok"
            texts.append(str(live.model.bodies[-1]["messages"][0]["content"]))
        assert "<a description" in texts[-1]
        assert "<b description" not in texts[-1]
        assert len(set(texts)) == 1
        explain = await live.memory("GET", f"/explain/{http.headers['x-memory-explain']}")
        record = explain.json()
        assert record["injected"]["blocks_left_out"] == ["b", "c"]
        assert "the blocks b, c" in " ".join(record["remarks"])


async def content(live):
    """All that two users have."""
    found = {}
    for user in ("ada", "bob"):
        for kind in ("blocks", "passages", "conversations"):
            http = await live.memory("GET", f"/users/{user}/{kind}")
            found[user, kind] = http.json().get("data")
    return found


async def passage(live, user, text):
    http = await live.memory("POST", f"/users/{user}/passages", json={"content": text})
    assert http.status_code == 200, http.text


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("code", ["too_many_blocks", "block_space"])
async def test_a_merge_that_does_not_fit_changes_nothing(data, code, dry_run):
    async with managed(data, **SMALL) as live:
        sizes = {"a": 10, "b": 10, "c": 10} if code == "too_many_blocks" else {"a": 600}
        for user, letter in (("ada", "x"), ("bob", "y")):
            for label, size in sizes.items():
                label = label if code == "block_space" else f"{user}_{label}"
                edit = {"value": letter * size, "limit": 10_000}
                path = f"/users/{user}/blocks/{label}"
                http = await live.memory("PUT", path, json=edit)
                assert (http.status_code == 200) or label.endswith("_c"), http.text
            await passage(live, user, f"A fact of {user}")
        before = await content(live)
        body = {"into": "bob", "dry_run": dry_run}
        path = "/users/ada/merge?tenant=acme"
        http = await live.memory("POST", path, json=body, **as_key("sk-root"))
        assert (http.status_code, http.json()["error"]["code"]) == (409, code), http.text
        assert await content(live) == before


@pytest.mark.parametrize("order", [1, -1])
async def test_an_import_that_does_not_fit_writes_nothing_of_any_agent(data, order):
    """Not even of the agents whose blocks would fit, whichever comes first."""
    async with managed(data, **SMALL) as live:
        fits = [{"object": "block", "label": f"f{i}", "value": "x"} for i in range(1)]
        too_many = [{"object": "block", "label": f"b{i}", "value": "x" * 90} for i in range(3)]
        lines = [{**x, "agent": "cook"} for x in fits] + [{**x, "agent": "main"} for x in too_many]
        lines = [*lines[::order], {"object": "passage", "content": "No nuts", "agent": "cook"}]
        sent = "\n".join(map(json.dumps, lines))
        http = await live.memory("POST", "/users/ada/import", content=sent)
        assert (http.status_code, http.json()["error"]["code"]) == (409, "too_many_blocks")
        assert (await live.memory("GET", "/users")).json()["data"] == []
        http = await live.memory("POST", "/users/ada/import", content=json.dumps(lines[-1]))
        assert http.json()["imported"]["passages"] == 1
