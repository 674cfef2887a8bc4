"""What rules on tools do to a turn: they end it, ask for one more round, or withhold tools."""

from __future__ import annotations

from gateway.apis.base import ReplyMask
from gateway.apis.round_result import RoundResult
from gateway.chat.turn.round_sender import RoundSender
from memory import Session, list_names, without_head_line

REMINDER = "<tool_rules>Before you finish, call: {}.</tool_rules>"


class RuleExits:
    """The rules of one turn, as its rounds ask for them."""

    def __init__(self, session: Session, sender: RoundSender) -> None:
        if session.exits is None:
            raise ValueError("no rule of this request acts on its turn")
        self._session = session
        self._exits = session.exits
        self._sender = sender

    def begin_round(self, mask: ReplyMask) -> str | None:
        """Prepare the next round; return the turn's answer where a result is all of it."""
        sender = self._sender
        end = self._exits.find_end()
        if end is not None and end.answer == "result":
            return without_head_line(end.result)
        if end is not None:
            sender.withdraw_tools()
        sender.withheld = self._exits.list_withheld(self._tool_names)
        mask.hold_finish(holds=self._may_remind())
        return None

    def remind(self, result: RoundResult) -> str:
        """Return what the model is told that ends too early, and note that; "" for nothing."""
        ends = not (result.ours or result.theirs or result.cut) and result.complete
        if not ends or not self._may_remind() or not self._sender.has_room:
            return ""
        due = self._exits.list_due(self._tool_names)
        self._exits.note_reminder()
        return REMINDER.format(list_names(due))

    def list_unmet(self) -> list[str]:
        """Return the names that were to succeed, and have not."""
        return self._exits.list_unmet()

    def _may_remind(self) -> bool:
        if self._sender.is_last or self._sender.wants_json:
            return False
        return bool(self._exits.list_due(self._tool_names))

    @property
    def _tool_names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self._session.prompt.tools]
