"""Shared blocks, their members and versions; who said and wrote what in an agent's own memory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    ident = sa.String(64) if is_sqlite else sa.String(64, collation="C")
    key = sa.Integer() if is_sqlite else sa.BigInteger()
    _keep_speakers(words)
    # Tables that no version ever wrote to.
    op.drop_table("shared_members")
    op.drop_table("shared_blocks")
    _make_blocks(words, ident)
    _make_members(words, ident, key)
    _make_versions(words, ident, key)
    op.create_table(
        "shared_changes",
        sa.Column("tenant", words, primary_key=True),
        sa.Column("changes", key, autoincrement=False, nullable=False),
    )


def _keep_speakers(words: sa.Text) -> None:
    for table, column in (("messages", "said_by"), ("passages", "written_by")):
        op.add_column(table, sa.Column(column, words))
        there = sa.text(f"{column} IS NOT NULL")
        name = f"ix_{table}_{column}"
        op.create_index(name, table, [column], sqlite_where=there, postgresql_where=there)


def _make_blocks(words: sa.Text, ident: sa.String) -> None:
    op.create_table(
        "shared_blocks",
        sa.Column("id", ident, primary_key=True),
        sa.Column("tenant", words, server_default="", nullable=False),
        sa.Column("label", words, server_default="", nullable=False),
        sa.Column("description", words, server_default="", nullable=False),
        sa.Column("value", words, server_default="", nullable=False),
        sa.Column("writers", words, server_default="[]", nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.Column("read_only", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("default_write", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("outside", sa.Integer(), server_default="0", nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("actor", words, server_default="", nullable=False),
        sa.Column("user", words),
        sa.Column("agent", words),
    )
    op.create_index("ix_shared_blocks_tenant", "shared_blocks", ["tenant", "label", "id"])


def _make_members(words: sa.Text, ident: sa.String, key: sa.types.TypeEngine[int]) -> None:
    op.create_table(
        "shared_members",
        sa.Column("block_id", ident, primary_key=True),
        sa.Column("kind", sa.String(16, collation=words.collation), primary_key=True),
        sa.Column("name", words, primary_key=True),
        sa.Column("agent", words, primary_key=True),
        sa.Column("tenant", words, server_default="", nullable=False),
        sa.Column("write", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("joined_at", sa.Float(), nullable=False),
        sa.Column("scope_id", key),
    )
    op.create_index("ix_shared_members_tenant", "shared_members", ["tenant", "kind", "name"])


def _make_versions(words: sa.Text, ident: sa.String, key: sa.types.TypeEngine[int]) -> None:
    op.create_table(
        "shared_versions",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("block_id", ident, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("before", words),
        sa.Column("after", words),
        sa.Column("writers", words),
        sa.Column("actor", words, server_default="", nullable=False),
        sa.Column("user", words),
        sa.Column("agent", words),
        sa.Column("request_id", words),
        sa.Column("tool_call_id", words),
        sa.Column("undoes", sa.Integer()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.UniqueConstraint("block_id", "version", name="uq_shared_versions_block_id_version"),
    )
    op.create_index("ix_shared_versions_user", "shared_versions", ["user"])


def downgrade() -> None:
    for table in ("shared_changes", "shared_versions", "shared_members", "shared_blocks"):
        op.drop_table(table)
    for table, column in (("messages", "said_by"), ("passages", "written_by")):
        op.drop_index(f"ix_{table}_{column}", table)
        op.drop_column(table, column)
