"""One answer out of several rounds, for formats whose replies are a sequence of numbered parts.

A round consists of an opening, parts (items or content blocks) and a closing. A part has a
beginning, pieces and an end, all with the part's index, and its name is known from its beginning.
So a mask only needs these envelopes: it hides the parts that are our calls, numbers the others
without gaps over all rounds, and shows one opening and one closing. The contents of a part are
forwarded as they came.

Chat completions are different (names grow, parts have no end, several choices interleave) and have
their own interceptor.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from gateway.errors import GatewayError, StreamIncomplete
from gateway.wire.chat import Json, MalformedReply, encode, read_object
from gateway.wire.json_weight import UNREADABLE, is_light, is_readable
from gateway.wire.merge import usage_sum
from gateway.wire.own_marks import mark_orphan
from gateway.wire.sse import COMMENT, DONE, SseEvent
from gateway.wires.round_result import RoundResult

OPEN, BEGIN, DELTA, END, CLOSE, ERROR, OTHER = (
    "open",
    "begin",
    "delta",
    "end",
    "close",
    "error",
    "other",
)
SHORT_BYTES = 1 << 14  # of an event that is read at once
MAX_PARTS = 4096  # of one round


class EnvelopeMask(ABC):
    """See `ReplyMask`. A format says what its events are, and how they are written.

    owned: names of calls that are never shown.
    """

    def __init__(self, owned: Collection[str], alias: str | None) -> None:
        self.alias = alias
        self.over = self.ended = False
        self.usage: Json | None = None
        self.text_shown = False
        self.shown: list[Json] = []  # the parts that the client has seen whole
        self._ends: list[int] = []  # how much was shown at the end of each round before
        self._owned = frozenset(owned)
        self._places: dict[int, int | None] = {}  # of the round's parts: None is hidden
        self._taken = 0  # of these, those that are shown
        self._hid = False  # something of ours was taken out, so the numbers are ours to give
        # The end of reasoning, until it is known whether a call of ours follows.
        self._held: list[tuple[Json, bytes, int]] = []
        self._error: Any = None
        self._passed: tuple[bytes, RoundResult] | None = None
        self._closed: RoundResult | None = None

    @property
    def rounds(self) -> int:
        """How many rounds came before this one."""
        return len(self._ends)

    # What a format says.

    @abstractmethod
    def kind_of(self, event: Json) -> str:
        """Return which envelope an event is."""

    @abstractmethod
    def index_of(self, event: Json) -> int | None:
        """Return the index of the part that an event belongs to."""

    @abstractmethod
    def part_of(self, event: Json) -> Json:
        """Return the part that begins."""

    @abstractmethod
    def call_name(self, part: Json) -> str | None:
        """Return the name of the function that a part calls, None for any other part."""

    @abstractmethod
    def fold(self, kind: str, event: Json) -> None:
        """Add an event to what the round came to."""

    @abstractmethod
    def show_opening(self, event: Json, raw: bytes) -> bytes:
        """Return the opening as it is shown; of later rounds nothing is."""

    @abstractmethod
    def render(self, event: Json, raw: bytes, place: int | None) -> bytes:
        """Return an event as it is shown, its part at this place."""

    @abstractmethod
    def ends_reasoning(self, kind: str, event: Json) -> bool:
        """Tell whether an event holds the opaque member by which reasoning is sent back."""

    @abstractmethod
    def mark(self, event: Json) -> Json:
        """Return such an event with the mark that a call of ours followed."""

    @abstractmethod
    def lift(self, reply: Json) -> Iterable[Json]:
        """Return a whole reply as the events of a stream."""

    @abstractmethod
    def fold_whole(self, reply: Json) -> Iterable[Json]:
        """Take a whole reply as what the round came to. Returns its parts, in their order."""

    @abstractmethod
    def result(self) -> RoundResult:
        """Return what the round came to."""

    @abstractmethod
    def end_round(self) -> None:
        """Forget the round's own state."""

    @abstractmethod
    def end(self, usage: Json | None) -> bytes:
        """Return the closing, once the turn is recorded."""

    @abstractmethod
    def run_out(self) -> None:
        """Note that the client's limit of output ends the answer."""

    @abstractmethod
    def merged(self) -> Json:
        """Return the whole answer as the client is shown it."""

    @abstractmethod
    def message_of(self, parts: Sequence[Json]) -> Json:
        """Return what these parts say, as one message for the memory."""

    @abstractmethod
    def fault(self, error: GatewayError) -> bytes:
        """Return an error after the first byte, as the last event."""

    def restored(self, reply: Json) -> Json:
        """Return a whole reply without what of ours it repeats; the same where nothing is."""
        return reply if self.alias is None else {**reply, "model": self.alias}

    # What every format does.

    def answers(self) -> list[Json]:
        """Return what the client was shown: the texts of rounds as a chat completion has them."""
        message = self.message_of(self.shown)
        bounds = [0, *self._ends, len(self.shown)]
        rounds = [self.shown[a:b] for a, b in pairwise(bounds)] if self._ends else []
        texts = [t for r in rounds if (t := self.message_of(r)["content"]) is not None]
        if len(texts) > 1 and all(isinstance(t, str) for t in texts):
            message["content"] = _join_texts(texts)
        return [message]

    def fast_forward(self, raw: bytes) -> bytes:
        return b""

    async def show(self, event: SseEvent) -> bytes:
        """Return what to show for an event. Raises StreamIncomplete."""
        data = event.data or b""
        if data == DONE:
            self.over = True
            return event.raw if not self.rounds and not self._hid else b""
        found = read_event(data) if is_light(data) else await asyncio.to_thread(_read_heavy, data)
        return self.take(found, event.raw)

    def take(self, event: Json, raw: bytes) -> bytes:
        """Return what to show for an event that was read. raw: as it came, b"" for one of ours."""
        kind = self.kind_of(event)
        if kind == OTHER:
            return self.render(event, raw, None)
        if kind == ERROR:
            self._error, self.over = event, True
            return self._release()
        self.fold(kind, event)
        if kind == OPEN:
            return b"" if self.rounds else self.show_opening(event, raw)
        if kind == CLOSE:
            return self._release()
        return self._show_part(kind, event, raw)

    def _show_part(self, kind: str, event: Json, raw: bytes) -> bytes:
        index = self.index_of(event)
        if index is None or not 0 <= index < MAX_PARTS:
            raise _broken(f"a part without a usable index below {MAX_PARTS}")
        if index not in self._places:
            self._places[index] = self._place(self.part_of(event) if kind == BEGIN else {})
        place = self._places[index]
        if place is not None and self._owned and self.ends_reasoning(kind, event):
            self._held.append((event, raw, place))
            return b""
        before = self._release(ours=place is None and kind == BEGIN) if self._held else b""
        return before if place is None else before + self.render(event, raw, place)

    def _release(self, *, ours: bool = False) -> bytes:
        """Return the end of reasoning that was held back. ours: a call of ours follows."""
        held, self._held = self._held, []
        return b"".join(
            self.render(self.mark(event) if ours else event, b"" if ours else raw, place)
            for event, raw, place in held
        )

    def visible(self, parts: Sequence[Json]) -> list[Json]:
        """Return the parts that are shown; reasoning before a call of ours is marked."""
        followers = [*parts[1:], {}]
        return [
            mark_orphan(part) if self.call_name(follower) in self._owned else part
            for part, follower in zip(parts, followers, strict=False)
            if not self.is_hidden(part)
        ]

    def _place(self, part: Json) -> int | None:
        """Return where a new part is shown, None for one that is hidden."""
        if self.is_hidden(part):
            self._hid = True
            return None
        self._taken += 1
        return len(self.shown) + self._taken - 1

    def is_hidden(self, part: Json) -> bool:
        """Tell whether a part is not shown."""
        return self.call_name(part) in self._owned

    def show_whole(self, whole: Json) -> bytes:
        return b"".join(self.take(event, b"") for event in self.lift(whole))

    def replay(self, reply: Json) -> tuple[bytes, RoundResult]:
        shown = self.show_whole(reply)
        rest, result = self.close()
        return shown + rest, result

    def take_whole(self, whole: Json) -> RoundResult | None:
        for index, part in enumerate(self.fold_whole(whole)):
            if index >= MAX_PARTS:
                raise _broken(f"more than {MAX_PARTS} parts")
            self._places[index] = self._place(part)
        self.over = True
        return self.close()[1]

    def pass_on(self, raw: bytes, result: RoundResult) -> None:
        self._passed = raw, result

    def close(self) -> tuple[bytes, RoundResult]:
        held = self._release()
        if self._closed is None:
            self._closed = self.result()
            self.usage = usage_sum(self.usage, self._closed.usage)
        return held, self._closed

    def start_next_round(self) -> None:
        self._ends.append(len(self.shown))
        self._hid = True
        self._passed = self._closed = None
        self._places.clear()
        self._taken = 0
        self.over = self.ended = False
        self.end_round()

    def finish(self) -> bytes:
        return b""

    def body(self, usage: Json | None) -> bytes:
        if self._passed is not None and not self._hid:
            raw, result = self._passed
            whole = self.restored(result.reply)
            return raw if whole is result.reply else encode(whole)
        return encode(self.merged())

    def keepalive(self) -> bytes:
        return COMMENT


