"""Token counts: an exact tokenizer where its vocabulary is at hand, else an estimate by classes of characters.

An estimate carries a margin of 15 % and is corrected by the usage that upstreams report. Counts are cached by message digest.
Nothing here reads a file or the network: who has a verified vocabulary passes its `encode` in.
"""
from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from memory.messages import Json

MARGIN = 1.15
IMAGE = {"low": 85, "auto": 800, "high": 1100}
PER_MESSAGE = 4
# Runs of each class are cut out by the interpreter's own `split`, on text whose other characters are blanks: one match of a pattern
# after the other took ten times as long.
WORDS = re.compile("[A-Za-z]+")
NUMBERS = re.compile(r"\d+")
CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
OTHER = re.compile(r"[^\W\d_a-zA-Z\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
SPACES = re.compile(r"\s{2,}|\n")
MARKS = re.compile(r"[^\w\s]+|_+")


def _only(shown: Mapping[str, str]) -> bytes:
    """A table for `bytes.translate` that leaves these ASCII characters, each as what stands for it, and makes blanks of all others."""
    return bytes(ord(shown.get(chr(i), " ")) for i in range(256))


_letters, _digits, _blanks = string.ascii_letters, string.digits, "\t\n\v\f\r \x1c\x1d\x1e\x1f"
ONLY_WORDS, ONLY_NUMBERS = _only({c: c for c in _letters}), _only({c: c for c in _digits})
ONLY_MARKS = _only({c: c for c in map(chr, range(128)) if c not in _letters + _digits + _blanks})
ONLY_BLANKS = _only({c: "n" if c == "\n" else "s" for c in _blanks})
CACHED = 8192  # counts that are kept: messages of the conversations under way, and beside them the core texts


def estimate(text: str) -> int:
    """Tokens of a text by word classes, margin included."""
    if text.isascii():
        raw = text.encode()
        words: Sequence[Any] = raw.translate(ONLY_WORDS).split()
        numbers: Sequence[Any] = raw.translate(ONLY_NUMBERS).split()
        marks: Sequence[Any] = raw.translate(ONLY_MARKS).split()
        blanks, total = sum(run != b"s" for run in raw.translate(ONLY_BLANKS).split()), 0.0
    else:
        words, numbers, marks = WORDS.findall(text), NUMBERS.findall(text), MARKS.findall(text)
        blanks, total = len(SPACES.findall(text)), 1.1 * len(CJK.findall(text)) + sum(max(1.0, len(x) / 2.2) for x in OTHER.findall(text))
    total += len(words) + sum([len(x) / 5 - 1 for x in words if len(x) > 7]) + 0.6 * blanks
    total += sum([(len(x) + 2) // 3 for x in numbers]) + sum([max(1.0, len(x) / 1.8) for x in marks])
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
        content = message.get("content")
        if digest is None and type(content) is str and len(message) == 2:
            return PER_MESSAGE + self.text(content)  # a system text comes with every request
        total = PER_MESSAGE + self._content(content)
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
