"""Makes the tables of an empty database; refuses one of another version or with another secret."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, insert, inspect, select

from memory.errors import NotUpgraded
from memory.stores.sql.engine import schema
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.sqlite.fts import note_terms

ANOTHERS = (
    "storage.secret is not the secret that this database was made with: nothing stored would be "
    "recognised. Set the secret of the other gateways, or use another database"
)


def prepare_tables(conn: Connection, secret: bytes, *, reading: bool = False) -> bool:
    """Create the tables of an empty database; raise NotUpgraded for one of another version.

    reading: only look. Returns False if there is something to write.
    """
    driver = sql_driver(conn)
    names = set(inspect(conn).get_table_names())
    if "scopes" not in names:
        if reading:
            return False
        driver.create_tables(conn)
        conn.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL "
            "PRIMARY KEY)"
        )
        conn.exec_driver_sql(
            f"INSERT INTO alembic_version (version_num) VALUES ('{schema.REVISION}')"
        )
        # Before the first row: whoever finds rows without it rebuilds the whole index.
        note_terms(conn)
        return _check_secret(conn, secret, reading=False)
    revision = None
    if "alembic_version" in names:
        revision = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if why := why_unreadable(revision, _readable_by(conn) if "meta" in names else None):
        raise NotUpgraded(why)
    if lacks := sorted(driver.table_names() - names):
        raise NotUpgraded(
            f"the database lacks {', '.join(lacks)}: an unreleased version made it. Export its "
            "memory with that version, or move its folder away"
        )
    return _check_secret(conn, secret, reading=reading)


READABLE_BY = select(schema.meta.c.value).where(schema.meta.c.name == "readable_by")


def _readable_by(conn: Connection) -> str | None:
    revision: str | None = conn.execute(READABLE_BY).scalar()
    return revision


def why_unreadable(revision: str | None, readable_by: str | None) -> str:
    """Return why this version cannot serve a database; empty if it can.

    revision: the database's version. readable_by: the oldest that may serve it, None for its own.
    """
    if revision is None or revision < schema.REVISION:
        return _too_old(revision)
    if revision == schema.REVISION or (readable_by or revision) <= schema.REVISION:
        return ""
    return (
        f"the database is at version {revision}, which needs a Mnemogate of version "
        f"{readable_by or revision} or newer; this one is at {schema.REVISION}: install the newer "
        "Mnemogate that ran `mnemogate db upgrade`"
    )


def _too_old(revision: str | None) -> str:
    return (
        f"the database is at version {revision}, this Mnemogate needs {schema.REVISION}: run "
        "`mnemogate db upgrade`"
    )


def fingerprint_of(secret: bytes) -> str:
    """Return what is stored of a secret, to recognise it."""
    return hashlib.blake2b(b"fingerprint", key=secret[:64], digest_size=16).hexdigest()


def _check_secret(conn: Connection, secret: bytes, *, reading: bool) -> bool:
    """Keep the secret's fingerprint in a new database; raise NotUpgraded if it is another's.

    With another secret nothing that is stored would be recognised, nor erased. reading, return: see
    `prepare_tables`.
    """
    if not sql_driver(conn).is_shared:
        # The secret of a file lies beside it.
        return True
    fingerprint = fingerprint_of(secret)
    meta_columns = schema.meta.c
    if (
        stored_fingerprint := conn.execute(
            select(meta_columns.value).where(meta_columns.name == "secret")
        ).scalar()
    ) is None:
        if reading:
            return False
        conn.execute(insert(schema.meta).values(name="secret", value=fingerprint))
    elif stored_fingerprint != fingerprint:
        raise NotUpgraded(ANOTHERS)
    return True
