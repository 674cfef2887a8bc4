"""What an entry of the kind `files` takes, and where its limits are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from gateway.config.section import Section
from gateway.config.settings import Settings
from memory import FileLimits


class FileToolLimits(Section):
    """What a user may keep, and what is read of a file. per_user: files. quota_mib: of all."""

    max_mib: int = Field(50, ge=1, le=1024)
    per_user: int = Field(200, ge=1, le=10_000)
    quota_mib: int = Field(1024, ge=1)
    pages: int = Field(10_000, ge=1, le=100_000)
    characters: int = Field(20_000_000, ge=1, le=200_000_000)


def find_file_limits(settings: Settings) -> FileToolLimits | None:
    """Return the limits of the entry that keeps files, None where there is none."""
    entries: Mapping[str, Any] = getattr(settings, "tools", {})
    for entry in entries.values():
        if entry.kind == "files" and entry.enabled:
            names = FileToolLimits.model_fields
            return FileToolLimits(**{name: getattr(entry, name) for name in names})
    return None


def kept_files(settings: Settings) -> FileLimits:
    """Return what a user may keep; the defaults where no entry keeps files."""
    limits = find_file_limits(settings) or FileToolLimits()
    return FileLimits(limits.max_mib, limits.per_user, limits.quota_mib)
