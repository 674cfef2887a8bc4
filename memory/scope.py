"""Whose memory: (tenant, user, agent), and keys derived from the server's secret."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import cached_property

# The kind of an agent's own memory, before its name. User names are stripped of white space, of
# which this begins with one: so no user has such a name, and a user keeps any name that they have.
AGENT_KIND = "\x1fagent:"
AGENT_PREFIX = "agent:"  # as it is shown


def home_of(agent: str) -> str:
    """Return the owner of the one memory that an agent has, whoever talks to it."""
    return AGENT_KIND + agent


def shown_owner(user: str | None) -> str | None:
    """Return an owner as people are shown it."""
    if user is None or not user.startswith(AGENT_KIND):
        return user
    return user[1:]


@dataclass(frozen=True)
class Scope:
    """The owner of a memory.

    user: None if nobody is named; memory then belongs to the conversation's branch only. secret:
    the server's persisted secret; it keys the digests and the tag, so that neither can be guessed
    from outside.
    """

    tenant: str
    user: str | None
    agent: str
    secret: bytes

    @classmethod
    def stored(cls, tenant: str, user: str | None, agent: str, owner: bytes) -> Scope:
        """Return a scope as it is stored with what was written for it, without the secret.

        It has no key and no tag.
        """
        scope = cls(tenant, user, agent, b"")
        scope.__dict__["owner"] = owner
        return scope

    @cached_property
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
        """The short mark that tells our spans from a user's look-alikes; stable per scope."""
        return hmac.digest(self.key, b"tag", "sha256").hex()[:10]

    @cached_property
    def owner(self) -> bytes:
        """Identifies (tenant, user) in the erasure table without the name."""
        return owner_key(self.secret, self.tenant, self.user)


def owner_key(secret: bytes, tenant: str, user: str | None) -> bytes:
    """Return 16 bytes that identify an owner on record after an erasure."""
    return hashlib.blake2b(_join_names(tenant, user), key=secret[:64], digest_size=16).digest()


def _join_names(*names: str | None) -> bytes:
    """Encode names unambiguously: each with its length before it, None unlike an empty one."""
    raw = [None if n is None else n.encode("utf-8", "surrogatepass") for n in names]
    return b"".join(b"-" if n is None else b"%d:%s" % (len(n), n) for n in raw)
