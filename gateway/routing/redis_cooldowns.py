"""Cooldowns shared by several gateways through Redis; same promises as in `cooldowns`.

Whatever this process observes is also recorded locally, which serves while Redis is unavailable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gateway.redis_client import RedisClient, RedisUnavailable, Script, cluster_key
from gateway.routing.cooldowns import KEPT_SECONDS, Cooldown, CooldownPolicy, LocalCooldowns

RESTING = Script("""
local out = {}
for i, key in ipairs(KEYS) do
  local rest = redis.call('HMGET', key, 'asked', 'tired', 'probe')
  if rest[1] or rest[2] then
    for j = 1, 3 do rest[j] = tostring(tonumber(rest[j] or 0) - now) end
    out[#out + 1] = {i, rest[1], rest[2], rest[3]}
  end
end
return out
""")

FAILED = Script(f"""
local rest, failures = KEYS[1], KEYS[2]
local asked, most, window, seconds = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]),
    tonumber(ARGV[4])
local found = redis.call('HMGET', rest, 'asked', 'tired')
local last = math.max(tonumber(found[1] or 0), tonumber(found[2] or 0))
local half_open = last > 0 and last <= now
redis.call('HDEL', rest, 'probe')
local field, till
if asked > 0 then
  field, till = 'asked', math.max(tonumber(found[1] or 0), now + asked)
elseif most > 0 then
  redis.call('RPUSH', failures, string.format('%.6f', now))
  redis.call('LTRIM', failures, -most, -1)
  redis.call('EXPIRE', failures, math.ceil(window) + 1)
  local enough = redis.call('LLEN', failures) == most and tonumber(redis.call('LINDEX',
      failures, 0)) > now - window
  if half_open or enough then field, till = 'tired', math.max(tonumber(found[2] or 0),
      now + seconds) end
end
if field then
  redis.call('HSET', rest, field, till)
  redis.call('EXPIRE', rest, math.ceil(math.max(last, till) - now + {KEPT_SECONDS}))
end
""")

SUCCEEDED = Script("redis.call('DEL', KEYS[1], KEYS[2])")

PROBING = Script("""
local rest = redis.call('HMGET', KEYS[1], 'asked', 'tired', 'probe')
if not (rest[1] or rest[2]) then return 1 end
for j = 1, 3 do
  if tonumber(rest[j] or 0) > now then return 0 end
end
redis.call('HSET', KEYS[1], 'probe', now + ARGV[1])
return 1
""")

FREED = Script("redis.call('HDEL', KEYS[1], 'probe')")


class RedisCooldowns:
    """Cooldowns in Redis.

    clock: of this process; remaining times from Redis are converted to it.
    """

    def __init__(
        self,
        shared: RedisClient,
        rules: CooldownPolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._local_cooldowns = LocalCooldowns(rules, clock)

    @property
    def rules(self) -> CooldownPolicy:
        return self._local_cooldowns.rules

    @rules.setter
    def rules(self, rules: CooldownPolicy) -> None:
        self._local_cooldowns.rules = rules

    async def find(self, names: Sequence[str]) -> dict[str, Cooldown]:
        try:
            records = await self._shared.run(RESTING, [_keys(n)[0] for n in names], [])
        except RedisUnavailable:
            return await self._local_cooldowns.find(names)
        now = self._clock()
        return {
            names[i - 1]: Cooldown(
                now + max(float(asked_seconds), float(tired)),
                float(asked_seconds) > 0,
                float(probe) > 0,
            )
            for i, asked_seconds, tired, probe in records
        }

    async def record_failure(self, name: str, asked_seconds: float | None) -> None:
        await self._local_cooldowns.record_failure(name, asked_seconds)
        rules = self.rules
        await self._run(
            FAILED, name, [asked_seconds or 0, rules.failures, rules.window, rules.seconds]
        )

    async def record_success(self, name: str) -> None:
        await self._local_cooldowns.record_success(name)
        await self._run(SUCCEEDED, name, [])

    async def probe(self, name: str, lease: float) -> bool:
        try:
            return bool(await self._shared.run(PROBING, _keys(name), [lease]))
        except RedisUnavailable:
            return await self._local_cooldowns.probe(name, lease)

    async def release_probe(self, name: str) -> None:
        await self._local_cooldowns.release_probe(name)
        await self._run(FREED, name, [])

    async def _run(self, script: Script, name: str, args: list[float]) -> None:
        """Run a script; if Redis is unavailable only the local record is kept.

        Targets that still fail will be recorded again.
        """
        try:
            await self._shared.run(script, _keys(name), args)
        except RedisUnavailable:
            return


def _keys(name: str) -> list[str]:
    return cluster_key("rests", "", "rest:" + name, "failures:" + name)
