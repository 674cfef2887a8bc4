"""The part of gpt-4o's vocabulary (o200k_base) that occurs in what memory adds to a request.

Of other texts it makes more tokens than the whole vocabulary, never fewer, so it needs no renewal.
The whole one has 3.6 MB and is not part of the repository: `mnemogate fetch tokenizers`.
"""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path

import tiktoken

PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@cache
def _part() -> tiktoken.Encoding:
    lines = Path(__file__).with_name("o200k_part.txt").read_text().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
    return tiktoken.Encoding("part", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def count_tokens(text: str) -> int:
    return len(_part().encode_ordinary(text))
