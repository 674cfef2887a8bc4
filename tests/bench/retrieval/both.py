"""Does a search find the same on SQLite and on Postgres? The ids of each question, on both."""

from __future__ import annotations

from collections.abc import Sequence

from memory.stores.sql.engine.database import Database
from tests.bench.retrieval import chinese, paraphrases
from tests.bench.retrieval.locomo import Dialogue
from tests.bench.retrieval.stored import Store, Utterance

Questions = tuple[str, Sequence[Utterance], Sequence[str]]


def sets(dialogues: Sequence[Dialogue]) -> list[Questions]:
    """Return all that is asked: each dialogue, then the sets of our own."""
    own: list[Questions] = [
        ("Chinese", chinese.utterances(), [q for q, _ in chinese.QUESTIONS]),
        ("paraphrases", paraphrases.utterances(), [q for q, _ in paraphrases.questions()]),
    ]
    return [*((d.id, d.found, [q for q, _, _ in d.questions]) for d in dialogues), *own]


async def differences(
    found: Sequence[Questions], other: Database
) -> dict[str, tuple[int, list[str]]]:
    """Ask SQLite and another store, of messages and of the same as passages.

    Returns by set how many searches there were, and what was asked in those whose ids differ.
    """
    out = {}
    async with Store() as one, Store(database=other) as two:
        for name, said, questions in found:
            users = [await store.user(name, said) for store in (one, two)]
            unlike: list[str] = []
            for user in users:
                await user.keep(said)
            for query in questions:
                if await users[0].search(query) != await users[1].search(query):
                    unlike.append(f"messages: {query}")
                if await users[0].archival(query) != await users[1].archival(query):
                    unlike.append(f"passages: {query}")
            out[name] = (2 * len(questions), unlike)
    return out


def report(found: dict[str, tuple[int, list[str]]]) -> str:
    """Return a line for each set, and what differs."""
    lines = []
    for name, (asked, unlike) in found.items():
        lines.append(f"{name:14} {asked:5} searches on both stores, {len(unlike)} unlike")
        lines += [f"  {query}" for query in unlike]
    return "\n".join(lines)
