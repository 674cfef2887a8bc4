"""The memory's `Embed` port over a provider's `/v1/embeddings`.

In own-key mode no credential is stored: the tenant's last one is held in this process, and work
that needs it waits for the tenant's next request.
"""

from __future__ import annotations

from sys import getsizeof

from memory import Cache

HELD_BYTES, HELD_EACH = 1 << 20, 100


class CredentialCache:
    """Authorizations by tenant, in memory only."""

    def __init__(self) -> None:
        self.held: Cache[str, bytes] = Cache(
            HELD_BYTES, HELD_EACH, lambda tenant, given: getsizeof(tenant) + getsizeof(given)
        )

    def keep(self, tenant: str, authorization: bytes | None) -> bool:
        """Hold what a request of the tenant brought.

        Returns whether that is news, for which work may have waited.
        """
        if authorization is None:
            return False
        if self.held.get(tenant) == authorization:
            return False
        self.held.put(tenant, authorization)
        return True

    def drop(self, tenant: str, authorization: bytes | None) -> None:
        """Forget what a provider refused, unless a newer one came meanwhile."""
        if self.held.get(tenant) == authorization:
            self.held.pop(tenant)

    def get(self, tenant: str) -> bytes | None:
        return self.held.get(tenant)
