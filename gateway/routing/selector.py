"""Which target of a model is tried, in which order, and what each try tells of it.

Rules (WIRE.md G): a model's targets before its fallbacks; among targets by weight, by conversation
where that is sticky, or by the time to their first event. A target that failed too often rests;
once its rest is over, one request tries it before the others do. One that rests on its own word
(Retry-After) is left alone while another is to be had. Where all of a model rest, for whatever
reason, the one that recovers soonest is tried all the same: a gateway never refuses by itself what
an upstream might answer. In own-key mode a 429 is about one account, and rests the target for that
account alone.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from sys import getsizeof

from gateway.config.settings import RoutingSettings
from gateway.errors import GatewayError, UpstreamRefused
from gateway.routing.account_shares import AccountShares
from gateway.routing.concurrency import ConcurrencyLimiter
from gateway.routing.cooldowns import Cooldown, Cooldowns
from gateway.routing.failures import is_target_failure, retry_after_seconds
from gateway.routing.router import Route, Target
from memory import Cache

LONGEST_REST = 600.0  # seconds; whatever an upstream asks for, it is tried again after so long
FRESH = 60.0  # seconds that a measured latency counts
MIN_WEIGHT = 2.0**-65  # a chance below all that are drawn
PACES_BYTES, PACES_EACH = 1 << 19, 200  # behind `*`, clients name models as they like
ASKING = (
    429,
    503,
    529,
)  # the statuses whose Retry-After is about the target, not about this request
FREE, BEING_TRIED, RESTING = range(3)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A target to try. rests: its rests on record, over or not, by the name they are kept under."""

    target: Target
    rests: Mapping[str, Cooldown]

    def rank(self, now: float) -> tuple[int, float]:
        """Return what its rests say against it, and until when it rests, by `Cooldown`'s clock."""
        until = max((r.until for r in self.rests.values()), default=0.0)
        if until > now:
            return RESTING, until
        return (BEING_TRIED if any(r.probing for r in self.rests.values()) else FREE), 0.0

    def left_alone(self, now: float) -> bool:
        """Tell whether it rests on its own word."""
        return any(r.asked and r.until > now for r in self.rests.values())


@dataclass(slots=True)
class Attempt:
    """One try of a candidate.

    quota: the name under which a 429 counts. probes: the rests that it was let through to try.
    """

    choice: TargetSelector
    candidate: Candidate
    quota: str
    probes: Sequence[str]
    started: float

    async def succeed(self) -> None:
        self.choice.record_latency(self.candidate.target.label, time.monotonic() - self.started)
        for name in self.candidate.rests:
            await self.choice.cooldowns.record_success(name)

    async def fail(self, error: GatewayError) -> None:
        """Count what speaks against the target; a request's own fault is no verdict."""
        judged = ""
        if is_target_failure(error):
            judged = (
                self.quota
                if isinstance(error, UpstreamRefused) and error.status == 429
                else self.candidate.target.label
            )
            wait = retry_after_seconds(error) if error.status in ASKING else None
            await self.choice.cooldowns.record_failure(
                judged, min(wait, LONGEST_REST) if wait else None
            )
        await self.abandon(judged)

    async def abandon(self, judged: str = "") -> None:
        """The try is over, without a verdict on any name but `judged`."""
        for name in self.probes:
            if name != judged:
                await self.choice.cooldowns.release_probe(name)


