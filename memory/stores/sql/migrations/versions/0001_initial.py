"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
FTS = ("messages_fts", "passages_fts")


def upgrade() -> None:
    for table in TABLES:
        table()
    if op.get_bind().dialect.name == "sqlite":
        for name in FTS:
            op.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5(scope, body, speaker, "
                "prev, day, tokenize='porter unicode61')"
            )


def downgrade() -> None:
    raise NotImplementedError(
        "there is nothing before the first schema: restore a backup, or erase the file"
    )


def _generations() -> None:
    op.create_table(
        "generations",
        sa.Column("owner", sa.LargeBinary(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_generations"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("scope_id", KEY, nullable=True),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("payload", sa.Text(), server_default="{}", nullable=False),
        sa.Column("dedupe", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=8), server_default="ready", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_at", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("dedupe", name="uq_jobs_dedupe"),
    )
    op.create_index("ix_jobs_ready", "jobs", ["state", "run_at"])


def _scopes() -> None:
    op.create_table(
        "scopes",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("edits", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("active_at", sa.Float(), nullable=False),
        sa.Column("proven", sa.Boolean(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scopes"),
        sa.UniqueConstraint("tenant", "user", "agent", name="uq_scopes_tenant_user_agent"),
    )


def _shared_blocks() -> None:
    op.create_table(
        "shared_blocks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("label", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("value", sa.Text(), server_default="", nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_shared_blocks"),
    )


def _block_versions() -> None:
    op.create_table(
        "block_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("block_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), server_default="", nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("undoes", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_block_versions_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_block_versions"),
        sa.UniqueConstraint("block_id", "version", name="uq_block_versions_block_id_version"),
    )
    op.create_index("ix_block_versions_block_id", "block_versions", ["block_id"])
    op.create_index("ix_block_versions_scope_id", "block_versions", ["scope_id"])


def _blocks() -> None:
    op.create_table(
        "blocks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("branch", KEY, server_default="0", nullable=False),
        sa.Column("label", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("value", sa.Text(), server_default="", nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_blocks_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_blocks"),
        sa.UniqueConstraint("scope_id", "branch", "label", name="uq_blocks_scope_id_branch_label"),
    )


def _conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("explicit", sa.Boolean(), nullable=False),
        sa.Column("resent", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("forked_from", sa.Text(), nullable=True),
        sa.Column("head", KEY, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_conversations_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
        sa.UniqueConstraint("scope_id", "name", name="uq_conversations_scope_id_name"),
    )
    op.create_index("ix_conversations_name", "conversations", ["name"])


def _epochs() -> None:
    op.create_table(
        "epochs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("core", sa.Text(), server_default="", nullable=False),
        sa.Column("blocks", sa.Text(), server_default="", nullable=False),
        sa.Column("edits", sa.Integer(), nullable=False),
        sa.Column("cut", sa.LargeBinary(), nullable=True),
        sa.Column("elide", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_epochs_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_epochs"),
    )
    op.create_index("ix_epochs_scope_id", "epochs", ["scope_id"])


def _explains() -> None:
    op.create_table(
        "explains",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("record", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_explains_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_explains"),
    )
    op.create_index("ix_explains_scope_id", "explains", ["scope_id"])


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("node", KEY, nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("rounds", sa.Text(), server_default="[]", nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_ledger_scope_id"),
        sa.PrimaryKeyConstraint("key", name="pk_ledger"),
    )
    op.create_index("ix_ledger_scope_id", "ledger", ["scope_id"])


def _passages() -> None:
    op.create_table(
        "passages",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("public_id", sa.String(length=64), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("node", KEY, server_default="0", nullable=False),
        sa.Column("content", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", sa.Text(), server_default="[]", nullable=False),
        sa.Column("type", sa.Text(), server_default="fact", nullable=False),
        sa.Column("importance", sa.Float(), server_default="0.5", nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("actor", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("deleted_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_passages_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_passages"),
        sa.UniqueConstraint("public_id", name="uq_passages_public_id"),
    )
    op.create_index("ix_passages_digest", "passages", ["scope_id", "digest"])
    op.create_index("ix_passages_scope_id", "passages", ["scope_id", "id"])


def _shared_members() -> None:
    op.create_table(
        "shared_members",
        sa.Column("block_id", sa.String(length=64), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("write", sa.Boolean(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"], ["shared_blocks.id"], name="fk_shared_members_block_id"
        ),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_shared_members_scope_id"),
        sa.PrimaryKeyConstraint("block_id", "scope_id", name="pk_shared_members"),
    )


def _summaries() -> None:
    op.create_table(
        "summaries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("conversation", KEY, nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.Text(), server_default="", nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_summaries_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_summaries"),
        sa.UniqueConstraint("scope_id", "chain", name="uq_summaries_scope_id_chain"),
    )


def _vectors() -> None:
    op.create_table(
        "vectors",
        sa.Column("passage", KEY, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_vectors_scope_id"),
        sa.PrimaryKeyConstraint("passage", name="pk_vectors"),
    )
    op.create_index("ix_vectors_scope_id", "vectors", ["scope_id", "model"])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("public_id", sa.String(length=64), nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("conversation", KEY, nullable=False),
        sa.Column("node", KEY, nullable=True),
        sa.Column("role", sa.Text(), server_default="", nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("content", sa.Text(), server_default="", nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("aborted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"], ["conversations.id"], name="fk_messages_conversation"
        ),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_messages_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        sa.UniqueConstraint("public_id", name="uq_messages_public_id"),
    )
    op.create_index("ix_messages_conversation", "messages", ["conversation", "id"])
    op.create_index("ix_messages_digest", "messages", ["conversation", "digest"])
    op.create_index("ix_messages_node", "messages", ["node"])
    op.create_index("ix_messages_scope_id", "messages", ["scope_id", "created_at"])


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("conversation", KEY, nullable=False),
        sa.Column("parent", KEY, nullable=True),
        sa.Column("turn", KEY, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("chain", sa.LargeBinary(), nullable=True),
        sa.Column("asked", sa.LargeBinary(), nullable=True),
        sa.Column("trail", sa.LargeBinary(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("epoch", sa.String(length=64), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("recall", sa.Text(), nullable=True),
        sa.Column("told", sa.Text(), nullable=True),
        sa.Column("hidden", sa.Text(), nullable=True),
        sa.Column("carriers", sa.Text(), nullable=True),
        sa.Column("branch", KEY, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation"], ["conversations.id"], name="fk_nodes_conversation"
        ),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_nodes_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
    )
    op.create_index("ix_nodes_asked", "nodes", ["scope_id", "asked"])
    op.create_index("ix_nodes_chain", "nodes", ["scope_id", "chain"])
    op.create_index("ix_nodes_conversation", "nodes", ["conversation"])
    op.create_index("ix_nodes_digest", "nodes", ["scope_id", "digest"])
    op.create_index("ix_nodes_parent", "nodes", ["parent"])


TABLES = (
    _generations,
    _jobs,
    _scopes,
    _shared_blocks,
    _block_versions,
    _blocks,
    _conversations,
    _epochs,
    _explains,
    _ledger,
    _passages,
    _shared_members,
    _summaries,
    _vectors,
    _messages,
    _nodes,
)
