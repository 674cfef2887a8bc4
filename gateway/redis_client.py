"""The way to a Redis that a fleet shares: bounded in time, and given up at once when it does not
answer. `storage.redis`.

Fail-open: a caller that gets Absent goes on with its twin in this process. An answer is waited for
250 ms at most, and the first that does not come opens the circuit: from then on nobody waits, while
one task in the background tries again every second. The time of a script is the server's, so that
processes whose clocks differ share one window. All keys begin with `mnemogate:`, name no secret,
expire by themselves, and those of one script share a hash tag, as a cluster wants it.
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

    sent: the command left and may have been done; else it certainly was not.
    """

    def __init__(self, *, sent: bool) -> None:
        super().__init__("Redis cannot be used now")
        self.sent = sent


class Script:
    """A Lua script, by its text and by the name Redis knows it under.

    `now` in it is the time, in seconds.
    """

    def __init__(self, text: str) -> None:
        self.text = LUA_NOW + text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# A write, since a Redis that only reads (a replica, a full one) is of no use.
PROBE = Script("redis.call('SET', KEYS[1], now, 'EX', 60)")


class RedisClient:
    """One Redis.

    url: redis://, rediss:// or unix://, with a password if need be, which no log or error repeats.

    wait: seconds an answer may take. pause: seconds between two tries to reach it again. Raises
    ConfigError.
    """

    def __init__(self, url: str, wait: float = 0.25, pause: float = 1.0) -> None:
        if importlib.util.find_spec("redis") is None:
            raise ConfigError(
                "storage.redis is set, and the package `redis` is missing: run pip install "
                "'.[redis]' in the folder of Mnemogate's source"
            )
        self._url = url
        self._place = _place(url)
        self._wait = wait
        self._pause = pause
        self._client: Redis | None = None
        self._up = False
        self._turns = asyncio.Semaphore(
            16
        )  # as many connections: Redis does one thing at a time anyway
        self._tasks: set[asyncio.Task[Any]] = set()
        self._seeking: asyncio.Task[Any] | None = None
        self.when_back: list[Callable[[], Awaitable[None]]] = []

    @property
    def degraded(self) -> bool:
        """Whether callers are served by this process alone.

        So it begins, until `open` has found Redis.
        """
        return not self._up

    async def open(self) -> None:
        """Reach Redis, or goes on looking for it in the background.

        Waits no longer than for an answer.
        """
        if not await self._reach():
            self._lose()

    async def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Return what the script returns, in one round trip. Raises Absent."""
        async with self._turns:
            if not self._up or self._client is None:
                raise RedisUnavailable(sent=False)
            try:
                return await self._eval(self._client, script, keys, args)
            except _failures():
                self._lose()
                raise RedisUnavailable(sent=True) from None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work whose caller may leave. It is done when `close` returns."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        if self._seeking:
            self._seeking.cancel()
            await asyncio.wait({self._seeking})
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

        Raises TimeoutError when the loop could run for `wait` seconds and none came: in a process
        that was kept busy that long a plain timeout would run out although the answer lies there to
        be read.
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
        if self._seeking is None:
            log.warning(
                "Redis at %s does not answer: limits, budgets and cooldowns are counted by "
                "each process until it is back",
                self._place,
            )
            self._seeking = asyncio.create_task(self._seek())

    async def _seek(self) -> None:
        while self.degraded:
            await asyncio.sleep(self._pause)
            await self._reach()
        self._seeking = None
        log.warning(
            "Redis at %s is back: limits, budgets and cooldowns are shared again", self._place
        )
        for work in self.when_back:
            await work()


def cluster_key(tag: str, name: str, *parts: str) -> list[str]:
    """Return the keys of one name, in one slot of a cluster.

    A name with braces of its own must not make another slot.
    """
    slot = f"mnemogate:{{{tag}:{quote(name, safe='')}}}:"
    return [slot + part for part in parts]


def _place(url: str) -> str:
    """Return where the URL points, without user, password or options."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return parts.path
        if parts.scheme in ("redis", "rediss") and parts.hostname:
            return f"{parts.hostname}:{parts.port or 6379}"
    raise ConfigError(
        "storage.redis is no address of a Redis: write redis://host:6379/0, rediss://… or "
        "unix:///path, with special characters of a password percent-encoded"
    )


def _failures() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError

    return (RedisError, OSError, TimeoutError)
