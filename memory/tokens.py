"""Token counts: an exact tokenizer where its vocabulary is at hand, else an estimate by classes of characters.

An estimate carries a margin of 15 % and is corrected by the usage that upstreams report. Counts are cached by message digest.
Nothing here reads a file or the network: who has a verified vocabulary passes its `encode` in.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from memory.messages import Json

MARGIN = 1.15
IMAGE = {"low": 85, "auto": 800, "high": 1100}
PER_MESSAGE = 4
CLASSES = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<number>\d+)|(?P<cjk>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])|(?P<other>[^\W\d_a-zA-Z]+)|(?P<space>\s+)|(?P<mark>[^\w\s]+|_+)")
CACHED = 8192  # counts that are kept: messages of the conversations under way, and beside them the core texts


def estimate(text: str) -> int:
    """Tokens of a text by word classes, margin included."""
    total = 0.0
    for found in CLASSES.finditer(text):
        size, kind = found.end() - found.start(), found.lastgroup
        if kind == "word":
            total += 1 if size <= 7 else size / 5
        elif kind == "number":
            total += (size + 2) // 3
        elif kind == "cjk":
            total += 1.1
        elif kind == "other":
            total += max(1.0, size / 2.2)
        elif kind == "mark":
            total += max(1.0, size / 1.8)
        elif size > 1 or found[0] == "\n":
            total += 0.6
    return int(total * MARGIN + 0.999)


class Counter:
    """Counts texts, messages and tools for one tokenizer family. encode: text to tokens, or None to estimate."""

    def __init__(self, encode: Callable[[str], Sequence[int]] | None = None) -> None:
        self._encode = encode
        self._cache: dict[bytes, int] = {}
        self._texts: dict[int, int] = {}
        self._factor: dict[str, float] = {}

    def text(self, text: str) -> int:
        """Tokens of one text. Known texts are remembered by hash: core texts and schemas come again and again."""
        key = hash(text)
        if (known := self._texts.get(key)) is None:
            if len(self._texts) >= CACHED:
                self._texts.clear()
            known = self._texts[key] = self._counted(text)
        return known

    def _counted(self, text: str) -> int:
        return len(self._encode(text)) if self._encode else estimate(text)

    def message(self, message: Json, digest: bytes | None = None) -> int:
        """Tokens of one message, images and calls counted; cached under its digest."""
        if digest is not None and (known := self._cache.get(digest)) is not None:
            return known
        total = PER_MESSAGE + self._content(message.get("content"))
        if calls := message.get("tool_calls"):
            total += self._counted(msgspec.json.encode(calls).decode())
        if reasoning := message.get("reasoning_content"):
            total += self._content(reasoning)
        if digest is not None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            self._cache[digest] = total
        return total

    def _content(self, content: Any) -> int:
        if isinstance(content, str):
            return self._counted(content)
        return sum(self._part(p) for p in content) if isinstance(content, list) else 0

    def _part(self, part: Any) -> int:
        if not isinstance(part, dict):
            return 1
        if isinstance(text := part.get("text"), str):
            return self._counted(text)
        if isinstance(image := part.get("image_url"), dict):
            return IMAGE.get(str(image.get("detail") or "auto"), IMAGE["auto"])
        size = len(msgspec.json.encode(part))
        return min(size // 4, 2000)  # audio and files: their bytes are not their tokens

    def tools(self, tools: Any) -> int:
        return self.text(msgspec.json.encode(tools).decode()) if tools else 0

    def scaled(self, model: str, count: int) -> int:
        """A count corrected by what this model's upstream reported before."""
        return int(count * self._factor.get(model, 1.0))

    def correct(self, model: str, counted: int, reported: int) -> None:
        """Takes the upstream's own figure for a prompt counted here into account."""
        if counted < 50 or reported < 50:
            return
        seen = min(3.0, max(0.3, reported / counted))
        self._factor[model] = 0.7 * self._factor.get(model, 1.0) + 0.3 * seen
