"""Rows of the trigram index of files: which passages may hold a text."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from memory.formats.documents.trigrams import (
    HAS_PAIRS,
    common_places,
    decode_places,
    gram_numbers,
    list_places,
    pair_numbers,
)
from memory.stores.sql.engine.file_tables import file_grams
from memory.stores.sql.engine.statements import add_rows

g = file_grams.c
# Trigrams of a pattern, and pairs of them; more of them leave out little.
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
    trigrams = sorted({number for text in texts for number in gram_numbers(text)})[:MAX_GRAMS]
    bitmaps = {
        upload: common_places(places.values())
        for upload, places in _read_places(conn, scope_id, uploads, trigrams).items()
        if len(places) == len(trigrams)
    }
    pairs = sorted({number for text in texts for number in pair_numbers(text)})[:MAX_GRAMS]
    # Of rare words, fewer passages are left than there are rows of pairs.
    if pairs and sum(map(int.bit_count, bitmaps.values())) > len(bitmaps) * len(pairs):
        rows_of_pairs = _read_places(conn, scope_id, list(bitmaps), [HAS_PAIRS, *pairs])
        for upload, places in rows_of_pairs.items():
            # An earlier version's index has no pairs, which says nothing.
            if HAS_PAIRS in places:
                bitmaps[upload] &= common_places(places.get(number, 0) for number in pairs)
    return {upload: list_places(bitmap) for upload, bitmap in bitmaps.items()}


def _read_places(
    conn: Connection, scope_id: int, uploads: Sequence[int], numbers: Sequence[int]
) -> dict[int, dict[int, int]]:
    """Return by upload the places of those numbers that it has."""
    query = select(g.upload, g.gram, g.places).where(
        g.scope_id == scope_id, g.upload.in_(uploads), g.gram.in_(numbers)
    )
    places_of_upload: dict[int, dict[int, int]] = {}
    for upload, number, places in conn.execute(query):
        places_of_upload.setdefault(upload, {})[number] = decode_places(places)
    return places_of_upload


def remove_next(conn: Connection, scope_id: int, upload: int, limit: int) -> int:
    """Remove some rows of an upload; return how many."""
    is_uploads = (g.scope_id == scope_id) & (g.upload == upload)
    grams = list(conn.execute(select(g.gram).where(is_uploads).limit(limit)).scalars())
    if grams:
        conn.execute(delete(file_grams).where(is_uploads, g.gram.in_(grams)))
    return len(grams)
