"""The agent of each usage record: the profile that was called, "" for none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    # Workers of the version before write rows without it.
    op.add_column("usage", sa.Column("agent", words, server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("usage", "agent")
