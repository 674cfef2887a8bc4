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
    waiting_messages: Iterable[WaitingMessage], max_messages: int, characters: int
) -> list[WaitingMessage]:
    """Return the messages that one turn delivers: the oldest that fit, and at least one.

    A single one that is longer is cut.
    """
    deliveries: list[WaitingMessage] = []
    free_characters = characters
    for message in waiting_messages:
        if len(deliveries) == max_messages or (deliveries and len(message.text) > free_characters):
            break
        if len(message.text) > free_characters:
            excess = len(message.text) - free_characters
            text = f"{message.text[:free_characters]} [{excess} characters left out]"
            message = msgspec.structs.replace(message, text=text)
        deliveries.append(message)
        free_characters -= min(free_characters, len(message.text))
    return deliveries


def message_element(message: WaitingMessage) -> str:
    """Return the element of one message."""
    sent_time = datetime.fromtimestamp(message.at, UTC).strftime("%Y-%m-%dT%H:%MZ")
    sender = escape(message.sender).replace('"', "&quot;")
    return f'<message from="{sender}" at="{sent_time}">{escape(message.text)}</message>'


def render_messages(messages: Sequence[WaitingMessage], tag: str) -> str:
    """Return the span of messages; "" for none."""
    if not messages:
        return ""
    lines = "\n".join(map(message_element, messages))
    return f'<{SPAN} tag="{tag}">\n{lines}\n</{SPAN}>'


def list_shown(messages: Iterable[WaitingMessage], note: str) -> list[str]:
    """Return the ids of the messages that a note shows. Of equal ones, as many as it has."""
    shown_ids: list[str] = []
    begins: dict[str, int] = {}
    for message in messages:
        element = message_element(message)
        place = note.find(element, begins.get(element, 0))
        if place >= 0:
            shown_ids.append(message.id)
            begins[element] = place + len(element)
    return shown_ids
