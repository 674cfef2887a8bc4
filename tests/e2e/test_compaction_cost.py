"""A turn costs the same however long its conversation is, those in which the history is compacted
among them.

What is counted is what a turn does with messages: those that it decodes, those that it hashes and
those whose tokens it counts. A history that is resent is copied, and so are the bytes of one kept
here.
"""

from __future__ import annotations

import itertools
from collections import Counter as Tally

import pytest

from memory.context.tokens import TokenCounter
from memory.conversation import history
from memory.conversation.history import Messages, TextRange
from memory.conversation.messages import DigestCache
from memory.session.composer import Composer
from tests.conftest import running
from tests.models import Model

CONFIG = {
    "models": {"m": {"targets": [{"provider": "openai"}], "context_window": 1900}},
    # What is said of a turn is told apart from these by their tests.
    "memory.recall": "tools",
    "memory.extract": "off",
    "memory.read_deadline_ms": 10000,
}
# The first turns of those that are compared.
EARLY, LATE, TURNS = 30, 150, 25
KINDS = ("decoded", "found in a text", "hashed", "counted", "looked at")
NAMED = {"x-memory-conversation": "named"}
# Messages that a client sends, 0 for all.
RESENT = {"all of it": 0, "its newest, by name": 1}


@pytest.fixture
def seen(monkeypatch):
    """What a turn did with messages."""
    found: Tally[str] = Tally()

    def watched(owner, name, kind, many=lambda out: 1):
        whole = getattr(owner, name)

        def watching(self, *args):
            out = whole(self, *args)
            found[kind] += many(out)
            return out

        monkeypatch.setattr(owner, name, watching)

    watched(TextRange, "decode", "decoded", len)
    watched(DigestCache, "extend_chain", "hashed")
    watched(TokenCounter, "message", "counted")
    watched(Messages, "__getitem__", "looked at")
    found_in = history.array_elements

    def finding(text, at, end=0):
        out = found_in(text, at, end)
        found["found in a text"] += len(out)
        return out

    monkeypatch.setattr(history, "array_elements", finding)
    compacted = Composer._trace_eviction

    def watching(self, fitted):
        found["compactions"] += bool(fitted.how)
        compacted(self, fitted)

    monkeypatch.setattr(Composer, "_trace_eviction", watching)
    return found


class Client:
    """Says a few words each turn. newest: messages of its history that it sends, 0 for all."""

    def __init__(self, live, newest):
        self.live, self.newest, self.headers = live, newest, NAMED if newest == 1 else {}
        self.history = []

    async def turn(self):
        self.history.append(
            {"role": "user", "content": f"question {len(self.history)} " + "word " * 8}
        )
        system = {"role": "system", "content": "Be kind."}
        response = await self.live.chat(
            [system, *self.history[-self.newest :]], self.headers, user="ada"
        )
        assert response.headers["x-memory-status"] == "ok"
        self.history.append(response.json()["choices"][0]["message"])


def model(numbers):
    def answered(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You compress"):
            return "SUMMARY " + "of it " * 30
        return f"answer {next(numbers)} and a few words more"

    return answered


async def dearest(client, seen, first):
    """The most that a turn did of each kind, of those from turn `first` on, and the compactions
    among them.
    """
    while len(client.history) < 2 * first:
        await client.turn()
        await client.live.gateway.worker.drain()
    found = []
    for _ in range(TURNS):
        seen.clear()
        await client.turn()
        found.append(dict(seen))
        await client.live.gateway.worker.drain()
    return {kind: max(f.get(kind, 0) for f in found) for kind in KINDS}, sum(
        f.get("compactions", 0) for f in found
    )


@pytest.mark.parametrize("ahead", [True, False], ids=["made ahead", "made in the turn"])
@pytest.mark.parametrize("resent", RESENT)
async def test_the_dearest_turn_of_a_late_part_of_a_conversation_is_that_of_an_early_one(
    data, seen, resent, ahead
):
    async with (
        Model(model(itertools.count())) as up,
        running(up.url, data, {**CONFIG, "memory.summarize_ahead": ahead}) as live,
    ):
        await live.gateway.memory.wait_until_ready()
        # Its jobs run between the turns.
        await live.stop_worker()
        client = Client(live, RESENT[resent])
        early, some = await dearest(client, seen, EARLY)
        late, more = await dearest(client, seen, LATE)
    assert min(some, more) > 1
    assert {kind: (early[kind], n) for kind, n in late.items() if n > 1.25 * early[kind] + 8} == {}
