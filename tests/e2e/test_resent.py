"""A gateway that knows the beginning of a body again sends on what one sends that reads every body
as a whole; and one that keeps what its turns left, what one sends that reads it anew.
"""

from __future__ import annotations

import json
import random
import re

import pytest

from gateway.chat.intake import request
from gateway.http.known_requests import KnownRequests
from gateway.http.parse_cache import RequestParseCache
from memory.conversation.history import ServerHistory
from memory.service import Memory
from memory.session.conversation_cache import ScopeEntries
from memory.stores.sql.engine.sqlite import sqlite
from memory.stores.sql.turns import turn_writer
from tests.conftest import running, said
from tests.e2e.test_turns import check_valid
from tests.models import Model, call, calls, text

TURNS = 40
CONFIG = {
    "models": {
        "m": {"targets": [{"provider": "openai"}], "context_window": 5000},
        "n": {"targets": [{"provider": "openai"}]},
    },
    "memory.summarize_ahead": False,
    # What is said of a turn is told apart from these by their tests.
    "memory.recall": "tools",
    "memory.extract": "off",
    "memory.read_deadline_ms": 10000,
}
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}
NUMBERED = re.compile(r"question \d+\b")
# What is drawn at random.
CHANCE = re.compile(r"call_[0-9a-f]{24}")


def summarises(body):
    return str(body["messages"][0]["content"]).startswith("You compress")


def answers(seed):
    """A model that remembers, calls the client's tool or talks, as the newest user message has
    it.
    """

    def answer(seen, wire):
        messages = seen.json["messages"]
        if summarises(seen.json):
            return "SUMMARY of " + ", ".join(
                dict.fromkeys(NUMBERED.findall(messages[1]["content"]))
            )
        if seen.json.get("n"):
            return [text(f"choice {k} of {len(str(messages))}") for k in "ab"]
        newest = max(i for i, m in enumerate(messages) if m["role"] == "user")
        rng, turn = (
            random.Random(f"{seed} {len(messages[newest]['content'])}"),
            len(messages) - newest,
        )
        kind = rng.choice(["talk"] * 6 + ["remember", "look"]) if turn == 1 else "talk"
        if kind == "remember":
            return calls(
                call(
                    "core_memory_append",
                    {"label": "human", "content": f"fact {rng.random()}"},
                    f"r{rng.random()}",
                ),
                content=rng.choice([None, "One moment."]),
            )
        remembered = str(messages[-1].get("tool_call_id")).startswith("r") and rng.random() < 0.5
        if (kind == "look" or remembered) and seen.json.get("tools"):
            return calls(call("look", {}, f"l{rng.random()}"))
        return text(f"answer {rng.random()} " + "and so on " * rng.randrange(40))

    return answer


class Client:
    """An app that mostly resends what it has, and at times changes it.

    twice: how often it asks for two answers.
    """

    twice = 0.0

    def __init__(self, live, seed, token):
        self.live, self.token, self.rng, self.messages = (
            live,
            token,
            random.Random(seed),
            [{"role": "system", "content": "Be kind. " * 40}],
        )

    async def turn(self, i):
        rng, m = self.rng, self.messages
        what = rng.choice(
            ["say"] * 45
            + ["again", "trim", "edit", "system", "outside", "parts", "late system", "half"]
        )
        if what == "again" and len(m) > 2 and m[-1]["role"] == "assistant":
            m.pop()
        elif what == "trim":
            del m[1 : rng.randrange(1, len(m) + 1)]
        elif what == "edit" and len(m) > 3:
            k = rng.randrange(1, len(m))
            m[k] = {**m[k], "content": f"edited {i}"}
        elif what == "system":
            m[0] = {"role": "system", "content": f"Be kind, {i}. " * 40}
        elif what == "outside":
            done = await self.live.memory(
                "PUT", "/users/ada/blocks/human", json={"value": f"outside {i}"}, headers=self.token
            )
            assert done.status_code < 300, done.text
        elif what == "late system":
            m.append({"role": "system", "content": f"From now on {i}."})
        words = f"question {i} " + "some words " * rng.randrange(80)
        # Of a surrogate pair, as JavaScript cuts an emoji.
        words += "\ud83d" if what == "half" else ""
        m.append(
            {
                "role": "user",
                "content": [{"type": "text", "text": words}] if what == "parts" else words,
            }
        )
        await self.ask(rng)

    async def ask(self, rng):
        body = {
            "model": rng.choice("m" * 12 + "n"),
            "messages": self.messages,
            "tools": [LOOK],
            "user": "ada",
            "stream": rng.random() < 0.5,
        }
        if self.twice and rng.random() < self.twice:
            body |= {"n": 2, "stream": False}
        spelt = json.dumps(
            body, **rng.choice([{}, {}, {}, {"separators": (",", ":")}, {"indent": 1}])
        )
        response = await self.live.http.post(
            f"{self.live.url}/chat/completions",
            content=spelt,
            headers={"content-type": "application/json"},
        )
        assert response.status_code == 200, response.text
        self.thread = response.headers["x-memory-conversation"]
        self.messages.append(self.answer(response))
        asked = self.messages[-1].get("tool_calls")
        if asked:
            self.messages += [
                {"role": "tool", "tool_call_id": c["id"], "content": "rows " * rng.randrange(1500)}
                for c in asked
            ]
            await self.ask(rng)

    def answer(self, response):
        if response.headers["content-type"].startswith("application/json"):
            return response.json()["choices"][-1]["message"]
        found = [json.loads(e[6:]) for e in response.text.split("\n\n") if e.startswith("data: {")]
        named = [
            c
            for e in found
            for ch in e["choices"]
            for c in ch["delta"].get("tool_calls") or []
            if c.get("id")
        ]
        message = {"role": "assistant", "content": said(found) or None}
        return (
            {
                **message,
                "tool_calls": [
                    {
                        k: v
                        for k, v in {**c, "function": {"name": "look", "arguments": "{}"}}.items()
                        if k != "index"
                    }
                    for c in named
                ],
            }
            if named
            else message
        )


