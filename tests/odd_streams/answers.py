"""Answers of a model, from which streams are made: texts and calls, ours and the client's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

OURS = ("core_memory_append", "archival_memory_search")
CLIENTS = ("get_weather", "core_lookup", "Read", "core_memory_append_to_file")
WORDS = ("rain", "in {Oslo}", 'a "b"', "back\\slash", "\n", "ü", "}{", "[1]", "a" * 30)


@dataclass(frozen=True)
class Text:
    """What the model says."""

    text: str


@dataclass(frozen=True)
class Call:
    """What the model calls."""

    name: str
    arguments: str
    ident: str

    @property
    def is_owned(self) -> bool:
        return self.name in OURS


Answer = list[Text | Call]


def make_answer(rng: Random) -> Answer:
    """Return a text or none, then calls with texts between them or none."""
    parts: Answer = []
    if rng.random() < 0.6:
        parts.append(Text(words(rng)))
    for number in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        name = rng.choice(OURS if rng.random() < 0.4 else CLIENTS)
        parts.append(Call(name, make_arguments(rng), f"call_{number}_{rng.randrange(99)}"))
        if rng.random() < 0.15:
            parts.append(Text(words(rng)))
    return parts or [Text("So.")]


def make_arguments(rng: Random) -> str:
    """Return the arguments of a call, at times nested or spaced."""
    value: dict[str, object] = {f"k{i}": rng.choice(WORDS) for i in range(rng.randrange(3))}
    if rng.random() < 0.2:
        value["deep"] = {"a": [1, {"b": rng.choice(WORDS)}]}
    return json.dumps(value, indent=1 if rng.random() < 0.1 else None)


def words(rng: Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4)))


def cut(rng: Random, text: str) -> list[str]:
    """Return a text in pieces, some of them empty."""
    ends = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(4)))
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [p for p in pieces if p or rng.random() < 0.2]


def said(answer: Answer) -> str:
    return "".join(p.text for p in answer if isinstance(p, Text))


def calls_of(answer: Answer, *, owned: bool) -> list[tuple[str, str]]:
    """Return the names and arguments of the calls that are ours, or the client's."""
    calls = (p for p in answer if isinstance(p, Call) and p.is_owned == owned)
    return [(c.name, c.arguments) for c in calls]
