"""One answer out of several rounds, for formats whose replies are a sequence of numbered parts.

A round consists of an opening, parts (items or content blocks) and a closing. A part has a
beginning, pieces and an end, which `Parts` tells apart. So a mask only needs these envelopes: it
hides the parts that are our calls, numbers the others without gaps over all rounds, and shows one
opening and one closing. The contents of a part are forwarded as they came.

A call whose name some server tells late waits until it is known whose it is, and so does what
begins after it: the client sees the parts in their order. The end of reasoning waits until it is
known whether a call of ours follows, since reasoning that led to one is marked.

Chat completions are different (names grow, parts have no end, several choices interleave) and have
their own interceptor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from gateway.apis.base import LIGHT_PARTS
from gateway.apis.envelope_events import (
    BEGIN,
    DELTA,
    END,
    ERROR,
    OPEN,
    OTHER,
    PART_EVENTS,
    broken_answer,
    check_count,
    read_event,
    read_heavy_event,
)
from gateway.apis.masked_parts import MaskedPart, MaskedParts
from gateway.apis.round_result import RoundResult
from gateway.errors import GatewayError
from gateway.http.json_thread import run_heavy
from gateway.wire.answer_parts import MAX_PARTS, PartKey
from gateway.wire.chat import Json, encode, encode_in_parts
from gateway.wire.json_weight import is_light
from gateway.wire.merge import usage_sum
from gateway.wire.own_marks import has_mark, mark_orphan
from gateway.wire.sse import COMMENT, DONE, SseEvent


class EnvelopeMask(ABC):
    """See `ReplyMask`. A format says what its events are, and how they are written.

    owned: names of calls that are never shown. quick_kinds: of parts whose pieces `fast_forward`
    knows. reasoning_kind: of parts whose end tells whether a call of ours followed.
    """

    quick_kinds = frozenset[str]()
    reasoning_kind = ""
    holds_finish = False

    def __init__(self, owned: Collection[str], alias: str | None) -> None:
        self.alias = alias
        self.over = self.ended = False
        self.usage: Json | None = None
        self.text_shown = False
        # The parts that the client has seen whole.
        self.shown: list[Json] = []
        # How much was shown at the end of each round before.
        self._ends: list[int] = []
        self._owned = frozenset(owned)
        # Of the round.
        self._parts = MaskedParts()
        # The part that the newest event belongs to, shown as it came, and what it told of it.
        self._growing: tuple[MaskedPart, PartKey] | None = None
        # Something of ours was taken out, so the numbers are ours to give.
        self._hid = False
        # The reasoning whose end is held until it is known whether a call of ours follows.
        self._waiting: MaskedPart | None = None
        self._error: Any = None
        self._passed: tuple[bytes, RoundResult] | None = None
        self._closed: RoundResult | None = None

    @property
    def is_long(self) -> bool:
        return len(self._parts.parts) + len(self.shown) > LIGHT_PARTS or self._parts.is_long

    @property
    def rounds(self) -> int:
        """How many rounds came before this one."""
        return len(self._ends)

    @abstractmethod
    def kind_of(self, event: Json) -> str:
        """Return which envelope an event is."""

    @abstractmethod
    def readable(self, event: Json) -> Json:
        """Return an event whose part tells its type; the same where it does."""

    @abstractmethod
    def readable_reply(self, reply: Json) -> Json:
        """Return a whole reply whose parts tell their types; the same where they do."""

    @abstractmethod
    def key_of(self, event: Json) -> PartKey:
        """Return what an event tells of its part."""

    @abstractmethod
    def part_of(self, event: Json) -> Json:
        """Return the part that begins."""

    @abstractmethod
    def call_name(self, part: Json) -> str | None:
        """Return the name of the function that a part calls, None for any other part."""

    def may_name_late(self, part: MaskedPart) -> bool:
        """Tell whether a part may still turn out to be a call whose name comes late."""
        return False

    @abstractmethod
    def fold(self, kind: str, event: Json) -> None:
        """Add an opening or a closing to what the round came to."""

    @abstractmethod
    def fold_part(self, kind: str, event: Json, part: MaskedPart) -> None:
        """Add an event of a part to what the round came to."""

    @abstractmethod
    def show_opening(self, event: Json, event_bytes: bytes) -> bytes:
        """Return the opening as it is shown; of later rounds nothing is."""

    @abstractmethod
    def render(self, event: Json, event_bytes: bytes, place: int | None) -> bytes:
        """Return an event as it is shown, its part at this place."""

    def is_carrier(self, part: Json) -> bool:
        """Tell whether a part only carries what the client did not ask for: it is hidden."""
        return False

    @abstractmethod
    def ends_reasoning(self, event: Json) -> bool:
        """Tell whether an event of reasoning holds the member by which that is sent back."""

    @abstractmethod
    def mark(self, event: Json) -> Json:
        """Return such an event with the mark that a call of ours followed."""

    @abstractmethod
    def lift(self, reply: Json) -> Iterable[Json]:
        """Return a whole reply as the events of a stream."""

    @abstractmethod
    def fold_whole(self, reply: Json) -> None:
        """Take a whole reply as what the round came to."""

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
        texts = [text for r in rounds if (text := self.message_of(r)["content"]) is not None]
        if len(texts) > 1 and all(isinstance(text, str) for text in texts):
            message["content"] = _join_texts(texts)
        return [message]

    def fast_forward(self, event_bytes: bytes) -> bytes:
        return b""

    async def show(self, event: SseEvent) -> bytes:
        """Return what to show for an event. Raises StreamIncomplete."""
        data = event.data or b""
        if data == DONE:
            self.over = True
            return event.event_bytes if not self.rounds and not self._hid else b""
        if is_light(data):
            return self.take(read_event(data), event.event_bytes)
        self._parts.is_heavy = True
        return await run_heavy(lambda: self.take(read_heavy_event(data), event.event_bytes))

    def take(self, event: Json, event_bytes: bytes) -> bytes:
        """Return what to show for an event. event_bytes: as it came, b"" for one of ours."""
        readable_event = self.readable(event)
        if readable_event is not event:
            event = readable_event
            event_bytes = b""
        kind = self.kind_of(event)
        if kind == OTHER:
            return self.render(event, event_bytes, None)
        if kind == ERROR:
            self._error = event
            self.over = True
            return self._settle(cut=True)
        if kind in PART_EVENTS:
            return self._take_part(kind, event, event_bytes)
        self.fold(kind, event)
        if kind == OPEN:
            return b"" if self.rounds else self.show_opening(event, event_bytes)
        self._growing = None
        return self._settle()

    def _take_part(self, kind: str, event: Json, event_bytes: bytes) -> bytes:
        key = self.key_of(event)
        self._growing = None
        part = self._parts.find_again(key) if kind == DELTA else None
        if part is not None and part.place >= 0:
            self.fold_part(kind, event, part)
            return self._show_part(event, event_bytes, part, key)
        if kind == DELTA and not key.kind:
            return self._take_unknown(key, event, event_bytes)
        part = self._part_at(kind, key)
        if part is None:
            # The end of nothing.
            return b""
        known_bytes = self._take_known(kind, key, part, (event, event_bytes))
        if not self._parts.early:
            return known_bytes
        early_events = self._parts.early.pop(part)
        return known_bytes + b"".join(self._take_unknown(*e) for e in early_events)

    def _take_known(
        self, kind: str, key: PartKey, part: MaskedPart, event_as_came: tuple[Json, bytes]
    ) -> bytes:
        event, event_bytes = event_as_came
        self.fold_part(kind, event, part)
        if kind == END:
            self._parts.end(part)
        if part.hidden is None:
            self._decide(part)
        if part.hidden:
            self._hid = True
            part.held.clear()
            return self._release()
        if self._parts.is_held(part):
            part.held.append(event_as_came)
            return self._release()
        return self._show_part(event, event_bytes, part, key)

    def _take_unknown(self, key: PartKey, event: Json, event_bytes: bytes) -> bytes:
        """Show an event that begins no part: with its part, where that is known."""
        part = self._parts.look_up(key)
        if part is None:
            if key.index is None and not key.idents:
                return self.render(event, event_bytes, None)
            self._parts.early.add(key, event, event_bytes)
            return b""
        self.fold_part(DELTA, event, part)
        if part.hidden:
            return b""
        if self._parts.is_held(part):
            part.held.append((event, event_bytes))
            return b""
        return self._show_part(event, event_bytes, part, key)

    def _show_part(self, event: Json, event_bytes: bytes, part: MaskedPart, key: PartKey) -> bytes:
        if part.kind == self.reasoning_kind and self._owned:
            return self._write_reasoning(event, event_bytes, part)
        shown_bytes = self.render(event, event_bytes, part.place)
        if shown_bytes is event_bytes and part.kind in self.quick_kinds and not part.has_ended:
            self._growing = part, key
        return shown_bytes

    def _write_reasoning(self, event: Json, event_bytes: bytes, part: MaskedPart) -> bytes:
        """Return an event of reasoning that has its place; b"" for what is held, its end."""
        if not part.held and not self.ends_reasoning(event):
            return self.render(event, event_bytes, part.place)
        part.held.append((event, event_bytes))
        return self._end_reasoning(part)

    def _end_reasoning(self, part: MaskedPart, *, is_last: bool = False) -> bytes:
        """Return the end of reasoning, once it is known what follows. is_last: nothing does."""
        follower = self._parts.after(part)
        if not is_last and (follower is None or follower.hidden is None):
            self._waiting = part
            return b""
        self._waiting = None
        held_events = part.held
        part.held = []
        if held_events and self._precedes_ours(part) and not part.is_marked:
            part.is_marked = True
            held_events[0] = self.mark(held_events[0][0]), b""
        return b"".join(
            self.render(event, event_bytes, part.place) for event, event_bytes in held_events
        )

    def _precedes_ours(self, part: MaskedPart) -> bool:
        """Tell whether a call follows that is hidden."""
        follower = self._parts.after(part)
        if follower is None or not follower.hidden:
            return False
        return not self.is_carrier(follower.item)

    def mark_part(self, part: Json) -> Json:
        """Return reasoning with the mark that a call of ours followed it."""
        return mark_orphan(part)

    def mark_shown(self, part: Json | None, shown_part: Json) -> Json:
        """Mark reasoning as it is shown, unless what carries marks was taken out of it."""
        if has_mark(part) and not has_mark(shown_part):
            return shown_part
        return self.mark_part(shown_part)

    def visible(self, parts: Iterable[tuple[MaskedPart, Json]]) -> list[Json]:
        """Return the parts that are shown, whole; reasoning before a call of ours is marked."""
        return [
            self.mark_shown(part.item, whole_part) if self._precedes_ours(part) else whole_part
            for part, whole_part in parts
            if not part.hidden
        ]

    def _part_at(self, kind: str, key: PartKey) -> MaskedPart | None:
        """Return the part that an event belongs to. Raises StreamIncomplete."""
        if key.index is not None and not 0 <= key.index < MAX_PARTS:
            raise broken_answer(f"a part without a usable index below {MAX_PARTS}")
        if kind == BEGIN:
            part = self._parts.begin(key)
        elif kind == DELTA:
            part = self._parts.find(key) or self._parts.imply(key)
        else:
            ended_part = self._parts.find_end(key)
            if ended_part is None and not key.kind:
                return None
            part = ended_part or self._parts.imply(key)
        check_count(part.order + 1)
        return part

    def _decide(self, part: MaskedPart) -> None:
        """Decide whose a part is, once that is certain."""
        if part.name or not (self._owned and self.may_name_late(part)):
            part.hidden = self._is_hidden(part)

    def _is_hidden(self, part: MaskedPart) -> bool:
        return self._is_owned(part) or self.is_carrier(part.item)

    def _is_owned(self, part: MaskedPart) -> bool:
        item_kind = part.item.get("type")
        kind = item_kind if isinstance(item_kind, str) and item_kind else part.kind
        return self.call_name({"type": kind, "name": part.name}) in self._owned

    def _settle(self, *, cut: bool = False) -> bytes:
        """Decide whose each part is, now that no name comes any more; return what was held.

        cut: the round broke off, so that a name may be what is missing.
        """
        for part in self._parts.undecided():
            if part.hidden is None:
                part.hidden = self._is_hidden(part) or (cut and not part.name)
            if part.hidden:
                self._hid = True
                part.held.clear()
        shown_bytes = self._release()
        if self._waiting is not None:
            shown_bytes += self._end_reasoning(self._waiting, is_last=True)
        return shown_bytes if cut else shown_bytes + self._show_early()

    def _show_early(self) -> bytes:
        """Show the events that still wait: no part of theirs is to come."""
        shown_events = []
        for key, event, event_bytes in self._parts.early.pop_all():
            part = self._parts.look_up(key)
            if part is None:
                shown_events.append(self.render(event, event_bytes, None))
            elif not part.hidden:
                shown_events.append(self.render(event, event_bytes, part.place))
        return b"".join(shown_events)

    def _release(self) -> bytes:
        """Return what was held of the parts that are decided now."""
        visible_parts = self._parts.release()
        shown_events = []
        if self._waiting is not None:
            shown_events.append(self._end_reasoning(self._waiting))
        for part in visible_parts:
            held_events = part.held
            part.held = []
            if part.kind == self.reasoning_kind and self._owned:
                shown_events += [
                    self._write_reasoning(event, event_bytes, part)
                    for event, event_bytes in held_events
                ]
            else:
                shown_events += [
                    self.render(event, event_bytes, part.place)
                    for event, event_bytes in held_events
                ]
        return b"".join(shown_events)

    def show_whole(self, answer: Json, *, heavy: bool = False) -> list[bytes]:
        self._parts.is_heavy = self._parts.is_heavy or heavy
        return [self.take(event, b"") for event in self.lift(answer)]

    def replay(self, reply: Json) -> tuple[bytes, RoundResult]:
        shown_bytes = b"".join(self.show_whole(reply))
        remaining_bytes, result = self.close()
        return shown_bytes + remaining_bytes, result

    def hold_finish(self, *, holds: bool) -> None:
        """Take note: the end of a round always waits here."""
        del holds

    def end_with(self, reply: Json) -> tuple[bytes, RoundResult]:
        return self.replay(reply)

    def add_whole_part(self, key: PartKey, item: Json) -> MaskedPart:
        """Add a part that came whole."""
        part = self._parts.begin(key)
        check_count(part.order + 1)
        part.item = item
        part.is_whole = True
        self._parts.end(part)
        return part

    def take_whole(self, answer: Json) -> RoundResult | None:
        readable_answer = self.readable_reply(answer)
        self._hid = self._hid or readable_answer is not answer
        self.fold_whole(readable_answer)
        self._settle()
        self.over = True
        return self.close()[1]

    def pass_on(self, answer_bytes: bytes, result: RoundResult) -> None:
        self._passed = answer_bytes, result

    def close(self) -> tuple[bytes, RoundResult]:
        held_bytes = b""
        if self._closed is None:
            held_bytes = self._settle(cut=True)
            self._closed = self.result()
            self.usage = usage_sum(self.usage, self._closed.usage)
        return held_bytes, self._closed

    def start_next_round(self) -> None:
        self._ends.append(len(self.shown))
        self._hid = True
        self._passed = self._closed = None
        self._parts = self._parts.next_round()
        self._growing = self._waiting = None
        self.over = self.ended = False
        self.end_round()

    def finish(self) -> bytes:
        return b""

    def body(self, usage: Json | None, *, long: bool = False) -> bytes | list[bytes]:
        write = encode_in_parts if long else encode
        if self._passed is None or self._hid:
            return write(self.merged())
        answer_bytes, result = self._passed
        restored_reply = self.restored(result.reply)
        if restored_reply is result.reply:
            return answer_bytes
        # A long answer is not held in three copies.
        answer_bytes = b""
        self._passed = None
        return write(restored_reply)

    def keepalive(self) -> bytes:
        return COMMENT


def _join_texts(texts: Sequence[str]) -> str:
    """Return the texts of several rounds as one, as `Interceptor` joins them."""
    joined_text = texts[0]
    for text in texts[1:]:
        spaced = not joined_text or not text or joined_text[-1].isspace() or text[0].isspace()
        joined_text += text if spaced else f"\n\n{text}"
    return joined_text