class TargetSelector:
    """What is known of the targets, in this process and, through `cooldowns`, in others, and the
    rules of choosing.
    """

    def __init__(self, cooldowns: Cooldowns, rules: RoutingSettings) -> None:
        self.cooldowns, self.rules, self.slots, self.shares = (
            cooldowns,
            rules,
            ConcurrencyLimiter(),
            AccountShares(),
        )
        # By target: seconds until the first event, and when that was seen.
        self.paces: Cache[str, tuple[float, float]] = Cache(
            PACES_BYTES, PACES_EACH, lambda name, _: getsizeof(name)
        )

    def with_rules(self, rules: RoutingSettings) -> TargetSelector:
        """Return the same knowledge under other rules: those of requests under way stay as they
        were.
        """
        other = copy(self)
        other.rules = rules
        return other

    async def candidates(self, route: Route, account: str, conversation: bytes) -> list[Candidate]:
        """Whom to try, best first.

        account: whose quota it is, "" for the gateway's own. conversation: what stays the same in
        it.
        """
        targets = [t for tier in route.tiers for t in self._within(tier, conversation)]
        rests = await self.cooldowns.find([name for t in targets for name in _names(t, account)])
        if not rests and not any(t.concurrent for t in targets):
            return [Candidate(t, {}) for t in targets]
        now = time.monotonic()
        found = [
            Candidate(t, {n: rests[n] for n in _names(t, account) if n in rests}) for t in targets
        ]
        first, *others = sorted(found, key=self.penalty)
        return [first, *(c for c in others if not c.left_alone(now))]

    def penalty(self, candidate: Candidate) -> tuple[int, float, bool]:
        """Return what speaks against trying it now, in order: that it rests, and how long; that it
        has no free place.
        """
        return *candidate.rank(time.monotonic()), self.slots.full(candidate.target)

    async def start_attempt(
        self, candidate: Candidate, account: str, *, alone: bool
    ) -> Attempt | None:
        """Return the try of a candidate; None where another request is finding out whether it is
        well.

        alone: there is no other to try.

        One that rests is tried as it is: it was chosen because nobody else is left.
        """
        probes = []
        now = time.monotonic()
        for name, rest in candidate.rests.items():
            timeouts = candidate.target.settings.timeouts
            if rest.until > now:
                continue
            if await self.cooldowns.probe(name, timeouts.connect + timeouts.first_token):
                probes.append(name)
            elif not alone:
                for taken in probes:
                    await self.cooldowns.release_probe(taken)
                return None
        return Attempt(
            self, candidate, _names(candidate.target, account)[-1], probes, time.monotonic()
        )

    def record_latency(self, name: str, seconds: float) -> None:
        """A target's first event came after so long."""
        if self.rules.choice == "least_latency":
            before, _ = self.paces.get(name) or (math.inf, 0.0)
            self.paces.put(
                name,
                (seconds if math.isinf(before) else 0.7 * before + 0.3 * seconds, time.monotonic()),
            )

    def _within(self, tier: Sequence[Target], conversation: bytes) -> Sequence[Target]:
        if len(tier) < 2:
            return tier
        if self.rules.sticky and conversation:
            return weighted_shuffle(tier, lambda t: _rendezvous_score(conversation, t.label))
        if self.rules.choice == "least_latency":
            return self._quickest(tier)
        return weighted_shuffle(tier, lambda _: random.random())

    def _quickest(self, tier: Sequence[Target]) -> list[Target]:
        """By latency; first of all one that was not seen lately, for one request to look at it."""
        now = time.monotonic()
        order = sorted(tier, key=lambda t: (self.paces.get(t.label) or (math.inf, 0.0))[0])
        for target in order:
            seconds, seen = self.paces.get(target.label) or (math.inf, -math.inf)
            if now - seen > FRESH:
                self.paces.put(target.label, (seconds, now))
                return [target, *(t for t in order if t is not target)]
        return order


def weighted_shuffle(tier: Sequence[Target], chance: Callable[[Target], float]) -> list[Target]:
    """Return a weighted order without replacement (Efraimidis and Spirakis 2006).

    chance: a number in [0, 1) for each target; where it is a hash of a conversation and the target,
    this is weighted rendezvous hashing: the same order everywhere, without any state.
    """
    return sorted(
        tier, key=lambda t: math.log(chance(t) or MIN_WEIGHT) / t.weight, reverse=True
    )  # logarithms, as powers by small weights are all 0


def _rendezvous_score(conversation: bytes, name: str) -> float:
    return (
        int.from_bytes(
            hashlib.blake2b(name.encode(), key=conversation[:64], digest_size=8).digest()
        )
        / 2**64
    )


def _names(target: Target, account: str) -> tuple[str, ...]:
    """Under which names a target's rests are kept: its own, and that of one account's quota
    there.
    """
    return (target.label, f"{target.label}\x00{account}") if account else (target.label,)
