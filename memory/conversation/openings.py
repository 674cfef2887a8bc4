"""Tells a task, which is no talk, by the requests before it. Pure.

Programs send templated prompts one by one ("Classify the sentiment of this review: ..."), often
with a `user` for abuse tracking. Memory would put earlier prompts beside each new one. An *opening*
is a request that continues nothing. It is a task if its user message begins or ends with the same
40 columns or more as three of the user's last eight openings that were never continued. Whoever
opens a new chat for each question says each time something else.

Of an opening only keyed digests are stored.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from memory.conversation.harness import SHIPPED_HARNESS, Harness
from memory.conversation.matching import RequestHistory
from memory.conversation.messages import keyed_hash, text_of

# Of a message's beginning or end that tell a template; a Chinese character takes two.
COLUMNS = 40
COMPARED_OPENINGS = 8
# So many of those compared that are like another one make it a task.
TASK_OPENINGS = 3
# Bytes of each part of an opening.
DIGEST_BYTES = 8
# Messages among which the user's first one is looked for.
FIRST_MESSAGES = 8
# Characters of each end of a message, in which white space may take any room.
INSPECTED_CHARACTERS = 4096
# Fewer digits make no identifier.
IDENTIFIER_DIGITS = 3
# The edge of a message that is too short to have one.
NO_EDGE = b"\x00" * DIGEST_BYTES
_DIGITS = re.compile(r"\d+")
_IDENTIFIERS = re.compile(r"[0-9a-z_-]{8,}")


class Opening(NamedTuple):
    """Digests of a request that continues nothing.

    begin, end: of the first and the last columns of its newest user message. prompt: of all that it
    says, with its system text, so that a repetition counts once. first_message: of the first
    columns of its first user message, where that is another one: a template may stand there alone.
    """

    begin: bytes
    end: bytes
    prompt: bytes
    first_message: bytes = NO_EDGE

    @classmethod
    def unpack(cls, packed_bytes: bytes) -> Opening:
        size = DIGEST_BYTES
        parts = [packed_bytes[at : at + size] for at in range(0, len(packed_bytes), size)]
        return cls(*parts[:4])

    def pack(self) -> bytes:
        return b"".join(self if self.first_message != NO_EDGE else self[:3])

    @property
    def has_edges(self) -> bool:
        """Whether a message is long enough to be like another one."""
        return any(edge != NO_EDGE for edge in (self.begin, self.end, self.first_message))

    def is_like(self, earlier_opening: Opening) -> bool:
        """Tell whether both begin, or both end, with the same words."""
        begins = self.begin == earlier_opening.begin != NO_EDGE
        ends = self.end == earlier_opening.end != NO_EDGE
        return begins or ends or self.first_message == earlier_opening.first_message != NO_EDGE


def opening_of(history: RequestHistory, harness: Harness = SHIPPED_HARNESS) -> Opening | None:
    """Return the opening of a request; None if it continues something or nobody speaks in it."""
    messages = history.messages
    key = history.chain.key
    if history.newest >= 0 or messages.after.user < 0:
        return None
    newest_message = messages[messages.after.user]
    first_message = next(
        (m for m in islice(messages, FIRST_MESSAGES) if m.get("role") == "user"), newest_message
    )
    text = harness.own_edges(text_of(newest_message))
    is_one = first_message is newest_message
    first_text = ""
    if not is_one:
        first_text = harness.own_edges(text_of(first_message))
    prompt = keyed_hash(key, b"opening", history.chain.end, messages.after.system)
    return Opening(
        _digest_edge(key, _beginning(text)),
        _digest_edge(key, _ending(text)),
        prompt[:DIGEST_BYTES],
        _digest_edge(key, _beginning(first_text)),
    )


def similar(opening: Opening, earlier_openings: Iterable[Opening]) -> Sequence[Opening]:
    """Return which of the last openings are like this one. earlier_openings: newest first.

    One that was repeated counts once, and repetitions of this very one do not count.
    """
    return [
        o
        for o in islice(_distinct(opening, earlier_openings), COMPARED_OPENINGS)
        if opening.is_like(o)
    ]


def _distinct(opening: Opening, earlier_openings: Iterable[Opening]) -> Iterator[Opening]:
    prompts = {opening.prompt}
    for candidate in earlier_openings:
        if candidate.prompt not in prompts:
            prompts.add(candidate.prompt)
            yield candidate


def _digest_edge(key: bytes, edge: str) -> bytes:
    if not edge:
        return NO_EDGE
    return keyed_hash(key, b"edge", edge.encode("utf-8", "surrogatepass"))[:DIGEST_BYTES]


def _beginning(text: str) -> str:
    """Return the first columns of a text, however they are spaced, spelt and numbered."""
    return _first_columns(_normalise(text[:INSPECTED_CHARACTERS]))


def _ending(text: str) -> str:
    """Return the last columns of a text, backwards."""
    return _first_columns(_normalise(text[-INSPECTED_CHARACTERS:])[::-1])


def _normalise(text: str) -> str:
    """Return a text without what differs between uses of a template: space, case, numbers, ids."""
    # A dotless i is a capital I in upper case: folding alone would keep them apart.
    folded_text = unicodedata.normalize("NFKC", text).upper().casefold()
    plain_text = unicodedata.normalize("NFKC", folded_text)
    if not plain_text.isascii():
        # Marks that nobody sees, such as that of the byte order.
        plain_text = "".join(c for c in plain_text if unicodedata.category(c) != "Cf")
    spaced_text = " ".join(plain_text.split())
    return _DIGITS.sub("0", _IDENTIFIERS.sub(_replace_identifier, spaced_text))


def _replace_identifier(match: re.Match[str]) -> str:
    """Return a digit in place of an id of a request, such as a UUID or a hash; a word stays."""
    word = match[0]
    if sum(map(str.isdigit, word)) >= IDENTIFIER_DIGITS:
        return "0"
    return word


def _first_columns(text: str) -> str:
    """Return the characters that take the first columns; "" for a text that is shorter."""
    width = 0
    for index, character in enumerate(text):
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width >= COLUMNS:
            return text[: index + 1]
    return ""
