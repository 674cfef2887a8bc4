"""Which tenants have shared blocks, and how often these changed, where one process writes them.

Where several workers share a database, the count is read with what a turn reads anyway.
"""

from __future__ import annotations

from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import shared_blocks


class SharedChanges:
    """The counts of changes by tenant. A tenant that never had a shared block has none."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.counts: dict[str, int] = {}

    async def load(self) -> None:
        """Read the counts. Raises StoreUnavailable."""
        if not self._db.is_shared:
            counts = await self._db.read(shared_blocks.list_changes)
            self.counts = {tenant: self.counts.get(tenant, 0) + n for tenant, n in counts.items()}

    def note(self, tenant: str) -> None:
        """Note that blocks of a tenant, or their members, may have changed."""
        if not self._db.is_shared:
            self.counts[tenant] = self.counts.get(tenant, 0) + 1

    def outdate(self, tenant: str) -> None:
        """Note that blocks of a tenant may have changed, if it has any."""
        if tenant in self.counts:
            self.note(tenant)