def _join_texts(texts: Sequence[str]) -> str:
    """Return the texts of several rounds as one, as `Interceptor` joins them."""
    out = texts[0]
    for text in texts[1:]:
        spaced = not out or not text or out[-1].isspace() or text[0].isspace()
        out += text if spaced else f"\n\n{text}"
    return out


def data_of(raw: bytes, lines: bytes) -> bytes | None:
    """Return the data of one short event that begins with these lines; None for anything else."""
    end = len(raw) - 2
    if len(raw) > SHORT_BYTES or not raw.startswith(lines) or not raw.endswith(b"\n\n"):
        return None
    if raw.find(b"\n", len(lines)) != end or b"\r" in raw:
        return None
    return raw[len(lines) : end]


def read_event(data: bytes) -> Json:
    """Read an event's data. Raises StreamIncomplete if it is not an object."""
    try:
        return read_object(data)
    except MalformedReply as e:
        raise StreamIncomplete(f"The stream broke off: {e}. Try again.") from e


def _read_heavy(data: bytes) -> Json:
    if not is_readable(data):
        raise _broken(f"an event of {UNREADABLE}")
    return read_event(data)


def _broken(what: str) -> StreamIncomplete:
    return StreamIncomplete(f"The stream broke off: the upstream sent {what}. Try again.")


def event_of(event: Json) -> bytes:
    """Return an event of ours; its `event:` line names its type, as in both APIs."""
    return b"event: %b\ndata: %b\n\n" % (str(event.get("type")).encode(), encode(event))


def error_parts(error: GatewayError) -> tuple[str | None, str]:
    """Return the code and the message of an error, which may be an upstream's own."""
    try:
        found = msgspec.json.decode(error.event())["error"]
        return found.get("code") or found.get("type"), str(found.get("message") or error.message)
    except (ValueError, TypeError, LookupError, AttributeError):
        return error.code, error.message
