"""Whose memory: (tenant, user, agent), and the keys derived for it from the server's secret."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Scope:
    """user is None when nobody is named: memory then belongs to the conversation's branch alone.

    secret: the server's persisted secret; it keys the digests and the tag, so neither can be
    guessed from outside.
    """

    tenant: str
    user: str | None
    agent: str
    secret: bytes

    @property
    def is_named(self) -> bool:
        return self.user is not None

    @cached_property
    def key(self) -> bytes:
        """32 bytes that key every digest of this scope."""
        return hmac.digest(
            self.secret, b"scope\x00" + _join_names(self.tenant, self.user, self.agent), "sha256"
        )

    @cached_property
    def tag(self) -> str:
        """The short mark by which our own spans are told from a user's look-alikes; stable per
        scope.
        """
        return hmac.digest(self.key, b"tag", "sha256").hex()[:10]

    @cached_property
    def owner(self) -> bytes:
        """Names (tenant, user) in the erasure table without holding the name."""
        return owner_key(self.secret, self.tenant, self.user)


def owner_key(secret: bytes, tenant: str, user: str | None) -> bytes:
    """16 bytes: the owner as it stays on record after an erasure."""
    return hashlib.blake2b(_join_names(tenant, user), key=secret[:64], digest_size=16).digest()


def _join_names(*names: str | None) -> bytes:
    """Name as bytes that no other names give: each with its length before it, None apart from the
    empty one.
    """
    raw = [None if n is None else n.encode("utf-8", "surrogatepass") for n in names]
    return b"".join(b"-" if n is None else b"%d:%s" % (len(n), n) for n in raw)
