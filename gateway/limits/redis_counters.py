"""The counters of several gateways, in Redis; same promises as in `counters`.

Per key: a hash of the window (second to "requests tokens"), a sorted set of reservations by the end
of their lease (a member also has its reserved amount and period), and a number of nano-USD per
period.

A reservation is leased for `TICKET_SECONDS` and renewed by its process, so that one that is killed
holds its places no longer. While Redis is unavailable each process counts for itself, with its
share of the limits where several serve one database. What must still be counted in Redis is
kept and sent when it is back; exactly once, since a settlement that may have been executed already
only counts if its reservation still exists.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from gateway.limits.counters import (
    SPAN,
    LocalCounters,
    Reservation,
    ReservationRequest,
    ReservationResult,
)
from gateway.redis_client import RedisClient, RedisUnavailable, Script, cluster_key

RESERVE = Script(f"""
local window, tickets, purse = KEYS[1], KEYS[2], KEYS[3]
local rpm, tpm, concurrent, budget = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]),
    tonumber(ARGV[4])
local tokens, nano, lease, left = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]),
    tonumber(ARGV[8])
local period, begin, id = ARGV[9], ARGV[10] == '1', ARGV[11]

local spent = budget > 0 and redis.call('GET', purse)
if budget > 0 and not spent and not begin then return {{'unknown', '0', 0, 0, '0', 0}} end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', tickets, '-inf', now)) do
  local held, of = string.match(member, '^%S+ (%d+) (.*)$')
  redis.call('ZREM', tickets, member)
  if spent and of == period then spent = redis.call('DECRBY', purse, held) end
end
spent = tonumber(spent or 0)

local seconds, requests_in, tokens_in, requests_all, tokens_all = {{}}, {{}}, {{}}, 0, 0
local flat = redis.call('HGETALL', window)
for i = 1, #flat, 2 do
  local second = tonumber(flat[i])
  if second + {SPAN} <= now then
    redis.call('HDEL', window, flat[i])
  else
    local r, t = string.match(flat[i + 1], '(%d+) (%d+)')
    seconds[#seconds + 1], requests_in[second], tokens_in[second] = second, tonumber(r), tonumber(t)
    requests_all, tokens_all = requests_all + r, tokens_all + t
  end
end
table.sort(seconds)

local refused, wait = '', 0
local function wanting(name, seconds_to_wait)
  if refused == '' or seconds_to_wait > wait then refused, wait = name, seconds_to_wait end
end
local function freed(counts, excess)
  for _, second in ipairs(seconds) do
    excess = excess - counts[second]
    if excess <= 0 then return second + {SPAN} - now end
  end
end
if rpm > 0 and requests_all + 1 > rpm then
  wanting('rpm', freed(requests_in, requests_all + 1 - rpm))
end
if tpm > 0 and tokens_all + math.max(1, tokens) > tpm then
  wanting('tpm', freed(tokens_in, tokens_all + math.max(1, tokens) - tpm))
end
if concurrent > 0 and redis.call('ZCARD', tickets) >= concurrent then wanting('concurrent', 1) end
local excess = spent + math.max(1, nano) - budget
if budget > 0 and excess > 0 then
  local held = 0
  for _, member in ipairs(redis.call('ZRANGE', tickets, 0, -1)) do
    local reserved, of = string.match(member, '^%S+ (%d+) (.*)$')
    if of == period then held = held + reserved end
  end
  if excess <= held then wanting('held', 1) else wanting('budget', left) end
end

local second = math.floor(now)
if refused == '' then
  requests_all, tokens_all = requests_all + 1, tokens_all + tokens
  if not requests_in[second] then seconds[#seconds + 1] = second end
  redis.call('HSET', window, second, string.format('%d %d', (requests_in[second] or 0) + 1,
      (tokens_in[second] or 0) + tokens))
  redis.call('EXPIRE', window, {SPAN + 1})
  redis.call('ZADD', tickets, now + lease, string.format('%s %d %s', id, nano, period))
  if redis.call('TTL', tickets) < lease + 1 then redis.call('EXPIRE', tickets,
      math.ceil(lease) + 1) end
  if budget > 0 then
    redis.call('INCRBY', purse, nano)
    redis.call('EXPIRE', purse, math.ceil(left) + 86400)
  end
end
local reset = #seconds > 0 and seconds[#seconds] + {SPAN} - now or 0
return {{refused, tostring(wait), requests_all, tokens_all, tostring(reset), second}}
""")

# A missing counter is not created: the ledger, from which it will be started, includes this amount.
SETTLE = Script("""
local window, tickets, purse = KEYS[1], KEYS[2], KEYS[3]
local second, tokens_held, nano_held, tokens, nano = ARGV[2], tonumber(ARGV[3]),
    tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local there = redis.call('ZREM', tickets, ARGV[1]) == 1
if not there and ARGV[7] == '1' then return end
local bucket = redis.call('HGET', window, second)
if bucket then
  local r, t = string.match(bucket, '(%d+) (%d+)')
  redis.call('HSET', window, second, string.format('%d %d', r, math.max(0,
      t + tokens - tokens_held)))
end
if redis.call('EXISTS', purse) == 1 then redis.call('INCRBY', purse, there and
    nano - nano_held or nano) end
""")

# What expired meanwhile has given its money back, and is not held again.
RENEW = Script("""
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], ARGV[i]) end
if redis.call('TTL', KEYS[1]) < ARGV[1] + 1 then redis.call('EXPIRE', KEYS[1],
    math.ceil(ARGV[1]) + 1) end
