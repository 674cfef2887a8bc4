"""Decides what the memory does without the model's help, by the model's own record. Pure.

A model that never calls the memory tools it is offered would leave its users without a memory; for
one that calls them, extraction and recall would be paid for twice.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

# Turns with tools and without a call, after which a model is helped.
SILENT_TURNS = 8


class ModelRecord(msgspec.Struct, frozen=True):
    """What is known of a model: whether it saves, or whether it searches.

    offered: turns of named users in which it was offered the memory tools. called: those of them in
    which it called one for that. silent: the turns since.
    """

    offered: int = 0
    called: int = 0
    silent: int = 0

    def after(self, *, has_called: bool) -> ModelRecord:
        """Return the record after one more turn with tools."""
        if has_called:
            return ModelRecord(self.offered + 1, self.called + 1, 0)
        return ModelRecord(self.offered + 1, self.called, self.silent + 1)

    @property
    def is_silent(self) -> bool:
        """Whether it called nothing in its last turns, and there were enough of them."""
        return self.silent >= SILENT_TURNS


class Decision(msgspec.Struct, frozen=True):
    """Whether something is done in a turn.

    why: the rule that applied, for the explain record. open: not now, but the model's next turns
    may show that it is needed.
    """

    on: bool
    why: str
    open: bool = False


@lru_cache(16)
def follow_setting(setting: str) -> Decision:
    """Return what a setting says that leaves nothing to decide."""
    return Decision(setting == "always", f"the setting is {setting!r}")


def decide(setting: str, *, takes_tools: bool, record: ModelRecord, use: str = "call") -> Decision:
    """Decide about `memory.extract` or `memory.recall` for one turn.

    setting: `always`, `auto`, or anything else for no. takes_tools: whether the model can call the
    memory tools at all. use: what the record counts, for the explain record.
    """
    if setting != "auto":
        return follow_setting(setting)
    if not takes_tools:
        return Decision(True, "the model takes no tools")
    if record.is_silent:
        return Decision(
            True, f"no {use} by the model in its last {SILENT_TURNS} turns with the memory tools"
        )
    if not record.called:
        return Decision(
            False,
            f"the model was offered the memory tools in {record.offered} turns so far, of "
            f"{SILENT_TURNS} that show whether it uses them",
            open=True,
        )
    silence = "1 turn"
    if record.silent != 1:
        silence = f"{record.silent} turns"
    return Decision(False, f"the last {use} by the model was {silence} ago")
