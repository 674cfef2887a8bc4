"""A chat of another program, with its branches, as lines of a conversation. Pure.

Other programs link each message to the one before it. Here a conversation consists of steps, each a
request and its answer; the steps of two branches name the same parent. Every message is written
once, even if the links form a circle, lead nowhere or never end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory.export_format import ConversationLine, ExportLine, MessageLine, NodeLine
from memory.formats.records import check_text, iso_time, own_id


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """One message. role: "user" or "assistant", "" for one to skip.

    at: Unix time, None if unknown.
    """

    id: str
    parent: str | None = None
    role: str = ""
    text: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """A chat. name: of the conversation. current: the last message of the branch that is shown.

    created, updated: Unix times.
    """

    name: str
    messages: Sequence[ForeignMessage]
    current: str | None = None
    created: float | None = None
    updated: float | None = None


@dataclass(slots=True)
class _Waiting:
    """A message without an answer so far, and the one before it.

    step: the answered step before both. first: the step that contains it, once there is one.
    """

    message: ForeignMessage
    before: _Waiting | None
    step: str | None
    first: str | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a message. step: the last answered one. waiting: unanswered ones since."""

    step: str | None = None
    waiting: _Waiting | None = None


def conversation_lines(thread: Thread) -> list[ExportLine]:
    """Return the lines of a chat; none if it has no text.

    Args:
        thread: its messages in any order. The current branch comes first, then the others.

    Raises:
        BrokenItem: a message is longer than allowed.
    """
    by_id = {m.id: m for m in thread.messages}
    steps = _Steps(thread)
    for message in _in_order(by_id, thread.current):
        steps.add(message)
    steps.finish()
    if not steps.lines:
        return []
    head = steps.places.get(thread.current or "", _Place()).step
    conversation_line = ConversationLine(
        id=thread.name,
        head=head,
        created_at=iso_time(thread.created or steps.oldest),
        updated_at=iso_time(thread.updated or steps.newest),
    )
    return [conversation_line, *steps.lines]


def _in_order(by_id: Mapping[str, ForeignMessage], current_id: str | None) -> list[ForeignMessage]:
    """Return each message once, after its parent: the current branch, then the others."""
    ordered: list[ForeignMessage] = []
    seen_ids: set[str] = set()
    for ident in (current_id, *by_id):
        climbed = []
        message_id = ident
        while message_id is not None and message_id in by_id and message_id not in seen_ids:
            seen_ids.add(message_id)
            climbed.append(by_id[message_id])
            message_id = by_id[message_id].parent
        ordered += reversed(climbed)
    return ordered


@dataclass(slots=True)
class _Steps:
    """Builds the steps of a chat, message by message."""

    thread: Thread
    lines: list[ExportLine] = field(default_factory=list)
    places: dict[str, _Place] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)
    oldest: float | None = None
    newest: float | None = None
    count: int = 0

    def add(self, message: ForeignMessage) -> None:
        place = self.places.get(message.parent or "", _Place())
        if not message.role:
            self.places[message.id] = place
        elif message.role == "assistant":
            self.places[message.id] = _Place(self._answer(place, message))
        else:
            waiting_message = _Waiting(message, place.waiting, place.step)
            self.waiting.append(waiting_message)
            self.places[message.id] = _Place(place.step, waiting_message)

    def finish(self) -> None:
        """Write the unanswered messages, the ends of branches first."""
        for waiting_message in reversed(self.waiting):
            if waiting_message.first is None:
                self._write(
                    _take_waiting(waiting_message, name := self._name()),
                    name,
                    "open",
                    waiting_message.step,
                )

    def _answer(self, place: _Place, answer: ForeignMessage) -> str:
        """Write a step; return its name."""
        name = self._name()
        waiting_message = place.waiting
        # Another answer to the same request.
        if waiting_message is not None and waiting_message.first is not None:
            self._write([answer], name, "done", waiting_message.step, waiting_message.first)
        else:
            self._write([*_take_waiting(waiting_message, name), answer], name, "done", place.step)
        return name

    def _name(self) -> str:
        self.count += 1
        return str(self.count)

    def _write(
        self,
        messages: Sequence[ForeignMessage],
        name: str,
        state: str,
        parent: str | None,
        first_id: str | None = None,
    ) -> None:
        """Write a step and its messages. Raises BrokenItem."""
        chat = self.thread.name
        times = [m.at or self.thread.created for m in messages]
        self.lines.append(
            NodeLine(
                conversation=chat,
                id=name,
                parent=parent,
                first=first_id,
                state=state,
                created_at=iso_time(times[-1]),
            )
        )
        for message, written_at in zip(messages, times, strict=True):
            if written_at is not None:
                self.oldest = min(written_at, self.oldest or written_at)
                self.newest = max(written_at, self.newest or written_at)
            content = {"role": message.role, "content": check_text(message.text)}
            self.lines.append(
                MessageLine(
                    conversation=chat,
                    message=content,
                    node=name,
                    id=own_id("msg", message.id, chat),
                    created_at=iso_time(written_at),
                )
            )


def _take_waiting(waiting_message: _Waiting | None, step: str) -> list[ForeignMessage]:
    """Return the messages up to this one that belong to no step yet; assign them to this one."""
    taken_messages = []
    while waiting_message is not None and waiting_message.first is None:
        waiting_message.first = step
        taken_messages.append(waiting_message.message)
        waiting_message = waiting_message.before
    return taken_messages[::-1]
