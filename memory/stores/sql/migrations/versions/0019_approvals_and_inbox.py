"""Calls that wait for a person, and messages that wait for an agent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"

    def words(name: str, *, nullable: bool = False) -> sa.Column[str]:
        kind = sa.Text() if is_sqlite else sa.Text(collation="C")
        if nullable:
            return sa.Column(name, kind)
        return sa.Column(name, kind, server_default="", nullable=False)

    def short(length: int) -> sa.String:
        return sa.String(length) if is_sqlite else sa.String(length, collation="C")

    op.create_table(
        "tool_approvals",
        sa.Column("id", short(64), primary_key=True),
        words("tenant"),
        words("user", nullable=True),
        words("agent"),
        words("conversation"),
        words("request_id"),
        words("tool"),
        words("arguments"),
        sa.Column("status", short(16), nullable=False),
        words("reason"),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("alive_until", sa.Float(), nullable=False),
        sa.Column("decided_at", sa.Float()),
        words("decided_by", nullable=True),
    )
    op.create_index(
        "ix_tool_approvals_tenant", "tool_approvals", ["tenant", "status", "created_at"]
    )
    op.create_index("ix_tool_approvals_created_at", "tool_approvals", ["created_at"])
    op.create_table(
        "agent_inbox",
        sa.Column("id", short(64), primary_key=True),
        words("tenant"),
        words("agent"),
        words("owner"),
        words("sender"),
        words("said_by", nullable=True),
        words("text"),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("delivered_at", sa.Float()),
        sa.Column("turn", sa.Integer() if is_sqlite else sa.BigInteger()),
    )
    op.create_index(
        "ix_agent_inbox_owner", "agent_inbox", ["tenant", "owner", "agent", "created_at"]
    )
    op.create_index("ix_agent_inbox_said_by", "agent_inbox", ["tenant", "said_by"])
    op.create_index("ix_agent_inbox_created_at", "agent_inbox", ["created_at"])


def downgrade() -> None:
    op.drop_table("agent_inbox")
    op.drop_table("tool_approvals")
