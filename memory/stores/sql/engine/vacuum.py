"""Removes erased data from the database's files."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from memory.errors import StoreUnavailable
from memory.stores.sql.engine.database_kinds import load_maintenance


async def vacuum(url: str) -> None:
    """Rewrite the database, which may be in use.

    Raises StoreUnavailable, also if readers prevented truncating the log.
    """
    try:
        await load_maintenance(url).rewrite(url)
    except (SQLAlchemyError, OSError) as e:
        raise StoreUnavailable(
            f"the database could not be rewritten: {type(e).__name__}: {e}"
        ) from e