class Window(Client):
    """An app that resends its newest messages alone."""

    async def ask(self, rng):
        whole, m = self.messages, self.messages
        begin = max(1, len(m) - self.rng.choice([4, 10, 10, 10, 10]))
        while m[begin]["role"] != "user" and begin > 1:
            begin -= 1
        self.messages = [m[0], *m[begin:]]
        sent = len(self.messages)
        await super().ask(rng)
        self.messages = (
            [*whole, *self.messages[sent:]] if self.messages[0] is m[0] else self.messages
        )


class Brief(Client):
    """An app that sends its newest message alone; at times the one before once more, or with other
    system text.
    """

    async def turn(self, i):
        rng = self.rng
        what = rng.choice(
            ["say"] * 20 + ["again", "again", "bare", "outside", "parts", "late system"]
        )
        words = f"question {i} " + "some words " * rng.randrange(80)
        asked = {
            "role": "user",
            "content": [{"type": "text", "text": words}] if what == "parts" else words,
        }
        if what == "again" and self.messages[-1]["role"] == "user":
            asked = self.messages[-1]
        elif what == "outside":
            await self.live.memory(
                "PUT", "/users/ada/blocks/human", json={"value": f"outside {i}"}, headers=self.token
            )
        system = [] if what == "bare" else self.messages[:1]
        self.messages = (
            [*system, asked]
            if what != "late system"
            else [asked, {"role": "system", "content": "late"}, asked]
        )
        await self.ask(rng)
        self.messages = [{"role": "system", "content": "Be kind. " * 40}, asked]

    async def ask(self, rng):
        body = {
            "model": rng.choice("m" * 12 + "n"),
            "messages": self.messages,
            "tools": [LOOK],
            "user": "ada",
            "stream": rng.random() < 0.5,
        }
        response = await self.live.http.post(
            f"{self.live.url}/chat/completions", json=body, headers={"x-memory-conversation": "c1"}
        )
        assert response.status_code == 200, response.text
        if asked := self.answer(response).get("tool_calls"):
            self.messages = [
                {"role": "tool", "tool_call_id": c["id"], "content": "rows " * rng.randrange(1500)}
                for c in asked
            ]
            await self.ask(rng)


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch):
    """A disk that is slow for a moment sends all writes to another thread for ten seconds, and then
    nothing is kept for the next turn.
    """
    monkeypatch.setattr(sqlite, "MAX_INLINE_SECONDS", float("inf"))


async def talked(data, seed, app=Client):
    """What the upstream was sent, and how many bodies had a beginning that came before."""
    known = []
    data.mkdir(exist_ok=True)
    # Of which the tag is made: it counts as more tokens or fewer.
    (data / "secret").write_text("5a" * 32)
    async with Model(answers(seed)) as up, running(up.url, data, CONFIG) as live:
        prefixes = live.gateway.prefixes
        take = prefixes.parse_async

        async def watched(who, body):
            out = await take(who, body)
            known.append(out["messages"].before.count > 0)
            return out

        prefixes.parse_async = watched
        client = app(
            live, seed, {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        )
        for i in range(TURNS):
            await client.turn(i)
        return up.bodies, sum(known)


@pytest.mark.parametrize("seed", range(6))
async def test_what_goes_upstream_is_the_same(tmp_path, seed, monkeypatch):
    fast, known = await talked(tmp_path / "fast", seed)
    monkeypatch.setattr(RequestParseCache, "_find", lambda self, who, body: ((), None))
    slow, unknown = await talked(tmp_path / "slow", seed)
    assert known > TURNS / 8
    assert unknown == 0
    for one, other in zip(fast, slow, strict=True):
        check_valid(one["messages"])
        assert CHANCE.sub("", json.dumps(one)) == CHANCE.sub("", json.dumps(other))


@pytest.mark.parametrize("seed", range(2))
async def test_what_goes_upstream_is_the_same_where_a_request_is_known(tmp_path, seed, monkeypatch):
    known = []
    renew = request._renew

    def watched(*asked):
        known.append(asked)
        return renew(*asked)

    monkeypatch.setattr(request, "_renew", watched)
    fast, _ = await talked(tmp_path / "fast", seed)
    assert len(known) > 1
    monkeypatch.setattr(KnownRequests, "name", lambda self, pairs, members: 0)
    known.clear()
    slow, _ = await talked(tmp_path / "slow", seed)
    assert known == []
    for one, other in zip(fast, slow, strict=True):
        assert CHANCE.sub("", json.dumps(one)) == CHANCE.sub("", json.dumps(other))


@pytest.mark.parametrize(("window", "share"), [(3600, 5), (5000, 4)])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("kept", "asked", "app"),
    [(ScopeEntries, "find_ending", Window), (ServerHistory, "continue_with", Brief)],
    ids=["trimmed", "kept here"],
)
async def test_a_history_that_is_known_again_is_sent_on_as_if_read_anew(
    tmp_path, window, share, seed, kept, asked, app, monkeypatch
):
    monkeypatch.setitem(CONFIG["models"]["m"], "context_window", window)
    found = []
    whole = getattr(kept, asked)

    def watched(self, *asked):
        out = whole(self, *asked)
        found.append(out is not None)
        return out

    monkeypatch.setattr(kept, asked, watched)
    fast, _ = await talked(tmp_path / "fast", seed, app)
    assert sum(found) > TURNS / share
    monkeypatch.setattr(kept, asked, lambda self, *asked: None)
    slow, _ = await talked(tmp_path / "slow", seed, app)
    for one, other in zip(fast, slow, strict=True):
        check_valid(one["messages"])
        assert CHANCE.sub("", json.dumps(one)) == CHANCE.sub("", json.dumps(other))


