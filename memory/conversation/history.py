"""The messages of a request whose prefix was seen in an earlier request. Pure.

Apps resend the whole conversation with every request. What a turn needs to know of the messages
that an earlier request ended in was computed then and is kept in a `PrefixInfo`, a few hundred
bytes; the messages themselves are only decoded when needed. So the cost of a turn does not grow
with the conversation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from memory.conversation.beginnings import MessageBeginnings
from memory.conversation.json_spans import BETWEEN, LONG_BYTES, Span, array_elements
from memory.conversation.messages import (
    Json,
    canonical,
    condense_media,
    hash_content,
    is_system,
    keyed_hash,
)
from memory.conversation.steps import end_step

decode, encode = msgspec.json.decode, msgspec.json.encode
_sorted = msgspec.json.Encoder(order="sorted").encode
# Pieces are joined beyond this number.
PIECES = 32
# The rows of so many messages are written in 3 ms; those of 4,000 take 40.
LIGHT_MESSAGES = 256
# If more messages before a cut are kept, the history is decoded as a whole
STAYING = 16


@dataclass(frozen=True, slots=True)
class CompactionMark:
    """Where to start decoding a history, after the messages that a compaction cut.

    index: of the first message after the cut, which starts at `at` in the text. stays: the messages
    before it that are sent nevertheless, with their spans. link: the chain link, under `key`, of
    everything before.
    """

    key: bytes
    index: int
    link: bytes
    at: int
    stays: dict[int, Span]


class PrefixInfo(msgspec.Struct, eq=False):
    """What is known of the first messages of a history, without their content.

    One object stands for one text: compare with `is`. count: messages. newest, user: indexes of the
    last assistant and the last user message, -1 for none. texts: no content is a list of parts.
    system, first: digests of the system messages and of the first user message, empty for none.
    asides: whether the last user message and the first system message come from a chat UI, not from
    its user. links: key of the scope that last asked, with the start link and the link of these
    messages; scopes seldom share texts. behind: link of what was said before, if only the end of a
    stored history was read; empty for nothing. mark: of the newest cut, None for no cut. checked:
    whoever read their text found nothing in it that has to be looked for again. beginnings: of
    those that were sent when a recall first asked, and of all that followed.
    """

    count: int = 0
    newest: int = -1
    user: int = -1
    texts: bool = True
    system: bytes = b""
    first: bytes = b""
    asides: tuple[bool, bool] | None = None
    links: tuple[bytes, bytes, bytes] = (b"", b"", b"")
    behind: bytes = b""
    mark: CompactionMark | None = None
    checked: bool = False
    beginnings: MessageBeginnings | None = None

    def extend(self, new_messages: Sequence[Json]) -> PrefixInfo:
        """Return what is known once these messages follow."""
        if not new_messages:
            return self
        extended = PrefixInfo(
            self.count + len(new_messages),
            self.newest,
            self.user,
            self.texts,
            self.system,
            self.first,
        )
        extended.behind, extended.mark = self.behind, self.mark
        if self.beginnings is not None:
            extended.beginnings = self.beginnings.extend(new_messages)
        for i, message in enumerate(new_messages, self.count):
            role = message.get("role")
            if role == "assistant":
                extended.newest = i
            elif role == "user":
                extended.user = i
                extended.first = extended.first or conversation_key(message)
            elif is_system(message):
                extended.system = keyed_hash(b"", extended.system, encode(message))
            extended.texts = extended.texts and type(message.get("content")) is not list
            end_step()
        return extended

    def links_of(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the links in the scope of this key; None if they are not remembered."""
        links_key, start, end = self.links
        if links_key == key and end:
            return (start, end)
        return None


def conversation_key(message: Json) -> bytes:
    """Return what identifies a conversation by its first user message."""
    return hash_content(condense_media(message).get("content"))


class SourceText(msgspec.Struct):
    """The text that messages were parsed from.

    start: of the first message. new_spans: of the new messages, if known. end: of the last
    message, 0 if unknown.
    """

    text: bytes
    start: int
    new_spans: Sequence[Span] = ()
    end: int = 0


class TextRange(msgspec.Struct, frozen=True):
    """Messages as JSON: array elements, from `start` to `end` of a text."""

    text: bytes = b""
    start: int = 0
    end: int = 0

    def decode(self, start: int, end: int) -> list[Json]:
        """Decode the messages between two offsets."""
        return decode(b"[%b]" % self.text[start:end].rstrip(BETWEEN))  # type: ignore[no-any-return]


