"""How often each model gave an answer in a row that extraction cannot use. Pure."""

from __future__ import annotations

from memory.stores.sql.rows.jobs import ANSWERS

# Models that are counted.
MAX_MODELS = 1000
# Times as many turns are read together by a model whose last answers were all unusable: it would
# be asked for nothing, and what it was asked is kept until one answers as it should.
SPACING = 2


class UnusableAnswers:
    """Counts the unusable answers that each model gave in a row. counts: by model, without 0."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, model: str) -> int:
        """Count one more; return how many there were before it."""
        previous_count = self.counts.get(model, 0)
        if previous_count or len(self.counts) < MAX_MODELS:
            self.counts[model] = previous_count + 1
        return previous_count

    def forget(self, model: str) -> None:
        """Note that a model answered as it was asked to."""
        self.counts.pop(model, None)

    def turns_between(self, model: str, every_turns: int) -> int:
        """Return how many turns are read together. every_turns: by a model that answers."""
        if self.counts.get(model, 0) < ANSWERS:
            return every_turns
        return SPACING * every_turns