""")

BALANCE = Script("""
if ARGV[1] ~= '' then redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2], 'NX') end
return redis.call('GET', KEYS[1])
""")

TICKET_SECONDS = 30.0
RENEW_SECONDS = 10.0


class RedisCounters:
    """Counters in Redis, with local ones for when it is unavailable.

    A reservation is settled where it was made. ticket: seconds that one is held unless renewed.
    sharers: how many processes count for themselves while Redis is away.
    """

    def __init__(
        self,
        shared: RedisClient,
        ticket: float = TICKET_SECONDS,
        sharers: Callable[[], int] = lambda: 1,
    ) -> None:
        self._shared = shared
        self._ticket = ticket
        self._sharers = sharers
        self._local_counters = LocalCounters()
        # With the end of what its request asked for.
        self._held_until: dict[Reservation, float] = {}
        self._renewing: asyncio.TimerHandle | None = None
        # Tokens and nano-USD; what was counted locally has a reservation without an id.
        self._owed_amounts: dict[Reservation, tuple[int, int]] = {}
        shared.when_back.append(self._repay)

    async def reserve(self, claim: ReservationRequest) -> ReservationResult:
        task = self._shared.spawn(self._reserve(claim))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._release_unwanted)
            raise

    async def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        # The caller may be cancelled; the settlement continues.
        await asyncio.shield(self._shared.spawn(self._settle(hold, tokens, nano)))

    async def balance(self, claim: ReservationRequest, first_nano: int | None) -> int | None:
        # For requests that end after the period, as in RESERVE.
        kept_seconds = math.ceil(claim.seconds_left) + 86400
        try:
            counted_nano = await self._shared.run(
                BALANCE,
                _keys(claim.key, claim.period)[2:],
                ["" if first_nano is None else first_nano, kept_seconds],
            )
        except RedisUnavailable:
            return await self._local_counters.balance(claim, first_nano)
        if counted_nano is None:
            return None
        return int(counted_nano)

    async def _reserve(self, claim: ReservationRequest) -> ReservationResult:
        hold = Reservation(
            secrets.token_hex(8), claim.key, 0, claim.tokens, claim.nano, claim.period, True
        )
        c = claim
        args = [
            c.rpm,
            c.tpm,
            c.concurrent,
            c.budget,
            c.tokens,
            c.nano,
            min(c.lease, self._ticket),
            c.seconds_left,
            c.period,
            int(c.begin),
            hold.id,
        ]
        try:
            refusal, wait, requests, tokens, reset, window_second = await self._shared.run(
                RESERVE, _keys(c.key, c.period), args
            )
        except RedisUnavailable as e:
            if e.sent:
                self._owe(hold, 0, 0)
            return await self._local_counters.reserve(_share_of(claim, self._sharers()))
        hold = hold._replace(window_second=window_second)
        if not refusal and c.lease > self._ticket:
            self._hold(hold, c.lease)
        result = (refusal.decode(), float(wait), requests, tokens, float(reset))
        return ReservationResult(*result, None if refusal else hold)

    def _hold(self, hold: Reservation, lease: float) -> None:
        """Renew a reservation from now on, until it is settled or its lease is over."""
        self._held_until[hold] = time.monotonic() + lease
        if self._renewing is None:
            later = asyncio.get_running_loop().call_later
            self._renewing = later(RENEW_SECONDS, lambda: self._shared.spawn(self._renew()))

    async def _renew(self) -> None:
        now = time.monotonic()
        self._renewing = None
        held_until = self._held_until
        self._held_until = {}
        for hold, end in held_until.items():
            if end > now:
                self._hold(hold, end - now)
        keys: dict[tuple[str, str], list[str]] = {}
        for hold in self._held_until:
            keys.setdefault((hold.key, hold.period), []).append(_member(hold))
        for (key, period), members in keys.items():
            with suppress(RedisUnavailable):
                tickets = _keys(key, period)[1:2]
                await self._shared.run(RENEW, tickets, [self._ticket, *members])

    def _release_unwanted(self, task: asyncio.Task[ReservationResult]) -> None:
        if not task.cancelled() and (hold := task.result().hold):
            self._shared.spawn(self._settle(hold, 0, 0))

    async def _settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        self._held_until.pop(hold, None)
        if not hold.shared:
            await self._local_counters.settle(hold, tokens, nano)
            if not hold.period:
                return
            hold = Reservation("", hold.key, 0, 0, 0, hold.period, True)
        try:
            await self._book(hold, tokens, nano, again=False)
        except RedisUnavailable:
            self._owe(hold, tokens, nano)

    async def _book(self, hold: Reservation, tokens: int, nano: int, *, again: bool) -> None:
        await self._shared.run(
            SETTLE,
            _keys(hold.key, hold.period),
            [_member(hold), hold.window_second, hold.tokens, hold.nano, tokens, nano, int(again)],
        )

    def _owe(self, hold: Reservation, tokens: int, nano: int) -> None:
        before = self._owed_amounts.get(hold, (0, 0))
        self._owed_amounts[hold] = (before[0] + tokens, before[1] + nano)

    async def _repay(self) -> None:
        self._local_counters.close_periods()
        while self._owed_amounts:
            hold, owed_amounts = self._owed_amounts.popitem()
            try:
                await self._book(hold, *owed_amounts, again=bool(hold.id))
            except RedisUnavailable:
                self._owe(hold, *owed_amounts)
                return


def _share_of(claim: ReservationRequest, sharers: int) -> ReservationRequest:
    """Return a claim on one process's share of what its key may use at a time."""
    rpm, tpm, concurrent = (
        math.ceil(limit / max(1, sharers)) for limit in (claim.rpm, claim.tpm, claim.concurrent)
    )
    if tpm:
        tokens = min(claim.tokens, tpm)
    else:
        tokens = claim.tokens
    return claim._replace(rpm=rpm, tpm=tpm, concurrent=concurrent, tokens=tokens)


def _member(hold: Reservation) -> str:
    return f"{hold.id} {hold.nano} {hold.period}"


def _keys(key: str, period: str) -> list[str]:
    return cluster_key("key", key, "window", "tickets", f"usd:{period}")
