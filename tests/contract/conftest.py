"""What the suites of the shared stores have in common."""

from __future__ import annotations

import asyncio

from gateway.redis_client import RedisClient, Script


class HandFed(RedisClient):
    """A Redis whose scripts read the time that the test has set."""

    def __init__(self, url: str) -> None:
        super().__init__(url, wait=5)
        self.now = 1_800_000_000.0

    async def run(self, script, keys, args):
        if (told := getattr(script, "told", None)) is None:
            told = script.told = Script("")
            told.__init__(script.text.replace("redis.call('TIME')", "{ARGV[#ARGV], 0}"))
        return await super().run(told, keys, [*args, repr(self.now)])


async def eventually(holds, seconds=5.0):
    for _ in range(int(seconds / 0.01)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")
