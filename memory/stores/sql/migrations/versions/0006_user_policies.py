"""What the memory may do for a user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "user_policies",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("memory", sa.Text(), server_default="full", nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "user", name="pk_user_policies"),
    )


def downgrade() -> None:
    op.drop_table("user_policies")
