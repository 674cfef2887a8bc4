"""How the messages of a request begin, by which a recalled text is found among them. Pure.

Of each message the hash of its beginning is kept, eight bytes, and goes from one request to the
next with what else is known of a history. So a history that is resent is not decoded again to see
what it says already.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from memory.conversation.messages import Json, collapse_whitespace
from memory.conversation.steps import end_step
from memory.conversation.thoughts import spoken_text

# Of an item, and of the text that it is taken from.
MAX_SHOWN_CHARACTERS = 1000
MAX_INSPECTED_CHARACTERS = 8000
# Messages of a history whose beginnings are kept.
MAX_KEPT_MESSAGES = 1 << 14


def shown_beginning(text: str) -> str:
    """Return the part of a text that is shown, and by which it is recognised."""
    return collapse_whitespace(text[:MAX_INSPECTED_CHARACTERS])[:MAX_SHOWN_CHARACTERS]


def _hash_beginnings(messages: Iterable[Json]) -> array[int]:
    hashes = array("q")
    for message in messages:
        hashes.append(hash(shown_beginning(spoken_text(message))))
        end_step()
    return hashes


class MessageBeginnings(msgspec.Struct, frozen=True, eq=False):
    """The hashes of the beginnings of messages, by their place.

    start: index of the first message whose hash is in `hashes`. stays: those of messages before it,
    by index.
    """

    start: int
    hashes: array[int]
    stays: Mapping[int, int] = {}

    @classmethod
    def read(
        cls, start: int, messages: Iterable[Json], stays: Mapping[int, Json]
    ) -> MessageBeginnings:
        """Return the beginnings of the messages from index `start` on, and of some before."""
        hashes_before = _hash_beginnings(stays.values())
        return cls(start, _hash_beginnings(messages), dict(zip(stays, hashes_before, strict=True)))

    def extend(self, new_messages: Sequence[Json]) -> MessageBeginnings | None:
        """Return them with what follows; None where that is too much to keep."""
        if len(self.hashes) + len(new_messages) > MAX_KEPT_MESSAGES:
            return None
        hashes = self.hashes + _hash_beginnings(new_messages)
        return MessageBeginnings(self.start, hashes, self.stays)

    def select(self, index: int, stays: Iterable[int]) -> SentBeginnings | None:
        """Return those of the messages from an index on, and of some before it.

        None if not all of them are known.
        """
        if index < self.start:
            return None
        hashes = set(self.hashes[index - self.start :])
        for place in stays:
            early_hash = (
                self.hashes[place - self.start] if place >= self.start else self.stays.get(place)
            )
            if early_hash is None:
                return None
            hashes.add(early_hash)
        return SentBeginnings(hashes)


class SentBeginnings:
    """The beginnings of messages: `in` tells whether one of them begins as a text is shown."""

    def __init__(self, hashes: set[int]) -> None:
        self._hashes = hashes

    @classmethod
    def read(cls, messages: Iterable[Json]) -> SentBeginnings:
        """Return the beginnings of these messages."""
        return cls(set(_hash_beginnings(messages)))

    def __contains__(self, beginning: object) -> bool:
        return hash(beginning) in self._hashes
