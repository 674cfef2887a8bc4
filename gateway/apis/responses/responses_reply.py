"""Replies of the Responses API: rounds of items shown as one response.

- One response id, one `created`, one terminal event; later rounds' lifecycle events are not shown.
- Items are numbered without gaps over all rounds; their ids are the upstream's own.
- `sequence_number` begins where the upstream begins, and rises by one.
- What a response repeats of its request is the client's own (`Echo`).
- The terminal event waits until the turn is recorded, and lists exactly what was shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
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
    check_count,
    data_of,
    error_parts,
    event_of,
)
from gateway.apis.masked_parts import MaskedPart
from gateway.apis.responses.response_events import (
    ADDED,
    ARGUMENTS,
    ARGUMENTS_DELTA,
    CLOSINGS,
    DONE_ITEM,
    OPENINGS,
    TEXT,
    TEXT_DELTA,
    cite_event,
    closing_of,
    has_text,
    lift,
    lift_search,
    whole_item,
)
from gateway.apis.responses.response_items import assistant_message
from gateway.apis.round_result import RoundResult
from gateway.apis.search.search_results import SearchCitations
from gateway.apis.search.searching_mask import SearchingMask
from gateway.errors import GatewayError, UpstreamFailed
from gateway.wire.answer_parts import PartKey
from gateway.wire.chat import Json
from gateway.wire.own_marks import SEALED, has_mark, has_seal, mark_orphan
from gateway.wire.part_keys import (
    CALL,
    REASONING,
    item_key,
    readable_event,
    readable_response,
    responses_key,
)

NO_IDENT = ("",)
# Of the kinds of items that grow: the event's type, its lines, and the member.
PIECES = {
    "message": (TEXT_DELTA, b"event: response.output_text.delta\ndata: ", TEXT),
    CALL: (ARGUMENTS_DELTA, b"event: response.function_call_arguments.delta\ndata: ", ARGUMENTS),
}


class _ItemDelta(msgspec.Struct):
    """The relevant members of a piece. error, item: set for events of other kinds."""

    type: str
    delta: str
    output_index: int | None = None
    item_id: str = ""
    sequence_number: int | None = None
    error: Any = None
    item: Any = None


_read_delta = msgspec.json.Decoder(_ItemDelta).decode


@dataclass(frozen=True, slots=True)
class Echo:
    """What a response repeats of its request, as the client sent it.

    owned: names of tools of ours. instructions: the client's, None for none. chained: the
    client's `previous_response_id`. hides_reasoning: the client did not ask for encrypted
    reasoning, which we did. stored: the response is kept here, which the provider does not know.
    changed: the request that went upstream is not the client's own. thread: the conversation kept
    here that it is in. hides_seals: the client did not ask for encrypted reasoning, in which what
    servers want back is carried.
    """

    owned: frozenset[str]
    instructions: Any = None
    chained: Any = None
    hides_reasoning: bool = False
    include: Any = None
    changed: bool = False
    stored: bool = False
    thread: str = ""
    hides_seals: bool = False

    def restore(self, response: Json) -> Json:
        """Return a response with the client's own values; the same where there is none of ours."""
        if not self.changed:
            return self._without_seals(response)
        restored = dict(response)
        if "instructions" in restored:
            restored["instructions"] = self.instructions
        if "previous_response_id" in restored:
            restored["previous_response_id"] = self.chained
        if self.stored:
            restored["store"] = True
        if self.thread:
            restored["conversation"] = {"id": self.thread}
        if "include" in restored:
            restored["include"] = self.include
        if isinstance(tools := restored.get("tools"), list):
            restored["tools"] = [t for t in tools if not self._is_ours(t)]
        if isinstance(items := restored.get("output"), list):
            restored["output"] = self._visible(items)
        return restored

    def _without_seals(self, response: Json) -> Json:
        items = response.get("output")
        if not (self.hides_seals and isinstance(items, list) and has_seal(items)):
            return response
        return {**response, "output": self._visible(items)}

    def _visible(self, items: list[Any]) -> list[Any]:
        return [self.item(i) for i in items if not self.is_carrier(i)]

    def is_carrier(self, item: Any) -> bool:
        """Tell whether an item only carries what the client did not ask for."""
        return self.hides_seals and has_mark(item, SEALED) and not item.get("content")

    def item(self, item: Any) -> Any:
        """Return an item without what the client did not ask for."""
        if not (isinstance(item, dict) and "encrypted_content" in item):
            return item
        if self.hides_reasoning or (self.hides_seals and has_mark(item, SEALED)):
            return {k: v for k, v in item.items() if k != "encrypted_content"}
        return item

    def _is_ours(self, tool: Any) -> bool:
        return isinstance(tool, dict) and tool.get("name") in self.owned


