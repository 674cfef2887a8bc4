"""Managed keys made at run time: how one comes to be, and the copy that requests are checked
against.

- A key is 256 random bits, so that sha256 without salt or stretching is enough to keep: there is
  nothing to guess. It is told once.
- A look-up is a dictionary's, by hash: it waits for nothing, and its time tells nothing of the keys
  there are.
- What this process makes or revokes holds at once; what another one does on the same database,
  within `EVERY_SECONDS`. While
  the store does not answer, the keys last read stay in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import secrets

from gateway.config.settings import KeyGrant
from gateway.storage import api_keys
from memory import Database, MemoryFault

log = logging.getLogger("mnemogate")
EVERY_SECONDS = 1.0
PREFIX = "mnemogate-"


def new_key() -> tuple[str, str]:
    """Return a key, and its hash."""
    text = f"{PREFIX}{secrets.token_urlsafe(32)}"
    return text, digest_of(text.encode())


def digest_of(credential: bytes) -> str:
    return hashlib.sha256(credential).hexdigest()


def parse_grant(row: api_keys.StoredKey) -> KeyGrant | None:
    """Return what a stored key may do; None, and a line in the log, for a row that this version
    cannot read.
    """
    try:
        return KeyGrant.model_validate(
            {"name": row.name, "tenant": row.tenant, **json.loads(row.spec)}
        )
    except (ValueError, TypeError):
        log.error(  # noqa: TRY400
            "the stored key %s cannot be read and is refused: revoke it and make another", row.id
        )
        return None


class KeyStore:
    """The unrevoked keys of a database, as this process last read them; one for all configurations
    that it runs with.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._grants: dict[str, KeyGrant] = {}
        self._counts: api_keys.Counts | None = None
        self._reading = asyncio.Lock()  # an older reading never replaces a newer one
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()

    async def wait_until_read(self, seconds: float) -> None:
        """Wait until the store was read once, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._first.wait()

    @property
    def read(self) -> bool:
        """Whether the store was read yet: before, a key that is not known may still be one."""
        return self._first.is_set()

    @property
    def admins(self) -> int:
        return sum(grant.admin for grant in self._grants.values())

    def get(self, digest: str) -> KeyGrant | None:
        return self._grants.get(digest)

    async def refresh(self) -> None:
        """Read the store if anything changed in it. Raises StoreUnavailable."""
        async with self._reading:
            found = await api_keys.read_changes(self._db, self._counts)
            if found is not None:
                self._counts, rows = found
                self._grants = {
                    row.digest: grant for row in rows if (grant := parse_grant(row)) is not None
                }
            self._first.set()

    async def adopt(self, digest: str, grant: KeyGrant | None) -> None:
        """What was just written holds in this process from here on: a new key's grant, None for one
        that was revoked.
        """
        async with self._reading:
            if grant is None:
                self._grants.pop(digest, None)
            else:
                self._grants[digest] = grant

    def start(self) -> None:
        """Begin to follow the store, which is open."""
        self._task = asyncio.create_task(self._follow(), name="made-keys")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        failing = False
        while True:
            try:
                await self.refresh()
                failing = False
            except MemoryFault as e:
                if not failing:
                    log.warning(
                        "the keys cannot be read anew, those last read stay in force: %s", e
                    )
                failing = True
            await asyncio.sleep(EVERY_SECONDS)
