"""What first requests of conversations were like, and which are tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("conversations", sa.Column("opening", sa.LargeBinary()))
    op.add_column(
        "conversations", sa.Column("task", sa.Boolean(), server_default="0", nullable=False)
    )
    waiting = sa.text("opening IS NOT NULL")
    op.create_index(
        "ix_conversations_opening",
        "conversations",
        ["scope_id", "id"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )


def downgrade() -> None:
    op.drop_index("ix_conversations_opening", "conversations")
    op.drop_column("conversations", "task")
    op.drop_column("conversations", "opening")
