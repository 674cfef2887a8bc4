"""Responses that a provider stores: whose they are, and what their client was shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "responses",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("target", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("rounds", sa.Text(), server_default="[]", nullable=False),
        sa.Column("pending", sa.Text(), server_default="[]", nullable=False),
        sa.Column("shown", sa.Text(), nullable=True),
        sa.Column("echo", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("tenant", "id", name="pk_responses"),
    )
    op.create_table(
        "response_items",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "id", name="pk_response_items"),
    )
    op.create_index("ix_response_items_response", "response_items", ["tenant", "response"])
    op.create_index("ix_responses_user", "responses", ["tenant", "user"])
    op.create_index("ix_responses_created_at", "responses", ["created_at"])


def downgrade() -> None:
    op.drop_table("response_items")
    op.drop_table("responses")
