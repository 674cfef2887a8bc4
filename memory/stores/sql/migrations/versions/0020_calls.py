"""Calls of memory tools outside a conversation, and accepted tools of servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    ident = sa.String(64) if is_sqlite else sa.String(64, collation="C")
    key = sa.Integer() if is_sqlite else sa.BigInteger()
    op.create_table(
        "call_records",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("scope_id", key, nullable=False),
        sa.Column("reader", sa.LargeBinary(), nullable=False),
        sa.Column("seen", words, server_default="{}", nullable=False),
        sa.Column("record", words, server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_call_records_scope_id", "call_records", ["scope_id", "reader", "id"])
    op.create_table(
        "tool_pins",
        sa.Column("entry", ident, primary_key=True),
        sa.Column("server", ident, primary_key=True),
        sa.Column("name", words, primary_key=True),
        sa.Column("accepted_hash", ident),
        sa.Column("accepted", words),
        sa.Column("listed_hash", ident),
        sa.Column("listed", words),
        sa.Column("updated_at", sa.Float(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("tool_pins")
    op.drop_table("call_records")
