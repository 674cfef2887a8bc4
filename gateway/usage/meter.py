"""What one request used, as its upstream calls tell it, and what that costs. Pure.

Each call is billed by the target that served it, from the moment its request left: one that nobody
waited for has cost its input at least. A call that was refused, or never connected, costs nothing.
A call whose upstream told no count is guessed: its input by the request's size, its output by its
events, one token each, or by its size; the bill says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.config.settings import Price
from gateway.usage.pricing import MEMBERS, TokenUsage, cost_of, tokens_of
from gateway.wire.sse import SseFramer

BYTES_A_TOKEN = 4
NONE = TokenUsage()


class Priced(Protocol):
    """What a meter wants to know of a target. price: None where it is unknown."""

    @property
    def price(self) -> Price | None: ...


@dataclass(slots=True)
class MeteredCall:
    """One call that was accepted, or left.

    framer: what cut its stream into events, if it was one. size: bytes of an answer that came
    whole. usage: what the upstream told.
    """

    target: Priced
    framer: SseFramer
    size: int = 0
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class UsageTotals:
    """tokens, and the part of them the client did not see.

    cost in USD, None where a price is unknown; known: of the calls whose price is known. estimated:
    some counts are guesses.
    """

    tokens: TokenUsage = field(default_factory=TokenUsage)
    hidden: TokenUsage = field(default_factory=TokenUsage)
    cost: float | None = 0.0
    known: float = 0.0
    estimated: bool = False
    rounds: int = 0


@dataclass(slots=True)
class Meter:
    """guess: input tokens of a call, roughly; None where the calls are not billed by tokens, so
    there is nothing to guess.

    asides: the meters of calls made for this request beside its own, such as summaries.
    """

    guess: int | None = None
    calls: list[MeteredCall] = field(default_factory=list)
    asides: list[Meter] = field(default_factory=list)

    def record_call(self, target: Priced, framer: SseFramer, size: int = 0) -> None:
        """An upstream accepted a call, or was left at work on one. size: see `MeteredCall`."""
        self.calls.append(MeteredCall(target, framer, size))

    def record_usage(self, usage: Any) -> None:
        """What the latest call's upstream says it used.

        Said again, later counts replace earlier ones, unless they are none. Of all its members,
        however many, only those are kept that are billed by.
        """
        if isinstance(usage, dict) and self.calls:
            known = self.calls[-1].usage
            for name in MEMBERS & usage.keys():
                if (value := usage[name]) or name not in known:
                    known[name] = value

    def bill(self) -> UsageTotals:
        """Return all of it: the last call is what the client saw, those before it and the asides
        are hidden.
        """
        total = hidden = NONE
        known, priced, estimated = 0.0, True, False
        for meter in (*self.asides, self):
            for call in meter.calls:
                tokens, guessed = meter._of(call)
                total += tokens
                estimated = estimated or guessed
                if meter is not self or call is not self.calls[-1]:
                    hidden += tokens
                price = cost_of(tokens, call.target.price)
                known, priced = known + (price or 0.0), priced and price is not None
        return UsageTotals(
            total, hidden, known if priced else None, known, estimated, len(self.calls)
        )

    def _of(self, call: MeteredCall) -> tuple[TokenUsage, bool]:
        if (told := tokens_of(call.usage)) is not None:
            return told, False
        if self.guess is None:
            return TokenUsage(), False
        return TokenUsage(
            input=self.guess, output=call.framer.count or call.size // BYTES_A_TOKEN
        ), True


def guess_tokens(size: int) -> int:
    """Return tokens in a text of `size` bytes, roughly."""
    return size // BYTES_A_TOKEN + 1
