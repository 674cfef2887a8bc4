"""Where kept facts come from: the words they were taken from, and who said them; forks by scope."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    op.add_column("passages", sa.Column("quote", words))
    op.add_column("passages", sa.Column("speaker", words))
    op.add_column("block_versions", sa.Column("quote", words))
    forked = sa.text("forked_from IS NOT NULL")
    op.create_index(
        "ix_conversations_forks",
        "conversations",
        ["scope_id"],
        sqlite_where=forked,
        postgresql_where=forked,
    )


def downgrade() -> None:
    op.drop_index("ix_conversations_forks", "conversations")
    op.drop_column("block_versions", "quote")
    op.drop_column("passages", "speaker")
    op.drop_column("passages", "quote")
