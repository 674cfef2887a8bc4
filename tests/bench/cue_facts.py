"""What is told is kept: which facts reach a scripted extractor, and which stand afterwards.

The people of `cue_people` tell their facts and distractors, and more of `told_facts`: polite
requests, and what is no longer true. The extractor proposes the exact fact with its quote for
whatever it is shown, and the right number of the fact that it replaces; one answer in five has a
slip that models make.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select

from memory.stores.sql.engine import schema as t
from tests.bench.cue_people import ACKNOWLEDGED, PEOPLE
from tests.bench.junk import OPENING, settle
from tests.bench.told_facts import TOLD, ToldFact
from tests.conftest import Live, running
from tests.models import Model

TARGETS = {"shown": 0.97, "kept": 0.95, "standing": 0.0}
# Turns of a conversation, and what the gateway is given for the play.
TURNS = 6
CONFIG = {
    "models": {"m": {"targets": [{"provider": "openai"}], "supports_tools": False}},
    "memory.extraction.every_turns": TURNS,
    # A busy machine must not pass off a turn that went without its memory.
    "memory.read_deadline_ms": 10_000,
}
Operation = dict[str, Any]
# One answer in five: what models do to an answer, or to an operation in it.
SLIPS: tuple[Callable[[list[Operation]], str], ...] = (
    lambda found: f"<think>{{so}} [it seems] {{</think>{json.dumps({'operations': found})}",
    lambda found: f"Here is {{the}} result: {json.dumps({'operations': found})} Anything else?",
    lambda found: json.dumps(found),
    lambda found: _told(found, type="memory"),
    lambda found: _told(found, importance=8),
    lambda found: _told(found, type=None, importance=None, category=None),
    lambda found: _told([{**x, "op": x["op"].upper()} for x in found]),
    lambda found: _told([{**x, "quote": x["quote"].replace("'", "\u2019")} for x in found]),
    lambda found: _told([{**x, "quote": _capital(x["quote"])} for x in found]),
    lambda found: _told([{**x, "quote": x["quote"].rstrip(".。।") + "."} for x in found]),
    lambda found: _told([{**x, "quote": unicodedata.normalize("NFD", x["quote"])} for x in found]),
    lambda found: f"```json\n{json.dumps({'operations': found})[:-1]},}}\n```",
)
SLIP_EVERY = 5


class Figures(NamedTuple):
    """Of one language. shown, kept: shares of the facts. standing: of the replaced ones."""

    told: int
    shown: float
    kept: float
    replaced: int
    standing: float
    misses: Sequence[str] = ()


class Extractor:
    """A model whose chats are dull, and which proposes what it is shown of these facts."""

    def __init__(self, facts: Sequence[ToldFact], thanks: str) -> None:
        self._facts, self._thanks = facts, thanks
        self.shown: set[str] = set()
        self._answers = 0

    def __call__(self, seen: Any, wire: Any) -> str:
        messages = seen.json["messages"]
        if not str(messages[0]["content"]).startswith(OPENING):
            return self._thanks
        prompt = messages[1]["content"]
        said = [unescape(x) for x in re.findall(r"<user[^>]*>(.*?)</user>", prompt, re.DOTALL)]
        known = {
            unescape(text): int(number)
            for number, text in re.findall(r"^(\d+)\. (.*)$", prompt, re.MULTILINE)
        }
        found = [
            _operation(fact, known) for fact in self._facts if any(fact.quote in x for x in said)
        ]
        self.shown |= {x["text"] for x in found}
        self._answers += 1
        if self._answers % SLIP_EVERY == 0:
            return SLIPS[self._answers // SLIP_EVERY % len(SLIPS)](found)
        return _told(found)


def _operation(fact: ToldFact, known: dict[str, int]) -> Operation:
    found: Operation = {"op": "add", "text": fact.quote, "quote": fact.quote, "type": "fact"}
    if fact.old in known:
        return {**found, "op": "supersede", "id": known[fact.old]}
    return found


def _told(found: Sequence[Operation], **changed: Any) -> str:
    return json.dumps({"operations": [{**x, **changed} for x in found]})


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def facts_of(language: str) -> list[ToldFact]:
    """What is told in a language; what is no longer true comes some turns before what is."""
    plain = [x for p in PEOPLE[language] for x in (*(f.text for f in p.facts), *p.distractors)]
    more = TOLD[language]
    before = [fact for fact in more if not fact.old]
    return [*before, *(ToldFact(x, x) for x in plain), *(fact for fact in more if fact.old)]


async def play(language: str) -> Figures:
    """Tell all facts of a language to a gateway, in conversations of a few turns."""
    facts = facts_of(language)
    extractor = Extractor(facts, ACKNOWLEDGED[language])
    with tempfile.TemporaryDirectory(prefix="mnemogate-cues-") as folder:
        async with Model(extractor) as up, running(up.url, Path(folder), CONFIG) as live:
            for at in range(0, len(facts), TURNS):
                await _talk(live, [fact.line for fact in facts[at : at + TURNS]])
            standing = await _standing(live)
    old = {fact.old for fact in facts if fact.old}
    now = [fact for fact in facts if fact.quote not in old]
    replaced = [x for x in old if _bare(x) in standing]
    lost = [f.line for f in now if _bare(f.quote) not in standing]
    misses = [
        *(f"not shown: {f.line}" for f in facts if f.quote not in extractor.shown),
        *(f"not kept: {line}" for line in lost),
        *(f"still stands: {text}" for text in replaced),
    ]
    shown = sum(fact.quote in extractor.shown for fact in facts) / len(facts)
    kept = 1 - len(lost) / len(now)
    return Figures(len(facts), shown, kept, len(old), len(replaced) / max(len(old), 1), misses)


async def _talk(live: Live, lines: Sequence[str]) -> None:
    """One conversation, whose history is resent, and then nothing for a while."""
    history: list[Any] = []
    for text in lines:
        history.append({"role": "user", "content": text})
        answer = await live.chat(history, user="ada")
        history.append(answer.json()["choices"][0]["message"])
    await settle(live)
    await settle(live, idle=True)


async def _standing(live: Live) -> set[str]:
    """Return the facts that stand: of passages and lines of blocks."""
    passages = select(t.passages.c.content).where(t.passages.c.deleted_at.is_(None))
    blocks = select(t.blocks.c.value)
    texts = await live.gateway.memory.db.read(
        lambda conn: [*conn.execute(passages).scalars(), *conn.execute(blocks).scalars()]
    )
    return {_bare(line) for text in texts for line in [text, *text.split("\n")]}


def _bare(text: str) -> str:
    """Return a text without white space: a passage has some behind each sentence."""
    return "".join(text.split())


async def play_all() -> dict[str, Figures]:
    return {language: await play(language) for language in PEOPLE}


def report(figures: dict[str, Figures], *, misses: bool = False) -> str:
    """Return the table, with what was missed if that is asked for."""
    rows = [f"{'':12}{'told':>8}{'shown':>8}{'kept':>8}{'replaced':>10}{'standing':>10}"]
    for name, found in figures.items():
        rows.append(_row(name, found))
    told, old = (sum(f[i] for f in figures.values()) for i in (0, 3))
    whole = Figures(
        told,
        sum(f.told * f.shown for f in figures.values()) / told,
        sum((f.told - f.replaced) * f.kept for f in figures.values()) / (told - old),
        old,
        sum(f.replaced * f.standing for f in figures.values()) / old,
    )
    rows.insert(1, _row("all", whole))
    goals = [TARGETS[name] for name in ("shown", "kept", "standing")]
    rows.append(f"{'target':12}{'':8}{goals[0]:8.3f}{goals[1]:8.3f}{'':10}{goals[2]:10.3f}")
    if misses:
        rows += [f"{name}: {miss}" for name, found in figures.items() for miss in found.misses]
    return "\n".join(rows)


def _row(name: str, found: Figures) -> str:
    return (
        f"{name:12}{found.told:8}{found.shown:8.3f}{found.kept:8.3f}{found.replaced:10}"
        f"{found.standing:10.3f}"
    )


def figures() -> str:
    """Play all and return the table."""
    return report(asyncio.run(play_all()))


if __name__ == "__main__":
    print(report(asyncio.run(play_all()), misses="--misses" in sys.argv))
