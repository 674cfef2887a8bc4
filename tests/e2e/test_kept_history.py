"""A history that is kept here by name: read from its end, so that it works however long it is,
after a restart too.
"""

from __future__ import annotations

import asyncio

import pytest

from memory.conversation.matching import HashChain, TurnNode, complete_node
from memory.conversation.messages import extend_chain
from memory.ids import new_id, new_key
from memory.session.recorder import TurnRecorder
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import add_row, add_rows
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.rows.messages import NO_RESULT
from memory.stores.sql.turns import server_history
from memory.stores.sql.turns.turn_reader import columns
from tests.conftest import running
from tests.e2e.test_fit import CONFIG, WINDOW, chats, model, size, user
from tests.e2e.test_turns import check_valid
from tests.models import Model, call, calls

NAMED = {"x-memory-conversation": "long"}
TURNS = 5000


def brought(conn, scope):
    """A conversation of ten thousand messages, as its turns left it."""
    scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
    line, now = new_key(), 1e9
    add_row(
        conn,
        t.conversations,
        id=line,
        scope_id=scope_id,
        name="long",
        explicit=True,
        resent=False,
        forked_from=None,
        head=None,
        created_at=now,
        updated_at=now,
    )
    nodes, rows, parent, link = [], [], None, HashChain(scope.key, []).start
    for i in range(TURNS):
        asked, answer = (
            user(f"question {i} about this and that"),
            {"role": "assistant", "content": f"reply {i}, of some length"},
        )
        digest, link = extend_chain(scope.key, link, asked)
        node = TurnNode(new_key() + i, line, parent.id if parent else None, asked=link)
        end, link = extend_chain(scope.key, link, answer)
        parent = complete_node(node, parent, end, link)
        nodes.append(columns(node, scope_id))
        for message, source, named in ((asked, "chat", digest), (answer, "answer", end)):
            place = message_rows.MessagePlace(line, node.id, source, now)
            rows += (
                {"id": len(rows) + 1, **row, "public_id": new_id("msg")}
                for row in message_rows.rows_of(scope_id, place, contents_of([(message, named)]))
            )
    add_rows(conn, t.nodes, nodes)
    add_rows(conn, t.messages, rows)
    conn.execute(t.conversations.update().values(head=parent.id))


@pytest.fixture
def reads(monkeypatch):
    """How many messages each cold turn read."""
    found, original = [], server_history._messages

    def counting(conn, scope_id, turns):
        said = original(conn, scope_id, turns)
        found.append(sum(map(len, said)))
        return said

    monkeypatch.setattr(server_history, "_messages", counting)
    return found


async def test_a_history_of_ten_thousand_messages_works_after_a_restart(data, reads):
    async with Model(model) as up:
        async with running(up.url, data, CONFIG) as live:
            memory = live.gateway.memory
            await memory.wait_until_ready()
            tenant = "local"
            await memory.db.write(
                lambda conn: brought(conn, memory.scope(tenant, "ada", "default"))
            )
        for n, words in enumerate(("first", "second", "third")):
            async with running(
                # Each time anew: nothing is kept in memory.
                up.url,
                data,
                CONFIG,
            ) as live:
                answer = await live.chat(f"{words} question", NAMED, user="ada", max_tokens=200)
                assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "ok")
                sent = chats(up)[-1]
                assert size(sent) <= WINDOW
                assert "SUMMARY of what was said" in sent["messages"][0]["content"]
                said = [m["content"] for m in sent["messages"]]
                before = [f"reply {TURNS - 1}, of some length"] if n == 0 else ["first question"]
                assert all(words in said for words in before)
                assert said[-1] == f"{words} question"
                # A warm turn.
                again = await live.chat(f"{words}, once more", NAMED, user="ada", max_tokens=200)
                assert again.headers["x-memory-status"] == "ok"
        # Never summarised before: all of it.
        assert reads[0] >= 2 * TURNS
        # Then what the window holds.
        assert max(reads[1:]) <= 300
        assert len(chats(up)) == 6


