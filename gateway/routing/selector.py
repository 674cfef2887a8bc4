"""In which order a model's targets are tried, and what each attempt says about them.

A model's targets come before its fallbacks. Among targets the order is by weight, by conversation
if routing is sticky, or by the time to their first event. A target that failed too often cools
down; afterwards one request probes it before others follow. A target that asked for a pause
(Retry-After) is left alone while another is available. If all targets of a model are cooling down,
for whatever reason, the one that recovers first is tried nevertheless: the gateway never refuses by
itself what an upstream might answer. In own-key mode a 429 concerns one account, and starts a
cooldown for that account only.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from sys import getsizeof

import msgspec

from gateway.config.settings import RoutingSettings
from gateway.errors import GatewayError, UpstreamRefused
from gateway.routing.account_shares import AccountShares
from gateway.routing.concurrency import ConcurrencyLimiter
from gateway.routing.cooldowns import Cooldown, Cooldowns
from gateway.routing.failures import is_target_failure, retry_after_seconds
from gateway.routing.router import Route, Target
from memory import Cache

# Seconds; limits what an upstream asks for.
LONGEST_REST = 600.0
# How many seconds a measured latency counts.
FRESH = 60.0
# Below any random number that is drawn.
MIN_WEIGHT = 2.0**-65
# Bounded: behind `*`, clients choose the names.
PACES_BYTES, PACES_EACH = 1 << 19, 200
# Statuses whose Retry-After concerns the target, not this request.
ASKING = (
    429,
    503,
    529,
)
FREE, BEING_TRIED, RESTING = range(3)


class Candidate(msgspec.Struct, frozen=True):
    """A target to try.

    rests: its cooldowns on record, over or not, by the name of their record.
    """

    target: Target
    rests: Mapping[str, Cooldown]

    def rank(self, now: float) -> tuple[int, float]:
        """Return what its cooldowns say against trying it now, and until when."""
        until = max((r.until for r in self.rests.values()), default=0.0)
        if until > now:
            return RESTING, until
        return (BEING_TRIED if any(r.probing for r in self.rests.values()) else FREE), 0.0

    def left_alone(self, now: float) -> bool:
        """Tell whether it asked for a pause that is not over."""
        return any(r.asked and r.until > now for r in self.rests.values())


class Attempt(msgspec.Struct):
    """One attempt at a candidate.

    quota: the name under which a 429 counts. probes: the cooldowns that this attempt probes.
    """

    choice: TargetSelector
    candidate: Candidate
    quota: str
    probes: Sequence[str]
    started_at: float

    async def succeed(self) -> None:
        if self.choice.rules.choice == "least_latency":
            self.choice.record_latency(
                self.candidate.target.label, time.monotonic() - self.started_at
            )
        for name in self.candidate.rests:
            await self.choice.cooldowns.record_success(name)

    async def fail(self, error: GatewayError) -> None:
        """Record a failure of the target. An error of the request itself is not recorded."""
        blamed_name = ""
        if is_target_failure(error):
            if isinstance(error, UpstreamRefused) and error.status == 429:
                blamed_name = self.quota
            else:
                blamed_name = self.candidate.target.label
            wait = None
            if error.status in ASKING:
                wait = retry_after_seconds(error)
            await self.choice.cooldowns.record_failure(
                blamed_name, min(wait, LONGEST_REST) if wait else None
            )
        await self.abandon(blamed_name)

    async def abandon(self, blamed_name: str = "") -> None:
        """End the attempt without a result, except for the name `blamed_name`."""
        for name in self.probes:
            if name != blamed_name:
                await self.choice.cooldowns.release_probe(name)


class TargetSelector:
    """Orders targets, from what this process knows and what `cooldowns` shares.

    sharers: how many processes share the targets.
    """

    def __init__(
        self,
        cooldowns: Cooldowns,
        rules: RoutingSettings,
        sharers: Callable[[], int] = lambda: 1,
    ) -> None:
        self.cooldowns = cooldowns
        self.rules = rules
        self.slots = ConcurrencyLimiter(sharers)
        self.shares = AccountShares()
        # By target: seconds until the first event, and when that was measured.
        self.paces: Cache[str, tuple[float, float]] = Cache(
            PACES_BYTES, PACES_EACH, lambda name, _: getsizeof(name)
        )

    def with_rules(self, rules: RoutingSettings) -> TargetSelector:
        """Return a selector with the same knowledge and other rules.

        Requests in progress keep the old rules.
        """
        new_selector = copy(self)
        new_selector.rules = rules
        return new_selector

    async def candidates(self, route: Route, account: str, conversation: bytes) -> list[Candidate]:
        """Return the targets to try, best first.

        account: whose quota is used, "" for the gateway's own. conversation: the key of
        `affinity_key`.
        """
        targets: Sequence[Target] = route.targets
        if len(targets) > 1:
            targets = [t for tier in route.tiers for t in self._within(tier, conversation)]
        elif not account:
            # As nearly always.
            (target,) = targets
            if not target.concurrent and not await self.cooldowns.find((target.label,)):
                return [Candidate(target, {})]
        names: list[str] = []
        for target in targets:
            names += _names(target, account)
        rests = await self.cooldowns.find(names)
        if not rests and not [t for t in targets if t.concurrent]:
            return [Candidate(t, {}) for t in targets]
        now = time.monotonic()
        candidates = [
            Candidate(t, {n: rests[n] for n in _names(t, account) if n in rests}) for t in targets
        ]
        best_candidate, *other_candidates = sorted(candidates, key=self.penalty)
        return [best_candidate, *(c for c in other_candidates if not c.left_alone(now))]

    def penalty(self, candidate: Candidate) -> tuple[int, float, bool]:
        """Return what speaks against trying a candidate now, as a sort key.

        First that it is cooling down, and until when; then that it has no free slot.
        """
        return *candidate.rank(time.monotonic()), self.slots.full(candidate.target)

    async def start_attempt(
        self, candidate: Candidate, account: str, *, alone: bool
    ) -> Attempt | None:
        """Start an attempt; None if another request is probing this target.

        alone: there is no other candidate. A target in its cooldown is tried as it is: it was
        chosen because no other is left.
        """
        probes = []
        now = time.monotonic()
        for name, cooldown in candidate.rests.items():
            timeouts = candidate.target.settings.timeouts
            if cooldown.until > now:
                continue
            if await self.cooldowns.probe(name, timeouts.connect + timeouts.first_token):
                probes.append(name)
            elif not alone:
                for probed_name in probes:
                    await self.cooldowns.release_probe(probed_name)
                return None
        label = candidate.target.label
        if account:
            quota = _names(candidate.target, account)[-1]
        else:
            quota = label
        return Attempt(self, candidate, quota, probes, now)

    def record_latency(self, name: str, seconds: float) -> None:
        """Record the seconds until a target's first event."""
        before, _ = self.paces.get(name) or (math.inf, 0.0)
        if math.isinf(before):
            mean = seconds
        else:
            mean = 0.7 * before + 0.3 * seconds
        self.paces.put(name, (mean, time.monotonic()))

    def _within(self, tier: Sequence[Target], conversation: bytes) -> Sequence[Target]:
        if len(tier) < 2:
            return tier
        if self.rules.sticky and conversation:
            return weighted_shuffle(tier, lambda t: _rendezvous_score(conversation, t.label))
        if self.rules.choice == "least_latency":
            return self._quickest(tier)
        return weighted_shuffle(tier, lambda _: random.random())

    def _quickest(self, tier: Sequence[Target]) -> list[Target]:
        """Order by latency, but first a target without a recent measurement."""
        now = time.monotonic()
        order = sorted(tier, key=lambda t: (self.paces.get(t.label) or (math.inf, 0.0))[0])
        for target in order:
            seconds, measured_at = self.paces.get(target.label) or (math.inf, -math.inf)
            if now - measured_at > FRESH:
                self.paces.put(target.label, (seconds, now))
                return [target, *(t for t in order if t is not target)]
        return order


def weighted_shuffle(tier: Sequence[Target], chance: Callable[[Target], float]) -> list[Target]:
    """Return a weighted order without replacement (Efraimidis and Spirakis 2006).

    chance: a number in [0, 1) for each target. With a hash of conversation and target this is
    weighted rendezvous hashing: the same order everywhere, without state.
    """
    # Logarithms, since powers with small weights underflow to 0.
    return sorted(tier, key=lambda t: math.log(chance(t) or MIN_WEIGHT) / t.weight, reverse=True)


def _rendezvous_score(conversation: bytes, name: str) -> float:
    return (
        int.from_bytes(
            hashlib.blake2b(name.encode(), key=conversation[:64], digest_size=8).digest()
        )
        / 2**64
    )


def _names(target: Target, account: str) -> tuple[str, ...]:
    """Return the names of a target's records: its own, and that of the account's quota."""
    if account:
        return (target.label, f"{target.label}\x00{account}")
    return (target.label,)
