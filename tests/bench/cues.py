"""Recall for tasks: does a task bring the fact that it touches, in ten languages?

A hundred and thirty made-up people tell facts, and an assistant thanks them. Then each cue, each
direct question and each unrelated line goes through automatic recall alone.
`python -m tests.bench cues` prints the shares; `--misses` what was missed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from random import Random
from typing import NamedTuple

from memory.context.tokens import TokenCounter
from memory.retrieval.auto_recall import (
    AlreadyThere,
    ShownAs,
    alternate,
    recall_query,
    render_recall,
)
from memory.retrieval.retriever import SemanticSearch
from tests.bench.cue_more_people import MORE_PEOPLE, MORE_UNRELATED
from tests.bench.cue_people import ACKNOWLEDGED, PEOPLE, UNRELATED, Person
from tests.bench.cue_questions import QUESTIONED, UNRELATED_QUESTIONS
from tests.bench.retrieval.stored import Store, Stored, Utterance

BEGAN, DAY = 1_750_000_000.0, 86400.0
TARGETS = {"word": 0.9, "stem": 0.9, "direct": 0.95, "unrelated": 0.05}
# Later chats, so that a memory is not all about one thing.
LATER = 3


class Set(NamedTuple):
    """People and unrelated lines by language. one_in: of the lines a person is asked."""

    people: Mapping[str, Sequence[Person]]
    unrelated: Mapping[str, Sequence[str]]
    one_in: int


FIRST_SET, MORE = Set(PEOPLE, UNRELATED, 4), Set(MORE_PEOPLE, MORE_UNRELATED, 1)
ASKED = Set(QUESTIONED, UNRELATED_QUESTIONS, 1)


class Asked(NamedTuple):
    """A line that was played. kind: of the cue, `direct` or `unrelated`. fact: "" for none."""

    language: str
    kind: str
    line: str
    fact: str
    recalled: Sequence[str]

    @property
    def is_right(self) -> bool:
        return self.fact in self.recalled if self.fact else not self.recalled


def told(person: Person, language: str) -> list[Utterance]:
    """What a person says, each in a chat of a day, and what is answered."""
    facts = [fact.text for fact in person.facts]
    said = [x for pair in zip_longest(facts, person.distractors) for x in pair if x]
    out: list[Utterance] = []
    for i, text in enumerate(said):
        at, session = BEGAN + i * DAY, f"chat {i}"
        out.append(Utterance(f"u{i}", session, "", "user", text, at))
        thanks = ACKNOWLEDGED[language]
        out.append(Utterance(f"a{i}", session, "", "assistant", thanks, at + 1))
    return out


def lines(played: Set, person: Person, number: int, language: str) -> list[tuple[str, str, str]]:
    """The kinds, lines and facts that are played for a person."""
    out = [(c.kind, c.text, f.text) for f in person.facts for c in f.cues]
    out += [("direct", f.question, f.text) for f in person.facts]
    unrelated = played.unrelated[language][number % played.one_in :: played.one_in]
    return out + [("unrelated", line, "") for line in unrelated]


class Synonyms:
    """An embedder that knows which cue means which fact, and nothing else."""

    model = "synonyms"

    def __init__(self) -> None:
        facts = [f for people in PEOPLE.values() for p in people for f in p.facts]
        self._facts = {
            text: i for i, f in enumerate(facts) for text in (f.text, *(c.text for c in f.cues))
        }
        self._size = len(facts)

    async def __call__(self, tenant: str, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        """Return the vector of a fact; of another text one that is like no other's."""
        fact = next((i for known, i in self._facts.items() if known in text), None)
        if fact is not None:
            return [float(i == fact) for i in range(2 * self._size)]
        random = Random(text)
        return [0.0] * self._size + [random.gauss(0, 1) for _ in range(self._size)]


async def play(meaning: SemanticSearch | None = None, played: Set = FIRST_SET) -> list[Asked]:
    """Play all people, each a user of their own. meaning: search by meaning too."""
    out: list[Asked] = []
    async with Store(meaning) as store:
        for language, people in played.people.items():
            for number, person in enumerate(people):
                user = await store.user(f"{language} {number}", told(person, language))
                if meaning is not None:
                    await store.embedded(user)
                for kind, line, fact in lines(played, person, number, language):
                    shown = await recalled(user, line)
                    out.append(Asked(language, kind, line, fact, shown))
    return out


async def recalled(user: Stored, line: str) -> list[str]:
    """Return the texts that recall adds to a line."""
    if (query := recall_query(line)) is None:
        return []
    hits = alternate(await user.memory.recall.find(user.scope_id, query, None))
    keys = render_recall(hits, AlreadyThere(message=line), ShownAs("t"), TokenCounter()).keys
    return [str(h["content"]) for h in hits if int(h.get("key") or h["id"]) in keys]


def share(asked: Sequence[Asked]) -> float:
    """Return the share of lines whose recall is right; of unrelated ones that of wrong ones."""
    right = sum(x.is_right for x in asked) / max(len(asked), 1)
    return 1 - right if asked and asked[0].kind == "unrelated" else right


def report(asked: Sequence[Asked], *, misses: bool = False) -> str:
    kinds = ["word", "stem", "synonym", "nothing", "direct", "unrelated"]
    rows = [f"{'':12}" + "".join(f"{kind:>11}" for kind in kinds)]
    for language in ["", *PEOPLE]:
        some = [x for x in asked if language in ("", x.language)]
        cells = [share([x for x in some if x.kind == kind]) for kind in kinds]
        rows.append(f"{language or 'all':12}" + "".join(f"{cell:11.3f}" for cell in cells))
    goals = [f"{TARGETS[k]:11.3f}" if k in TARGETS else f"{'':11}" for k in kinds]
    rows.append(f"{'target':12}" + "".join(goals))
    if misses:
        rows += [
            f"{x.kind}: {x.line} | {x.fact} | {list(x.recalled)}"
            for x in asked
            if not x.is_right and x.kind in TARGETS
        ]
    return "\n".join(rows)


def figures() -> str:
    """Play all, by words and with an embedder that knows, and return the tables."""
    knowing = asyncio.run(play(SemanticSearch(Synonyms())))
    words = report(asyncio.run(play()))
    more = report(asyncio.run(play(played=MORE)))
    words = f"{words}\n\nthirty more people, whose facts are of everyday words:\n{more}"
    direct = report(asyncio.run(play(played=ASKED)))
    words = f"{words}\n\npeople who are asked for themselves in other words:\n{direct}"
    return f"{words}\n\nwith an embedder that knows which cue means which fact:\n{report(knowing)}"


if __name__ == "__main__":
    for each in (FIRST_SET, MORE, ASKED):
        print(report(asyncio.run(play(played=each)), misses="--misses" in sys.argv))
