"""Python tools of tenants, and their versions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    ident = sa.String(64) if is_sqlite else sa.String(64, collation="C")
    key = sa.Integer() if is_sqlite else sa.BigInteger()
    op.create_table(
        "python_tools",
        sa.Column("id", ident, primary_key=True),
        sa.Column("tenant", words, server_default="", nullable=False),
        sa.Column("name", words, server_default="", nullable=False),
        sa.Column("definition", words, server_default="{}", nullable=False),
        sa.Column("listed", words, server_default="{}", nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("updated_by", words, server_default="", nullable=False),
        sa.UniqueConstraint("tenant", "name", name="uq_python_tools_tenant_name"),
    )
    op.create_table(
        "python_tool_versions",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("tool", ident, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("before", words),
        sa.Column("after", words),
        sa.Column("actor", words, server_default="", nullable=False),
        sa.Column("request_id", words),
        sa.Column("undoes", sa.Integer()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.UniqueConstraint("tool", "version", name="uq_python_tool_versions_tool_version"),
    )


def downgrade() -> None:
    op.drop_table("python_tool_versions")
    op.drop_table("python_tools")