class Messages(Sequence[Json]):
    """The messages of a request.

    before: what is known of the first of them. new: the rest. after: what is known of all. known:
    returns the text of the first ones. source: the text they can be forwarded from. heavy: the new
    ones take long to inspect, so that is done in a thread. Unless more is needed, only those after
    the newest cut are decoded, and the few that are kept before it.
    """

    __slots__ = (
        "_checked_span",
        "_from",
        "_locate",
        "_record",
        "_spans",
        "_stays",
        "_tail",
        "after",
        "before",
        "heavy",
        "new",
        "source",
    )

    def __init__(
        self,
        prefix: PrefixInfo,
        new_messages: list[Json],
        locate_range: Callable[[], TextRange] = TextRange,
        source: SourceText | None = None,
    ) -> None:
        self.before = prefix
        self.new = new_messages
        self._locate = locate_range
        self.source = source
        self.heavy = len(new_messages) > LIGHT_MESSAGES
        self.after = prefix.extend(new_messages)
        # Decoded are the messages from that index on.
        self._from = prefix.count
        self._tail = new_messages
        # Where decoding started.
        self._record: CompactionMark | None = None
        # Decoded messages before that.
        self._stays: dict[int, Json] = {}
        self._spans: list[Span] = []
        self._checked_span: Span | None = None

    @classmethod
    def of(cls, messages: Sequence[Json]) -> Messages:
        """Wrap messages without a known prefix."""
        if isinstance(messages, Messages):
            return messages
        return cls(PrefixInfo(), list(messages))

    @property
    def all(self) -> list[Json]:
        """All of them, decoded. Must not be modified."""
        if self._from:
            undecoded = self._locate()
            messages = undecoded.decode(
                undecoded.start, self._record.at if self._record is not None else undecoded.end
            )
            for index, message in self._stays.items():
                # One object stands for each message.
                messages[index] = message
            self._from, self._record, self._tail = 0, None, [*messages, *self._tail]
        return self._tail

    @property
    def unchecked(self) -> bytes:
        """Their source without the messages in which nothing has to be looked for.

        Those are such whose text was checked before (see `PrefixInfo`), and new ones that hold
        nothing but a role and a text.
        """
        return self.unchecked_within(sys.maxsize)

    def unchecked_within(self, max_bytes: int) -> bytes:
        """Return `unchecked` if it has no more bytes; else b"", without a copy of it."""
        if (source := self.source) is None:
            return b""
        if self._checked_span is None:
            self._checked_span = self._find_checked(source)
        text, (start, end) = source.text, self._checked_span
        if len(text) - (end - start) > max_bytes:
            return b""
        return text[:start] + text[end:] if end > start else text

    def _find_checked(self, source: SourceText) -> Span:
        """Return where the messages stand in which nothing has to be looked for."""
        text = source.text
        undecoded = self._locate()
        start, end = undecoded.start, undecoded.end
        if not (self.before.count and self.before.checked):
            if self.before.count:
                return 0, 0
            start = end = source.start
        if source.end and self._are_plain(text, end, source.end):
            end = source.end
        return start, end

    def _are_plain(self, text: bytes, start: int, end: int) -> bool:
        """Tell whether the new messages, which stand there in a text, are a role and a text each.

        Of members that are given twice one would be passed on unseen, so the names are counted.
        """
        for message in self.new:
            if len(message) != 2 or type(message.get("role")) is not str:
                return False
            if type(message.get("content")) is not str:
                return False
        count = len(self.new)
        return (
            text.count(b'"content"', start, end) == text.count(b'"role"', start, end) == count
            and text.find(b"\\u00", start, end) < 0
        )

    @property
    def is_long(self) -> bool:
        """Whether what is not decoded yet takes longer to decode than others may wait."""
        source = self.source
        if not self._from or (source is not None and len(source.text) <= LONG_BYTES):
            return False
        undecoded, cut_record = self._locate(), self.before.mark
        return (
            undecoded.end - (cut_record.at if cut_record is not None else undecoded.start)
            > LONG_BYTES
        )

    @property
    def looks_back(self) -> bool:
        """Whether messages that follow the last answer are among those not decoded yet.

        So it is with a request that is sent again: the turn looks at all of them.
        """
        return self.after.newest + 1 < self._from

    def decode_known(self) -> None:
        """Decode what is known, and find where it stands, so that nobody has to wait for it."""
        if self.before.mark is not None:
            self.enter()
        else:
            _ = self.all
        if self.source is not None:
            self._locate_decoded()

    def enter(self) -> None:
        """Decode what follows the newest cut, and what is kept before it."""
        cut_record = self.before.mark
        if cut_record is None or self._record is not None or not self._from:
            return
        undecoded = self._locate()
        self._stays = {i: decode(undecoded.text[a:b]) for i, (a, b) in cut_record.stays.items()}
        self._tail = [*undecoded.decode(cut_record.at, undecoded.end), *self.new]
        self._record = cut_record
        self._from = cut_record.index

    def first(self, count: int) -> list[int]:
        """Return the indexes below `count` of the messages to inspect.

        Of those before the cut, these are the few that are kept.
        """
        if self._record is None:
            return list(range(count))
        return [*self._stays, *range(self._from, count)]

    def mark(self, key: bytes, index: int, link: bytes, stays: Sequence[int]) -> None:
        """Let following turns start decoding at message `index`; see `CompactionMark`."""
        if len(stays) > STAYING:
            # All are sent each time, so nothing would be saved.
            return
        start, spans = self._locate_decoded()
        previous_spans = self._record.stays if self._record is not None else {}
        spans_before = {i: spans[i - start] if i >= start else previous_spans[i] for i in stays}
        self.after.mark = CompactionMark(key, index, link, spans[index - start][0], spans_before)

    def _locate_decoded(self) -> tuple[int, list[Span]]:
        """Return the first decoded index, and the spans of the decoded messages.

        The spans are in the text in which the next turn finds them.
        """
        start = self._record.index if self._record is not None else 0
        if len(self._spans) != len(self) - start:
            if self.source is not None:
                text, source_start, end = self.source.text, self.source.start, self.source.end
            else:
                # As `ServerHistory` stores them.
                undecoded = self._locate()
                text = b",".join(
                    filter(None, (undecoded.text[: undecoded.end], encode(self.new)[1:-1]))
                )
                source_start = undecoded.start
                end = 0
            self._spans = array_elements(
                text, self._record.at if self._record is not None else source_start, end
            )
        return start, self._spans

    @property
    def text(self) -> bytes:
        """The text they can be forwarded from; empty for none."""
        if self.source is not None:
            return self.source.text
        return b""

    def span_of_new(self, messages: Sequence[Json]) -> Span | None:
        """Return where these messages stand in the source, if they are the new ones."""
        source = self.source
        if source is None or not source.new_spans or messages != self.new:
            return None
        return source.new_spans[0][0], source.new_spans[-1][1]

    def spans(self) -> dict[int, Span]:
        """Return the spans of the decoded messages in their source, by `id`."""
        if (source := self.source) is None:
            return {}
        if source.new_spans and self._tail is self.new:
            return dict(zip(map(id, self.new), source.new_spans, strict=True))
        if self._record is not None:
            spans_by_id = {id(m): self._record.stays[i] for i, m in self._stays.items()}
        else:
            spans_by_id = {}
        decoded_messages = self._tail if self._record is not None else self.all
        return spans_by_id | dict(
            zip(map(id, decoded_messages), self._locate_decoded()[1], strict=True)
        )

    def __len__(self) -> int:
        return self.before.count + len(self.new)

    @overload
    def __getitem__(self, index: int) -> Json: ...

    @overload
    def __getitem__(self, index: slice) -> list[Json]: ...

    def __getitem__(self, index: int | slice) -> Json | list[Json]:
        tail_start = self._from
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1 and start >= tail_start and stop >= tail_start:
                return self._tail[start - tail_start : stop - tail_start]
            return self.all[index]
        place = index + len(self) if index < 0 else index
        if place >= tail_start:
            return self._tail[place - tail_start]
        early_message = self._stays.get(place)
        if early_message is not None:
            return early_message
        return self.all[index]

    def __iter__(self) -> Iterator[Json]:
        return iter(self.all)

    def __reversed__(self) -> Iterator[Json]:
        count = self._from
        yield from reversed(self._tail)
        if count:
            yield from reversed(self.all[:count])

    def __eq__(self, messages: object) -> bool:
        return self.all == list(messages) if isinstance(messages, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def count_leading_system(messages: Sequence[Json]) -> int:
    """Return how many system messages a history starts with."""
    return next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))


