"""What many workers on one database need: versions, one scope for the unnamed, and facts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
VERSIONED = ("scopes", "conversations")


def upgrade() -> None:
    for table in VERSIONED:
        op.add_column(table, sa.Column("version", KEY, server_default="0", nullable=False))
    op.create_index(
        "uq_scopes_unnamed",
        "scopes",
        ["tenant", "agent"],
        unique=True,
        sqlite_where=sa.text('"user" IS NULL'),
        postgresql_where=sa.text('"user" IS NULL'),
    )
    op.create_table(
        "meta",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_meta"),
    )


def downgrade() -> None:
    op.drop_table("meta")
    op.drop_index("uq_scopes_unnamed", "scopes")
    for table in VERSIONED:
        op.drop_column(table, "version")
