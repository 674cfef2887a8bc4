"""What background jobs read and kept, and what their filters dropped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    ident = sa.String(64) if is_sqlite else sa.String(64, collation="C")
    key = sa.Integer() if is_sqlite else sa.BigInteger()
    op.create_table(
        "job_records",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("scope_id", key, nullable=False),
        sa.Column("kind", words, server_default="", nullable=False),
        sa.Column("read", sa.Integer(), nullable=False),
        sa.Column("shown", sa.Integer(), nullable=False),
        sa.Column("proposed", sa.Integer(), nullable=False),
        sa.Column("kept", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_job_records_scope_id", "job_records", ["scope_id", "id"])
    op.create_table(
        "dropped",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("scope_id", key, nullable=False),
        sa.Column("conversation", key),
        sa.Column("job", key, nullable=False),
        sa.Column("stage", words, server_default="", nullable=False),
        sa.Column("reason", words, server_default="", nullable=False),
        sa.Column("message", ident),
        sa.Column("text", words, server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_dropped_scope_id", "dropped", ["scope_id", "id"])
    op.create_index("ix_dropped_conversation", "dropped", ["conversation"])
    op.create_index("ix_dropped_job", "dropped", ["job"])


def downgrade() -> None:
    op.drop_table("dropped")
    op.drop_table("job_records")
