"""Why a file cannot be read, in words for people."""

from __future__ import annotations


class Unreadable(Exception):
    """The file cannot be read; to try again changes nothing."""
