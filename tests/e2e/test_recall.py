"""Automatic recall: at the newest user message only, the same while tools run, not replayed later,
never recorded.
"""

from __future__ import annotations

import json

from memory.retrieval.active_scopes import ActiveScopes
from memory.stores.sql.rows import messages
from tests.conftest import running
from tests.e2e.test_turns import WEATHER
from tests.models import Model, call, calls

AUTO = {"memory.recall": "always"}


def user(content):
    return {"role": "user", "content": content}


async def test_recall_follows_the_rules(data):
    script = [
        calls(call("archival_memory_insert", {"content": "The dog is called Rex."})),
        "ok",
        calls(call("get_weather", {}, "w")),
        "Rex it is",
        "bye",
    ]
    async with Model(*script) as up, running(up.url, data, AUTO) as live:
        await live.chat("We got a dog", user="ada")
        history = [user("What is the dog called?")]
        message = (await live.chat(history, user="ada", tools=[WEATHER])).json()["choices"][0][
            "message"
        ]
        asked = up.bodies[2]["messages"][-1]["content"]
        assert asked.startswith("What is the dog called?\n\n<")
        assert "<recalled_memory" in asked
        assert "called Rex" in asked
        history += [message, {"role": "tool", "tool_call_id": "w", "content": "sunny"}]
        answer = (await live.chat(history, user="ada", tools=[WEATHER])).json()["choices"][0][
            "message"
        ]
        # The same while tools run.
        assert up.bodies[3]["messages"][1]["content"] == asked
        history += [answer, user("Thanks a lot")]
        await live.chat(history, user="ada", tools=[WEATHER])
        # Not replayed.
        assert "recalled_memory" not in up.bodies[4]["messages"][1]["content"]
        stored = await live.gateway.memory.db.read(
            lambda c: [r[0] for r in c.exec_driver_sql("SELECT body FROM messages")]
        )
        assert not any("recalled_memory" in s for s in stored)


async def test_a_model_without_tools_gets_blocks_and_recall(data):
    config = {
        "models": {
            "m": {"targets": [{"provider": "openai"}]},
            "old": {"targets": [{"provider": "openai"}], "supports_tools": False},
        }
    }
    script = [
        calls(
            call("archival_memory_insert", {"content": "The dog is called Rex."}),
            call("core_memory_append", {"label": "human", "content": "Likes tea"}),
        ),
        "ok",
    ]
    async with Model(*script) as up, running(up.url, data, config) as live:
        await live.chat("We got a dog", user="ada")
        await live.chat("What is the dog called?", user="ada", model="old")
        assert "tools" not in up.bodies[-1]
        assert "Likes tea" in up.bodies[-1]["messages"][0]["content"]
        assert "Rex" in up.bodies[-1]["messages"][-1]["content"]


async def test_no_recall_unless_asked_for(data):
    async with (
        Model(
            calls(call("archival_memory_insert", {"content": "The dog is called Rex."})), "ok"
        ) as up,
        running(up.url, data) as live,
    ):
        await live.chat("We got a dog", user="ada")
        await live.chat("What is the dog called?", user="ada")
        assert up.bodies[-1]["messages"][-1] == user("What is the dog called?")


async def test_nothing_is_searched_while_the_request_holds_all_that_was_ever_said(
    data, monkeypatch
):
    searched = []
    find, rank = messages.search, ActiveScopes.rank
    monkeypatch.setattr(messages, "search", lambda *a: searched.append(a) or find(*a))
    monkeypatch.setattr(ActiveScopes, "rank", lambda *a: searched.append(a) or rank(*a))
    async with Model(*["so be it"] * 5) as up, running(up.url, data, AUTO) as live:
        history = [user("My dog is called Rex")]
        for words in ("My cat is called Tom", "What is my dog called?"):
            answer = (await live.chat(history, user="ada")).json()["choices"][0]["message"]
            history += [answer, user(words)]
        await live.chat(history, user="ada")
        assert searched == []
        await live.chat("What is my dog called?", user="ada")
        assert len(searched) == 1
        assert "called Rex" in up.bodies[-1]["messages"][-1]["content"]


async def test_what_is_recalled_leaves_no_trace_in_later_requests(data, sdk):
    """Each turn goes on from what the turn before sent, less what was recalled for that."""
    facts = ["my hazelnut allergy", "my sister Odile", "the boat Marguerite", "my Lisbon flat"]
    async with Model(lambda seen, wire: "So be it, then.") as up:
        async with running(up.url, data, {"memory.extract": "off"}) as live:
            # A conversation each.
            for fact in facts:
                await live.chat(f"Please keep in mind {fact}, which matters.", user="ada")
            await live.gateway.memory.retrieval.indexing.ensure_indexed(1)
            history, start = [{"role": "system", "content": "Be brief."}], len(up.bodies)
            for fact in [*facts, *facts]:
                history.append({"role": "user", "content": f"What do you know about {fact}?"})
                answer = await live.chat(history, user="ada")
                assert answer.headers["x-memory-status"] == "ok"
                sent = up.bodies[-1]["messages"]
                assert sent[1:-1] == history[1:-1]
                assert sent[-1]["content"].startswith(history[-1]["content"])
                history.append(answer.json()["choices"][0]["message"])
    recalled = ["Found in memory" in json.dumps(body) for body in up.bodies[start:]]
    assert any(recalled)
    for body in up.bodies[start:]:
        assert json.dumps(body["messages"][:-1]).count("Found in memory") == 0
