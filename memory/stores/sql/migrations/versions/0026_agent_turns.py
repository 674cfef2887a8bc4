"""Whose turn it is with an agent that keeps one conversation, and what a deleted agent showed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    key = sa.Integer() if is_sqlite else sa.BigInteger()
    op.create_table(
        "agent_turns",
        sa.Column("tenant", words, server_default="", nullable=False),
        sa.Column("agent", words, server_default="", nullable=False),
        sa.Column("holder", key, nullable=False),
        sa.Column("position", key, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "agent", "holder", name="pk_agent_turns"),
    )
    op.add_column("agent_versions", sa.Column("memberships", words))


def downgrade() -> None:
    op.drop_column("agent_versions", "memberships")
    op.drop_table("agent_turns")