class ResponsesMask(SearchingMask):
    """The one response that a client sees of a turn."""

    quick_kinds = frozenset(PIECES)
    reasoning_kind = REASONING

    def __init__(self, owned: Collection[str], alias: str | None, echo: Echo) -> None:
        super().__init__(owned, alias)
        self._echo = echo
        # Id, created_at and model of the first round's response.
        self._head: Json = {}
        # That response, as it began.
        self._begun: Json = {}
        # The next event's sequence number.
        self._number: int | None = None
        self._numbered = True
        self._came_whole = False
        # How long the pieces of each shown item were.
        self.cuts: list[list[int]] = []
        self._terminal: tuple[Json, bytes] | None = None

    @property
    def number(self) -> int:
        """The next event's sequence number."""
        return self._number or 0

    def fast_forward(self, event_bytes: bytes) -> bytes:
        if (growing_part := self._growing) is None:
            return b""
        part, key = growing_part
        kind, lines, member = PIECES[part.kind]
        if (data := data_of(event_bytes, lines)) is None:
            return b""
        try:
            delta_event = _read_delta(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""
        is_same_part = (
            delta_event.output_index == key.index
            and delta_event.item_id == (key.idents or NO_IDENT)[0]
        )
        if (
            not is_same_part
            or delta_event.type != kind
            or delta_event.error is not None
            or delta_event.item is not None
        ):
            return b""
        if self._numbered and delta_event.sequence_number != self._number:
            return b""
        self.text_shown = self.text_shown or member == TEXT
        part.pieces.setdefault(member, []).append(delta_event.delta)
        self._number = (self._number or 0) + 1
        return event_bytes

    def kind_of(self, event: Json) -> str:
        kind = str(event.get("type"))
        if kind in OPENINGS:
            return OPEN
        if kind in CLOSINGS:
            return CLOSE
        if kind == ADDED:
            return BEGIN
        if kind == DONE_ITEM:
            return END
        if kind == "error" or (event.get("error") and "response" not in event):
            return ERROR
        if "output_index" in event or "item_id" in event or responses_key(event).kind:
            return DELTA
        return OTHER

    def readable(self, event: Json) -> Json:
        return readable_event(event)

    def readable_reply(self, reply: Json) -> Json:
        return readable_response(reply)

    def key_of(self, event: Json) -> PartKey:
        return responses_key(event)

    def part_of(self, event: Json) -> Json:
        item = event.get("item")
        if isinstance(item, dict):
            return item
        return {}

    def is_carrier(self, part: Json) -> bool:
        return self._echo.is_carrier(part)

    def call_name(self, part: Json) -> str | None:
        name = part.get("name") if part.get("type") == CALL else None
        if isinstance(name, str):
            return name
        return None

    def may_name_late(self, part: MaskedPart) -> bool:
        return part.kind == CALL or not (part.kind or part.has_ended)

    def fold(self, kind: str, event: Json) -> None:
        if kind == CLOSE:
            self._terminal = event, b""
            self.over = True
            self.ended = event["type"] != "response.failed"
            self._match_listed(self._response().get("output"))
        elif (
            kind == OPEN and not self._head and isinstance(response := event.get("response"), dict)
        ):
            self._head = {k: response[k] for k in ("id", "created_at") if k in response}
            self._head["model"] = self.alias or response.get("model")
            self._begun = response

    def fold_part(self, kind: str, event: Json, part: MaskedPart) -> None:
        if kind != DELTA:
            self._take_item(part, self.part_of(event), is_whole=kind == END)
        elif event.get("type") == TEXT_DELTA:
            self.text_shown = True
            part.grow(TEXT, event.get("delta"))
        elif event.get("type") == ARGUMENTS_DELTA:
            part.grow(ARGUMENTS, event.get("delta"))

    def _take_item(self, part: MaskedPart, item: Json, *, is_whole: bool) -> None:
        part.item = item or part.item
        part.is_whole = is_whole and bool(item)

    def _match_listed(self, items: Any) -> None:
        """Take what the end of a response tells of its items that no event did."""
        listed_items = [i for i in items if isinstance(i, dict)] if isinstance(items, list) else []
        check_count(len(listed_items))
        keys = list(map(item_key, listed_items))
        for item, key, part in zip(listed_items, keys, self._parts.match(keys), strict=True):
            if part is None:
                self.add_whole_part(key, item)
            elif not part.is_whole:
                self._take_item(part, item, is_whole=True)

    def take(self, event: Json, event_bytes: bytes) -> bytes:
        if self._number is None and not self.rounds:
            sequence_number = event.get("sequence_number")
            self._numbered = type(sequence_number) is int or not event_bytes
            self._number = sequence_number if type(sequence_number) is int else 0
        shown_bytes = super().take(event, event_bytes)
        if self._terminal is not None and self._terminal[0] is event:
            self._terminal = event, event_bytes
        return shown_bytes

    def show_opening(self, event: Json, event_bytes: bytes) -> bytes:
        return self._lifecycle(event, event_bytes)

    def render(self, event: Json, event_bytes: bytes, place: int | None) -> bytes:
        number = self._next_number()
        is_unchanged = event.get("sequence_number") == number or not self._numbered
        if "item" in event and (item := self._echo.item(event["item"])) is not event["item"]:
            event = {**event, "item": item}
            is_unchanged = False
        if event_bytes and is_unchanged and (place is None or self._is_at(event, place)):
            return event_bytes
        return event_of(self._write(event, number, place))

    def _is_at(self, event: Json, place: int) -> bool:
        """Tell whether an event tells its place, or need not where nothing was renumbered."""
        index = event.get("output_index")
        return index == place or (index is None and not self._hid and not self.rounds)

    def ends_reasoning(self, event: Json) -> bool:
        return event.get("type") == DONE_ITEM

    def mark(self, event: Json) -> Json:
        item = event["item"]
        return {**event, "item": self.mark_shown(item, self._echo.item(item))}

    def mark_part(self, part: Json) -> Json:
        return mark_orphan(part, by_id=not self._echo.hides_reasoning)

    def _write(self, event: Json, number: int, place: int | None) -> Json:
        shown_event = dict(event)
        if place is not None:
            shown_event["output_index"] = place
        if self._numbered:
            shown_event["sequence_number"] = number
        return shown_event

    def _lifecycle(self, event: Json, event_bytes: bytes) -> bytes:
        """Return an event that holds the response as the client knows it."""
        response = event.get("response")
        if not isinstance(response, dict):
            return self.render(event, event_bytes, None)
        shown_response = self._echo.restore(response)
        if self.alias is not None:
            shown_response = {**shown_response, "model": self.alias}
        if shown_response is response:
            return self.render(event, event_bytes, None)
        return event_of(
            self._write({**event, "response": shown_response}, self._next_number(), None)
        )

    def _next_number(self) -> int:
        self._number = self.number + 1
        return self._number - 1

    def restored(self, reply: Json) -> Json:
        return super().restored(self._echo.restore(reply))

    def lift(self, reply: Json) -> Iterator[Json]:
        return lift(reply)

    def fold_whole(self, reply: Json) -> None:
        self._came_whole = True
        self.fold(OPEN, {"response": reply})
        self.fold(CLOSE, closing_of(reply))
        self.text_shown = self.text_shown or any(has_text(p.item) for p in self._parts.parts)

    def result(self) -> RoundResult:
        response = self._response()
        whole_items = {part: whole_item(part) for part in self._parts.parts}
        self.shown += self.visible(
            (part, self._show_item(item)) for part, item in whole_items.items()
        )
        visible_parts = [part for part in whole_items if not part.hidden]
        self.cuts += [[len(t) for t in chain(*part.pieces.values())] for part in visible_parts]
        items = [whole_items[part] for part in self._parts.by_index()]
        calls = [i for i in items if i.get("type") in (CALL, "custom_tool_call")]
        status = response.get("status")
        ending_type = None if self._terminal is None else self._terminal[0].get("type")
        error = self._error
        if ending_type == "response.failed" and not self._came_whole:
            error = response.get("error") or {"code": "server_error", "message": "failed"}
        elif isinstance(error, dict):
            error = error.get("error") or {k: v for k, v in error.items() if k != "type"}
        return RoundResult(
            {**response, "output": items},
            [c for c in calls if self.call_name(c) in self._owned],
            [c for c in calls if self.call_name(c) not in self._owned],
            complete=self._terminal is not None and error is None,
            cut=status not in (None, "completed"),
            text_shown=self.text_shown,
            usage=usage if isinstance(usage := response.get("usage"), dict) and usage else None,
            error=error,
        )

    def _show_item(self, item: Json) -> Json:
        shown_item: Json = self._echo.item(item)
        if self.citations is None:
            return shown_item
        return self.citations.cite_item(shown_item)

    def lift_part(self, place: int, part: Json) -> Iterator[Json]:
        self.cuts.append([])
        return lift_search(place, part)

    def cite(self, event: Json, part: MaskedPart, citations: SearchCitations) -> Sequence[Json]:
        return cite_event(event, citations)

    def _response(self) -> Json:
        response = self._terminal[0].get("response") if self._terminal is not None else None
        return response if isinstance(response, dict) else {"status": "incomplete"}

    def end_round(self) -> None:
        self._terminal = None
        self._came_whole = False

    def run_out(self) -> None:
        ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        final_response = {**self._response(), **ending}
        self._terminal = {"type": "response.incomplete", "response": final_response}, b""
        self._hid = True

    def end(self, usage: Json | None) -> bytes:
        # A replayed round was the last.
        if self._terminal is None:
            return event_of(
                self._write(
                    {"type": "response.completed", "response": self.merged()},
                    self._next_number(),
                    None,
                )
            )
        event, terminal_bytes = self._terminal
        if not self._hid and not self.rounds and self._tells_all(self._response()):
            return self._lifecycle(event, terminal_bytes)
        shown_event = {**event, "response": self.merged()}
        return event_of(self._write(shown_event, self._next_number(), None))

    def _tells_all(self, response: Json) -> bool:
        """Tell whether an ending has the first event's id, and the items that were shown.

        Servers that stream the items leave them out at the end, where some clients look for them.
        """
        has_same_id = response.get("id") == self._head.get("id", response.get("id"))
        listed = response.get("output")
        return has_same_id and len(listed if isinstance(listed, list) else ()) >= len(self.shown)

    def merged(self) -> Json:
        response = self._echo.restore(self._response())
        return {**response, **self._head, "output": self.shown}

    def message_of(self, parts: Sequence[Json]) -> Json:
        return assistant_message(parts)

    def fault(self, error: GatewayError) -> bytes:
        if isinstance(error, UpstreamFailed) and (own_fault := self._own_fault(error)):
            return own_fault
        code, message = error_parts(error)
        error_object = {"code": code or "server_error", "message": message}
        response = {
            "object": "response",
            **self._echo.restore({**self._begun, **self._response()}),
            **self._head,
            "status": "failed",
            "error": error_object,
            "output": self.shown,
        }
        event = {"type": "response.failed", "response": response, "error": error_object}
        return event_of(self._write(event, self._next_number(), None))

    def _own_fault(self, failure: UpstreamFailed) -> bytes:
        """Return the event in which the upstream told its fault; b"" where it told none.

        It is as it came, but for what must not be told of it: see `UpstreamFailed`.
        """
        if self._terminal is not None and self._terminal[0].get("type") == "response.failed":
            return self._own_failure(*self._terminal, failure.error)
        error = self._error
        if not isinstance(error, dict) or error.get("type") != "error":
            return b""
        if self._numbered and "sequence_number" not in error:
            # It was told in another format.
            return b""
        fault: Any = {"error": failure.error} if self._error.get("error") else failure.error
        event = {**self._error, **fault} if isinstance(fault, dict) else self._error
        return event_of(self._write(event, self._next_number(), None))

    def _own_failure(self, event: Json, event_bytes: bytes, error: object) -> bytes:
        """Return the upstream's failed response. error: what it tells, without secrets."""
        response = event.get("response")
        if not isinstance(response, dict):
            return self.render(event, event_bytes, None)
        scrubbed = {} if response.get("error") is None else {"error": error}
        scrubbed_response = {**response, **scrubbed}
        # To the client it is the response that began.
        if self._hid or self.rounds:
            scrubbed_response = {**scrubbed_response, **self._head, "output": self.shown}
        if scrubbed_response == response:
            return self._lifecycle(event, event_bytes)
        return self._lifecycle({**event, "response": scrubbed_response}, b"")
