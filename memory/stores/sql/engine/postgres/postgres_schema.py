"""The tables that only Postgres has: its search index, and the workers that share a database.

The index holds no word: a term is a number, keyed by the server's secret (see `postgres_index`).
"""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, Connection, Index, Integer, MetaData, Table

from memory.stores.sql.engine import schema

metadata = MetaData(naming_convention=schema.metadata.naming_convention)


def _terms(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("scope_id", BigInteger, nullable=False),
        Column("terms", ARRAY(BigInteger), nullable=False),
        # A pending list would stall whoever fills it.
        Index(
            f"ix_{name}_terms",
            "terms",
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        ),
    )


unindexed = Table(
    "unindexed",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("scope_id", BigInteger, nullable=False),
    Index("ix_unindexed_scope_id", "scope_id", "id"),
)
message_terms = _terms("message_terms")
passage_terms = _terms("passage_terms")
file_passage_terms = _terms("file_passage_terms")

# Who serves the database (see `postgres_lease`). slot: in the keys of rows that
# it makes. place: where its process id counts.
workers = Table(
    "workers",
    metadata,
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("incarnation", BigInteger, nullable=False, unique=True),
    schema.text("name"),
    Column("pid", Integer, nullable=False),
    schema.text("place"),
    schema.text("version"),
    schema.at("seen_at"),
)

# When a periodic job is due.
schedules = Table(
    "schedules",
    metadata,
    Column("kind", schema.short(64), primary_key=True),
    schema.at("next_at"),
)


def create(conn: Connection) -> None:
    """Create all tables of an empty database."""
    schema.metadata.create_all(conn)
    metadata.create_all(conn)
