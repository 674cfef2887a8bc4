"""The client's request to which the request of an asked agent belongs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    op.add_column("usage", sa.Column("parent", words, nullable=True))


def downgrade() -> None:
    op.drop_column("usage", "parent")
