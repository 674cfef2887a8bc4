"""Users from outside: listed, found, exported, imported, erased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import Connection

from memory.export_format import ExportLine
from memory.management.merged_copies import remove_copies
from memory.management.reading import read
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.owners import agent_speakers, erasure, shared_erasure
from memory.stores.sql.owners.erasure import Erasure
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.rows.policies import PolicyEdit
from memory.stores.sql.rows.scopes import UserName, VisibleScopes
from memory.stores.sql.rows.user_listing import ORDERS, UserOrder, UserSearch, find_names
from memory.stores.sql.transfer import exporter, importer
from memory.stores.sql.transfer.import_manifest import ImportManifest
from memory.stores.sql.transfer.importer import ImportReceipt

__all__ = [
    "ORDERS",
    "UserOrder",
    "UserSearch",
    "erase_user",
    "export_user",
    "find_scope",
    "find_users",
    "import_user",
    "is_proven",
    "list_users",
]


async def list_users(
    memory: Memory, reach: VisibleScopes, after: UserName | None, limit: int, part: str = ""
) -> list[dict[str, Any]]:
    """List users by tenant and name after `after`, with counts. Raises StoreUnavailable.

    part: of their names, upper or lower case.
    """
    return await read(memory, lambda conn: scopes.users(conn, reach, after, limit, part))


async def find_users(memory: Memory, user_search: UserSearch) -> list[dict[str, Any]]:
    """List users as `list_users` does, in another order or by what is known of them.

    Raises StoreUnavailable.
    """

    def work(conn: Connection) -> list[dict[str, Any]]:
        return scopes.users_named(conn, find_names(conn, user_search))

    return await read(memory, work)


async def find_scope(memory: Memory, scope: Scope) -> int | None:
    """Find the scope's row, None while nothing is stored of it. Raises StoreUnavailable."""
    return await read(memory, lambda conn: scopes.find(conn, scope))


async def is_proven(memory: Memory, tenant: str) -> bool:
    """Tell whether an upstream ever accepted this tenant. Raises StoreUnavailable."""
    return await read(memory, lambda conn: scopes.proven(conn, tenant))


async def erase_user(
    memory: Memory, tenant: str, user: str, *, keep_shared: bool = False
) -> Erasure:
    """Erase everything about a user, in the application's tables too.

    keep_shared: what they wrote in shared blocks stays, without the name. Raises StoreUnavailable:
    repeating it continues the erasure.
    """
    db = memory.db
    user_name = (tenant, user)
    kept_rows = {}
    if keep_shared:
        kept_rows = await db.write(lambda conn: _keep_shared(conn, user_name))
    erasure_receipt = await erasure.erase(db, memory.secret, (tenant, user), db.application_tables)
    erasure_receipt.shared = kept_rows or erasure_receipt.shared
    memory.policies.forget()
    memory.shared.outdate(tenant)
    await asyncio.to_thread(memory.recovery_log.forget, tenant, user)
    if (data := memory.recovery_log.folder) is not None:
        await asyncio.to_thread(remove_copies, data, user)
    return erasure_receipt


def _keep_shared(conn: Connection, user_name: UserName) -> dict[str, int]:
    agent_speakers.keep_passages(conn, user_name)
    return shared_erasure.keep_lines(conn, user_name)


def export_user(
    memory: Memory, tenant: str, user: str, agent: str | None = None
) -> AsyncIterator[ExportLine]:
    """Export a user's memory line by line, of one agent or of all. Raises StoreUnavailable."""
    return exporter.export(memory.db, tenant, user, agent)


async def import_user(
    memory: Memory, actor: ManagementActor, manifest: ImportManifest
) -> ImportReceipt:
    """Write what was examined into the user's memory.

    Raises ErasedMeanwhile, Conflict, StoreUnavailable: what was written by then stays, and doing it
    again writes the rest.
    """
    receipt = await importer.import_into(memory.db, actor, manifest)
    if (policy := manifest.policy) is not None:
        user_name = actor.scope.tenant, actor.scope.user or ""
        layers = None
        if policy.layers is not None:
            layers = tuple(policy.layers)
        edit = PolicyEdit(policy.memory, policy.timezone, layers=layers)
        await memory.policies.put(user_name, edit)
    return receipt
