"""Whose memory: (tenant, user, agent), and the keys derived for it from the server's secret."""
from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Scope:
    """user is None when nobody is named: memory then belongs to the conversation's branch alone.

    secret: the server's persisted secret; it keys the digests and the tag, so neither can be guessed from outside.
    """

    tenant: str
    user: str | None
    agent: str
    secret: bytes

    @property
    def named(self) -> bool:
        return self.user is not None

    @cached_property
    def key(self) -> bytes:
        """32 bytes that key every digest of this scope."""
        name = "\x00".join((self.tenant, self.user or "", self.agent, "named" if self.named else "unnamed"))
        return hmac.digest(self.secret, b"scope\x00" + name.encode("utf-8", "surrogatepass"), "sha256")

    @cached_property
    def tag(self) -> str:
        """The short mark by which our own spans are told from a user's look-alikes; stable per scope."""
        return hmac.digest(self.key, b"tag", "sha256").hex()[:10]

    @cached_property
    def owner(self) -> bytes:
        """Names (tenant, user) in the erasure table without holding the name."""
        return owner_key(self.secret, self.tenant, self.user)


def owner_key(secret: bytes, tenant: str, user: str | None) -> bytes:
    """16 bytes: the owner as it stays on record after an erasure."""
    name = f"{tenant}\x00{'u' if user is not None else '-'}{user or ''}"
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=secret[:64], digest_size=16).digest()
