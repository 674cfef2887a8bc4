"""Skills with their versions and uses, proposals of reflections, and when each scope had one."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None


def _types() -> tuple[sa.types.TypeEngine[Any], sa.types.TypeEngine[Any]]:
    """Return the types of texts and of row keys."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    words = sa.Text() if is_sqlite else sa.Text(collation="C")
    return words, sa.Integer() if is_sqlite else sa.BigInteger()


def _short(length: int) -> sa.types.TypeEngine[Any]:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    return sa.String(length) if is_sqlite else sa.String(length, collation="C")


def _text(name: str, default: str = "") -> sa.Column[Any]:
    return sa.Column(name, _types()[0], server_default=default, nullable=False)


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer(), server_default="0", nullable=False)


def _scope() -> sa.Column[Any]:
    """Return the column of a scope; a server does not check that it is there."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    references = [sa.ForeignKey("scopes.id")] if is_sqlite else []
    return sa.Column("scope_id", _types()[1], *references, nullable=False)


def upgrade() -> None:
    _create_skills()
    _create_skill_history()
    _create_reflections()


def _create_skills() -> None:
    op.create_table(
        "skills",
        sa.Column("id", _short(64), nullable=False),
        _scope(),
        _text("name"),
        _text("description"),
        _text("text"),
        sa.Column("status", _short(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("steps", _short(64), server_default="", nullable=False),
        *(_count(name) for name in ("attempts", "uses", "successes", "failures")),
        sa.Column("recent", _short(16), server_default="", nullable=False),
        _text("made_from", "[]"),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_skills"),
    )
    op.create_index("ix_skills_scope_id", "skills", ["scope_id"])


def _create_skill_history() -> None:
    words, key = _types()
    op.create_table(
        "skill_versions",
        sa.Column("id", key, autoincrement=False, nullable=False),
        _scope(),
        sa.Column("skill", _short(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("before", words),
        sa.Column("after", words),
        _text("description"),
        sa.Column("status", _short(16), server_default="", nullable=False),
        _text("actor"),
        sa.Column("request_id", words),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_skill_versions"),
        sa.UniqueConstraint("skill", "version", name="uq_skill_versions_skill_version"),
    )
    op.create_index("ix_skill_versions_scope_id", "skill_versions", ["scope_id"])
    op.create_table(
        "skill_uses",
        sa.Column("id", key, autoincrement=False, nullable=False),
        _scope(),
        sa.Column("skill", _short(64), nullable=False),
        _text("request_id"),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_skill_uses"),
    )
    op.create_index("ix_skill_uses_scope_id", "skill_uses", ["scope_id"])


def _create_reflections() -> None:
    words, key = _types()
    op.create_table(
        "reflections",
        sa.Column("id", _short(64), nullable=False),
        _scope(),
        sa.Column("status", _short(16), nullable=False),
        _text("changes", "[]"),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("decided_at", sa.Float()),
        sa.Column("decided_by", words),
        sa.PrimaryKeyConstraint("id", name="pk_reflections"),
    )
    op.create_index("ix_reflections_scope_id", "reflections", ["scope_id"])
    op.create_table(
        "reflection_runs",
        sa.Column("scope_id", key, autoincrement=False, nullable=False),
        sa.Column("ran_at", sa.Float(), server_default="0", nullable=False),
        sa.Column("settled", _short(64), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("scope_id", name="pk_reflection_runs"),
    )


def downgrade() -> None:
    for table in ("reflection_runs", "reflections", "skill_uses", "skill_versions", "skills"):
        op.drop_table(table)
