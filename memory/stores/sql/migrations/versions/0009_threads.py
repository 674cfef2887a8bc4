"""Responses that belong to a conversation object of the Responses API."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    words = sa.Text(collation="C") if op.get_bind().dialect.name != "sqlite" else sa.Text()
    op.add_column("responses", sa.Column("thread", words, server_default="", nullable=False))
    op.create_index("ix_responses_thread", "responses", ["tenant", "thread"])


def downgrade() -> None:
    op.drop_index("ix_responses_thread", "responses")
    op.drop_column("responses", "thread")
