"""Checks what a Postgres server, and a pooler in front of it, can do."""

from __future__ import annotations

import secrets

import asyncpg

from memory.errors import NotUpgraded

# The oldest version of Postgres.
OLDEST = 15
STATEMENT_MODE = (
    "a pooler in statement mode is in front of the server, and Mnemogate needs transactions. Set "
    "its pool_mode to transaction"
)
NO_STATEMENTS = (
    "the pooler before the database keeps no prepared statements, so each statement costs a round "
    "trip more. PgBouncer 1.21 or newer with max_prepared_statements = 512 keeps them"
)


async def check_server(raw_connection: asyncpg.Connection) -> None:
    """Raise NotUpgraded for a server that cannot hold a memory."""
    server_version = raw_connection.get_server_version()
    if server_version.major < OLDEST:
        raise NotUpgraded(
            f"the server is Postgres {server_version.major}; Mnemogate needs {OLDEST} or newer. "
            "Upgrade the server, or point storage.database to another"
        )
    if (encoding := await raw_connection.fetchval("SHOW server_encoding")) != "UTF8":
        raise NotUpgraded(
            f"the database has the encoding {encoding}, which cannot hold every text. Make another "
            "with `CREATE DATABASE mnemogate ENCODING 'UTF8' TEMPLATE template0`, and point "
            "storage.database to it"
        )
    await _check_writable(raw_connection)
    await _check_pooler(raw_connection)


async def _check_writable(raw_connection: asyncpg.Connection) -> None:
    if await raw_connection.fetchval("SELECT pg_is_in_recovery()"):
        raise OSError(
            "the server is a standby, which takes no writes. Point storage.database to the primary"
            ", or name all hosts and add target_session_attrs=read-write"
        )
    if await raw_connection.fetchval("SHOW default_transaction_read_only") == "on":
        raise OSError(
            "the database is read-only (default_transaction_read_only is on). Turn that off for "
            "Mnemogate's role, or give it another database"
        )


async def _check_pooler(raw_connection: asyncpg.Connection) -> None:
    # In statement mode each statement has a transaction of its own, or BEGIN is refused.
    try:
        await raw_connection.execute("BEGIN")
        await raw_connection.fetchval("SELECT pg_current_xact_id()")
        kept_transaction = await raw_connection.fetchval(
            "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
        )
        await raw_connection.execute("ROLLBACK")
    except asyncpg.PostgresError as e:
        if "statement pooling" not in str(e):
            raise
        kept_transaction = False
    if not kept_transaction:
        raise NotUpgraded(STATEMENT_MODE)


async def keeps_statements(raw_connection: asyncpg.Connection) -> bool:
    """Tell whether a prepared statement can be used in later transactions.

    It can on a direct connection, and through a pooler that prepares it again under its own name.
    """
    if await raw_connection.fetchval("SELECT pg_backend_pid()") == raw_connection.get_server_pid():
        return True
    name = f"mnemogate_{secrets.token_hex(8)}"
    async with raw_connection.transaction():
        statement = await raw_connection.prepare(
            "SELECT EXISTS (SELECT 1 FROM pg_prepared_statements WHERE name = $1)", name=name
        )
        unchanged: bool = await statement.fetchval(name)
    return not unchanged
