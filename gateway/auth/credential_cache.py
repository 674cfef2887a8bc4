"""The credentials of own-key mode, by tenant, in memory only.

No credential is stored. Background work uses the last one that the tenant sent, and waits for the
tenant's next request if there is none.
"""

from __future__ import annotations

from hashlib import blake2b
from sys import getsizeof

from memory import Cache

HELD_BYTES = 1 << 20
HELD_EACH = 100
ACCEPTED_BYTES = 1 << 18


class CredentialCache:
    """Authorization headers by tenant, in memory only."""

    def __init__(self) -> None:
        self.credentials: Cache[str, bytes] = Cache(
            HELD_BYTES,
            HELD_EACH,
            lambda tenant, credential: getsizeof(tenant) + getsizeof(credential),
        )
        self.accepted_digests: Cache[bytes, bool] = Cache(
            ACCEPTED_BYTES, HELD_EACH, lambda digest, _: getsizeof(digest)
        )

    def keep(self, tenant: str, authorization: bytes | None) -> bool:
        """Keep the credential of a tenant's request.

        Returns whether it is new, so that waiting work may go on.
        """
        if authorization is None:
            return False
        if self.credentials.get(tenant) == authorization:
            return False
        self.credentials.put(tenant, authorization)
        return True

    def accept(self, authorization: bytes | None) -> None:
        """Remember that an upstream has accepted a credential."""
        if authorization is not None:
            self.accepted_digests.put(blake2b(authorization, digest_size=16).digest(), True)

    def is_accepted(self, authorization: bytes | None) -> bool:
        """Tell whether an upstream has accepted a credential since the start."""
        digest = blake2b(authorization or b"", digest_size=16).digest()
        return self.accepted_digests.get(digest) is not None

    def drop(self, tenant: str, authorization: bytes | None) -> None:
        """Drop a credential that a provider refused, unless a newer one has replaced it."""
        if self.credentials.get(tenant) == authorization:
            self.credentials.pop(tenant)

    def tenants(self) -> set[str]:
        """Return the tenants whose credential is held."""
        return self.credentials.names()

    def get(self, tenant: str) -> bytes | None:
        return self.credentials.get(tenant)
