"""Which tenants share anything, and how often that changed, where one process writes it.

Where several workers share a database, the count is read with what a turn reads anyway.
"""

from __future__ import annotations

from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import shared_blocks


class SharedChanges:
    """The counts of changes by tenant. A tenant that never shared anything has none.

    layered: the tenants that have teams, projects, or passages of their own.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.counts: dict[str, int] = {}
        self.layered: set[str] = set()

    async def load(self) -> None:
        """Read the counts. Raises StoreUnavailable."""
        if not self._db.is_shared:
            changes_by_tenant = await self._db.read(shared_blocks.list_changes)
            self.counts = {
                tenant: self.counts.get(tenant, 0) + row.changes
                for tenant, row in changes_by_tenant.items()
            }
            self.layered |= {tenant for tenant, row in changes_by_tenant.items() if row.layered}

    def note(self, tenant: str, *, layered: bool = False) -> None:
        """Note that what a tenant shares, or with whom, may have changed."""
        if not self._db.is_shared:
            self.counts[tenant] = self.counts.get(tenant, 0) + 1
            if layered:
                self.layered.add(tenant)

    def outdate(self, tenant: str) -> None:
        """Note that what a tenant shares may have changed, if it shares anything."""
        if tenant in self.counts:
            self.note(tenant)
