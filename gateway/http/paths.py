"""Segments of a path, decoded. Pure."""

from __future__ import annotations

from urllib.parse import unquote


def segment(text: str) -> str:
    """Return a path segment with the encodings that `shaped` left in it decoded."""
    return unquote(text)
