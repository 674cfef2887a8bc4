"""Managed keys made at run time, what each request used, what background work keeps of its own, and
vectors of messages.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = (
    "attempts",
    "rounds",
    "input",
    "cached_input",
    "cache_write",
    "output",
    "reasoning",
    "hidden_input",
    "hidden_output",
)


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("spec", sa.Text(), server_default="{}", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.UniqueConstraint("hash", name="uq_keys_hash"),
    )
    op.create_index("ix_keys_name", "keys", ["name"])
    op.create_table(
        "usage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("user", sa.Text(), nullable=True),
        *(
            sa.Column(name, sa.Text(), server_default="", nullable=False)
            for name in ("key", "model", "target", "path", "mode")
        ),
        *(sa.Column(name, sa.Integer(), server_default="0", nullable=False) for name in COUNTS),
        sa.Column("estimated", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("latency_ms", sa.Float(), nullable=False),
        sa.Column("first_token_ms", sa.Float(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
    )
    op.create_index("ix_usage_tenant", "usage", ["tenant", "created_at"])
    op.create_index("ix_usage_key", "usage", ["key", "created_at"])
    op.create_index("ix_usage_user", "usage", ["tenant", "user"])
    _background()
    _message_vectors()


def _message_vectors() -> None:
    op.create_table(
        "message_vectors",
        sa.Column("message", KEY, autoincrement=False, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_message_vectors_scope_id"),
        sa.PrimaryKeyConstraint("message", name="pk_message_vectors"),
    )
    op.create_index(
        "ix_message_vectors_scope_id", "message_vectors", ["scope_id", "model", "message"]
    )


def _background() -> None:
    """What became of a passage, whose conversation a job is about, how many turns a scope had since
    it was tidied.
    """
    op.add_column("scopes", sa.Column("turns", sa.Integer(), server_default="0", nullable=False))
    for column in (
        sa.Column("deleted_by", sa.Text()),
        sa.Column("superseded_by", sa.String(length=64)),
        sa.Column("source", sa.String(length=64)),
        sa.Column("uses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("used_at", sa.Float()),
    ):
        op.add_column("passages", column)
    op.add_column("jobs", sa.Column("conversation", KEY))
    op.create_index("ix_jobs_conversation", "jobs", ["conversation"])
    op.create_index("ix_jobs_scope_id", "jobs", ["scope_id"])
    op.drop_index("ix_ledger_scope_id", "ledger")
    # What it held is of use for ten minutes, and now stands in the nodes.
    op.drop_table("ledger")
    op.add_column("nodes", sa.Column("request", sa.LargeBinary()))
    op.add_column("nodes", sa.Column("rounds", sa.Text()))
    op.create_index("ix_nodes_request", "nodes", ["request"])
    op.drop_index("ix_nodes_chain", "nodes")
    op.drop_index("ix_messages_digest", "messages")
    with op.batch_alter_table("messages") as messages:
        messages.drop_constraint("uq_messages_public_id", type_="unique")
    for name, columns, state in (
        ("ix_nodes_asked", ["scope_id", "asked"], "state != 'done'"),
        ("ix_nodes_parent", ["parent"], "state = 'aborted'"),
    ):
        op.drop_index(name, "nodes")
        op.create_index(
            name, "nodes", columns, sqlite_where=sa.text(state), postgresql_where=sa.text(state)
        )
    _marks()
    _explains()


def _marks() -> None:
    op.create_table(
        "marks",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("upto", KEY, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_marks"),
    )
    op.execute(
        "INSERT INTO marks (name, upto) SELECT 'messages', id FROM messages ORDER BY id DESC "
        "LIMIT 1"
    )


def _explains() -> None:
    """By their turn's node, which those made before do not tell: they go."""
    op.drop_index("ix_explains_scope_id", "explains")
    op.drop_table("explains")
    op.create_table(
        "explains",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("record", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_explains_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_explains"),
    )


def downgrade() -> None:
    op.drop_table("marks")
    op.drop_table("explains")
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
    for name, columns in (
        ("ix_nodes_asked", ["scope_id", "asked"]),
        ("ix_nodes_parent", ["parent"]),
    ):
        op.drop_index(name, "nodes")
        op.create_index(name, "nodes", columns)
    with op.batch_alter_table("messages") as messages:
        messages.create_unique_constraint("uq_messages_public_id", ["public_id"])
    op.create_index("ix_messages_digest", "messages", ["conversation", "digest"])
    op.create_index("ix_nodes_chain", "nodes", ["scope_id", "chain"])
    op.drop_index("ix_nodes_request", "nodes")
    op.drop_column("nodes", "rounds")
    op.drop_column("nodes", "request")
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
    op.drop_table("message_vectors")
    op.drop_index("ix_jobs_scope_id", "jobs")
    op.drop_index("ix_jobs_conversation", "jobs")
    op.drop_column("jobs", "conversation")
    for name in ("used_at", "uses", "source", "superseded_by", "deleted_by"):
        op.drop_column("passages", name)
    op.drop_column("scopes", "turns")
    op.drop_table("usage")
    op.drop_table("keys")