@dataclass(frozen=True, slots=True)
class ServerHistory:
    """A stored conversation, whose client only sends its newest messages.

    of: what is known of the last request, including the history. message_parts: its messages, as
    JSON in pieces. answer: the answer. last_message: the client's last one, normalised.
    """

    of: PrefixInfo
    message_parts: tuple[bytes, ...]
    answer: Json
    last_message: bytes

    def continue_with(self, request_messages: Messages, may_repeat: bool = True) -> Messages | None:
        """Return the conversation followed by these messages.

        None if they do not simply continue it: other system text, the newest message again (a
        regeneration), tool results. may_repeat: False where the newest message again is a new one.
        """
        lead = count_leading_system(request_messages)
        new_messages = request_messages[lead:]
        if (
            PrefixInfo().extend(request_messages[:lead]).system != self.of.system
            or not new_messages
            or any(is_system(m) or m.get("role") == "tool" for m in new_messages)
            or (may_repeat and canonical(new_messages[-1]) == self.last_message)
        ):
            return None
        return Messages(self.of, [self.answer, *new_messages], self._text)

    def _text(self) -> TextRange:
        text = b",".join(self.message_parts)
        return TextRange(text, 0, len(text))


def build_server_history(
    messages: Messages, history: ServerHistory | None, answer: Json
) -> ServerHistory | None:
    """Return what to store for the next turn; None if the client must send tool results first."""
    if answer.get("tool_calls") or not messages or is_system(messages[-1]):
        return None
    goes_on = history is not None and history.of is messages.before
    encoded_parts = (
        *(history.message_parts if history is not None and goes_on else ()),
        encode(messages.new if goes_on else messages.all)[1:-1],
    )
    return ServerHistory(
        messages.after,
        encoded_parts if len(encoded_parts) < PIECES else (b",".join(encoded_parts),),
        answer,
        canonical(messages[-1]),
    )
