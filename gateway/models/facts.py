"""What is known of models, from `models.toml`: context windows, prices, tokenizers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any


class ModelFacts:
    """The shipped facts: model name or prefix to context_window, tokenizer, supports_tools."""

    def __init__(self, facts: Mapping[str, dict[str, Any]]) -> None:
        self._facts = facts

    @classmethod
    def load(cls, path: Path) -> ModelFacts:
        """Read `models.toml`; without the file nothing is known."""
        return cls(_read(path, path.stat().st_mtime_ns) if path.exists() else {})

    def of(self, model: str) -> dict[str, Any]:
        """Return what is known of an upstream model, by its exact name or the longest prefix.

        A vendor prefix is ignored.
        """
        bare = model.rsplit("/", 1)[-1].lower()
        prefixes = [p for p in self._facts if bare.startswith(p)]
        return self._facts.get(model) or (self._facts[max(prefixes, key=len)] if prefixes else {})


@lru_cache(1)
def _read(path: Path, changed_at: int) -> dict[str, dict[str, Any]]:
    """Read a file. changed_at: its time of change, so that a changed file is read again."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def facts_file() -> Path:
    """Return the path of `models.toml`, as installed or in a checkout."""
    installed_path = Path(__file__).parents[1] / "defaults" / "models.toml"
    if installed_path.exists():
        return installed_path
    return Path(__file__).parents[2] / "config" / "models.toml"
