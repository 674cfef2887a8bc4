"""The messages that one turn delivers to its agent: placed in its prompt, and known by its note."""

from __future__ import annotations

import msgspec

from memory.context.epoch import PlacementPlan, end_of_words
from memory.conversation.matching import RequestHistory
from memory.core.agent_messages import WaitingMessage, list_shown, render_messages


class MessageDelivery(msgspec.Struct, frozen=True):
    """Messages that one turn delivers. tag: of the scope."""

    messages: list[WaitingMessage]
    tag: str

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self.messages]

    def place(self, planned: PlacementPlan, history: RequestHistory) -> PlacementPlan:
        """Put the messages behind the note of the newest user message."""
        if not planned.epoch.core:
            return planned
        span = render_messages(self.messages, self.tag)
        at = end_of_words(history, len(history.messages))
        if planned.note:
            note = f"{planned.note}\n\n{span}"
        else:
            note = span
        return msgspec.structs.replace(planned, notes={**planned.notes, at: note}, note=note)

    def list_shown(self, note: str | None) -> list[str]:
        """Return the ids of the messages that the recorded note of a turn shows."""
        return list_shown(self.messages, note or "")
