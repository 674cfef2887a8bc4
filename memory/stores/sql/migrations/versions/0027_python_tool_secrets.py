"""Secrets of Python tools that were made by API: an earlier build stored them, none uses them."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

COLUMNS = {"python_tools": ("definition",), "python_tool_versions": ("before", "after")}
MEMBER = "secrets"


def upgrade() -> None:
    for table_name, columns in COLUMNS.items():
        for column_name in columns:
            _scrub(table_name, column_name)


def downgrade() -> None:
    """Nothing: what was taken out is not known any more."""


def _scrub(table_name: str, column_name: str) -> None:
    """Take the member out of each definition of a column, one row at a time."""
    conn = op.get_bind()
    id_column: sa.ColumnClause[Any] = sa.column("id")
    text_column: sa.ColumnClause[Any] = sa.column(column_name)
    rows = sa.table(table_name, id_column, text_column)
    holding = sa.select(id_column).where(text_column.like(f'%"{MEMBER}"%'))
    for ident in conn.execute(holding).scalars().all():
        is_row = id_column == ident
        definition = json.loads(conn.execute(sa.select(text_column).where(is_row)).scalar_one())
        if definition.pop(MEMBER, None) is not None:
            written = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
            conn.execute(sa.update(rows).where(is_row).values({column_name: written}))
