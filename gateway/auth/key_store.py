"""Managed keys created at run time, and the copy in memory that requests are checked against.

- A key is 256 random bits, so an unsalted SHA-256 is enough to store: it cannot be guessed. The key
  itself is shown once.
- A lookup is a dict access by hash: no I/O, and no timing side channel.
- What this process creates or revokes takes effect at once; changes by another process on the same
  database within `EVERY_SECONDS`. While the store does not answer, the keys last read stay valid.
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
    """Return a new key and its hash."""
    text = f"{PREFIX}{secrets.token_urlsafe(32)}"
    return text, digest_of(text.encode())


def digest_of(credential: bytes) -> str:
    return hashlib.sha256(credential).hexdigest()


def parse_grant(row: api_keys.StoredKey) -> KeyGrant | None:
    """Return what a stored key may do; None if this version cannot read the row.

    The latter is logged.
    """
    try:
        return KeyGrant.model_validate(
            {"name": row.name, "tenant": row.tenant, **json.loads(row.spec)}
        )
    except (ValueError, TypeError):
        log.error(  # noqa: TRY400
            "the stored key %s cannot be read and is refused: revoke it and create another", row.id
        )
        return None


class KeyStore:
    """The keys of a database that are not revoked, as last read.

    One object serves all configurations that this process loads.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._grants: dict[str, KeyGrant] = {}
        self.tenants: frozenset[str] = frozenset()
        self._counts: api_keys.Counts | None = None
        # An older read never replaces a newer one.
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._first_read = asyncio.Event()

    async def wait_until_read(self, seconds: float) -> None:
        """Wait until the store was read once, but at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._first_read.wait()

    @property
    def read(self) -> bool:
        """Whether the store was read yet. Before that, an unknown key may still be valid."""
        return self._first_read.is_set()

    @property
    def admins(self) -> int:
        return sum(grant.admin for grant in self._grants.values())

    def get(self, digest: str) -> KeyGrant | None:
        return self._grants.get(digest)

    async def refresh(self) -> None:
        """Read the store if it has changed. Raises StoreUnavailable."""
        async with self._reading:
            changes = await api_keys.read_changes(self._db, self._counts)
            if changes is not None:
                self._counts, rows = changes
                self._grants = {
                    row.digest: grant for row in rows if (grant := parse_grant(row)) is not None
                }
                self._note_tenants()
            self._first_read.set()

    def _note_tenants(self) -> None:
        self.tenants = frozenset(grant.tenant for grant in self._grants.values())

    async def adopt(self, digest: str, grant: KeyGrant | None) -> None:
        """Apply a change of this process at once.

        grant: of a new key; None for one that was revoked.
        """
        async with self._reading:
            if grant is None:
                self._grants.pop(digest, None)
            else:
                self._grants[digest] = grant
            self._note_tenants()

    def start(self) -> None:
        """Start to follow changes of the store, which is open."""
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
                    log.warning("the keys cannot be read again, those last read stay valid: %s", e)
                failing = True
            await asyncio.sleep(EVERY_SECONDS)
