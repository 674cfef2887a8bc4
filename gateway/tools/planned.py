"""Settings that are accepted and have no effect in this version: they are told at the start."""

from __future__ import annotations

from gateway.config.settings import Settings


def list_planned(settings: Settings) -> list[str]:
    """Return a line for each setting that is set and has no effect yet, with its path."""
    return [
        f"tools.{name}.stand_in: searches of vendors stay theirs"
        for name, entry in settings.tools.items()
        if getattr(entry, "stand_in", False)
    ]
