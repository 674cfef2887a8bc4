"""Messages of other agents and of apps, as the prompt shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from memory.core.blocks import escape

SPAN = "agent_messages"


class WaitingMessage(msgspec.Struct, frozen=True):
    """A message that waits for an agent. at: Unix time."""

    id: str
    sender: str
    text: str
    at: float


def choose_messages(
    waiting: Iterable[WaitingMessage], most: int, characters: int
) -> list[WaitingMessage]:
    """Return the messages that one turn delivers: the oldest that fit, and at least one.

    A single one that is longer is cut.
    """
    chosen: list[WaitingMessage] = []
    left = characters
    for message in waiting:
        if len(chosen) == most or (chosen and len(message.text) > left):
            break
        if len(message.text) > left:
            more = len(message.text) - left
            text = f"{message.text[:left]} [{more} characters left out]"
            message = msgspec.structs.replace(message, text=text)
        chosen.append(message)
        left -= min(left, len(message.text))
    return chosen


def message_element(message: WaitingMessage) -> str:
    """Return the element of one message."""
    at = datetime.fromtimestamp(message.at, UTC).strftime("%Y-%m-%dT%H:%MZ")
    sender = escape(message.sender).replace('"', "&quot;")
    return f'<message from="{sender}" at="{at}">{escape(message.text)}</message>'


def render_messages(messages: Sequence[WaitingMessage], tag: str) -> str:
    """Return the span of messages; "" for none."""
    if not messages:
        return ""
    lines = "\n".join(map(message_element, messages))
    return f'<{SPAN} tag="{tag}">\n{lines}\n</{SPAN}>'


def list_shown(messages: Iterable[WaitingMessage], note: str) -> list[str]:
    """Return the ids of the messages that a note shows. Of equal ones, as many as it has."""
    shown: list[str] = []
    begins: dict[str, int] = {}
    for message in messages:
        element = message_element(message)
        at = note.find(element, begins.get(element, 0))
        if at >= 0:
            shown.append(message.id)
            begins[element] = at + len(element)
    return shown
