"""Memory for models that do not ask: what is kept of a long chat, what comes back, what it costs.

A scripted model never calls a tool; the extractor is one that proposes everything it is shown as a
fact, with a quote, and things nobody said beside it. `python -m tests.bench junk` prints the
figures.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

from sqlalchemy import select

from memory.context.tokens import TokenCounter, estimate
from memory.retrieval.auto_recall import (
    AlreadyThere,
    ShownAs,
    alternate,
    recall_query,
    render_recall,
)
from memory.stores.sql.engine import schema as t
from tests.bench.layout import bill, flat
from tests.bench.retrieval import locomo
from tests.bench.retrieval.metrics import ADVERSARIAL
from tests.bench.retrieval.stored import Store, Stored
from tests.bench.small_talk import LINES
from tests.conftest import Live, running
from tests.models import Model

OPENING = "You keep the long-term"
CODE = "```python\ndef my_boat(x):\n    return x + 1\n```"
QUESTIONS = ("What is a monad?", "How do I sort a list in Python?", "Can you explain this error?")
REQUESTS = ("Write a haiku about autumn.", "Translate this into French.", "Fix this function.")
ANSWER = "That is how it is, and there is a little more to say about it than fits here. " * 4
THINGS = (
    ("dog", "Rex", "is called"),
    ("sister", "Mia", "is called"),
    ("boat", "Albatross", "is called"),
    ("office", "Bergen", "is in"),
    ("allergy", "peanuts", "is to"),
    ("dentist", "Okafor", "is called"),
    ("bicycle", "turquoise", "is"),
    ("violin", "1897", "was built in"),
    ("landlord", "Petrov", "is called"),
    ("favourite soup", "borscht", "is"),
    ("daughter", "Ottilie", "is called"),
    ("employer", "Nordwind", "is called"),
    ("garden", "tomatoes", "is full of"),
    ("birthday", "17 March", "is on"),
    ("doctoral thesis", "lichens", "is about"),
    ("cat", "Schnurri", "is called"),
    ("choir", "Thursdays", "meets on"),
    ("piano teacher", "Lindqvist", "is called"),
    ("car", "Saab", "is an old"),
    ("grandmother", "Izmir", "comes from"),
)
FACTS = [f"My {thing} {verb} {value}." for thing, value, verb in THINGS]
MORE = [f"I once lived for {i + 2} years in the town of Village{i}." for i in range(20)]


def junk(number: int) -> str:
    """What people send a model all day, and nothing of it tells who they are."""
    lines = [*LINES["English"], *LINES["German"], *LINES["Spanish"], *LINES["Chinese"]]
    kind = number % 4
    if kind == 0:
        return lines[number // 4 % len(lines)]
    if kind == 1:
        return f"Explain this, number {number}:\n{CODE}"
    return (QUESTIONS if kind == 2 else REQUESTS)[number % 3]


def greedy(seen: Any, wire: Any) -> str:
    """A model that tells nothing, and an extractor that takes everything for a fact."""
    messages = seen.json["messages"]
    if not str(messages[0]["content"]).startswith(OPENING):
        return ANSWER
    said = [
        unescape(x) for x in re.findall(r"<user[^>]*>(.*?)</user>", messages[1]["content"], re.S)
    ]
    found = [s for text in said for s in re.split(r"(?<=[.!?])\s+", text) if s.strip()]
    invented = [{"text": f"{s} Also rich.", "quote": f"{s} I am rich."} for s in found]
    return json.dumps({"operations": [*({"text": s, "quote": s} for s in found), *invented]})


async def settle(live: Live, *, idle: bool = False) -> None:
    """Run the jobs that are due; idle: also those that wait for a quiet moment."""
    db = live.gateway.memory.db

    def hurry(conn: Any) -> None:
        conn.execute(t.jobs.update().where(t.jobs.c.state == "ready").values(run_at=0))

    if idle:
        await db.write(hurry)
    waiting = select(t.jobs.c.id).where(
        t.jobs.c.state.in_(("ready", "running")), t.jobs.c.run_at <= time.time()
    )
    while await db.read(lambda conn: conn.execute(waiting).first()):
        live.gateway.worker.wake()
        await asyncio.sleep(0.01)


async def play(live: Live, words: list[str], user: str = "ada") -> None:
    """One conversation, whose history is resent."""
    history: list[Any] = []
    for text in words:
        history.append({"role": "user", "content": text})
        answer = await live.chat(history, user=user)
        history.append(answer.json()["choices"][0]["message"])
        await settle(live)
    await settle(live, idle=True)


async def passages(live: Live) -> list[str]:
    rows = select(t.passages.c.content).where(t.passages.c.deleted_at.is_(None))
    return await live.gateway.memory.db.read(lambda conn: list(conn.execute(rows).scalars()))


def spread(facts: list[str], turns: int) -> list[str]:
    """Facts at equal distances among turns of junk."""
    every = max(1, turns // len(facts))
    return [
        facts[i // every] if i % every == 0 and i // every < len(facts) else junk(i)
        for i in range(turns)
    ]


def is_extraction(body: Any) -> bool:
    return str(body["messages"][0]["content"]).startswith(OPENING)


def tokens(bodies: list[Any]) -> int:
    return sum(estimate(json.dumps(b["messages"], ensure_ascii=False)) for b in bodies)


async def told_and_asked(turns: int = 200, sessions: int = 5) -> dict[str, float]:
    """Facts told in some sessions, asked for in another one; another user's stay theirs."""
    async with Model(greedy) as up, _gateway(up.url, {}) as live:
        words, each = spread(FACTS, turns), turns // sessions
        await play(live, ["hello", "My dog is called Zorro.", "thanks"] * 3, "bob")
        for i in range(sessions):
            await play(live, words[i * each : (i + 1) * each])
        told = len(up.bodies)
        await play(live, [f"What about my {thing}?" for thing, _, _ in THINGS])
        asked = [b["messages"] for b in up.bodies[told:] if not is_extraction(b)]
        found = [
            any(m["role"] != "assistant" and value in str(m["content"]) for m in messages)
            for messages, (_, value, _) in zip(asked, THINGS, strict=True)
        ]
        everything = json.dumps(asked)
        return {
            "facts of 20 that stand in the sixth session": sum(found),
            "invented": everything.count("rich"),
            "of another user": everything.count("Zorro"),
        }


