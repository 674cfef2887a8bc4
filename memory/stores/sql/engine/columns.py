"""What the tables are made of: their names, and columns that many have."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, MetaData, String, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

# SQLite's rowid alias must be spelled INTEGER.
Key = BigInteger().with_variant(Integer, "sqlite")
# By bytes, as SQLite compares: the order of names does not depend on a server's locale.
Words = Text().with_variant(Text(collation="C"), "postgresql")


def short(length: int) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def key() -> Column[int]:
    return Column("id", Key, primary_key=True, autoincrement=False)


def scope_column() -> Column[int]:
    return Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False)


def text(name: str, default: str = "") -> Column[str]:
    return Column(name, Words, nullable=False, server_default=default)


def at(name: str = "created_at") -> Column[float]:
    return Column(name, Float, nullable=False)
