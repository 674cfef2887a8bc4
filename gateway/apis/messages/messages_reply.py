"""Replies of the Messages API: rounds of content blocks shown as one message.

- One `message_start`, one `message_delta`, one `message_stop`; later rounds' starts are not shown.
- Blocks are numbered without gaps over all rounds; thinking and its signature pass as they came.
- The closing events wait until the turn is recorded. Their usage is the last round's, which is the
  size of the context, with every input and cache member; `iterations` lists the rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from gateway.apis.envelope_events import (
    BEGIN,
    CLOSE,
    DELTA,
    END,
    ERROR,
    OPEN,
    OTHER,
    data_of,
    error_parts,
    event_of,
)
from gateway.apis.masked_parts import MaskedPart
from gateway.apis.messages.message_blocks import assistant_message
from gateway.apis.messages.messages_errors import error_type
from gateway.apis.round_result import RoundResult
from gateway.apis.search.search_results import SearchCitations
from gateway.apis.search.searching_mask import SearchingMask
from gateway.apis.translation.messages_reply_from_chat import NO_USAGE
from gateway.errors import GatewayError, UpstreamFailed
from gateway.wire.answer_parts import PartKey
from gateway.wire.chat import Json, encode
from gateway.wire.own_marks import ORPHANED, SEALED, has_mark, mark_orphan
from gateway.wire.part_keys import (
    THINKING,
    TOOL_USE,
    messages_key,
    readable_block_event,
    readable_message,
)
from memory import new_id
from memory.conversation.foreign_json import decode_foreign

KINDS = {
    "message_start": OPEN,
    "content_block_start": BEGIN,
    "content_block_delta": DELTA,
    "content_block_stop": END,
    "message_delta": CLOSE,
    "message_stop": CLOSE,
    "error": ERROR,
}
# Reasons to stop that leave a call unfinished, or take precedence over it.
CUT = frozenset({"max_tokens", "refusal", "pause_turn", "model_context_window_exceeded"})
GROWING = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
WORDS = tuple(GROWING.values())
INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# Told at the end.
ENDING = ("stop_reason", "stop_sequence", "stop_details", "container")
DELTA_LINES = b"event: content_block_delta\ndata: "
# By the kind of block.
PIECES = {"text": "text_delta", TOOL_USE: "input_json_delta"}


class _Piece(msgspec.Struct):
    type: str
    text: str | None = None
    partial_json: str | None = None


class _BlockDelta(msgspec.Struct):
    """A piece of text or input, as far as it matters here."""

    type: str
    index: int
    delta: _Piece


_read_delta = msgspec.json.Decoder(_BlockDelta).decode
PING = event_of({"type": "ping"})


class MessagesMask(SearchingMask):
    """The one message that a client sees of a turn.

    hides_seals: its client did not ask for thinking, in which what servers want back is carried.
    """

    quick_kinds = frozenset(PIECES)
    reasoning_kind = THINKING

    def __init__(
        self, owned: Collection[str], alias: str | None, *, hides_seals: bool = False
    ) -> None:
        super().__init__(owned, alias)
        self._hides_seals = hides_seals
        # The first round's message.
        self._start: Json = {}
        # This round's message.
        self._opening_message: Json = {}
        # All that its closing events tell.
        self._delta: Json | None = None
        # That event as it came, where it is the only one.
        self._closing: bytes = b""
        self._stop: bytes = b""
        self._whole_message: Json | None = None
        self._usages: list[Json] = []
        self._has_begun = False

    def fast_forward(self, event_bytes: bytes) -> bytes:
        if (growing_part := self._growing) is None:
            return b""
        part, key = growing_part
        kind = PIECES[part.kind]
        if (data := data_of(event_bytes, DELTA_LINES)) is None:
            return b""
        try:
            delta_event = _read_delta(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""
        delta = delta_event.delta
        is_text = part.kind == "text"
        text = delta.text if is_text else delta.partial_json
        if text is None or delta.type != kind or delta_event.index != key.index:
            return b""
        if KINDS.get(delta_event.type) != DELTA:
            return b""
        self.text_shown = self.text_shown or is_text
        part.pieces.setdefault("text" if is_text else "input", []).append(text)
        return event_bytes

    def kind_of(self, event: Json) -> str:
        kind = event.get("type")
        if kind is None and event.get("error"):
            # As servers of other formats tell it.
            return ERROR
        return KINDS.get(str(kind), OTHER)

    def readable(self, event: Json) -> Json:
        return readable_block_event(event)

    def readable_reply(self, reply: Json) -> Json:
        return readable_message(reply)

    def key_of(self, event: Json) -> PartKey:
        return messages_key(event)

    def part_of(self, event: Json) -> Json:
        block = event.get("content_block")
        if isinstance(block, dict):
            return block
        return {}

    def call_name(self, part: Json) -> str | None:
        name = None
        if part.get("type") == "tool_use":
            name = part.get("name")
        if isinstance(name, str):
            return name
        return None

    def is_carrier(self, part: Json) -> bool:
        return self._hides_seals and has_mark(part, SEALED)

    def fold(self, kind: str, event: Json) -> None:
        if kind == OPEN:
            message = event.get("message")
            self._opening_message = message if isinstance(message, dict) else {}
            self._start = self._start or self._opening_message
        elif event["type"] == "message_delta":
            self._delta = combine_closings(self._delta, event)
            self.ended = True
        elif event["type"] == "message_stop":
            self.over = True

    def fold_part(self, kind: str, event: Json, part: MaskedPart) -> None:
        if kind == BEGIN:
            part.item = dict(self.part_of(event))
            part.name = self.call_name(part.item) or ""
        elif kind == DELTA and isinstance(delta := event.get("delta"), dict):
            self._grow(part, delta)

    def _grow(self, part: MaskedPart, delta: Json) -> None:
        """Add a piece to a block."""
        kind = str(delta.get("type"))
        # No event told its beginning.
        if not part.item:
            part.item = {"type": part.kind, part.kind: ""} if part.kind in WORDS else {}
        if kind == "input_json_delta":
            part.grow("input", delta.get("partial_json"))
        elif member := GROWING.get(kind):
            self.text_shown = self.text_shown or member == "text"
            part.grow(member, delta.get(member))
        elif kind == "citations_delta":
            part.item["citations"] = [*(part.item.get("citations") or ()), delta.get("citation")]
        else:
            part.item.update({k: v for k, v in delta.items() if k != "type"})

    def take(self, event: Json, event_bytes: bytes) -> bytes:
        is_first = self._delta is None
        shown_bytes = super().take(event, event_bytes)
        kind = event.get("type")
        if kind == "message_delta":
            self._closing = event_bytes if is_first else b""
        elif kind == "message_stop":
            self._stop = event_bytes
        return shown_bytes

    def show_opening(self, event: Json, event_bytes: bytes) -> bytes:
        self._has_begun = True
        if self.alias is not None and self._opening_message.get("model") != self.alias:
            event = {**event, "message": {**self._opening_message, "model": self.alias}}
            event_bytes = b""
        return event_bytes or event_of(event)

    def render(self, event: Json, event_bytes: bytes, place: int | None) -> bytes:
        if self.citations and event.get("type") == "content_block_start":
            block = self.part_of(event)
            if block.get("type") == "text":
                event = {**event, "content_block": {**block, "citations": []}}
                event_bytes = b""
        if event_bytes and (place is None or event.get("index") == place):
            return event_bytes
        return event_of(event if place is None else {**event, "index": place})

    def ends_reasoning(self, event: Json) -> bool:
        delta = event.get("delta")
        if isinstance(delta, dict):
            return delta.get("type") == "signature_delta" and bool(delta.get("signature"))
        return _is_wordless_seal(self.part_of(event))

    def mark(self, event: Json) -> Json:
        delta = event.get("delta")
        if not isinstance(delta, dict):
            return {**event, "content_block": mark_orphan(self.part_of(event))}
        return {**event, "delta": {**delta, "signature": f"{ORPHANED}{delta['signature']}"}}

    def lift(self, reply: Json) -> Iterator[Json]:
        return lift(reply)

    def fold_whole(self, reply: Json) -> None:
        content = reply.get("content")
        if isinstance(content, list):
            blocks = [b for b in content if isinstance(b, dict)]
        else:
            blocks = []
        self.fold(OPEN, opening_of(reply))
        for index, block in enumerate(blocks):
            key = messages_key({"index": index, "content_block": block})
            part = self.add_whole_part(key, dict(block))
            part.name = self.call_name(block) or ""
        shows = any(b.get("type") == "text" and b.get("text") for b in blocks)
        self.text_shown = self.text_shown or shows
        self.fold(CLOSE, closing_of(reply))

    def result(self) -> RoundResult:
        whole_blocks = {part: _whole_block(part) for part in self._parts.parts if part.item}
        self.shown += self.visible(
            (part, block if self.citations is None else self.citations.cite_block(block))
            for part, block in whole_blocks.items()
        )
        blocks = [whole_blocks[part] for part in self._parts.by_index() if part in whole_blocks]
        delta = self._delta or {}
        ending = delta.get("delta")
        usage = {**_dict(self._opening_message.get("usage")), **_present(delta.get("usage"))}
        if usage:
            self._usages += [usage]
        calls = [b for b in blocks if b.get("type") == "tool_use"]
        reply = {**self._opening_message, **_dict(ending), "content": blocks, "usage": usage}
        return RoundResult(
            reply,
            [c for c in calls if self.call_name(c) in self._owned],
            [c for c in calls if self.call_name(c) not in self._owned],
            complete=self._delta is not None and self._error is None,
            cut=str(_dict(ending).get("stop_reason")) in CUT,
            text_shown=self.text_shown,
            usage=usage or None,
            error=self._error.get("error", self._error) if self._error is not None else None,
        )

    def end_round(self) -> None:
        self._opening_message = {}
        self._delta = None
        self._closing = b""
        self._stop = b""

    def run_out(self) -> None:
        """Nothing: the limit is each round's."""

    def end(self, usage: Json | None) -> bytes:
        delta = self._delta or {}
        closing_bytes = self._closing
        reported_usage = _dict(delta.get("usage"))
        if (
            closing_bytes
            and not self._hid
            and not self.rounds
            and _is_complete(reported_usage, self._opening_message)
        ):
            return closing_bytes + (self._stop or event_of({"type": "message_stop"}))
        ending = {**_dict(delta.get("delta"))}
        ending["stop_reason"] = self._stop_reason(ending.get("stop_reason"))
        closing = {**delta, "type": "message_delta", "delta": ending, "usage": self._told_usage()}
        return event_of(closing) + event_of({"type": "message_stop"})

    def _stop_reason(self, reason: Any) -> Any:
        """Return why the message the client sees has ended: of calls that it sees, or none."""
        if reason != "tool_use":
            return reason
        has_visible_calls = any(b.get("type") == "tool_use" for b in self.shown)
        if has_visible_calls:
            return "tool_use"
        return "end_turn"

    def _told_usage(self) -> Json:
        """Return the last round's usage; with several, each of them."""
        last_usage = self._usages[-1] if self._usages else {}
        if self.searches:
            # The vendor's types demand both.
            requests = {"web_search_requests": self.searches, "web_fetch_requests": 0}
            last_usage = {**last_usage, "server_tool_use": requests}
        if len(self._usages) < 2:
            return last_usage
        return {**last_usage, "iterations": [i for u in self._usages for i in _iterations(u)]}

    def merged(self) -> Json:
        delta = _dict((self._delta or {}).get("delta"))
        message = {**self._start, **self._opening_message, **delta, "content": self.shown}
        for member in ("id", "model"):
            if member in self._start:
                message[member] = self._start[member]
        if self.alias is not None:
            message["model"] = self.alias
        message["stop_reason"] = self._stop_reason(message.get("stop_reason"))
        return {**message, "usage": self._told_usage()}

    def lift_part(self, place: int, part: Json) -> Iterator[Json]:
        return _lift_block(place, part)

    def cite(self, event: Json, part: MaskedPart, citations: SearchCitations) -> Sequence[Json]:
        if event.get("type") != "content_block_stop" or part.kind != "text":
            return ()
        cited_hits = citations.cite_message(str(part.item.get("text") or "") + part.text_of("text"))
        place = {"type": "content_block_delta", "index": part.place}
        deltas = [
            {**place, "delta": {"type": "citations_delta", "citation": c}} for c in cited_hits
        ]
        if deltas:
            return [*deltas, event]
        return ()

    def message_of(self, parts: Sequence[Json]) -> Json:
        return assistant_message(parts)

    def fault(self, error: GatewayError) -> bytes:
        if isinstance(error, UpstreamFailed) and self._error is not None:
            return event_of({**self._error, "type": "error", "error": error.error})
        _, message = error_parts(error)
        error_object = {"type": error_type(error), "message": message}
        return event_of({"type": "error", "error": error_object})

    def keepalive(self) -> bytes:
        if self._has_begun:
            return PING
        return super().keepalive()


