"""Convert an upstream's usage object to tokens, and tokens and a price to USD. Pure.

An unknown count or price is None, never zero. Providers count differently; here input includes what
was read from the prompt cache and what was written to it, output includes reasoning, as all of it
is billed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.config.settings import ModelSettings, Price

# What a column can hold.
MAX_COUNT = 2**31 - 1
NUMBERS = (int, float)
COUNTS = frozenset(
    (
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "cache_creation_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    )
)
INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
PARTS = frozenset((*INPUT_DETAILS, *OUTPUT_DETAILS))
# Of a usage object that are read.
MEMBERS = COUNTS | PARTS
NOTHING: Mapping[str, int] = {}
# Of most chat completions.
PLAIN = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens")).keys()


class TokenUsage(msgspec.Struct):
    """Tokens. cached_input and cache_write are parts of input, reasoning is a part of output."""

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    def __add__(self, summand: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input + summand.input,
            self.cached_input + summand.cached_input,
            self.cache_write + summand.cache_write,
            self.output + summand.output,
            self.reasoning + summand.reasoning,
        )


def tokens_of(usage: Mapping[str, Any] | None) -> TokenUsage | None:
    """Return the tokens of an upstream's usage object; None if it has no count.

    Understands chat completions, Responses, Messages and embeddings. Of a streamed message, give
    the members of `message_start` updated by those of the last `message_delta`.
    """
    if not isinstance(usage, dict):
        return None
    if usage.keys() == PLAIN and (plain_usage := _plain_tokens(*map(usage.get, PLAIN))) is not None:
        return plain_usage
    return _read_tokens(usage)


def _read_tokens(usage: dict[str, Any]) -> TokenUsage | None:
    counts = _counts(usage)
    cache_read = counts.get("cache_read_input_tokens", 0)
    cache_write = counts.get("cache_creation_input_tokens", 0)
    input_tokens = counts.get("prompt_tokens")
    total = counts.get("total_tokens")
    output_tokens = counts.get("completion_tokens", counts.get("output_tokens"))
    if input_tokens is None and (input_tokens := counts.get("input_tokens")) is not None:
        # Anthropic's input excludes both; OpenAI's has neither member.
        input_tokens += cache_read + cache_write
    if input_tokens is None and output_tokens is None and total is None:
        return None
    if input_tokens is None:
        input_tokens = total or 0 if output_tokens is None else 0
    has_parts = not PARTS.isdisjoint(usage)
    before = _part(usage, INPUT_DETAILS) if has_parts else NOTHING
    after = _part(usage, OUTPUT_DETAILS) if has_parts else NOTHING
    read_tokens = before.get("cached_tokens") or counts.get("prompt_cache_hit_tokens") or cache_read
    written_tokens = before.get("cache_creation_tokens", before.get("cache_write_tokens", 0))
    reasoning = after.get("reasoning_tokens", 0)
    reasoning_apart = 0 if output_tokens is None else (total or 0) - input_tokens - output_tokens
    if output_tokens is not None and reasoning_apart > 0 and reasoning in (0, reasoning_apart):
        # xAI and Gemini count reasoning apart from the completion; only the total includes it
        output_tokens, reasoning = output_tokens + reasoning_apart, reasoning_apart
    input_tokens, output_tokens = min(input_tokens, MAX_COUNT), min(output_tokens or 0, MAX_COUNT)
    cached_tokens = min(read_tokens, input_tokens)
    return TokenUsage(
        input_tokens,
        cached_tokens,
        min(written_tokens or cache_write, input_tokens - cached_tokens),
        output_tokens,
        min(reasoning, output_tokens),
    )


def _plain_tokens(input_tokens: Any, output_tokens: Any, total: Any) -> TokenUsage | None:
    """Return the tokens of a usage that tells these alone; None if one has to be looked at."""
    if not type(input_tokens) is type(output_tokens) is type(total) is int:
        return None
    if input_tokens + output_tokens != total or not 0 <= input_tokens <= total <= MAX_COUNT:
        return None
    return TokenUsage(input=input_tokens, output=output_tokens)


def _counts(members: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the members that are plausible counts.

    An absurd count would use up a budget.
    """
    counts: dict[str, int] = {}
    for name in COUNTS & members.keys():
        value = members[name]
        if type(value) in NUMBERS and 0 <= value <= MAX_COUNT:
            counts[name] = int(value)
    return counts


def _part(usage: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
    for name in names:
        if isinstance(part := usage.get(name), dict):
            return _counts(part)
    return NOTHING


def cost_of(tokens: TokenUsage, price: Price | None) -> float | None:
    """Return the cost in USD; None if the price is unknown."""
    if price is None:
        return None
    if price.cached_input is None:
        cached_price = price.input
    else:
        cached_price = price.cached_input
    if price.cache_write is None:
        write_price = price.input
    else:
        write_price = price.cache_write
    plain_tokens = tokens.input - tokens.cached_input - tokens.cache_write
    return (
        plain_tokens * price.input
        + tokens.cached_input * cached_price
        + tokens.cache_write * write_price
        + tokens.output * price.output
    ) / 1_000_000


def price_of(model: ModelSettings | None, facts: Mapping[str, Any]) -> Price | None:
    """Return the operator's price, otherwise the shipped one (see `ModelFacts`), otherwise None."""
    if model is not None and model.price is not None:
        return model.price
    if "price" in facts:
        return Price.model_validate(facts["price"])
    return None
