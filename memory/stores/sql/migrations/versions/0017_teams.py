"""Teams, projects, and the layers that a policy leaves to a user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
TABLES = ("project_members", "projects", "team_members", "teams")


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    _make_teams(words)
    _make_projects(words)
    # The unique key is as it was: the agent's name holds the project too (see `Scope`), so that a
    # worker of the version before never takes one memory for another.
    op.add_column("scopes", sa.Column("project", words, server_default="", nullable=False))
    op.add_column("user_policies", sa.Column("layers", words))
    layered: sa.Column[bool] = sa.Column(
        "layered", sa.Boolean(), server_default="0", nullable=False
    )
    op.add_column("shared_changes", layered)


def _make_teams(words: sa.Text) -> None:
    name = sa.String(64, collation=words.collation)
    op.create_table(
        "teams",
        sa.Column("tenant", words, primary_key=True),
        sa.Column("name", name, primary_key=True),
        sa.Column("description", words, server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "team_members",
        sa.Column("tenant", words, primary_key=True),
        sa.Column("team", name, primary_key=True),
        sa.Column("user", words, primary_key=True),
        sa.Column("write", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("joined_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_team_members_user", "team_members", ["tenant", "user"])


def _make_projects(words: sa.Text) -> None:
    op.create_table(
        "projects",
        sa.Column("tenant", words, primary_key=True),
        sa.Column("name", words, primary_key=True),
        sa.Column("description", words, server_default="", nullable=False),
        sa.Column("everyone", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("write", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "project_members",
        sa.Column("tenant", words, primary_key=True),
        sa.Column("project", words, primary_key=True),
        sa.Column("kind", sa.String(16, collation=words.collation), primary_key=True),
        sa.Column("name", words, primary_key=True),
    )
    op.create_index("ix_project_members_name", "project_members", ["tenant", "kind", "name"])


def downgrade() -> None:
    op.drop_column("shared_changes", "layered")
    op.drop_column("user_policies", "layers")
    op.drop_column("scopes", "project")
    for table in TABLES:
        op.drop_table(table)