def text_message(model: Any, text: str, before: Json | None) -> Json:
    """Return a message with a text. before: the one before it in the turn, if there was one."""
    head = {"id": new_id("msg"), "type": "message", "role": "assistant", "model": model}
    members = {**head, **(before or {}), "content": [{"type": "text", "text": text}]}
    usage = NO_USAGE if before is None else {}
    return {**members, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def combine_closings(previous_event: Json | None, event: Json) -> Json:
    """Return what an answer's closing events tell together.

    Some servers tell the reason in one and the usage in another; a null or a zero in the later
    takes nothing back.
    """
    if previous_event is None:
        return event
    ending = _dict(previous_event.get("delta"))
    event_delta = _dict(event.get("delta"))
    ending = {
        **ending,
        **{k: v for k, v in event_delta.items() if v is not None or k not in ending},
    }
    usage = {**_dict(previous_event.get("usage"))}
    usage |= {k: v for k, v in _present(event.get("usage")).items() if v or not usage.get(k)}
    return {**previous_event, **event, "delta": ending, "usage": usage}


def _whole_block(part: MaskedPart) -> Json:
    """Return a block with all its pieces."""
    block = part.item
    for member in WORDS:
        if text := part.text_of(member):
            block[member] = str(block.get(member) or "") + text
    if text := part.text_of("input"):
        block["input"] = _input_of(text)
    return block


def lift(reply: Json) -> Iterator[Json]:
    """Return a whole message as the events of a stream."""
    yield opening_of(reply)
    content = reply.get("content")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict):
            yield from _lift_block(index, block)
    yield closing_of(reply)
    yield {"type": "message_stop"}