async def test_a_summary_stays_when_the_only_turn_after_it_is_asked_again(data):
    config = {
        **CONFIG,
        "memory.summarize_ahead": False,
        "memory.extract": "off",
        # What was summarised is found by words of it.
        "memory.recall": "tools",
    }
    async with Model(model) as up:
        async with running(up.url, data, config) as live:
            for i in range(8):
                await live.chat(
                    f"question {i}: " + "some words " * 150, NAMED, user="ada", max_tokens=200
                )
            long = "a long question: " + "many words " * 900
            # After the first, all that was before is summarised.
            for _ in range(2):
                await live.chat(long, NAMED, user="ada", max_tokens=200)
                sent = chats(up)[-1]["messages"]
                assert [m["content"] for m in sent[1:]] == [long]
                assert "SUMMARY of what was said" in sent[0]["content"]
        async with running(up.url, data, config) as live:
            await live.chat("go on", NAMED, user="ada", max_tokens=200)
            sent = chats(up)[-1]["messages"]
            assert sent[1]["content"] == long
            assert "SUMMARY of what was said" in sent[0]["content"]


async def test_two_tools_in_a_row_with_the_same_result_are_two(data):
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    script = [calls(call("look", {}, "c1")), calls(call("look", {}, "c2")), "There."]
    async with Model(*script) as up, running(up.url, data) as live:
        await live.chat("where?", NAMED, user="ada", tools=[look])
        for name in ("c1", "c2"):
            result = {"role": "tool", "tool_call_id": name, "content": "not here"}
            await live.chat([result], NAMED, user="ada", tools=[look])
        found = [m["tool_call_id"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
        assert found == ["c1", "c2"]


async def test_a_call_without_a_result_gets_one_that_says_so(data):
    """Its client asked something else: nothing before that may be lost, here or after a restart."""
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with Model(calls(call("look", {}, "c1")), "Later.", "Well.") as up:
        async with running(up.url, data) as live:
            await live.chat("where?", NAMED, user="ada", tools=[look])
            await live.chat("never mind", NAMED, user="ada", tools=[look])
        async with running(up.url, data) as live:
            await live.chat("and now?", NAMED, user="ada", tools=[look])
        sent = up.bodies[-1]["messages"]
        check_valid(sent)
        roles = ["user", "assistant", "tool", "user", "assistant", "user"]
        assert [m["role"] for m in sent[1:]] == roles
        assert sent[3] == {"role": "tool", "tool_call_id": "c1", "content": NO_RESULT}


@pytest.mark.parametrize("first", ["the half", "the whole"])
async def test_who_leaves_and_asks_again_has_one_answer_in_the_history(data, monkeypatch, first):
    """Whichever of the two answers is stored first, the half or the whole one."""
    stored = {"aborted": asyncio.Event(), "done": asyncio.Event()}
    began, finish = asyncio.Event(), TurnRecorder.finish

    async def in_order(self, prompt, outcome, sent=None):
        state = "aborted" if outcome.aborted else "done"
        began.set()
        if state == ("done" if first == "the half" else "aborted"):
            await stored["aborted" if state == "done" else "done"].wait()
        kept = await finish(self, prompt, outcome, sent)
        stored[state].set()
        return kept

    async def half(seen, wire):
        await wire.start_stream()
        delta = {"index": 0, "delta": {"content": "The half"}}
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await wire.event({**head, "choices": [delta]})
        await asyncio.sleep(30)

    def say(words, **more):
        return live.chat(words, NAMED, user="ada", **more)

    async with Model("Hello.", half, "The whole.", "Well.") as up, running(up.url, data) as live:
        await say("hi")
        monkeypatch.setattr(TurnRecorder, "finish", in_order)
        body = {"model": "m", "messages": [user("where?")], "stream": True, "user": "ada"}
        async with live.http.stream(
            "POST", f"{live.url}/chat/completions", json=body, headers=NAMED
        ) as response:
            async for line in response.aiter_lines():
                if "The half" in line:
                    break
            # Its node is open while the same is asked again, as by a person who reloads a page.
            again = asyncio.create_task(say("where?"))
            await began.wait() if first == "the whole" else await asyncio.sleep(0.1)
        await again
        async with asyncio.timeout(3):
            await asyncio.gather(*(event.wait() for event in stored.values()))
        monkeypatch.setattr(TurnRecorder, "finish", finish)
        await say("and now?")
        said = [m["content"] for m in up.bodies[-1]["messages"][1:]]
        assert said == ["hi", "Hello.", "where?", "The whole.", "and now?"]
