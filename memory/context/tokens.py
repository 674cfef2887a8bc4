"""Token counts: an exact tokenizer if its vocabulary is installed, otherwise an estimate.

The estimate goes by classes of characters. It is never much too low, whatever the script, and is
corrected by the usage and the overflows that upstreams report. Counts are cached by message digest
and length. Long texts are sampled, so that no count delays others. Nothing here reads a file or the
network: a caller with a verified vocabulary passes its `encode`.
"""

from __future__ import annotations

import re
import string
from bisect import bisect
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from sys import getsizeof
from typing import Any, NamedTuple

import msgspec

from memory.cache import Cache
from memory.conversation.messages import Json

MARGIN = 1.15
IMAGE = {"low": 85, "auto": 800, "high": 1100}
PER_MESSAGE = 4
# What some APIs count of a prompt apart.
CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")


def _only(characters: Mapping[str, str]) -> bytes:
    """Return a `bytes.translate` table that maps these ASCII characters, and others to blanks."""
    return bytes(ord(characters.get(chr(i), " ")) for i in range(256))


# Runs of each class are found by `split`, on text whose other characters are blanks: matching a
# pattern again and again took ten times as long.
_letters = string.ascii_letters
_digits = string.digits
_blanks = "\t\n\v\f\r \x1c\x1d\x1e\x1f"
ASCII = bytes(range(128))
BEYOND_ASCII = bytes(range(128, 256))
ONLY_WORDS = _only({c: c for c in _letters})
ONLY_NUMBERS = _only({c: c for c in _digits})
NO_DIGITS = bytes(i for i in range(256) if chr(i) not in _digits)
ONLY_MARKS = _only({c: c for c in map(chr, range(128)) if c not in _letters + _digits + _blanks})
ONLY_BLANKS = _only({c: "n" if c == "\n" else "s" for c in _blanks})
# Tokens per character, from a code point on, for a mostly English vocabulary (measured with
# cl100k_base).
SCRIPTS = (
    (0x80, 1.4),
    (0x250, 1.0),
    (0x400, 0.55),
    (0x530, 1.2),
    (0x600, 0.85),
    (0x780, 1.9),
    (0x900, 1.1),
    (0x980, 1.25),
    (0xB80, 1.4),
    (0xE00, 0.95),
    (0xE80, 1.9),
    (0x1200, 3.0),
    (0x1380, 1.9),
    (0x1E00, 1.2),
    (0x2000, 1.0),
    (0x2800, 2.6),
    (0x2900, 1.4),
    (0x3040, 1.1),
    (0xA000, 1.9),
    (0xAC00, 1.1),
    (0xD7B0, 1.9),
    (0xFE00, 1.2),
    (0x10000, 2.7),
)
# Characters that cl100k_base has as one token; the other ideographs are mostly two.
COMMON_IDEOGRAPHS = frozenset(
    "一万三上下不与专业东两个中串为主么义之也书了事二于五些交产享京人亿今介从他付代以们件价任份企"
    "优会传但位体何余作你使例供価保信修倍值停像元先入全公共关其具内円册再写出击分列则初利别到制前"
    "力功加务动動包化北区十午华单南即历原去县参及友反发取变口只可台右号司合同名后向否含听启告员周"
    "命和品哈商問器四回因国图土在地场址型城基報場填增声处备复外多大天失头女好如始子字存学安宋完定"
    "实审客家容密对导将小少尔就局展山岁州工左已市布常平年并广序库应店度建开异式引张当录形影径待後"
    "得微心必志态思性总息您情意感成我或户所手打找技投报拉持指按换据排接推提播支收改放政效数整文料"
    "断新方族无日时明易星是時景更最月有服期木未本机权束条来板构析果查标样核格案检模次款止正此步歳"
    "段每比民気水求江汽没治法注活流海消清游源火点無然片版物特率环现球理生用由电男画界番登的监目直"
    "相省看県真知码确示社票私种科秒称移程稍税稿空立站章端笑符第等签简算管箱米类系素索约级线组经结"
    "给络统编网置美老考者而联能自至色节英藏行表装西要見见规视角解言計記話読计认议记论设证评试话询"
    "该详语误说请读调象责败账货购费资起超路身车转软载辑输达过运近还这进连述退送选通速造連道邮部都"
    "配释里重量金钟钮链销错键长開間関门闭问间队阳陆限院除雅集雷需非面音页项预频题额首验高黑"
)
IDEOGRAPHS = range(0x4E00, 0xA000)
# From here on a character is a word or a part of one, in most scripts.
FIRST_IDEOGRAPH = "\u2e80"
RARE_IDEOGRAPH = 1.9
# Text with few of these is not English, whose words are mostly one token.
ENGLISH = frozenset(b"the and to of a in is that it you for I on with was".split())
# Of the words: of English prose, and of other languages.
ENGLISH_SHARE, OTHER_SHARE = 0.12, 0.04
# Runs of marks for each word.
PROSE_MARKS, CODE_MARKS = 0.3, 0.5
# Tokens of a run of blanks that is more than a space.
BREAK = 0.9
# A word of another language has more tokens for each letter above.
LETTERS, PER_LETTER = 4, 0.17
STARTS = [start for start, _ in SCRIPTS]
# Characters; longer ones are no words but keys, digests, base64.
UNBROKEN = 24
CHAINS = re.compile(rb"[A-Za-z0-9+/=_-]{24,}")
KINDS = re.compile(rb"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
# Tokens per character of such data, and characters per run of one kind.
DENSE, MIXED = 0.64, 1.9
# Cache of each tokenizer: some 8,000 messages and core texts.
COUNTS_BYTES = 1 << 20
COUNTS_EACH = 130
# Cache of the models' factors, of each tokenizer.
FACTORS_BYTES, FACTORS_EACH = 1 << 18, 160
# Plausible corrections of an estimate.
MIN_FACTOR, MAX_FACTOR = 0.2, 5.0
# Tokens; smaller prompts correct nothing.
TELLING = 50
# Of a message; more are counted together.
PARTS = 100
# Of a body that is only sampled: pieces, bytes of each, and what its tokens are multiplied by.
SAMPLES = 16
SAMPLE_BYTES = 256
SAMPLE_MARGIN = 1.25
# A longer text is counted by this number of samples.
LONG_TEXT_CHARACTERS = 100_000
SLICES = 25


@lru_cache(4096)
def _weight(char: str) -> float:
    """Return the tokens of a character beyond ASCII."""
    if ord(char) in IDEOGRAPHS:
        if char in COMMON_IDEOGRAPHS:
            return 1.0
        return RARE_IDEOGRAPH
    return SCRIPTS[bisect(STARTS, ord(char)) - 1][1]


def estimate_at_once(text: str) -> int:
    """Estimate the tokens of a text of any length in a few milliseconds: a long one by samples."""
    if len(text) > LONG_TEXT_CHARACTERS:
        return _by_samples(text, estimate)
    return estimate(text)


def _by_samples(text: str, count: Callable[[str], int]) -> int:
    """Return the tokens of a long text as some samples of it suggest."""
    stride = len(text) // SLICES
    size = LONG_TEXT_CHARACTERS // SLICES
    samples = [text[offset : offset + size] for offset in range(0, stride * SLICES, stride)]
    return int(MARGIN * len(text) / LONG_TEXT_CHARACTERS * sum(map(count, samples)))


def estimate(text: str) -> int:
    """Estimate the tokens of a text by classes of characters, margin included."""
    if text.isascii():
        utf8_bytes = text.encode()
        total = 0.0
    else:
        utf8 = text.encode("utf-8", "surrogatepass")
        utf8_bytes = utf8.translate(None, BEYOND_ASCII)
        wide_text = utf8.translate(None, ASCII).decode("utf-8", "surrogatepass")
        total = sum([_weight(char) * n for char, n in Tally(wide_text).items()])
    if max(map(len, utf8_bytes.split()), default=0) >= UNBROKEN:
        size = len(utf8_bytes)
        utf8_bytes = CHAINS.sub(lambda match: b"" if _is_data(match[0]) else match[0], utf8_bytes)
        total += DENSE * (size - len(utf8_bytes))
    words = utf8_bytes.translate(ONLY_WORDS).split()
    numbers = utf8_bytes.translate(ONLY_NUMBERS).split()
    mark_runs = utf8_bytes.translate(ONLY_MARKS).split()
    blanks = utf8_bytes.translate(ONLY_BLANKS).split()
    total += len(words) + sum([len(x) / 5 - 1 for x in words if len(x) > 7])
    total += sum([(len(x) + 2) // 3 for x in numbers]) + sum(
        [max(1.0, len(x) / 1.8) for x in mark_runs]
    )
    total += _foreignness(words, len(mark_runs)) * sum(
        [PER_LETTER * (len(x) - LETTERS) for x in words if len(x) > LETTERS]
    )
    total += BREAK * sum(run != b"s" for run in blanks) + sum(
        [len(run) / 64 for run in blanks if len(run) > 63]
    )
    return int(total * MARGIN + 0.999)


def _foreignness(words: Sequence[bytes], mark_count: int) -> float:
    """Return how little words look like English or code, from 0 to 1."""
    if not words:
        return 0.0
    share = sum([x in ENGLISH for x in words]) / len(words)
    foreign_share = (ENGLISH_SHARE - share) / (ENGLISH_SHARE - OTHER_SHARE)
    prose = (CODE_MARKS - mark_count / len(words)) / (CODE_MARKS - PROSE_MARKS)
    return min(1.0, max(0.0, foreign_share)) * min(1.0, max(0.0, prose))


def _is_data(chain: bytes) -> bool:
    return len(chain) < MIXED * len(KINDS.findall(chain))


class PromptReport(NamedTuple):
    """What an upstream counted of a prompt, in tokens.

    fewest: that the prompt has, 0 where the report raises no doubt.
    """

    reported_tokens: int
    fewest: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it may be all of the prompt."""
        return self.reported_tokens >= self.fewest


def fewest(text: str) -> int:
    """Return a number of tokens below which no usual vocabulary gets: mostly, that of its words.

    A mark may be one token with the letters after it, so only half of them count. Of a very long
    text only the beginning is looked at.
    """
    text = text[:LONG_TEXT_CHARACTERS]
    ascii_bytes = text.encode("ascii", "ignore")
    words = ascii_bytes.translate(ONLY_WORDS).split()
    mark_runs = ascii_bytes.translate(ONLY_MARKS).split()
    digits = len(ascii_bytes.translate(None, NO_DIGITS))
    token_estimate = (
        len(words)
        + len(mark_runs) / 2
        + max(len(ascii_bytes.translate(ONLY_NUMBERS).split()), digits / 3)
    )
    if not text.isascii():
        utf8 = text.encode("utf-8", "surrogatepass")
        wide_text = utf8.translate(None, ASCII).decode("utf-8", "surrogatepass")
        ideographs = sum(map(FIRST_IDEOGRAPH.__le__, wide_text))
        token_estimate += 0.1 * len(wide_text) + 0.3 * ideographs
    return int(token_estimate)


class TokenCounter:
    """Counts texts, messages and tools for one tokenizer family.

    encode: text to tokens, or None to estimate.
    """

    def __init__(self, encode: Callable[[str], Sequence[int]] | None = None) -> None:
        self._encode = encode
        self.is_estimate = encode is None
        # By hash of a text, or of a message's digest and length.
        self.counts: Cache[int, int] = Cache(COUNTS_BYTES, COUNTS_EACH)
        self.factors: Cache[str, tuple[float, bool]] = Cache(
            FACTORS_BYTES, FACTORS_EACH, lambda model, _: getsizeof(model)
        )

    def text(self, text: str) -> int:
        """Count a text; cached by hash, since core texts and schemas recur."""
        key = hash(text)
        if (cached_count := self.counts.get(key)) is None:
            self.counts.put(key, cached_count := self._count(text))
        return cached_count

    def fixed(self, text: str, measured_tokens: int) -> int:
        """Count a text of ours that never changes: as measured, unless there is a vocabulary."""
        if self._encode is None:
            return measured_tokens
        return self.text(text)

    def _count(self, text: str) -> int:
        """Count a text; a long one by samples, so that it takes a few milliseconds at most."""
        if len(text) <= LONG_TEXT_CHARACTERS:
            return self._exact(text)
        return _by_samples(text, self._exact)

    def _exact(self, text: str) -> int:
        if self._encode is None:
            return estimate(text)
        try:
            return len(self._encode(text))
        except BaseException as e:
            # a panic of tiktoken, whose class cannot be imported: long runs overflow its stack
            if type(e).__module__ != "pyo3_runtime":
                raise
            return estimate(text)

    def sample(self, body: bytes) -> int:
        """Estimate the tokens of a body of text from samples, rather too many than too few.

        What is not evenly spread is still missed, so this answers only for what is not a near case.
        Takes a quarter of a millisecond, whatever the size.
        """
        starts = range(0, len(body), max(SAMPLE_BYTES, len(body) // SAMPLES))
        samples = [
            body[offset : offset + SAMPLE_BYTES].decode("utf-8", "ignore") for offset in starts
        ]
        share = len(body) / max(1, sum(map(len, samples)))
        return int(SAMPLE_MARGIN * share * estimate(" ".join(samples)))

    def message(self, message: Json, digest: bytes | None = None) -> int:
        """Count a message, including images and calls.

        Cached under its digest and length, since a digest ignores white space and reasoning.
        """
        key = None
        if digest is not None:
            key = hash((digest, length(message)))
        if key is not None and (cached_count := self.counts.get(key)) is not None:
            return cached_count
        content = message.get("content")
        if digest is None and type(content) is str and len(message) == 2:
            # cached: a system text comes with every request.
            return PER_MESSAGE + self.text(content)
        total = PER_MESSAGE + self._content(content)
        if calls := message.get("tool_calls"):
            total += self._count(msgspec.json.encode(calls).decode())
        if reasoning := message.get("reasoning_content"):
            total += self._content(reasoning)
        if key is not None:
            self.counts.put(key, total)
        return total

    def _content(self, content: Any) -> int:
        if isinstance(content, str):
            return self._count(content)
        if not isinstance(content, list):
            return 0
        if len(content) <= PARTS:
            return sum(map(self._part, content))
        # Many parts are counted as one text, which is sampled if it is long.
        texts = [
            p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)
        ]
        other_parts = (
            p for p in content if not (isinstance(p, dict) and isinstance(p.get("text"), str))
        )
        return self._count("\n".join(texts)) + sum(map(self._part, other_parts))

    def _part(self, part: Any) -> int:
        if not isinstance(part, dict):
            return 1
        if isinstance(text := part.get("text"), str):
            return self._count(text)
        if isinstance(image := part.get("image_url"), dict):
            return IMAGE.get(str(image.get("detail") or "auto"), IMAGE["auto"])
        if part.get("type") == "image":
            return IMAGE["auto"]
        size = len(msgspec.json.encode(part))
        # Audio and files: bytes say little about tokens.
        return min(size // 4, 2000)

    def tools(self, tools: Any) -> int:
        if tools:
            return self.text(msgspec.json.encode(tools).decode())
        return 0

    def scale(self, model: str, count: int) -> int:
        """Return a count corrected by what this model's upstream reported before."""
        return int(count * self._factor(model)[0])

    def unscale(self, model: str, count: int) -> int:
        """Return what our own count is of tokens that this model's upstream would report."""
        return int(count / self._factor(model)[0])

    def correct(self, model: str, counted_tokens: int, reported_tokens: int) -> None:
        """Learn from the upstream's count of a prompt.

        counted_tokens: our own count, unscaled. A count that is far too small means something else,
        such as the tokens that were not cached.
        """
        if counted_tokens >= TELLING and reported_tokens >= max(
            TELLING, MIN_FACTOR * counted_tokens
        ):
            factor, doubted = self._factor(model)
            share = 1.0 if doubted else 0.3
            self._learn(model, (1 - share) * factor + share * reported_tokens / counted_tokens)

    def learn_from_refusal(self, model: str, counted_tokens: int, minimum_tokens: int) -> None:
        """Learn that a prompt overflowed, so it has at least `minimum_tokens` tokens.

        counted_tokens: see `correct`.
        """
        if counted_tokens >= TELLING and self.scale(model, counted_tokens) < minimum_tokens:
            self._learn(model, minimum_tokens / counted_tokens, doubted=True)

    def _factor(self, model: str) -> tuple[float, bool]:
        """Return the factor of a model, and whether it comes from an overflow.

        The next report then counts more.
        """
        return self.factors.get(model) or (1.0, False)

    def _learn(self, model: str, factor: float, *, doubted: bool = False) -> None:
        self.factors.put(model, (min(MAX_FACTOR, max(MIN_FACTOR, factor)), doubted))


def length(message: Json) -> int:
    """Count the characters of a message in which equal messages may differ."""
    content = message.get("content")
    if type(content) is str and len(message) == 2:
        return len(content)
    if isinstance(content, list):
        parts = content
    else:
        parts = [content]
    texts = [p.get("text") if isinstance(p, dict) else p for p in parts]
    calls = [
        c["function"].get("arguments")
        for c in message.get("tool_calls") or ()
        if isinstance(c, dict) and isinstance(c.get("function"), dict)
    ]
    return sum(
        len(x) for x in (*texts, *calls, message.get("reasoning_content")) if isinstance(x, str)
    )


def prompt_tokens_of(usage: Mapping[str, Any]) -> object:
    """Return the tokens of a prompt, whichever way an API counts those read from a cache."""
    if (tokens := usage.get("prompt_tokens", usage.get("input_tokens"))) is None:
        return None
    if type(tokens) is not int:
        return tokens
    total: int = tokens
    for name in CACHED:
        cached_tokens = usage.get(name)
        if isinstance(cached_tokens, int):
            total += cached_tokens
    return total
