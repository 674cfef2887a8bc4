"""The connection to a Redis that several gateways share: time limits and a circuit breaker.

Fail-open: a caller that gets RedisUnavailable continues with the local implementation. A reply is
awaited for at most 250 ms, and the first one that does not come opens the circuit: from then on
nobody waits, while one background task retries every second. Scripts use the server's time, so that
processes whose clocks differ share one window. All keys begin with `mnemogate:`, contain no secret
and expire; the keys of one script share a hash tag, as a cluster requires.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from gateway.config.settings import ConfigError

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("mnemogate")
SLICES = 5

LUA_NOW = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1e6
"""


class RedisUnavailable(Exception):
    """Redis cannot be used now.

    sent: the command was sent and may have been executed; otherwise it certainly was not.
    """

    def __init__(self, *, sent: bool) -> None:
        super().__init__("Redis cannot be used now")
        self.sent = sent


class Script:
    """A Lua script, its text and its SHA-1, by which Redis caches it.

    In the script `now` is the time in seconds.
    """

    def __init__(self, text: str) -> None:
        self.text = LUA_NOW + text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# A write, since a read-only Redis (a replica, or one that is full) is of no use.
PROBE = Script("redis.call('SET', KEYS[1], now, 'EX', 60)")


class RedisClient:
    """A connection pool to one Redis.

    url: redis://, rediss:// or unix://, possibly with a password, which no log or error repeats.
    location: the address alone. wait: seconds to wait for a reply. pause: seconds between attempts
    to reconnect. Raises ConfigError.
    """

    def __init__(self, url: str, wait: float = 0.25, pause: float = 1.0) -> None:
        if importlib.util.find_spec("redis") is None:
            raise ConfigError(
                "storage.redis is set, and the package `redis` is missing: run pip install "
                "'.[redis]' in the folder of Mnemogate's source"
            )
        self._url = url
        self.location = _location(url)
        self._wait = wait
        self._pause = pause
        self._client: Redis | None = None
        self._up = False
        # As many connections; Redis executes one command at a time anyway.
        self._slots = asyncio.Semaphore(16)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reconnecting: asyncio.Task[Any] | None = None
        self.when_back: list[Callable[[], Awaitable[None]]] = []

    @property
    def degraded(self) -> bool:
        """Whether Redis is unavailable, so that each process counts for itself.

        True until `open` has reached Redis.
        """
        return not self._up

    async def open(self) -> None:
        """Connect to Redis, or keep trying in the background.

        Waits no longer than for one reply.
        """
        if not await self._reach():
            self._lose()

    async def answers(self) -> bool:
        """Tell whether Redis can be used now; nothing is tried again."""
        return await self._reach()

    async def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script in one round trip and return its result. Raises RedisUnavailable."""
        async with self._slots:
            if not self._up or self._client is None:
                raise RedisUnavailable(sent=False)
            try:
                return await self._eval(self._client, script, keys, args)
            except _failures():
                self._lose()
                raise RedisUnavailable(sent=True) from None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work whose caller may be cancelled; `close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        if self._reconnecting:
            self._reconnecting.cancel()
            await asyncio.wait({self._reconnecting})
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._up = False
        if self._client:
            await self._client.aclose()

    async def _eval(self, client: Redis, script: Script, keys: list[str], args: list[Any]) -> Any:
        from redis.exceptions import NoScriptError

        try:
            return await self._wait_for(client.evalsha(script.sha, len(keys), *keys, *args))
        except NoScriptError:
            return await self._wait_for(client.eval(script.text, len(keys), *keys, *args))

    async def _wait_for(self, command: Awaitable[Any]) -> Any:
        """Return the command's result.

        Raises TimeoutError if no reply came while the event loop could run for `wait` seconds. A
        plain timeout would also expire in a process that was busy that long, although the reply is
        there to be read.
        """
        task = asyncio.ensure_future(command)
        try:
            for _ in range(SLICES):
                if (await asyncio.wait({task}, timeout=self._wait / SLICES))[0]:
                    return task.result()
            raise TimeoutError
        finally:
            task.cancel()

    async def _reach(self) -> bool:
        if self._client is None:
            # Off the loop: the import takes a third of a second.
            await asyncio.to_thread(importlib.import_module, "redis.asyncio")
            self._client = self._connect()
        try:
            await self._eval(self._client, PROBE, ["mnemogate:{probe}"], [])
        except _failures():
            return False
        self._up = True
        return True

    def _connect(self) -> Redis:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        return Redis.from_url(self._url, retry=Retry(NoBackoff(), 0), protocol=2)

    def _lose(self) -> None:
        self._up = False
        if self._reconnecting is None:
            log.warning(
                "Redis at %s does not answer: limits, budgets and cooldowns are counted by "
                "each process until it is back",
                self.location,
            )
            self._reconnecting = asyncio.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while self.degraded:
            await asyncio.sleep(self._pause)
            await self._reach()
        self._reconnecting = None
        log.warning(
            "Redis at %s is back: limits, budgets and cooldowns are shared again", self.location
        )
        for work in self.when_back:
            await work()


def cluster_key(tag: str, name: str, *parts: str) -> list[str]:
    """Return the keys of one name, in one hash slot of a cluster.

    Braces in the name must not make another slot, so it is percent-encoded.
    """
    slot = f"mnemogate:{{{tag}:{quote(name, safe='')}}}:"
    return [slot + part for part in parts]


def _location(url: str) -> str:
    """Return where the URL points, without user, password or options."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return parts.path
        if parts.scheme in ("redis", "rediss") and parts.hostname:
            return f"{parts.hostname}:{parts.port or 6379}"
    raise ConfigError(
        "storage.redis is not a Redis URL: write redis://host:6379/0, rediss://… or "
        "unix:///path, with special characters of a password percent-encoded"
    )


def _failures() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError

    return (RedisError, OSError, TimeoutError)
