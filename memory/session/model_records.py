"""The records of all models that this process has used, saved along with turns."""

from __future__ import annotations

import time
from collections.abc import Mapping

from memory.cache import Cache
from memory.core.autonomy import ModelRecord

BYTES, EACH = 1 << 19, 500  # of the cache: some 1,000 models
MAX_NAME_CHARACTERS = 300
SAVE_SECONDS = 1.0  # between two writes of all that is new
MAX_UNSAVED = 1000  # records that wait for a store that does not answer


class ModelRecords:
    """How each model uses the memory tools, named as upstream."""

    def __init__(self) -> None:
        self.known: Cache[str, ModelRecord] = Cache(BYTES, EACH, lambda name, _: 4 * len(name))
        self._unsaved: dict[str, ModelRecord] = {}
        self._saved_at = 0.0

    def load(self, found: Mapping[str, ModelRecord]) -> None:
        """Take over what the store knows. found: the most recent first."""
        for model in reversed(list(found)):
            self.known.put(model, found[model])

    def of(self, model: str) -> ModelRecord:
        """Return the record of a model; empty for one that was never used."""
        return self.known.get(model[:MAX_NAME_CHARACTERS]) or ModelRecord()

    def count(self, model: str, *, called: bool) -> None:
        """Count one turn in which the model was offered the tools."""
        name = model[:MAX_NAME_CHARACTERS]
        found = self.of(name).after(called=called)
        self.known.put(name, found)
        if len(self._unsaved) < MAX_UNSAVED:
            self._unsaved[name] = found

    def take_unsaved(self) -> dict[str, ModelRecord]:
        """Return the records to write now; mostly none, since they are written in batches.

        One whose write fails is written when its model is used again.
        """
        now = time.monotonic()
        if not self._unsaved or now - self._saved_at < SAVE_SECONDS:
            return {}
        found, self._unsaved, self._saved_at = self._unsaved, {}, now
        return found
