"""A user's files, their uploads, and what was read of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

INDEX = "file_passages_fts"
TERMS = "file_passage_terms"
FTS_SQL = (
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5(scope, body, speaker, prev, day, "
    "tokenize='porter unicode61')"
)


class _Columns:
    """The kinds of columns of this database."""

    def __init__(self) -> None:
        self.is_sqlite = op.get_bind().dialect.name == "sqlite"
        self.words = sa.Text() if self.is_sqlite else sa.Text(collation="C")
        self.key = sa.Integer() if self.is_sqlite else sa.BigInteger()

    def short(self, length: int) -> sa.String:
        return sa.String(length) if self.is_sqlite else sa.String(length, collation="C")

    def text(self, name: str, default: str = "") -> sa.Column[str]:
        return sa.Column(name, self.words, server_default=default, nullable=False)

    def id(self) -> sa.Column[int]:
        return sa.Column("id", self.key, primary_key=True, autoincrement=False)

    def key_column(self, name: str) -> sa.Column[int]:
        return sa.Column(name, self.key, nullable=False)

    def part(self, name: str, kind: sa.types.TypeEngine[int] | None = None) -> sa.Column[int]:
        return sa.Column(name, kind or self.key, primary_key=True, autoincrement=False)

    def scope(self) -> sa.Column[int]:
        foreign = (sa.ForeignKey("scopes.id"),) if self.is_sqlite else ()
        return sa.Column("scope_id", self.key, *foreign, nullable=False)


def upgrade() -> None:
    columns = _Columns()
    _make_files(columns)
    _make_versions(columns)
    _make_passages(columns)
    _make_symbols(columns)
    op.create_table(
        "file_chunks",
        columns.part("upload"),
        columns.part("position", sa.Integer()),
        columns.scope(),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )
    op.create_index("ix_file_chunks_scope_id", "file_chunks", ["scope_id"])
    op.create_table(
        "file_grams",
        columns.part("scope_id"),
        columns.part("upload"),
        columns.part("gram", sa.Integer()),
        sa.Column("places", sa.LargeBinary(), nullable=False),
    )
    if columns.is_sqlite:
        op.execute(FTS_SQL)
    else:
        _make_terms()


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), server_default="0", nullable=False)


def _lines() -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer(), nullable=False) for name in ("line_start", "line_end")]


def _make_files(columns: _Columns) -> None:
    op.create_table(
        "files",
        columns.id(),
        sa.Column("public_id", columns.short(64), nullable=False),
        columns.scope(),
        columns.text("name"),
        sa.Column("version", sa.Integer(), nullable=False),
        columns.key_column("upload"),
        sa.Column("shown", columns.key, server_default="0", nullable=False),
        columns.text("type"),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("sha256", columns.short(64), nullable=False),
        sa.Column("status", columns.short(16), nullable=False),
        columns.text("reason"),
        sa.Column("pages", sa.Integer()),
        *(_count(name) for name in ("lines", "characters", "passages")),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.UniqueConstraint("scope_id", "name", name="uq_files_scope_id_name"),
        sa.UniqueConstraint("public_id", name="uq_files_public_id"),
    )


def _make_versions(columns: _Columns) -> None:
    op.create_table(
        "file_versions",
        columns.id(),
        columns.scope(),
        columns.text("name"),
        _count("version"),
        sa.Column("state", columns.short(16), nullable=False),
        _count("bytes"),
        _count("reserved"),
        sa.Column("sha256", columns.short(64), server_default="", nullable=False),
        columns.text("actor"),
        columns.text("page_lines", "[]"),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_file_versions_scope_id", "file_versions", ["scope_id", "name"])


def _make_passages(columns: _Columns) -> None:
    op.create_table(
        "file_passages",
        columns.id(),
        columns.scope(),
        columns.key_column("upload"),
        sa.Column("position", sa.Integer(), nullable=False),
        _count("page"),
        *_lines(),
        columns.text("content"),
        columns.text("named"),
    )
    op.create_index("ix_file_passages_scope_id", "file_passages", ["scope_id"])
    op.create_index("ix_file_passages_position", "file_passages", ["upload", "position"])
    op.create_index("ix_file_passages_line_end", "file_passages", ["upload", "line_end"])


def _make_symbols(columns: _Columns) -> None:
    op.create_table(
        "file_symbols",
        columns.id(),
        columns.scope(),
        columns.key_column("upload"),
        columns.text("name"),
        columns.text("folded"),
        sa.Column("kind", columns.short(32), nullable=False),
        _count("page"),
        *_lines(),
        columns.text("content"),
    )
    op.create_index("ix_file_symbols_scope_id", "file_symbols", ["scope_id"])
    op.create_index("ix_file_symbols_upload", "file_symbols", ["upload"])


def _make_terms() -> None:
    op.create_table(
        TERMS,
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("scope_id", sa.BigInteger(), nullable=False),
        sa.Column("terms", sa.ARRAY(sa.BigInteger()), nullable=False),
    )
    op.create_index(
        f"ix_{TERMS}_terms",
        TERMS,
        ["terms"],
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
    )


def downgrade() -> None:
    op.drop_table(INDEX if _Columns().is_sqlite else TERMS)
    names = ("grams", "symbols", "passages", "chunks", "versions")
    for table in (*(f"file_{name}" for name in names), "files"):
        op.drop_table(table)