def opening_of(reply: Json) -> Json:
    """Return the event that begins a whole message."""
    unknown_members = dict.fromkeys(k for k in ENDING if k in reply)
    return {"type": "message_start", "message": {**reply, "content": [], **unknown_members}}


def closing_of(reply: Json) -> Json:
    """Return the event that tells how a whole message ended."""
    ending = {k: reply[k] for k in ENDING if k in reply}
    return {"type": "message_delta", "delta": ending, "usage": _dict(reply.get("usage"))}


def _lift_block(index: int, block: Json) -> Iterator[Json]:
    """Return one block as events."""
    opening_block = dict(block)
    deltas = []
    kind = block.get("type")
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use") and block.get("input"):
        opening_block["input"] = {}
        text = encode(block["input"]).decode()
        deltas.append({"type": "input_json_delta", "partial_json": text})
    elif kind in ("text", "thinking") and not _is_wordless_seal(block):
        for name, member in GROWING.items():
            if block.get(member):
                opening_block[member] = ""
                deltas.append({"type": name, member: block[member]})
    yield {"type": "content_block_start", "index": index, "content_block": opening_block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _is_wordless_seal(block: Json) -> bool:
    """Tell whether a block only carries what a server wants back, which it says as it begins."""
    return has_mark(block, SEALED) and not block.get("thinking")


def _iterations(usage: Json) -> list[Json]:
    """Return the iterations of one round: those that the API told of, else the round itself."""
    iterations = usage.get("iterations")
    if isinstance(iterations, list) and iterations:
        return iterations
    return [{"type": "message", **{k: v for k, v in usage.items() if k != "iterations"}}]


def _is_complete(reported_usage: Json, opening_message: Json) -> bool:
    """Tell whether a closing usage has every member that the opening had."""
    opening_usage = _dict(opening_message.get("usage"))
    return all(m in reported_usage for m in INPUT if m in opening_usage)


def _present(usage: Any) -> Json:
    return {k: v for k, v in _dict(usage).items() if v is not None}


def _dict(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    return {}


def _input_of(text: str) -> Any:
    """Return a call's input; input that is not JSON stays a text, which the tool then refuses."""
    try:
        return decode_foreign(text)
    except (msgspec.DecodeError, RecursionError):
        return text