async def kept_of_junk(turns: int = 400, each: int = 40) -> dict[str, float]:
    """What is kept of a chat with 40 facts, and what extraction costs."""
    async with Model(greedy) as up, _gateway(up.url, {}) as live:
        words = spread([*FACTS, *MORE], turns)
        for i in range(0, turns, each):
            await play(live, words[i : i + each])
        kept = await passages(live)
        chats = [b for b in up.bodies if not is_extraction(b)]
        extracting = [b for b in up.bodies if is_extraction(b)]
        return {
            "rows kept of 40 facts": len(kept),
            "facts among them": sum(f in kept for f in [*FACTS, *MORE]),
            "extraction's tokens, of the conversation's": tokens(extracting) / tokens(chats),
        }


async def recall_bill(turns: int = 40) -> float:
    """The input bill of a chat with recall, over the same without."""
    bills = []
    for recall in ("tools", "always"):
        config = {"memory.recall": recall, "memory.extract": "off"}
        async with Model(ANSWER) as up, _gateway(up.url, config) as live:
            await play(live, spread(FACTS, turns))
            begun = len(up.bodies)
            asked = [f"And what about my {thing}?" for thing, _, _ in THINGS]
            await play(live, spread(asked, turns))
            bills.append(bill([flat(b) for b in up.bodies[begun:]]).total)
    return bills[1] / bills[0]


@asynccontextmanager
async def _gateway(url: str, config: dict[str, Any]) -> AsyncIterator[Any]:
    # A busy machine must not pass off a turn that went without its memory.
    slow = {"memory.read_deadline_ms": 10000}
    with tempfile.TemporaryDirectory(prefix="mnemogate-junk-") as folder:
        async with running(url, Path(folder), {**slow, **config}) as live:
            yield live


async def gate() -> dict[str, float]:
    """What the gate of recall keeps of LoCoMo's evidence, and how much small talk it lets pass."""
    if (data := locomo.present()) is None:
        return {}
    found: list[tuple[int, int, int]] = []
    passed: set[str] = set()
    async with Store() as store:
        for dialogue in locomo.load(data):
            user = await store.user(dialogue.id, dialogue.found)
            for question, category, evidence in dialogue.questions:
                if category != ADVERSARIAL:
                    best = set(await _ungated(user, question)) & set(evidence)
                    searched = set((await user.search(question, 5))[:5]) & set(evidence)
                    shown = set(await _recalled(user, question))
                    found.append((len(best), len(best & shown), len(searched)))
            for line in (x for lines in LINES.values() for x in lines):
                if await _recalled(user, line):
                    passed.add(line)
    return {
        "of what recall@5 finds without its gate, the gate keeps": sum(k for _, k, _ in found)
        / sum(b for b, _, _ in found),
        "recall@5 with its gate, to what the search tool finds": sum(k for _, k, _ in found)
        / sum(s for _, _, s in found),
        "small talk of 100 lines that recalls something": len(passed),
    }


async def _ungated(user: Stored, text: str) -> list[str]:
    """The ids of the five messages that recall finds before its gate."""
    if (query := recall_query(text)) is None:
        return []
    hits = await user.memory.retrieval.recall(user.scope_id, query, None)
    return [i for h in hits.messages[:5] for i in user.ids_of(h)]


async def _recalled(user: Stored, text: str) -> list[str]:
    """The ids of what recall adds to a message."""
    if (query := recall_query(text)) is None:
        return []
    hits = alternate(await user.memory.recall.find(user.scope_id, query, None))
    keys = render_recall(hits, AlreadyThere(), ShownAs("t"), TokenCounter()).keys
    return [i for h in hits if h["id"] in keys for i in user.ids_of(h)]


async def figures() -> dict[str, float]:
    return {
        **await told_and_asked(),
        **await kept_of_junk(),
        **await gate(),
        "input bill of a 40-turn chat with recall, x without": await recall_bill(),
    }


def report() -> str:
    return "\n".join(f"{name}: {value:.3g}" for name, value in asyncio.run(figures()).items())


if __name__ == "__main__":
    print(report())
