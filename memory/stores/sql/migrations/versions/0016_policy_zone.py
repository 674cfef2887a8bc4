"""The time zone of a user, in their policy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    op.add_column("user_policies", sa.Column("timezone", words, server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("user_policies", "timezone")
