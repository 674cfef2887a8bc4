"""The objects of managed keys in the management API."""

from __future__ import annotations

import msgspec


class Key(msgspec.Struct, kw_only=True):
    """A managed key.

    id and created_at are null for one of the configuration (source: config, or made). limits: rpm,
    tpm and concurrent requests, 0 for none. budget: usd a period, 0 for none.
    """

    id: str | None
    name: str
    tenant: str
    trusted: bool
    users: list[str]
    default_user: str
    admin: bool
    approve: bool
    models: list[str]
    agents: list[str]
    paths: list[str]
    memory: str
    limits: dict[str, int]
    budget: dict[str, float | str]
    source: str
    created_at: str | None
    revoked_at: str | None
    object: str = "key"


class MadeKey(Key, kw_only=True):
    """key: the secret that clients send; it is only shown once."""

    key: str
    note: str | None


class RevokedKey(Key, kw_only=True):
    note: str | None
