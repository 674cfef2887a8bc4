"""What the memory does without the model's help.

Turns that extraction has not read, what recall showed, and whether models call their tools.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("recalled", sa.Text()))
    op.add_column("nodes", sa.Column("unread", sa.Integer()))
    waiting = sa.text("unread IS NOT NULL")
    op.create_index(
        "ix_nodes_unread",
        "nodes",
        ["scope_id", "parent"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.create_table(
        "model_records",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("offered", sa.Integer(), nullable=False),
        sa.Column("called", sa.Integer(), nullable=False),
        sa.Column("silent", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("model", name="pk_model_records"),
    )


def downgrade() -> None:
    op.drop_table("model_records")
    op.drop_index("ix_nodes_unread", "nodes")
    op.drop_column("nodes", "unread")
    op.drop_column("nodes", "recalled")
