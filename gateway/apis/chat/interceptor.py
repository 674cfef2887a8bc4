"""The interceptor: one answer out of any number of upstream rounds, with our calls taken out. Pure.

Rules (MEMORY.md 4):
- Text never waits. Only the deltas of a call wait, and only while its name could still become one
  of ours.
- A call is ours by its name, whatever `finish_reason` says. Ours is never shown.
- The client sees one answer: one identity, one role and one finish a lane, dense call indexes once
  a call of ours was taken out, texts of several rounds joined by a blank line only where neither
  side has white space.
- A finish is shown at once when its lane holds no call of ours; else the turn decides what follows.
- What is known by its bytes to be one more piece of what is being shown is not read (`mould`);
  shown, and added up, is the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gateway.apis.chat.choice_state import ChoiceState, InterceptedCall, ShownChunks
from gateway.apis.round_result import RoundResult
from gateway.wire.chat import (
    Chunk,
    ChunkIdentity,
    CompletionBuilder,
    Json,
    Segment,
    decode,
    encode,
    lane_of,
    unlift,
)
from gateway.wire.chat import chunk as chunk_of
from gateway.wire.fast_path import CONTENT, ChunkTemplate, make_template
from gateway.wire.merge import CALLS, usage_sum
from gateway.wire.streamed_calls import StreamedCalls

CUT = ("length", "content_filter")  # finishes of an answer that is not all of it
MAX_TEXTS_HELD = 256  # texts of one mould that are kept apart
# Moulds that are made in a row without use: in some streams no event is like the one before.
TRIES = 8


class Interceptor:
    """Feed it the chunks of each round; show the client what it returns.

    ours: names of calls that are run here and never shown. include_usage: the client asked for a
    usage chunk. model: the name to show in place of the upstream's, for an alias. lean: nobody asks
    for the tokens' probabilities of the whole.
    """

    def __init__(
        self,
        own_tools: Collection[str],
        include_usage: bool = False,
        model: str | None = None,
        *,
        lean: bool = False,
    ) -> None:
        self._own_names = frozenset(own_tools)
        self._include_usage = include_usage
        self._head = ChunkIdentity(model)
        self._roles: set[int] = set()
        self._lanes: dict[int, ChoiceState] = {}
        self._lean = lean
        self._round_reply = CompletionBuilder(lean=lean)
        # Where that is not just what was received: of nearly all answers it is.
        self._shown_reply: CompletionBuilder | None = None
        self._usage_chunk: Json = {}  # the newest chunk without choices that told usage
        self._usage: Json | None = None
        self._last_usage: Json | None = None
        self._rounds = 0
        self._error: Any = None
        self._template: ChunkTemplate | None = None
        self._tries = TRIES
        self.usage: Json | None = None
        self.text_shown = False
        self.holds_finish = False  # of a round without calls: another may follow
        self.holds_every_finish = False  # something of ours stands before it

    @property
    def ended(self) -> bool:
        """Whether every choice of this round has a finish reason."""
        return bool(self._lanes) and all(lane.reason for lane in self._lanes.values())

    def count_calls(self) -> int:
        """Count the calls of the round, of all choices."""
        count = 0  # without a generator, as each answer asks
        for lane in self._lanes.values():
            count += len(lane.calls)
        return count

    def count_held(self) -> int:
        """Count the calls of which something is held back."""
        return sum(len(lane.calls) - lane.released for lane in self._lanes.values())

    @property
    def alias(self) -> str | None:
        """The name to show in place of the upstream's; to be set before the first chunk."""
        return self._head.model

    @alias.setter
    def alias(self, name: str | None) -> None:
        self._head.model = name

    def feed(self, chunk: Chunk) -> list[bytes]:
        """Take the next chunk of the round; returns the chunks to show, encoded."""
        self._flush_template()
        if chunk.error is not None:
            self._error = chunk.error
            return []
        if chunk.usage is not None:
            self._last_usage = chunk.usage
        if not chunk.segments:
            self._round_reply.add(chunk.body)
            return self._bare(chunk)
        self._head.of(chunk.body)  # the first round's identity, though nothing of it may be shown
        shown_chunks = ShownChunks(chunk)
        hiding = any(s.kind == "call" for s in chunk.segments)
        if hiding and self._own_names:
            self._part()
        kept_segments = [s for s in chunk.segments if self._keep(chunk, s, hiding, shown_chunks)]
        kept_segments = shown_chunks.in_order(chunk, kept_segments)
        if len(kept_segments) < len(chunk.segments) or any(
            s.replacement is not None for s in kept_segments
        ):
            self._part()
        self._show(chunk, kept_segments, shown_chunks)
        self._round_reply.add(chunk.body)
        if (
            self._tries
            and len(kept_segments) == len(shown_chunks) == 1
            and kept_segments[0].kind != "finish"
        ):
            self._learn_template(chunk, kept_segments[0])
        return shown_chunks

    def _part(self) -> None:
        """From the next chunk on, what is shown is no longer all that is received."""
        if self._shown_reply is None:
            self._shown_reply = self._round_reply.copy()

    def fast_forward(self, event_bytes: bytes) -> bytes:
        """Return the event to show for one that only continues the text being shown.

        It is matched by its bytes. Returns b"" for an event that must be read and fed.
        """
        if (template := self._template) is None:
            return b""
        shown_event = template.match(event_bytes)
        if len(template.texts) == MAX_TEXTS_HELD:
            self._add_to_builders(template)
        return shown_event

    def read_forward(self, event_bytes: bytes) -> tuple[int, Json] | None:
        """Return the lane and the delta of such an event, None for one that must be fed."""
        if (template := self._template) is None or not template.match(event_bytes):
            return None
        lane_and_delta = template.lane, template.delta(template.texts[-1])
        if len(template.texts) == MAX_TEXTS_HELD:
            self._add_to_builders(template)
        return lane_and_delta

    def _learn_template(self, chunk: Chunk, segment: Segment) -> None:
        """Learn from a chunk that was just shown what the next ones may be known by."""
        state, is_text = self._lanes[segment.lane], segment.kind == "text"
        if (
            segment.lane in self._roles
            and (is_text or segment.replacement is None)
            and not (state.finish or state.reason or (is_text and state.fresh))
        ):
            self._template = make_template(chunk, self._head, self._roles, not self._include_usage)
            self._tries -= is_text or self._template is not None
            if self._template is not None:
                self._template.guards_objects = segment.kind == "call"

    def _flush_template(self) -> None:
        """Something else follows what was known by its bytes."""
        template, self._template = self._template, None
        if template is not None and template.texts:
            self._tries = TRIES
            self._add_to_builders(template)

    def _add_to_builders(self, template: ChunkTemplate) -> None:
        text = "".join(template.texts)
        template.texts.clear()
        delta, lane = template.delta(text), self._lanes[template.lane]
        if CONTENT in delta:
            lane.last = text[-1]
        elif CALLS in delta:
            lane.streamed.route(delta[CALLS][0])
        for fold in (self._round_reply, self._shown_reply):
            if fold is not None:
                fold.more(template.lane, delta)

    def _bare(self, chunk: Chunk) -> list[bytes]:
        """Return a chunk without choices, as a list, if it tells anything but usage."""
        if chunk.usage is not None:
            self._usage_chunk = chunk.body
        if self._rounds or chunk.body.get("usage") is not None:
            return []
        body = {**chunk.body, **self._head.of(chunk.body), "choices": []}
        if not self._include_usage:
            body.pop("usage", None)
        return [chunk.payload if chunk.payload and body == chunk.body else encode(body)]

    def _keep(
        self, chunk: Chunk, segment: Segment, hiding: bool, shown_chunks: ShownChunks
    ) -> bool:
        lane = self._lanes.setdefault(segment.lane, ChoiceState())
        if lane.finish or lane.reason:
            return False  # nothing of a lane follows its finish
        if segment.kind == "text":
            self._join(lane, segment)
            return True
        if segment.kind == "call":
            return self._call(chunk, segment, lane, shown_chunks)
        if segment.kind == "finish":
            return self._finish(chunk, segment, lane, shown_chunks)
        return bool(segment.value) or not (hiding or self._rounds or chunk.usage is not None)

    def _join(self, lane: ChoiceState, segment: Segment) -> None:
        text: str = segment.value
        if lane.fresh:
            lane.fresh = False
            if lane.last and not lane.last.isspace() and not text[0].isspace():
                segment.replacement = "\n\n" + text
        lane.last = text[-1]
        self.text_shown = True

    def _call(
        self, chunk: Chunk, segment: Segment, lane: ChoiceState, shown_chunks: ShownChunks
    ) -> bool:
        delta: Json = segment.value
        function: Json = delta["function"] if isinstance(delta.get("function"), dict) else {}
        call = self._route(lane, delta)
        if call.ours is None:
            has_arguments = bool(function.get("arguments"))
            self._judge(call, is_done=has_arguments or delta.get("type") == "custom")
        if call.ours:
            lane.hid = True
            call.held.clear()
            self._release(lane, shown_chunks)
            return False
        self._release(lane, shown_chunks)
        if call.call.place >= lane.released:  # it, or one before it, could still become ours
            call.held.append((chunk, segment))
            return False
        return self._place(lane, call, segment)

    def _route(self, lane: ChoiceState, delta: Json) -> InterceptedCall:
        """Return the call that a delta goes on with, or a new one."""
        call = lane.streamed.route(delta)
        if call.place == len(lane.calls):
            lane.calls.append(InterceptedCall(call))
        return lane.calls[call.place]

    def _judge(self, call: InterceptedCall, is_done: bool) -> None:
        name, is_done = call.call.name, is_done or call.call.arguments.has_text
        if (not name or call.call.tail_of is not None) and self._own_names:
            return  # some servers tell it after the arguments
        if name in self._own_names:
            # It could still grow into a longer name of the client's; nothing is lost by waiting for
            # its arguments.
            call.ours = True if is_done else None
        elif is_done or not any(own_name.startswith(name) for own_name in self._own_names):
            call.ours = False

    def _release(self, lane: ChoiceState, shown_chunks: ShownChunks) -> None:
        """Show the held deltas of the client's calls, in order.

        None is shown before a call that could still be one of ours.
        """
        while (
            lane.released < len(lane.calls) and (call := lane.calls[lane.released]).ours is not None
        ):
            lane.released += 1
            held_deltas, call.held = call.held, []
            for chunk, segment in held_deltas:
                self._place(lane, call, segment)
                if chunk is shown_chunks.chunk:
                    shown_chunks.returned.append(segment)
                else:
                    self._show(chunk, [segment], shown_chunks)

    def _place(self, lane: ChoiceState, call: InterceptedCall, segment: Segment) -> bool:
        """Indexes are dense, in the order first seen.

        Some servers number every call 0: that passes while nothing is hidden.
        """
        call = lane.calls[call.call.root.place]  # what nobody named is the end of another
        if call.shown_as < 0:
            index = call.call.index
            place_of_index = lane.places.get(index) if index is not None else None
            call.shown_as = (
                place_of_index if place_of_index is not None and not lane.hid else lane.next_index
            )
            lane.places.setdefault(index, call.shown_as)
            lane.next_index = max(lane.next_index, call.shown_as + 1)
        if segment.value.get("index") != call.shown_as:
            segment.replacement = {**segment.value, "index": call.shown_as}
        return True

    def _finish(
        self, chunk: Chunk, segment: Segment, lane: ChoiceState, shown_chunks: ShownChunks
    ) -> bool:
        lane.reason = segment.value
        self._decide(lane, shown_chunks)
        is_held = self.holds_finish and not lane.calls and segment.value not in CUT
        if is_held or self.holds_every_finish or any(call.ours for call in lane.calls):
            lane.waiting = (chunk, segment)
            return False
        lane.finish = segment.value
        return True

    def _decide(self, lane: ChoiceState, shown_chunks: ShownChunks) -> None:
        for call in lane.calls:
            if call.ours is None:
                self._decide_call(lane, call)
            if call.ours:
                call.held.clear()
        self._release(lane, shown_chunks)

    def _decide_call(self, lane: ChoiceState, call: InterceptedCall) -> None:
        """Decide on a call of which nothing more comes."""
        root = call.call.root
        if root is not call.call:
            call.ours = lane.calls[root.place].ours
            return
        # Of a stream that was cut, the name may be what is missing.
        is_cut = not (call.call.name or lane.reason)
        call.ours = is_cut or call.call.name in self._own_names
        lane.hid = lane.hid or call.ours

    def _show(self, chunk: Chunk, segments: list[Segment], encoded_chunks: list[bytes]) -> None:
        payload = chunk.render(segments, self._head, self._roles, not self._include_usage)
        if payload is not None:
            if self._shown_reply is not None:
                self._shown_reply.add(chunk.body if payload is chunk.payload else decode(payload))
            encoded_chunks.append(payload)

    def show_delta(self, lane: int, delta: Json) -> list[bytes]:
        """Show a delta of the gateway's own, before the finish of its choice."""
        choice = {"index": lane, "delta": delta, "finish_reason": None}
        chunk = chunk_of({**self._head.members, "choices": [choice]}, b"")
        encoded_chunks: list[bytes] = []
        self._show(chunk, chunk.segments, encoded_chunks)
        return encoded_chunks

    def shown_texts(self) -> dict[int, str]:
        """Return the text that each choice has shown so far."""
        return (self._round_reply if self._shown_reply is None else self._shown_reply).texts()

    def finish_round(self) -> list[bytes]:
        """Return what to show when the whole round has come.

        A choice with an empty finish reason has ended as well.
        """
        encoded_chunks: list[bytes] = []
        for lane, state in self._lanes.items():
            if not state.reason and self._round_reply.finish(lane) == "":
                final_choice = {
                    "index": lane,
                    "delta": {},
                    "finish_reason": "tool_calls" if state.calls else "stop",
                }
                encoded_chunks += self.feed(
                    chunk_of({**self._head.members, "choices": [final_choice]}, b"")
                )
        return encoded_chunks

    def close(self) -> tuple[list[bytes], RoundResult]:
        """End the stream: return what was still held, and what the round came to."""
        self._flush_template()
        shown_chunks = ShownChunks()
        for lane in self._lanes.values():
            self._decide(lane, shown_chunks)
        self._usage, self._last_usage = self._last_usage, None
        self.usage = usage_sum(self.usage, self._usage)
        reply, has_ended = self._round_reply.whole(), self.ended
        calls = [
            c
            for choice in reply["choices"]
            for c in choice.get("message", {}).get("tool_calls") or []
        ]
        reasons = [lane.reason for lane in self._lanes.values()]
        result = RoundResult(
            reply=reply,
            ours=[c for c in calls if _name(c) in self._own_names],
            theirs=[c for c in calls if _name(c) not in self._own_names],
            complete=has_ended and self._error is None,
            cut=any(r in CUT for r in reasons),
            text_shown=self.text_shown,
            usage=self._usage,
            error=self._error,
        )
        if self._shown_reply is None:
            self._shown_reply = self._round_reply
        self._round_reply = CompletionBuilder(lean=self._lean)
        return shown_chunks, result

    def whole(self, chunk: Chunk | None) -> RoundResult | None:
        """Return what a round came to whose answer came whole and holds no call.

        Nothing of it is hidden or edited, so it is not taken apart. Returns None where it must be
        fed.
        """
        if chunk is None or chunk.error is not None:
            return None
        reasons: dict[int, str] = {}
        has_text = is_cut = False
        for segment in chunk.segments:
            kind = segment.kind
            if kind == "call":
                return None
            if kind == "finish":
                reasons[segment.lane] = segment.value
                is_cut = is_cut or segment.value in CUT
            elif kind == "text":
                has_text = True
        lanes = list(map(lane_of, chunk.body["choices"]))
        if len(lanes) > 1 and lanes != sorted(set(lanes)):
            return None
        self.usage = chunk.usage
        self.text_shown = has_text
        return RoundResult(
            unlift(chunk.body),
            [],
            [],
            complete=bool(lanes) and reasons.keys() >= set(lanes),
            cut=is_cut,
            text_shown=self.text_shown,
            usage=chunk.usage,
        )

    def start_next_round(self) -> None:
        """Another round follows: its chunks continue the answer the client is reading."""
        self._rounds += 1
        for lane in self._lanes.values():
            lane.streamed = StreamedCalls()
            lane.calls.clear()
            lane.places.clear()
            lane.released = 0
            lane.reason = ""
            lane.waiting = None
            lane.fresh = True
            lane.hid = True

    def finish(self) -> list[bytes]:
        """Return the finishes that were held back, now that no round follows.

        A finish for calls of ours alone becomes one that the client can act on.
        """
        encoded_chunks: list[bytes] = []
        for lane in self._lanes.values():
            if lane.waiting is None or lane.finish:
                continue
            chunk, segment = lane.waiting
            has_visible_calls = any(not call.ours for call in lane.calls)
            reason = segment.value
            if reason not in CUT and lane.calls:
                reason = "tool_calls" if has_visible_calls else "stop"
            segment.replacement = lane.finish = reason
            self._show(chunk, [segment], encoded_chunks)
        return encoded_chunks

    def usage_chunk(self, usage: Json | None) -> list[bytes]:
        """Return the one usage chunk, when the client asked for it and the upstream told any."""
        if usage is None or not self._include_usage:
            return []
        return [encode({**self._usage_chunk, **self._head.members, "choices": [], "usage": usage})]

    def answer(self) -> Json:
        """Return the completion that the client has seen so far, without usage.

        What every choice and message has is there, if only null.
        """
        shown_completion = (
            self._round_reply if self._shown_reply is None else self._shown_reply
        ).whole()
        completion = {
            **{k: v for k, v in shown_completion.items() if k != "usage"},
            **self._head.members,
            "object": shown_completion["object"],
        }
        for choice in completion["choices"]:
            choice["index"] = lane_of(choice)
            choice["message"] = {
                "role": "assistant",
                "content": None,
                **(choice.get("message") or {}),
            }
            choice.setdefault("finish_reason", None)
        return completion


def _name(call: Json) -> str:
    function = call.get("function")
    return str(function.get("name") or "") if isinstance(function, dict) else ""
