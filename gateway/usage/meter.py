"""What one request used, as its upstream calls report it, and what that costs.

Each call is billed by the target that served it, from the moment it was sent: even one whose caller
left has cost its input. A call that was refused or never connected costs nothing. If the upstream
reported no count, it is estimated: input from the size of the request, output as one token for each
event, or from its size; the bill says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from gateway.config.settings import Price
from gateway.usage.pricing import MEMBERS, TokenUsage, cost_of, tokens_of
from gateway.wire.sse import SseFramer

BYTES_A_TOKEN = 4
NONE = TokenUsage()


class Priced(Protocol):
    """What a meter needs of a target. price: None if unknown. label: `provider/model`."""

    @property
    def label(self) -> str: ...

    @property
    def price(self) -> Price | None: ...


class MeteredCall(msgspec.Struct):
    """One call that was accepted, or sent.

    framer: splits its stream into events. size: bytes of a response that came as a whole. usage:
    what the upstream reported. sent_at: Unix time in nanoseconds.
    """

    target: Priced
    framer: SseFramer
    size: int = 0
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    sent_at: int = msgspec.field(default_factory=time.time_ns)


class UsageTotals(msgspec.Struct):
    """The tokens of a request and their cost.

    hidden: the part that the client did not see. cost: in USD, None if a price is unknown. known:
    cost of the calls whose price is known. estimated: some counts are estimates.
    """

    tokens: TokenUsage = msgspec.field(default_factory=TokenUsage)
    hidden: TokenUsage = msgspec.field(default_factory=TokenUsage)
    cost: float | None = 0.0
    known_cost: float = 0.0
    estimated: bool = False
    rounds: int = 0


class CountedIn(NamedTuple):
    """Where a key's counters have a request. second: of the window. shared: they are in
    Redis.
    """

    period: str
    # Stored by this name.
    second: int
    shared: bool


class Meter(msgspec.Struct):
    """Counts the calls of one request.

    guess: rough input tokens of a call; None if the calls are not billed by tokens. asides: meters
    of further calls made for this request, such as summaries. counted_in: None where its key has no
    limits. tools_usd: what runs of the operator's tools cost.
    """

    guess: int | None = None
    calls: list[MeteredCall] = msgspec.field(default_factory=list)
    asides: list[Meter] = msgspec.field(default_factory=list)
    counted_in: CountedIn | None = None
    tools_usd: float = 0.0

    def record_call(self, target: Priced, framer: SseFramer, size: int = 0) -> None:
        """Record a call that an upstream accepted, or may be working on.

        size: see `MeteredCall`.
        """
        self.calls.append(MeteredCall(target, framer, size))

    def record_usage(self, usage: Any) -> None:
        """Record the usage that the latest call's upstream reports.

        Said again, later counts replace earlier ones, unless they are none. Of all its members,
        however many, only those are kept that are billed by.
        """
        if isinstance(usage, dict) and self.calls:
            call_usage = self.calls[-1].usage
            for name in MEMBERS & usage.keys():
                if (value := usage[name]) or name not in call_usage:
                    call_usage[name] = value

    def bill(self) -> UsageTotals:
        """Return the totals.

        The last call is what the client saw; those before it and the asides are hidden.
        """
        # As of most turns.
        if len(self.calls) == 1 and not self.asides:
            bill = self._bill_only(self.calls[0])
        else:
            last_call = [(self, call) for call in self.calls[-1:]]
            bill = self._totals((*self._hidden_calls(), *last_call))
            bill.hidden = self.bill_hidden().tokens
        if self.tools_usd:
            bill.known_cost += self.tools_usd
            if bill.cost is not None:
                bill.cost = bill.known_cost
        return bill

    def bill_hidden(self) -> UsageTotals:
        """Return the totals of the calls before the last one, and of the asides."""
        return self._totals(self._hidden_calls())

    def _bill_only(self, call: MeteredCall) -> UsageTotals:
        """Return the totals of a request whose only call this was."""
        tokens, is_estimated = self.count(call)
        cost = cost_of(tokens, call.target.price)
        return UsageTotals(tokens, NONE, cost, cost or 0.0, is_estimated, 1)

    def _hidden_calls(self) -> list[tuple[Meter, MeteredCall]]:
        asides = [(aside, call) for aside in self.asides for call in aside.calls]
        return [*asides, *((self, call) for call in self.calls[:-1])]

    def _totals(self, calls: Sequence[tuple[Meter, MeteredCall]]) -> UsageTotals:
        total = NONE
        known_cost = 0.0
        priced = True
        estimated = False
        for meter, call in calls:
            tokens, is_estimated = meter.count(call)
            total += tokens
            estimated = estimated or is_estimated
            price = cost_of(tokens, call.target.price)
            known_cost = known_cost + (price or 0.0)
            priced = priced and price is not None
        cost = known_cost if priced else None
        return UsageTotals(total, NONE, cost, known_cost, estimated, len(self.calls))

    def count(self, call: MeteredCall) -> tuple[TokenUsage, bool]:
        """Return the tokens of a call, and whether they are estimated."""
        if (reported_tokens := tokens_of(call.usage)) is not None:
            return reported_tokens, False
        if self.guess is None:
            return TokenUsage(), False
        return TokenUsage(
            input=self.guess, output=call.framer.count or call.size // BYTES_A_TOKEN
        ), True


def guess_tokens(size: int) -> int:
    """Estimate the tokens in a text of `size` bytes."""
    return size // BYTES_A_TOKEN + 1
