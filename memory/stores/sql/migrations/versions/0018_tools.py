"""Calls of the operator's tools and their results, what an epoch shows of them, and policies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"

    def words(name: str, *, nullable: bool = False) -> sa.Column[str]:
        kind = sa.Text() if is_sqlite else sa.Text(collation="C")
        if nullable:
            return sa.Column(name, kind)
        return sa.Column(name, kind, server_default="", nullable=False)

    def short(name: str, length: int, *, is_key: bool = False) -> sa.Column[str]:
        kind = sa.String(length) if is_sqlite else sa.String(length, collation="C")
        default = None if is_key or name == "state" else ""
        return sa.Column(name, kind, nullable=False, primary_key=is_key, server_default=default)

    def scope(*, nullable: bool) -> sa.Column[int]:
        if not is_sqlite:
            return sa.Column("scope_id", key, nullable=nullable)
        return sa.Column("scope_id", key, sa.ForeignKey("scopes.id"), nullable=nullable)

    key = sa.Integer() if is_sqlite else sa.BigInteger()
    op.create_table(
        "tool_calls",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("node", key, nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        scope(nullable=True),
        words("tenant"),
        words("entry"),
        words("name"),
        sa.Column("version", sa.Integer(), server_default="0", nullable=False),
        words("effect"),
        short("state", 16),
        short("status", 16),
        words("arguments"),
        short("digest", 64),
        words("result", nullable=True),
        words("origin"),
        words("rule"),
        words("approval"),
        words("request_id"),
        words("actor"),
        sa.Column("milliseconds", sa.Float(), server_default="0", nullable=False),
        sa.Column("cost_usd", sa.Float(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.UniqueConstraint("node", "round", "place", name="uq_tool_calls_node_round_place"),
    )
    op.create_index("ix_tool_calls_scope_id", "tool_calls", ["scope_id"])
    op.create_index("ix_tool_calls_tenant", "tool_calls", ["tenant", "id"])
    op.create_table(
        "tool_results",
        short("id", 64, is_key=True),
        scope(nullable=False),
        words("name"),
        words("content"),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_tool_results_scope_id", "tool_results", ["scope_id"])
    op.create_index("ix_tool_results_created_at", "tool_results", ["created_at"])
    op.add_column("epochs", words("tools", nullable=True))
    op.add_column("user_policies", words("tools"))


def downgrade() -> None:
    op.drop_column("user_policies", "tools")
    op.drop_column("epochs", "tools")
    op.drop_table("tool_results")
    op.drop_table("tool_calls")
