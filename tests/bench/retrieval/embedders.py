"""Embedders to measure with.

The stand-ins are poor on purpose: whatever is configured, search must find no less than words alone
do.

A real one: `onnx:<folder>`, where `mnemogate fetch embedder` put its files. `random` and `constant`
know nothing; `hashing` knows words but not what they mean; `trigrams` is the bundled demo model's;
`topics` and `context` learn from the very chats they are asked about, which words are in the same
messages and which stand near each other.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.demo_model.responses import vector
from memory.embed.base import Embed
from memory.embed.onnx import OnnxEmbed
from memory.search.vocabulary import STOP

DIMENSIONS = 256
STAND_INS = ("random", "constant", "hashing", "trigrams", "topics", "context")
Texts = Sequence[str]


class StandIn:
    """Implements Embed over a function of one text."""

    def __init__(self, model: str, made: Callable[[str], list[float]]) -> None:
        self.model, self._made = model, made

    async def __call__(self, tenant: str, texts: Texts) -> list[list[float]]:
        return [self._made(text) for text in texts]


def embedder(name: str, corpus: Texts) -> Embed:
    """The embedder of that name.

    corpus: what `topics` and `context` learn from. Raises ValueError.
    """
    if name.startswith("onnx:"):
        return OnnxEmbed(Path(name.removeprefix("onnx:")))
    made = {
        "random": noise,
        "constant": lambda text: [1.0, 0.0],
        "hashing": _hashing,
        "trigrams": vector,
    }.get(name)
    learnt = {"topics": _topics, "context": _context}.get(name)
    if made is None and learnt is None:
        raise ValueError(f"the embedder is {name!r}: use {', '.join(STAND_INS)} or onnx:<folder>")
    return StandIn(name, made or learnt(corpus))


def noise(text: str) -> list[float]:
    chosen = random.Random(text)
    return [chosen.gauss(0, 1) for _ in range(DIMENSIONS)]


def _hashing(text: str) -> list[float]:
    out = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        out[int.from_bytes(digest[1:]) % DIMENSIONS] += 1.0 if digest[0] & 1 else -1.0
    return out


def _words(text: str) -> list[str]:
    return [
        re.sub(r"(?<=\w{3})(?:ing|ed|es|s|ly)$", "", w)
        for w in re.findall(r"[^\W_]+", text.lower())
        if w not in STOP
    ]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of some texts that more than one of them holds.

    rarity: of each, the logarithm of one over its share of the texts.
    """

    place: dict[str, int]
    rarity: Any

    def counted(self, text: str) -> Any:
        """How often the text holds each word."""
        import numpy as np

        row = np.zeros(len(self.place))
        for w in _words(text):
            if w in self.place:
                row[self.place[w]] += 1
        return row

    def weighed(self, text: str) -> Any:
        """The same, the rare ones weighing more."""
        import numpy as np

        return np.log1p(self.counted(text)) * self.rarity


def _vocabulary(corpus: Texts) -> Vocabulary:
    import numpy as np

    frequency = Counter(w for text in corpus for w in set(_words(text)))
    place = {w: i for i, w in enumerate(w for w, count in frequency.items() if count > 1)}
    return Vocabulary(place, np.array([np.log(len(corpus) / frequency[w]) for w in place]))


def _topics(corpus: Texts) -> Callable[[str], list[float]]:
    """Latent semantic analysis (Deerwester et al. 1990): texts as weighed words, reduced to their
    largest directions.
    """
    import numpy as np

    known = _vocabulary(corpus)
    said = np.array([known.weighed(text) for text in corpus], dtype=np.float32)
    said /= np.linalg.norm(said, axis=1, keepdims=True) + 1e-9
    strength, directions = np.linalg.eigh(said.T @ said)
    largest = directions[:, np.argsort(-strength)[:DIMENSIONS]]
    return lambda text: [float(x) for x in known.weighed(text) @ largest]


def _context(corpus: Texts) -> Callable[[str], list[float]]:
    """Positive pointwise mutual information of words within a message and the two beside it,
    reduced to its largest directions (Levy and Goldberg 2014); a text is the mean of its words, the
    rare ones weighing more.
    """
    import numpy as np

    known = _vocabulary(corpus)
    said = np.array([known.counted(text) > 0 for text in corpus], dtype=np.float32)
    near = said.copy()
    near[1:] += said[:-1]
    near[:-1] += said[1:]
    together = said.T @ near
    np.fill_diagonal(together, 0)
    each = together.sum(1, keepdims=True) + 1e-9
    information = np.log(np.maximum(together * together.sum() / (each @ each.T), 1.0))
    strength, directions = np.linalg.eigh(information)
    largest = np.argsort(-np.abs(strength))[:DIMENSIONS]
    words = directions[:, largest] * np.sqrt(np.abs(strength[largest]))
    words /= np.linalg.norm(words, axis=1, keepdims=True) + 1e-9
    return lambda text: [float(x) for x in known.weighed(text) @ words]
