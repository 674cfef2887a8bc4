"""A user's files, their uploads, and what was read of them.

An upload is the bytes of one version of a file; what was read hangs on it. A file shows the upload
that was read last, so a new version takes the place of an old one in one statement.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, LargeBinary, Table, UniqueConstraint

from memory.stores.sql.engine.columns import Key, at, key, metadata, scope_column, short, text

# upload: the newest whole one. shown: the one whose passages are found, 0 for none. pages: NULL
# where the file has none.
files = Table(
    "files",
    metadata,
    key(),
    Column("public_id", short(64), nullable=False, unique=True),
    scope_column(),
    text("name"),
    Column("version", Integer, nullable=False),
    Column("upload", Key, nullable=False),
    Column("shown", Key, nullable=False, server_default="0"),
    text("type"),
    Column("bytes", Integer, nullable=False),
    Column("sha256", short(64), nullable=False),
    Column("status", short(16), nullable=False),
    text("reason"),
    Column("pages", Integer),
    *(
        Column(name, Integer, nullable=False, server_default="0")
        for name in ("lines", "characters", "passages")
    ),
    at(),
    at("updated_at"),
    UniqueConstraint("scope_id", "name"),
)

# state: receiving, whole, or replaced: then nothing but this row is left. reserved: bytes that
# count for the quota while it arrives. page_lines: the number of the first line of each page, as
# JSON.
file_versions = Table(
    "file_versions",
    metadata,
    key(),
    scope_column(),
    text("name"),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("state", short(16), nullable=False),
    Column("bytes", Integer, nullable=False, server_default="0"),
    Column("reserved", Integer, nullable=False, server_default="0"),
    Column("sha256", short(64), nullable=False, server_default=""),
    text("actor"),
    text("page_lines", "[]"),
    at(),
    Index("ix_file_versions_scope_id", "scope_id", "name"),
)

file_chunks = Table(
    "file_chunks",
    metadata,
    Column("upload", Key, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    scope_column(),
    Column("data", LargeBinary, nullable=False),
    Index("ix_file_chunks_scope_id", "scope_id"),
)

# position: among the passages of the upload. Lines count from 1, over all pages. named: the names
# of the definitions that begin in it.
file_passages = Table(
    "file_passages",
    metadata,
    key(),
    scope_column(),
    Column("upload", Key, nullable=False),
    Column("position", Integer, nullable=False),
    Column("page", Integer, nullable=False, server_default="0"),
    Column("line_start", Integer, nullable=False),
    Column("line_end", Integer, nullable=False),
    text("content"),
    text("named"),
    Index("ix_file_passages_scope_id", "scope_id"),
    Index("ix_file_passages_position", "upload", "position"),
    Index("ix_file_passages_line_end", "upload", "line_end"),
)

file_symbols = Table(
    "file_symbols",
    metadata,
    key(),
    scope_column(),
    Column("upload", Key, nullable=False),
    text("name"),
    text("folded"),
    Column("kind", short(32), nullable=False),
    Column("page", Integer, nullable=False, server_default="0"),
    Column("line_start", Integer, nullable=False),
    Column("line_end", Integer, nullable=False),
    text("content"),
    Index("ix_file_symbols_scope_id", "scope_id"),
    Index("ix_file_symbols_upload", "upload"),
)

# The places of a trigram, or of a pair of them, in the passages of an upload (see
# `memory.formats.documents.trigrams`).
file_grams = Table(
    "file_grams",
    metadata,
    Column("scope_id", Key, primary_key=True, autoincrement=False),
    Column("upload", Key, primary_key=True, autoincrement=False),
    Column("gram", Integer, primary_key=True, autoincrement=False),
    Column("places", LargeBinary, nullable=False),
)
