"""The answer of a chat completion as parts that begin, grow and end. Pure.

Text, reasoning and refusals are separate parts, in the order in which they come. A call begins once
its name is certain: with its first argument, or at the end. Several calls may grow at the same
time. A call with complete arguments ends where another begins, the others at the finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.apis.translation.carried_members import CarriedMembers
from gateway.apis.translation.member_seal import MemberSeal
from gateway.wire.chat import CALLS, Json, MalformedReply
from gateway.wire.streamed_calls import StreamedCall, StreamedCalls, read_index, read_piece
from gateway.wire.told_choices import told_calls

TEXT, REASONING, REFUSAL, CALL = "text", "reasoning", "refusal", "call"
# A part without words, for what the server wants back
CARRIER = "carrier"
# Parts of one answer.
MAX_PARTS = 4096
# What servers call a model's thoughts.
REASONINGS = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class ReplyPart:
    """One part of an answer.

    index: its place. name, ident, call: of a call. unplaced: of its deltas, those that may be the
    tail of the call before it. token: see `MemberSeal`.
    """

    kind: str
    index: int = -1
    name: str = ""
    ident: str = ""
    pieces: list[str] = field(default_factory=list)
    done: bool = False
    call: StreamedCall | None = None
    unplaced: list[Json] = field(default_factory=list)
    token: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ReplyWriter(ABC):
    """Takes the chunks of one answer, returns events of another format.

    A subclass says how a part begins, grows and ends. finish: why the model stopped, None until it
    has said so. usage: as chat completions have it. seal: makes tokens of what the server wants
    back; None where the client has no place for them. carried: what it wants back. on_over: called
    when the answer is complete.
    """

    def __init__(self, ident: str) -> None:
        self.ident = ident
        self.finish: str | None = None
        self.usage: Json = {}
        # That have begun.
        self.parts: list[ReplyPart] = []
        self.has_begun = self.over = False
        self.seal: MemberSeal | None = None
        self.carried = CarriedMembers()
        self.on_over: Callable[[], None] | None = None
        self._streamed = StreamedCalls()
        # The same calls, whether they have begun or not.
        self._calls: list[ReplyPart] = []
        # The text, reasoning or refusal under way.
        self._current_part: ReplyPart | None = None

    @abstractmethod
    def open(self, chunk: Json) -> Iterator[Json]:
        """Give the events that begin the answer. chunk: its first."""

    @abstractmethod
    def begin(self, part: ReplyPart) -> Iterator[Json]:
        """Give the events that begin a part."""

    @abstractmethod
    def grow(self, part: ReplyPart, text: str) -> Iterator[Json]:
        """Give the events by which a part grows."""

    @abstractmethod
    def end(self, part: ReplyPart) -> Iterator[Json]:
        """Give the events that end a part."""

    @abstractmethod
    def close(self) -> Iterator[Json]:
        """Give the events that end the answer."""

    @abstractmethod
    def error(self, error: Any) -> Json:
        """Return the event that reports an error."""

    @abstractmethod
    def refusal(self, error: Any, status: int) -> Json:
        """Return the body of a refusal."""

    @abstractmethod
    def whole(self) -> Json:
        """Return the whole answer, once it is over."""

    def feed(self, chunk: Json) -> Iterator[Json]:
        """Give the events of a chunk. Raises MalformedReply."""
        if self.over:
            return
        if (error := chunk.get("error")) is not None:
            self.over = True
            yield self.error(error)
            return
        if not self.has_begun:
            self.has_begun = True
            yield from self.open(chunk)
        if isinstance(usage := chunk.get("usage"), dict):
            self.usage = usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not read_index(choice.get("index")):
                yield from self._take_choice(choice)

    def stop(self) -> Iterator[Json]:
        """Return the last events, when no chunk follows; none for an answer that was cut."""
        if not self.over and self.finish is not None:
            self.over = True
            yield from self.close()
            if self.on_over is not None:
                self.on_over()

    @property
    def calls(self) -> bool:
        """Whether anything was called."""
        return any(p.kind == CALL for p in self.parts)

    def _take_choice(self, choice: Json) -> Iterator[Json]:
        delta = choice.get("delta")
        if not delta and not (self.parts or self._calls):
            # One event may hold the whole answer.
            delta = choice.get("message")
        if isinstance(delta, dict):
            self.carried.take(delta)
            for kind, text in _texts_of(delta):
                yield from self._add_text(kind, text)
            for call in told_calls(delta):
                if isinstance(call, dict):
                    yield from self._add_call(call)
        if choice.get("finish_reason") and self.finish is None:
            self.finish = str(choice["finish_reason"])
            yield from self._end_all()

    def _add_text(self, kind: str, text: str) -> Iterator[Json]:
        part = self._current_part
        if part is None or part.kind != kind:
            part = ReplyPart(kind)
            yield from self._begin(part)
            self._current_part = part
        part.pieces.append(text)
        yield from self.grow(part, text)

    def _add_call(self, delta: Json) -> Iterator[Json]:
        part = self._call_of(delta)
        text = read_piece(delta).text
        if part.done:
            return
        if text:
            part.pieces.append(text)
        if part.index >= 0:
            if text:
                yield from self.grow(part, text)
            return
        # In their order: a call waits for those before it whose names are not certain yet.
        for call in self._calls:
            if call.index < 0:
                if not (call.name and call.pieces):
                    return
                yield from self._begin_call(call)

    def _call_of(self, delta: Json) -> ReplyPart:
        """Return the call that a piece belongs to. Raises MalformedReply."""
        index = read_index(delta.get("index"))
        if index is not None and index >= CALLS:
            raise MalformedReply(f"a call with the index {index}, of at most {CALLS}")
        call = self._streamed.route(delta)
        if call.place == len(self._calls):
            self._calls.append(ReplyPart(CALL, call=call))
        part = self._calls[call.place]
        if part.index < 0:
            part.name = call.name
            part.ident = call.ident
        self._take_beside(part, call, delta)
        return part

    def _take_beside(self, part: ReplyPart, call: StreamedCall, delta: Json) -> None:
        """Take what a delta says beside a call, once it is certain which call that is."""
        if call.tail_of is not None:
            part.unplaced.append(delta)
            return
        if part.unplaced:
            for earlier_delta in part.unplaced:
                self.carried.take_call(part, earlier_delta)
            part.unplaced = []
        self.carried.take_call(part, delta)

    def _begin_call(self, part: ReplyPart) -> Iterator[Json]:
        """Begin a call with what has come of its arguments."""
        yield from self._begin(part)
        if text := part.text:
            part.pieces = [text]
            yield from self.grow(part, text)

    def _begin(self, part: ReplyPart) -> Iterator[Json]:
        """Begin a part; parts that are complete end before it. Raises MalformedReply."""
        if self._current_part is not None:
            yield from self._end(self._current_part)
            self._current_part = None
        for call in self._calls if part.kind == CALL else ():
            if call.index >= 0 and not call.done and _is_whole(call):
                yield from self._end(call)
        if part.kind not in (REASONING, CARRIER):
            yield from self._carry()
        part.index = len(self.parts)
        if part.index >= MAX_PARTS:
            raise MalformedReply(f"an answer of more than {MAX_PARTS} parts")
        if part.kind == CALL and (not part.ident or self._is_taken(part)):
            part.ident = f"call_{self.ident}_{part.index}"
        self.parts.append(part)
        yield from self.begin(part)

    def _is_taken(self, part: ReplyPart) -> bool:
        return any(p.ident == part.ident for p in self.parts)

    def _end(self, part: ReplyPart) -> Iterator[Json]:
        part.done = True
        if part.kind == REASONING:
            part.token = self._token()
        yield from self.end(part)

    def _token(self) -> str:
        """Return what the server said since the last token; "" for nothing."""
        if not self.carried.is_pending:
            return ""
        sealed = self.carried.close([p for p in self.parts if p.kind == CALL])
        if self.seal is not None:
            return self.seal.close(sealed)
        return ""

    def _carry(self) -> Iterator[Json]:
        """Show what the server wants back as a part of its own, where no reasoning ends with it."""
        if token := self._token():
            part = ReplyPart(CARRIER, token=token)
            yield from self._begin(part)
            yield from self._end(part)

    def _end_all(self) -> Iterator[Json]:
        if self._current_part is not None:
            yield from self._end(self._current_part)
            self._current_part = None
        for part in self._calls:
            yield from self._end_call(part)
        # Text that ends an answer stays its last part.
        if self._calls:
            yield from self._carry()
        else:
            self._token()

    def _end_call(self, part: ReplyPart) -> Iterator[Json]:
        """End a call. What nobody named is the tail of another, whose arguments are whole."""
        if part.call is not None and part.call.tail_of is not None:
            root = self._calls[part.call.root.place]
            for delta in part.unplaced:
                self.carried.take_call(root, delta)
            return
        if part.index < 0:
            yield from self._begin_call(part)
        if not part.done:
            yield from self._end(part)


def _texts_of(delta: Json) -> Iterator[tuple[str, str]]:
    """Yield the kinds and texts of a delta, reasoning first."""
    reasoning = next((delta[m] for m in REASONINGS if isinstance(delta.get(m), str)), "")
    if reasoning:
        yield REASONING, reasoning
    content = delta.get("content")
    if isinstance(content, str) and content:
        yield TEXT, content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield from _texts_in(part)
    refusal = delta.get("refusal")
    if isinstance(refusal, str) and refusal:
        yield REFUSAL, refusal


def _texts_in(part: Json) -> Iterator[tuple[str, str]]:
    """Yield the kinds and texts of one part of a content; Mistral's thoughts are such parts."""
    text, thoughts = part.get("text"), part.get("thinking")
    for thought in thoughts if isinstance(thoughts, list) else [{"text": thoughts}]:
        thought_text = thought.get("text") if isinstance(thought, dict) else None
        if isinstance(thought_text, str) and thought_text:
            yield REASONING, thought_text
    if isinstance(text, str) and text:
        yield TEXT, text


def _is_whole(part: ReplyPart) -> bool:
    return part.call is not None and part.call.arguments.is_complete


def count_of(usage: Any, *path: str) -> int:
    """Return a count of a usage; 0 if it is missing."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    if type(usage) is int and usage > 0:
        return usage
    return 0
