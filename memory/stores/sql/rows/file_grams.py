"""Rows of the trigram index of files: which passages may hold a text."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from memory.formats.documents.trigrams import (
    common_places,
    decode_places,
    gram_numbers,
    list_places,
)
from memory.stores.sql.engine.file_tables import file_grams
from memory.stores.sql.engine.statements import add_rows

g = file_grams.c
# Trigrams of a pattern; more of them leave out little.
MAX_GRAMS = 24


def add_grams(
    conn: Connection, scope_id: int, upload: int, grams: Sequence[tuple[int, bytes]]
) -> None:
    """Store the places of trigrams."""
    rows = [
        {"scope_id": scope_id, "upload": upload, "gram": gram, "places": places}
        for gram, places in grams
    ]
    if rows:
        add_rows(conn, file_grams, rows)


def find_places(
    conn: Connection, scope_id: int, uploads: Sequence[int], texts: Sequence[str]
) -> dict[int, list[int]]:
    """Return by upload the places of passages that may hold all texts.

    At least one of them has three characters or more.
    """
    numbers = {number for text in texts for number in gram_numbers(text)}
    wanted = sorted(numbers)[:MAX_GRAMS]
    query = select(g.upload, g.places).where(
        g.scope_id == scope_id, g.upload.in_(uploads), g.gram.in_(wanted)
    )
    bitmaps: dict[int, list[int]] = {}
    for upload, places in conn.execute(query):
        bitmaps.setdefault(upload, []).append(decode_places(places))
    return {
        upload: list_places(common_places(upload_bitmaps))
        for upload, upload_bitmaps in bitmaps.items()
        if len(upload_bitmaps) == len(wanted)
    }


def remove_next(conn: Connection, scope_id: int, upload: int, limit: int) -> int:
    """Remove some rows of an upload; return how many."""
    is_uploads = (g.scope_id == scope_id) & (g.upload == upload)
    grams = list(conn.execute(select(g.gram).where(is_uploads).limit(limit)).scalars())
    if grams:
        conn.execute(delete(file_grams).where(is_uploads, g.gram.in_(grams)))
    return len(grams)
