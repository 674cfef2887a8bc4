"""Where the limits of an entry of the kind `files` are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config.file_limits import FileToolLimits
from gateway.config.settings import Settings
from memory import FileLimits


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
