"""Whose memory: (tenant, user, agent, project), and keys derived from the server's secret."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from functools import cached_property

# Before the name of an owner who is no user. User names are stripped of white space, of which this
# is: so no user has such a name, and a user keeps any name that they have.
KIND_MARK = "\x1f"
# The kind of an agent's own memory.
AGENT_KIND = f"{KIND_MARK}agent:"
# Before the agent's name too, where a memory is of a project.
PROJECT_KIND = f"{KIND_MARK}project:"
# As it is shown.
AGENT_PREFIX = "agent:"


def home_of(agent: str) -> str:
    """Return the owner of the one memory that an agent has, whoever talks to it."""
    return AGENT_KIND + agent


def layer_owner(kind: str, name: str) -> str:
    """Return the owner of what a team, a project or the tenant itself holds for its members."""
    return f"{KIND_MARK}{kind}:{name}"


def split_layer(owner: str) -> tuple[str, str]:
    """Return the kind and the name of the owner of a layer."""
    kind, _, name = owner[len(KIND_MARK) :].partition(":")
    return kind, name


def shown_owner(user: str | None) -> str | None:
    """Return an owner as people are shown it."""
    if user is None or not user.startswith(KIND_MARK):
        return user
    return user[1:]


def memory_name(agent: str, project: str) -> str:
    """Return the name by which a user's memory with an agent is stored. project: "" for none."""
    if project:
        return f"{PROJECT_KIND}{project}{KIND_MARK}{agent}"
    return agent


def split_memory_name(name: str) -> tuple[str, str]:
    """Return the agent and the project of the name of a memory."""
    if not name.startswith(PROJECT_KIND):
        return name, ""
    project, _, agent = name[len(PROJECT_KIND) :].partition(KIND_MARK)
    return agent, project


@dataclass(frozen=True)
class Scope:
    """The owner of a memory.

    user: None if nobody is named; memory then belongs to the conversation's branch only. agent: by
    its `memory_name`. secret: the server's persisted secret; it keys the digests and the tag, so
    that neither can be guessed from outside.
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
    def is_home(self) -> bool:
        """Whether it is an agent's own."""
        return (self.user or "").startswith(AGENT_KIND)

    @cached_property
    def is_layer(self) -> bool:
        """Whether it is what a team, a project or the tenant holds for its members."""
        return (self.user or "").startswith(KIND_MARK) and not self.is_home

    @cached_property
    def agent_name(self) -> str:
        return split_memory_name(self.agent)[0]

    @cached_property
    def project(self) -> str:
        """The project of which it is the user's part, "" for none."""
        return split_memory_name(self.agent)[1]

    @cached_property
    def general(self) -> Scope:
        """The user's memory outside of projects."""
        if self.project:
            return replace(self, agent=self.agent_name)
        return self

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
