"""Turns that were appended and are not filed yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "journal",
        sa.Column("id", Key, primary_key=True, autoincrement=False),
        sa.Column("scope_id", Key, nullable=False),
        sa.Column("conversation", Key, nullable=False),
        sa.Column("head", Key, nullable=False),
        sa.Column("broken", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("entry", sa.LargeBinary(), nullable=False),
    )
    op.create_index("ix_journal_conversation", "journal", ["conversation", "id", "head"])


def downgrade() -> None:
    op.drop_index("ix_journal_conversation", "journal")
    op.drop_table("journal")
