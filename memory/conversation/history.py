"""The history of a request, of which the beginning came before, byte for byte. Pure.

Apps resend the whole of a conversation with every request. What a turn needs to know of the
messages that an earlier request ended in was found out then and is kept in a `PrefixInfo`, a few
hundred bytes; the messages themselves are decoded only where somebody asks for them. So the cost of
a turn does not grow with the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from memory.conversation.messages import Json, canonical, is_system, keyed_hash

decode, encode = msgspec.json.decode, msgspec.json.encode
_sorted = msgspec.json.Encoder(order="sorted").encode
PIECES = 32  # after which they are joined
BETWEEN = b", \t\r\n"  # what may stand between two messages
STAYING = 16  # messages kept of what was cut, above which a history is not entered behind the cut
Span = tuple[int, int]  # from where to where in a text


@dataclass(frozen=True, slots=True)
class CompactionMark:
    """Where a history is entered without what was cut of it.

    index: of its first message, which begins at `at` in the text. stays: the messages before it
    that are sent all the same, and where they stand. link: names, under `key`, all that is before
    it.
    """

    key: bytes
    index: int
    link: bytes
    at: int
    stays: dict[int, Span]


@dataclass(slots=True, eq=False)
class PrefixInfo:
    """What is known of the first messages of a history, and nothing of what they say.

    One object stands for one text: `is` tells whether two are the same.

    count: messages. newest, user: indexes of the last assistant's and the last user's, -1 for none.
    texts: no content is a list of parts. system, first: digests of its system messages and of the
    first of a user, empty for none. asides: whether its last user's message and its first system
    message were found to be a chat UI's own, not its user's. links: the key of the scope that last
    asked, and in it the links that name nothing yet, and these messages; texts are seldom shared.
    behind: the link of what was said before the first of them, where only the end of a history that
    is kept here was read; empty for nothing. mark: where it is entered behind the newest cut, None
    for no cut.
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

    def extend(self, new: Sequence[Json]) -> PrefixInfo:
        """Return what is known once these follow."""
        if not new:
            return self
        out = PrefixInfo(
            self.count + len(new), self.newest, self.user, self.texts, self.system, self.first
        )
        out.behind, out.mark = self.behind, self.mark
        for i, message in enumerate(new, self.count):
            role = message.get("role")
            if role == "assistant":
                out.newest = i
            elif role == "user":
                out.user = i
                out.first = out.first or conversation_key(message)
            elif is_system(message):
                out.system = keyed_hash(b"", out.system, encode(message))
            out.texts = out.texts and type(message.get("content")) is not list
        return out

    def keep_links(self, key: bytes, start: bytes, end: bytes) -> None:
        """Keep the links of these messages in the scope of this key."""
        self.links = key, start, end

    def links_of(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the links in the scope of this key, None where they are not kept."""
        kept, start, end = self.links
        return (start, end) if kept == key and end else None


def conversation_key(message: Json) -> bytes:
    """Return what tells a conversation from others by the first message of its user."""
    return keyed_hash(b"", _sorted(message.get("content")))


_flat = re.compile(
    rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+', re.DOTALL
)  # JSON up to the next bracket outside a string

_string = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)  # up to its closing quote
SCAN_WINDOW_BYTES = 1 << 20  # bytes that are looked at in one step


def array_elements(text: bytes, at: int) -> list[Span]:
    """Return where the objects of a JSON array stand, of good JSON from `at`, among its elements,
    to its end or the text's.
    """
    out: list[Span] = []
    begun = depth = 0
    while depth >= 0 and at < len(text):
        found = _flat.match(text, at, at + SCAN_WINDOW_BYTES)
        at = found.end() if found else len(text)
        mark = text[at : at + 1]
        if mark == b'"':  # of a string that passes the window
            at = string_end(text, at + 1)
            continue
        if mark in (b"[", b"{"):
            begun, depth = at if depth == 0 else begun, depth + 1
        elif mark in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                out.append((begun, at + 1))
        else:  # the window's end
            continue
        at += 1
    return out


def string_end(text: bytes, at: int) -> int:
    """Return where the JSON string whose first character is at `at` ends, its closing quote
    included.

    It is passed in windows: in a thread, others have their turn between two.
    """
    size = len(text)
    while at < size:
        found = _string.match(text, at, min(at + SCAN_WINDOW_BYTES, size))
        at = found.end() if found else size
        if text[at : at + 1] == b'"':
            return at + 1
        if at < size and text[at : at + 1] == b"\\":  # an escape that the window cut in two
            at += 2
    return size


@dataclass(slots=True)
class SourceText:
    """The text that messages were read from.

    start: where the first of them begins. new: where the new ones stand, where that is known.
    """

    text: bytes
    start: int
    new: Sequence[Span] = ()


@dataclass(frozen=True, slots=True)
class TextRange:
    """Messages as JSON: the elements of an array, from `start` to `end` of a text."""

    text: bytes = b""
    start: int = 0
    end: int = 0

    def decode(self, start: int, end: int) -> list[Json]:
        """Return the messages from one place to another."""
        return decode(b"[%b]" % self.text[start:end].rstrip(BETWEEN))  # type: ignore[no-any-return]


class Messages(Sequence[Json]):
    """The messages of a request.

    before: what is known of the first of them. new: the rest. after: what is known of all. known:
    gives the text of the first ones. source: where they may be sent on from as they came. heavy:
    the new ones take long to look at, so that is done off the event loop.

    Of the first ones are decoded those behind the newest cut and the few that stay before it, where
    nobody asks for more.
    """

    __slots__ = (
        "_few",
        "_from",
        "_known",
        "_mark",
        "_spans",
        "_tail",
        "after",
        "before",
        "heavy",
        "new",
        "source",
    )

    def __init__(
        self,
        before: PrefixInfo,
        new: list[Json],
        known: Callable[[], TextRange] = TextRange,
        source: SourceText | None = None,
    ) -> None:
        self.before, self.new, self._known, self.source, self.heavy = (
            before,
            new,
            known,
            source,
            False,
        )
        self.after = before.extend(new)
        self._from, self._tail = before.count, new  # the messages from that index on are decoded
        self._mark: CompactionMark | None = None  # where they were entered
        self._few: dict[int, Json] = {}  # those before it that are decoded too
        self._spans: list[Span] = []

    @classmethod
    def of(cls, messages: Sequence[Json]) -> Messages:
        """These messages, of which none need have come before."""
        return messages if isinstance(messages, Messages) else cls(PrefixInfo(), list(messages))

    @property
    def all(self) -> list[Json]:
        """All of them, decoded. Not to be changed."""
        if self._from:
            known = self._known()
            found = known.decode(
                known.start, self._mark.at if self._mark is not None else known.end
            )
            for index, message in self._few.items():
                found[index] = message  # one object stands for one message
            self._from, self._mark, self._tail = 0, None, [*found, *self._tail]
        return self._tail

    def enter(self) -> None:
        """Decode what is behind the newest cut, and what stays before it."""
        mark = self.before.mark
        if mark is None or self._mark is not None or not self._from:
            return
        known = self._known()
        self._few = {i: decode(known.text[a:b]) for i, (a, b) in mark.stays.items()}
        self._from, self._mark, self._tail = (
            mark.index,
            mark,
            [*known.decode(mark.at, known.end), *self.new],
        )

    def first(self, count: int) -> list[int]:
        """Return the indexes below `count` at which messages are to be looked at: of those before a
        cut that was entered, the few that stay.
        """
        if self._mark is None:
            return list(range(count))
        return [*self._few, *range(self._from, count)]

    def mark(self, key: bytes, index: int, link: bytes, stays: Sequence[int]) -> None:
        """Let the turns that go on from this one enter the history at message `index`; see
        `CompactionMark`.
        """
        if len(stays) > STAYING:
            return  # they are all sent each time: to find them takes no longer
        start, spans = self._locate_decoded()
        old = self._mark.stays if self._mark is not None else {}
        there = {i: spans[i - start] if i >= start else old[i] for i in stays}
        self.after.mark = CompactionMark(key, index, link, spans[index - start][0], there)

    def _locate_decoded(self) -> tuple[int, list[Span]]:
        """Return where the decoded ones stand, from which index on: in the text in which the next
        turn finds them.
        """
        start = self._mark.index if self._mark is not None else 0
        if len(self._spans) != len(self) - start:
            if self.source is not None:
                text, at = self.source.text, self.source.start
            else:  # as `kept` keeps them
                known = self._known()
                text, at = (
                    b",".join(filter(None, (known.text[: known.end], encode(self.new)[1:-1]))),
                    known.start,
                )
            self._spans = array_elements(text, self._mark.at if self._mark is not None else at)
        return start, self._spans

    @property
    def text(self) -> bytes:
        """What they may be sent on from; empty for nothing."""
        return self.source.text if self.source is not None else b""

    def spans(self) -> dict[int, Span]:
        """Return where those that are decoded stand in their source, by `id`."""
        if (source := self.source) is None:
            return {}
        if source.new and self._tail is self.new:
            return dict(zip(map(id, self.new), source.new, strict=True))
        out = (
            {id(m): self._mark.stays[i] for i, m in self._few.items()}
            if self._mark is not None
            else {}
        )
        decoded = self._tail if self._mark is not None else self.all
        return out | dict(zip(map(id, decoded), self._locate_decoded()[1], strict=True))

    def __len__(self) -> int:
        return self.before.count + len(self.new)

    @overload
    def __getitem__(self, index: int) -> Json: ...

    @overload
    def __getitem__(self, index: slice) -> list[Json]: ...

    def __getitem__(self, index: int | slice) -> Json | list[Json]:
        known = self._from
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return (
                self._tail[start - known : stop - known]
                if step == 1 and start >= known and stop >= known
                else self.all[index]
            )
        place = index + len(self) if index < 0 else index
        if place >= known:
            return self._tail[place - known]
        found = self._few.get(place)
        return found if found is not None else self.all[index]

    def __iter__(self) -> Iterator[Json]:
        return iter(self.all)

    def __reversed__(self) -> Iterator[Json]:
        count = self._from
        yield from reversed(self._tail)
        if count:
            yield from reversed(self.all[:count])

    def __eq__(self, other: object) -> bool:
        return self.all == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def count_leading_system(messages: Sequence[Json]) -> int:
    """Return how many system messages a history begins with."""
    return next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))


@dataclass(frozen=True, slots=True)
class ServerHistory:
    """A conversation whose client sends its newest messages alone.

    of: what the last request came to, with the history before it. said: its messages, as pieces of
    JSON. answer: what it was given. asked: the last of what the client said, normalised.
    """

    of: PrefixInfo
    said: tuple[bytes, ...]
    answer: Json
    asked: bytes

    def continue_with(self, asked: Messages) -> Messages | None:
        """Return the conversation with these messages after it; None where they do not plainly go
        on from it: other system text, the newest message again (a regeneration), results of calls.
        """
        lead = count_leading_system(asked)
        rest = asked[lead:]
        if (
            PrefixInfo().extend(asked[:lead]).system != self.of.system
            or not rest
            or any(is_system(m) or m.get("role") == "tool" for m in rest)
            or canonical(rest[-1]) == self.asked
        ):
            return None
        return Messages(self.of, [self.answer, *rest], self._text)

    def _text(self) -> TextRange:
        text = b",".join(self.said)
        return TextRange(text, 0, len(text))


def build_server_history(
    messages: Messages, before: ServerHistory | None, answer: Json
) -> ServerHistory | None:
    """Return what is kept for the turn after this one; None where the client must give results
    first.
    """
    if answer.get("tool_calls") or not messages or is_system(messages[-1]):
        return None
    goes_on = before is not None and before.of is messages.before
    said = (
        *(before.said if before is not None and goes_on else ()),
        encode(messages.new if goes_on else messages.all)[1:-1],
    )
    return ServerHistory(
        messages.after,
        said if len(said) < PIECES else (b",".join(said),),
        answer,
        canonical(messages[-1]),
    )
