"""Several workers on one database: who they are, and which of them works on a turn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

WORDS = sa.Text(collation="C")
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("generations", sa.Column("erased_at", sa.Float(), nullable=True))
    op.add_column("nodes", sa.Column("holder", KEY, nullable=True))
    op.add_column("nodes", sa.Column("once", sa.LargeBinary(), nullable=True))
    op.create_index(
        "uq_nodes_once",
        "nodes",
        ["scope_id", "once"],
        unique=True,
        sqlite_where=sa.text("once IS NOT NULL"),
        postgresql_where=sa.text("once IS NOT NULL"),
    )
    if op.get_bind().dialect.name != "sqlite":
        _create_tables_of_a_server()


def _create_tables_of_a_server() -> None:
    op.create_table(
        "workers",
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("incarnation", KEY, nullable=False),
        sa.Column("name", WORDS, server_default="", nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("place", WORDS, server_default="", nullable=False),
        sa.Column("version", WORDS, server_default="", nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("slot", name="pk_workers"),
        sa.UniqueConstraint("incarnation", name="uq_workers_incarnation"),
    )
    op.create_table(
        "schedules",
        sa.Column("kind", sa.String(64, collation="C"), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("kind", name="pk_schedules"),
    )
    op.execute("DELETE FROM meta WHERE name = 'gateway'")


def downgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        op.drop_table("schedules")
        op.drop_table("workers")
    op.drop_index("uq_nodes_once", "nodes")
    for table, column in (("nodes", "once"), ("nodes", "holder"), ("generations", "erased_at")):
        op.drop_column(table, column)