async def talked_in_turn(data, seed):
    """What the upstream was sent of conversations of one user, with summaries made ahead, and which
    conversation each turn was in.
    """
    data.mkdir(exist_ok=True)
    (data / "secret").write_text("5a" * 32)
    config = {
        "models": {
            **CONFIG["models"],
            "m": {"targets": [{"provider": "openai"}], "context_window": 2200},
        },
        "memory.recall": "tools",
        "memory.extract": "off",
    }
    async with Model(answers(seed)) as up, running(up.url, data, config) as live:
        await live.gateway.memory.wait_until_ready()
        # Its jobs run between the turns.
        await live.stop_worker()
        token, rng, names, sqlite = (
            {"authorization": f"Bearer {(data / 'token').read_text().strip()}"},
            random.Random(seed),
            {},
            [],
        )
        apps = [app(live, f"{seed} {k}", token) for k, app in enumerate([Client, Window])]
        for i in range(TURNS):
            app = rng.choice(apps)
            app.twice = 0.05
            await app.turn(i)
            sqlite.append(names.setdefault(app.thread, len(names)))
            if rng.random() < 0.8:
                await live.gateway.worker.drain()
            if type(app) is Client:
                sent = json.dumps([b for b in up.bodies if not summarises(b)][-1])
                asked = {q for m in app.messages for q in NUMBERED.findall(str(m["content"]))}
                assert asked <= {*NUMBERED.findall(sent)} or "were left out" in sent
        return up.bodies, sqlite


@pytest.mark.parametrize("seed", range(2))
async def test_conversations_of_one_user_go_on_as_if_read_anew(tmp_path, seed, monkeypatch):
    fast, sqlite = await talked_in_turn(tmp_path / "fast", seed)

    async def nothing(self, ask, turn, shelf, patience):
        return None

    monkeypatch.setattr(Memory, "_find_cached", nothing)
    monkeypatch.setattr(RequestParseCache, "_find", lambda self, who, body: ((), None))
    slow, found = await talked_in_turn(tmp_path / "slow", seed)
    assert sum(summarises(b) for b in fast) > 2
    assert sqlite == found
    for one, other in zip(fast, slow, strict=True):
        assert CHANCE.sub("", json.dumps(one)) == CHANCE.sub("", json.dumps(other))


async def test_system_text_stays_before_a_history_kept_here(tmp_path):
    """Strict servers take system messages at the beginning alone."""
    async with Model("one", "two", "three") as up, running(up.url, tmp_path) as live:
        for words in ("a", "b", "c"):
            await live.chat(
                [{"role": "system", "content": "Be brief."}, {"role": "user", "content": words}],
                {"x-memory-conversation": "c1"},
                user="ada",
            )
        assert [m["role"] for m in up.bodies[2]["messages"]] == [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        assert up.bodies[2]["messages"][:4] == up.bodies[1]["messages"]


async def test_the_answers_of_a_request_asked_again_are_replaced_together(data, monkeypatch):
    def told(seen, wire):
        message = {"role": "assistant", "content": "Fine."}
        choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(20)]
        return wire.json({"id": "c", "object": "chat.completion", "model": "m", "choices": choices})

    removed, remove = [], turn_writer.message_rows.remove
    monkeypatch.setattr(
        turn_writer.message_rows, "remove", lambda *how: removed.append(remove(*how))
    )
    refused = (409, {"error": {"message": "not now", "code": "odd"}})
    async with Model(refused, told) as up, running(up.url, data) as live:
        assert (await live.chat("Twice", user="ada")).status_code == 409
        assert len((await live.chat("Twice", user="ada")).json()["choices"]) == 20
    assert removed == [0]
