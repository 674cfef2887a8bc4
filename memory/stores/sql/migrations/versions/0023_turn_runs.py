"""What tools ran in a user's turn, kept beside each of its answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    op.add_column("nodes", sa.Column("runs", words, nullable=True))


def downgrade() -> None:
    op.drop_column("nodes", "runs")
