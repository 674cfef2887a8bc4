"""The history of a request, of which the beginning came before, byte for byte. Pure.

Apps resend the whole of a conversation with every request. What a turn needs to know of the messages that an earlier request
ended in was found out then and is kept in a `Prefix`, a few hundred bytes; the messages themselves are decoded only where
somebody asks for them. So the cost of a turn does not grow with the conversation.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from memory.messages import Json, canonical, is_system, mac

decode, encode = msgspec.json.decode, msgspec.json.encode
_sorted = msgspec.json.Encoder(order="sorted").encode
PIECES = 32  # after which they are joined


@dataclass(slots=True, eq=False)
class Prefix:
    """What is known of the first messages of a history, and nothing of what they say. One object stands for one text: `is` tells whether
    two are the same.

    count: messages. newest, user: indexes of the last assistant's and the last user's, -1 for none. texts: no content is a list
    of parts. system, first: digests of its system messages and of the first of a user, empty for none. asides: whether its last user's
    message and its first system message were found to be a chat UI's own, not its user's. links: the key of the scope that last asked,
    and in it the links that name nothing yet, and these messages; texts are seldom shared. behind: the link of what was said before the first of them, where only the end of a history that
    is kept here was read; empty for nothing.
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

    def then(self, new: Sequence[Json]) -> Prefix:
        """What is known once these follow."""
        if not new:
            return self
        out = Prefix(self.count + len(new), self.newest, self.user, self.texts, self.system, self.first)
        out.behind = self.behind
        for i, message in enumerate(new, self.count):
            role = message.get("role")
            if role == "assistant":
                out.newest = i
            elif role == "user":
                out.user = i
                out.first = out.first or first_of(message)
            elif is_system(message):
                out.system = mac(b"", out.system, encode(message))
            out.texts = out.texts and type(message.get("content")) is not list
        return out

    def named(self, key: bytes, start: bytes, end: bytes) -> None:
        """Keeps the links of these messages in the scope of this key."""
        self.links = key, start, end

    def links_of(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the links in the scope of this key, None where they are not kept."""
        kept, start, end = self.links
        return (start, end) if kept == key and end else None


def first_of(message: Json) -> bytes:
    """What tells a conversation from others by the first message of its user."""
    return mac(b"", _sorted(message.get("content")))


_flat = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+', re.DOTALL)  # JSON up to the next bracket outside a string
Span = tuple[int, int]  # from where to where in a text


def elements(text: bytes, at: int) -> list[Span]:
    """Where the objects of a JSON array stand, of good JSON from `at`, among its elements, to its end."""
    out: list[Span] = []
    begun = depth = 0
    while depth >= 0:
        found = _flat.match(text, at)
        at = found.end() + 1 if found else len(text)
        if text[at - 1] in b"[{":
            begun, depth = at - 1 if depth == 0 else begun, depth + 1
        else:
            depth -= 1
            if depth == 0:
                out.append((begun, at))
    return out


@dataclass(slots=True)
class Source:
    """The text that messages were read from. start: where the first of them begins. new: where the new ones stand, where that is known."""

    text: bytes
    start: int
    new: Sequence[Span] = ()


class Messages(Sequence[Json]):
    """The messages of a request. before: what is known of the first of them. new: the rest. after: what is known of all.
    load: gives the first ones, `before.count` of them. source: where they may be sent on from as they came. heavy: the new ones
    take long to look at, so that is done off the event loop."""

    __slots__ = ("_all", "_load", "after", "before", "heavy", "new", "source")

    def __init__(self, before: Prefix, new: list[Json], load: Callable[[], Sequence[Json]] = tuple, source: Source | None = None) -> None:
        self.before, self.new, self._load, self.source, self.heavy = before, new, load, source, False
        self.after = before.then(new)
        self._all: list[Json] | None = None if before.count else new

    @classmethod
    def of(cls, messages: Sequence[Json]) -> Messages:
        """These messages, of which none need have come before."""
        return messages if isinstance(messages, Messages) else cls(Prefix(), list(messages))

    @property
    def all(self) -> list[Json]:
        """All of them, decoded. Not to be changed."""
        if self._all is None:
            self._all = [*self._load(), *self.new]
        return self._all

    @property
    def text(self) -> bytes:
        """What they may be sent on from; empty for nothing."""
        return self.source.text if self.source is not None else b""

    def spans(self) -> dict[int, Span]:
        """Where those that are decoded stand in their source, by `id`."""
        if (source := self.source) is None:
            return {}
        if source.new and (self._all is None or self._all is self.new):
            return dict(zip(map(id, self.new), source.new, strict=True))
        return dict(zip(map(id, self.all), elements(source.text, source.start), strict=True))

    def __len__(self) -> int:
        return self.before.count + len(self.new)

    @overload
    def __getitem__(self, index: int) -> Json: ...

    @overload
    def __getitem__(self, index: slice) -> list[Json]: ...

    def __getitem__(self, index: int | slice) -> Json | list[Json]:
        known = self.before.count
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self.new[start - known : stop - known] if step == 1 and start >= known and stop >= known else self.all[index]
        place = index + len(self) if index < 0 else index
        return self.new[place - known] if known <= place else self.all[index]

    def __iter__(self) -> Iterator[Json]:
        return iter(self.all)

    def __reversed__(self) -> Iterator[Json]:
        yield from reversed(self.new)
        if self.before.count:
            yield from reversed(self.all[: self.before.count])

    def __eq__(self, other: object) -> bool:
        return self.all == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def leading(messages: Sequence[Json]) -> int:
    """How many system messages a history begins with."""
    return next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))


@dataclass(frozen=True, slots=True)
class Kept:
    """A conversation whose client sends its newest messages alone. of: what the last request came to, with the history before it.
    said: its messages, as pieces of JSON. answer: what it was given. asked: the last of what the client said, normalised."""

    of: Prefix
    said: tuple[bytes, ...]
    answer: Json
    asked: bytes

    def followed(self, asked: Messages) -> Messages | None:
        """The conversation with these messages after it; None where they do not plainly go on from it: other system text, the newest
        message again (a regeneration), results of calls."""
        lead = leading(asked)
        rest = asked[lead:]
        if Prefix().then(asked[:lead]).system != self.of.system or not rest or any(is_system(m) or m.get("role") == "tool" for m in rest) or canonical(rest[-1]) == self.asked:
            return None
        return Messages(self.of, [self.answer, *rest], lambda: decode(b"[%b]" % b",".join(self.said)))


def kept(messages: Messages, before: Kept | None, answer: Json) -> Kept | None:
    """What is kept for the turn after this one; None where the client must give results first."""
    if answer.get("tool_calls") or not messages or is_system(messages[-1]):
        return None
    goes_on = before is not None and before.of is messages.before
    said = *(before.said if before is not None and goes_on else ()), encode(messages.new if goes_on else messages.all)[1:-1]
    return Kept(messages.after, said if len(said) < PIECES else (b",".join(said),), answer, canonical(messages[-1]))
