"""Where the limits of an entry of the kind `files` are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config.file_limits import FileToolLimits
from gateway.config.settings import Settings


def find_file_limits(settings: Settings) -> FileToolLimits | None:
    """Return the limits of the entry that keeps files, None where there is none."""
    entries: Mapping[str, Any] = getattr(settings, "tools", {})
    for entry in entries.values():
        if entry.kind == "files" and entry.enabled:
            names = FileToolLimits.model_fields
            return FileToolLimits(**{name: getattr(entry, name) for name in names})
    return None
