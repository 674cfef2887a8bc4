"""Large messages are kept in pieces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("messages", sa.Column("pieces", KEY))
    named = sa.text("pieces IS NOT NULL")
    op.create_index(
        "ix_messages_pieces", "messages", ["pieces"], sqlite_where=named, postgresql_where=named
    )
    op.create_table(
        "message_pieces",
        sa.Column("body", KEY, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("data", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_message_pieces_scope_id"),
        sa.PrimaryKeyConstraint("body", "position", name="pk_message_pieces"),
    )
    op.create_index("ix_message_pieces_scope_id", "message_pieces", ["scope_id"])


def downgrade() -> None:
    op.drop_index("ix_message_pieces_scope_id", "message_pieces")
    op.drop_table("message_pieces")
    op.drop_index("ix_messages_pieces", "messages")
    op.drop_column("messages", "pieces")
