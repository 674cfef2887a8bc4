"""The records of all models that this process has used, saved along with turns."""

from __future__ import annotations

import time
from collections.abc import Mapping

from memory.cache import Cache
from memory.core.autonomy import ModelRecord
from memory.jobs.unusable_answers import UnusableAnswers

# Of the cache: some 1,000 models.
BYTES, EACH = 1 << 19, 500
MAX_NAME_CHARACTERS = 280
# Between two writes of all that is new.
SAVE_SECONDS = 1.0
# Records that wait for a store that does not answer.
MAX_UNSAVED = 1000

# What a model does with the tools. One that searches and never saves leaves a memory empty, and one
# that saves and never searches does not use it, so each has a record of its own.
SAVES = "saves"
SEARCHES = "searches"


class ModelRecords:
    """How each model uses the memory tools, named as upstream, for each use apart.

    unusable: of its answers to extraction, by the name that clients ask for.
    """

    def __init__(self) -> None:
        self.unusable = UnusableAnswers()
        self.records: Cache[str, ModelRecord] = Cache(BYTES, EACH, lambda name, _: 4 * len(name))
        self._unsaved: dict[str, ModelRecord] = {}
        self._saved_at = 0.0

    def load(self, records: Mapping[str, ModelRecord]) -> None:
        """Take over what the store knows. records: the most recent first."""
        for model in reversed(list(records)):
            self.records.put(model, records[model])

    def of(self, model: str, use: str) -> ModelRecord:
        """Return the record of a model for one use; empty for one that was never used.

        What an earlier version counted, of both uses together, stands for each at first.
        """
        name = model[:MAX_NAME_CHARACTERS]
        return self.records.get(f"{name} {use}") or self.records.get(name) or ModelRecord()

    def count(self, model: str, *, saved: bool, searched: bool) -> None:
        """Count one turn in which the model was offered the tools."""
        for use, has_called in ((SAVES, saved), (SEARCHES, searched)):
            name = f"{model[:MAX_NAME_CHARACTERS]} {use}"
            record = (self.records.get(name) or self.of(model, use)).after(has_called=has_called)
            self.records.put(name, record)
            if len(self._unsaved) < MAX_UNSAVED:
                self._unsaved[name] = record

    def take_unsaved(self) -> dict[str, ModelRecord]:
        """Return the records to write now; mostly none, since they are written in batches.

        One whose write fails is written when its model is used again.
        """
        now = time.monotonic()
        if not self._unsaved or now - self._saved_at < SAVE_SECONDS:
            return {}
        records = self._unsaved
        self._unsaved = {}
        self._saved_at = now
        return records
