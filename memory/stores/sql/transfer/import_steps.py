"""The steps of an imported conversation, from its lines in any order."""

from __future__ import annotations

import re
from collections.abc import Generator

from memory.export_format import ConversationLine, MessageLine, NodeLine, moment
from memory.ids import clock
from memory.stores.sql.transfer.import_manifest import ConversationImport
from memory.stores.sql.transfer.transcripts import (
    ConversationHeader,
    ImportedMessage,
    TranscriptStep,
    steps_of,
)

OUR_MESSAGE = re.compile(r"msg_[0-9a-f]{32}")


def gather_steps(
    name: str, chat: ConversationImport
) -> Generator[int, None, tuple[ConversationHeader, list[TranscriptStep]]]:
    """Return a conversation's header and steps, from lines in any order; yield 0 after each."""
    conversation_line: ConversationLine | None = None
    by_name: dict[str, TranscriptStep] = {}
    plain_messages: list[ImportedMessage] = []
    for _, line in chat.lines:
        if isinstance(line, ConversationLine):
            conversation_line = line
        elif isinstance(line, NodeLine):
            by_name[line.id] = TranscriptStep(
                line.id, line.parent, line.first, line.state, time_of(line.created_at)
            )
        elif isinstance(line, MessageLine):
            messages = plain_messages if line.node is None else by_name[line.node].said
            messages.append(_message_of(line))
        yield 0
    loose_steps = steps_of(plain_messages)
    # Own names, which no node of the file has.
    for step in loose_steps:
        step.id = f"plain {chat.lines.first} {step.id}"
        step.parent = step.parent and f"plain {chat.lines.first} {step.parent}"
    steps = [*by_name.values(), *loose_steps]
    first_time = min((s.at for s in steps), default=0.0)
    last_time = max((s.at for s in steps), default=0.0)
    if conversation_line is None:
        heading = ConversationHeader(name, True, created_at=first_time, updated_at=last_time)
    else:
        heading = ConversationHeader(
            name,
            conversation_line.explicit,
            conversation_line.resent,
            conversation_line.forked_from,
            conversation_line.head,
            time_of(conversation_line.created_at, first_time),
            time_of(conversation_line.updated_at, last_time),
        )
    return heading, steps


def _message_of(line: MessageLine) -> ImportedMessage:
    ident = ""
    if line.id and OUR_MESSAGE.fullmatch(line.id):
        ident = line.id
    return ImportedMessage(line.message, time_of(line.created_at), line.source, line.aborted, ident)


def time_of(value: str | None, otherwise: float | None = None) -> float:
    """Return the Unix time of a text; now, or another one, where there is none."""
    if value is not None:
        return moment(value)
    if otherwise is None:
        return clock.now()
    return otherwise
