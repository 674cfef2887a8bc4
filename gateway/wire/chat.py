"""The chat-completions format: everything the gateway knows of it, pure.

A reply is a stream and a whole reply is a stream of one chunk, so one reader serves both modes:
`lift` turns a completion into that chunk and `fold` turns chunks into a completion. Laws (tests):
`fold([lift(c)]) == c`, unknown members included, and any legal chunking of a reply folds to the
same.

The interceptor never touches JSON. It sees a `Chunk` as *segments* (text, a call's delta, a finish,
the rest) and asks for the chunk again with only the segments it keeps; an untouched chunk is the
bytes that came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from gateway.errors import StreamIncomplete, UnreadableStream
from gateway.wire.json_slices import SLICE_BYTES, read_in_slices
from gateway.wire.json_weight import SURE_BYTES, check_readable
from gateway.wire.lone_surrogates import (
    encode_json,
    encode_json_in_parts,
    has_no_lone_surrogates,
    with_stand_ins,
)
from gateway.wire.long_content import encode_json_late
from gateway.wire.long_strings import LONG_BYTES, read_in_steps, takes_long
from gateway.wire.merge import CALLS as CALLS_MEMBER
from gateway.wire.merge import growing_copy, merge, plain_text
from gateway.wire.sse import SseEvent
from gateway.wire.told_choices import told_choices

Json = dict[str, Any]
encode = encode_json
encode_in_parts, encode_long = encode_json_in_parts, encode_json_late
CHOICES, CALLS = 256, 4096  # of an answer, and of one choice
ONLY_OBJECTS = frozenset({dict})
IDENTITY = ("id", "object", "created", "model")
# Of a streamed choice: what its deltas told so far.
REPEATED = ("message",)
_decode, read_weighed = msgspec.json.Decoder().decode, msgspec.json.Decoder().decode
# Readers that make values of a whole text.
WHOLE = (_decode, read_weighed)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MENDED_BYTES = 16 << 20


def decode(
    data: bytes,
    decoder: Callable[[bytes], Any] = _decode,
    on_halves: Callable[[], None] | None = None,
) -> Any:
    """Read JSON text, as a value or by a reader of its own.

    What would hold the interpreter for long is not read. A reader of its own is for texts that
    were weighed already, or of which it makes few objects.

    Half of a surrogate pair is read as its stand-in, see `lone_surrogates`. A text of more than
    `MENDED_BYTES` with one is refused. on_halves: called where there is one.
    Raises msgspec.DecodeError, RecursionError.
    """
    size = len(data)
    if size > SURE_BYTES and decoder is _decode:
        check_readable(data)
    if size > SLICE_BYTES and decoder in WHOLE:
        is_long = size > LONG_BYTES and takes_long(data)
        decoder = partial(read_in_steps, decoder=read_in_slices) if is_long else read_in_slices
    try:
        return decoder(data)
    except msgspec.DecodeError:
        if len(data) > MENDED_BYTES or has_no_lone_surrogates(data):
            raise
        if on_halves is not None:
            on_halves()
        return decoder(with_stand_ins(data))


def decode_answer(data: bytes) -> Any:
    """Read an upstream's JSON text. Raises as `decode` does.

    A byte order mark, which some servers write, is passed over (RFC 8259, section 8.1).
    """
    return decode(data.removeprefix(BYTE_ORDER_MARK))


def decode_weighed(data: bytes, on_halves: Callable[[], None] | None = None) -> Any:
    """Read JSON text that was weighed already, as `decode` does."""
    return decode(data, read_weighed, on_halves)


class MalformedReply(ValueError):
    """The upstream sent something that is no answer in its format; the text says what."""


class MalformedCompletion(MalformedReply):
    """The upstream sent something that is not a chat completion."""


class NoJson(MalformedCompletion):
    """The upstream sent something that nobody can read."""


def broken_stream(fault: MalformedReply) -> StreamIncomplete:
    """Return the error of an event that cannot be read: by anybody, or by memory alone."""
    kind = StreamIncomplete if isinstance(fault, NoJson) else UnreadableStream
    return kind(f"The stream broke off: {fault}. Try again.")


def read_object(data: bytes) -> Json:
    """Read a JSON object of an upstream's. Raises MalformedReply."""
    try:
        value = decode_answer(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise NoJson(f"the upstream sent what is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise MalformedReply("the upstream sent what is not a JSON object")
    return value


def object_or_empty(data: bytes) -> Json:
    """Read a JSON object of an upstream's; return an empty one for anything else."""
    try:
        return read_object(data)
    except MalformedReply:
        return {}


def read_event_object(event: SseEvent) -> Json:
    """Read the object that an event tells; an empty one for any other value, and for a cut event.

    Raises NoJson for an object that nobody can read, as it may have said anything.
    """
    data = event.data or b""
    is_object = event.ended and data.lstrip().startswith(b"{")
    return read_object(data) if is_object else object_or_empty(data)


class ChunkIdentity(msgspec.Struct):
    """The members that every chunk of one answer shares.

    Each comes from the first chunk that has it, and is then written into all others. model: the
    alias the client asked for, when one is configured.
    """

    model: str | None = None
    members: Json = msgspec.field(default_factory=dict)

    def of(self, body: Json) -> Json:
        members = self.members
        if len(members) < len(IDENTITY):
            if self.model is not None:
                members["model"] = self.model
            members.update((k, body[k]) for k in IDENTITY if k not in members and body.get(k))
        return members


class Segment(msgspec.Struct):
    """One piece of a chunk: kind is text, call, finish or other; lane is the choice it belongs
    to.
    """

    kind: str
    lane: int
    value: Any
    replacement: Any = None  # what to show in place of value; None shows the value

    @property
    def visible_value(self) -> Any:
        return self.value if self.replacement is None else self.replacement


class Chunk(msgspec.Struct):
    """payload: the bytes it came as; none for a whole reply turned into a chunk."""

    payload: bytes
    body: Json
    segments: list[Segment] = msgspec.field(default_factory=list)
    usage: Json | None = None
    error: Any = None

    def render(
        self, segments: Sequence[Segment], head: ChunkIdentity, roles: set[int], bare: bool = False
    ) -> bytes | None:
        """Return the chunk as it is shown: only `segments` segments, one identity, one role a
        lane, no usage.

        roles: lanes whose role was shown already; lanes shown here are added. bare: the client did
        not ask for usage, so not even a null of it is left. Returns None when nothing would be left
        to show.
        """
        if not segments:
            return None
        is_unchanged = len(segments) == len(self.segments) and all(
            s.replacement is None for s in segments
        )
        members = head.of(self.body)
        body = self.body
        fixed = (
            is_unchanged
            and bool(self.payload)
            and isinstance(body.get("choices"), list)
            and all(body.get(k) == v for k, v in members.items())
        )
        if fixed and "usage" in body:
            fixed = body["usage"] is None and not bare
        if fixed and all(_is_settled(c, roles) for c in body["choices"]):
            roles.update(lane_of(c) for c in body["choices"])
            return self.payload
        out = {**body, **members, "choices": self._choices(segments, roles)}
        if out.get("usage") is not None or bare:
            out.pop("usage", None)
        return encode(out)

    def _choices(self, segments: Sequence[Segment], roles: set[int]) -> list[Json]:
        out = []
        segments_by_lane: dict[int, list[Segment]] = {}
        for s in segments:
            segments_by_lane.setdefault(s.lane, []).append(s)
        sizes = Counter(s.lane for s in self.segments)
        for choice in self.body.get("choices") or []:
            lane = lane_of(choice)
            if lane_segments := segments_by_lane.get(lane):
                out.append(_choice(choice, lane, lane_segments, len(lane_segments) == sizes[lane]))
                if lane not in roles:
                    roles.add(lane)
                    out[-1]["delta"] = {"role": "assistant", **out[-1]["delta"]}
        return out


def lane_of(choice: Json) -> Any:
    """Return the index of a choice; a server that leaves it out or null means the first."""
    lane = choice.get("index")
    return 0 if lane is None else lane


def _is_settled(choice: Json, roles: set[int]) -> bool:
    """True when the role of this delta needs no edit."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return ("role" not in delta) if lane_of(choice) in roles else bool(delta.get("role"))


def _choice(choice: Json, lane: int, segments: Sequence[Segment], whole: bool) -> Json:
    """Return one choice with only these segments, in its own order, without its role.

    Whole: none is missing, so all else stays.
    """
    kinds = {s.kind: s for s in segments}
    with_others = whole or "other" in kinds
    delta: Json = {}
    for key, value in (choice.get("delta") or {}).items():
        if key == "tool_calls" and value:
            if calls := [s.visible_value for s in segments if s.kind == "call"]:
                delta[key] = calls
        elif key == "content" and isinstance(value, str) and value:
            if text_segment := kinds.get("text"):
                delta[key] = text_segment.visible_value
        elif key != "role" and with_others:
            delta[key] = value
    out = {
        k: v for k, v in choice.items() if with_others or k in ("index", "delta", "finish_reason")
    }
    finish = kinds.get("finish")
    return {
        **out,
        "index": lane,
        "delta": delta,
        "finish_reason": finish.visible_value if finish else None,
    }


def parse_chunk(payload: bytes) -> Chunk:
    """Return one event's data as a chunk.

    Raises Malformed for what is neither a chunk nor an error object.
    """
    try:
        body = decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise NoJson(f"the upstream sent an event that is not JSON: {e}") from e
    if not isinstance(body, dict):
        raise MalformedCompletion("the upstream sent an event that is not a JSON object")
    return chunk(body, payload)


def chunk(body: Json, payload: bytes) -> Chunk:
    """Sort a decoded chunk into segments.

    What tells nothing in a wrong type is left out of it, and its bytes with it. Raises Malformed
    when its members have impossible types.
    """
    if body.get("error"):
        return Chunk(payload, body, error=body["error"])
    try:
        return _sorted(body, payload)
    except MalformedCompletion:
        return _sorted({**body, "choices": told_choices(body.get("choices"))}, b"")


def _sorted(body: Json, payload: bytes) -> Chunk:
    choices = body.get("choices")
    if choices is not None and not _are_objects(choices):
        raise MalformedCompletion("the upstream sent `choices` that is not a list of objects")
    out = Chunk(
        payload,
        body,
        usage=body["usage"] if isinstance(body.get("usage"), dict) and body["usage"] else None,
    )
    for choice in choices or []:
        _sort(choice, out.segments)
    return out


def _are_objects(choices: object) -> bool:
    return isinstance(choices, list) and ONLY_OBJECTS.issuperset(map(type, choices))


def _sort(choice: Json, segments: list[Segment]) -> None:
    """Add the segments of one choice.

    An `other` segment's value tells whether it holds more than a bare start.
    """
    index = choice.get("index")
    lane = 0 if index is None else index
    delta = choice.get("delta", {})
    if not isinstance(delta, dict) or type(lane) is not int or not 0 <= lane < CHOICES:
        raise MalformedCompletion(
            f"the upstream sent a choice without a usable `delta`, or an `index` below {CHOICES}"
        )
    if not isinstance(delta.get("role"), str | None):
        raise MalformedCompletion("the upstream sent a `role` that is not a string")
    text_segments: list[Segment] = []
    extra = choice.get("logprobs") is not None
    for key, value in delta.items():
        if key == "content" and isinstance(value, str) and value:
            text_segments.append(Segment("text", lane, value))
        elif key == CALLS_MEMBER and value not in (None, []):
            if not (
                isinstance(value, list)
                and len(value) <= CALLS
                and all(isinstance(c, dict) and _nameable(c) for c in value)
            ):
                raise MalformedCompletion(
                    f"the upstream sent `tool_calls` that is not a list of at most {CALLS} calls"
                )
            text_segments.extend(Segment("call", lane, c) for c in value)
        elif key != "role" and value not in (None, "", []):
            extra = True
    finish = choice.get("finish_reason")
    if extra or (not text_segments and (delta or not finish)):
        segments.append(Segment("other", lane, extra))
    segments.extend(text_segments)
    if finish:
        segments.append(Segment("finish", lane, finish))


def _nameable(call: Json) -> bool:
    function, index = call.get("function"), call.get("index")
    if isinstance(index, int) and index >= CALLS:
        return False
    return not isinstance(function, dict) or isinstance(function.get("name"), str | None)


def lift(completion: Json) -> Json:
    """Return a whole completion as the one chunk of a stream."""
    choices: Any = completion.get("choices")
    if not _are_objects(choices):
        raise MalformedCompletion("the upstream sent a completion without `choices[].message`")
    return {
        **completion,
        "object": "chat.completion.chunk",
        "choices": list(map(_lift_choice, choices)),
    }


def unlift(body: Json) -> Json:
    """Return the completion that was lifted to this chunk.

    Its choices must be in order and hold no call.
    """
    return {**body, "object": "chat.completion", "choices": list(map(_whole, body["choices"]))}


def _lift_choice(choice: Json) -> Json:
    message = choice.get("message")
    if not isinstance(message, dict):
        raise MalformedCompletion("the upstream sent a completion without `choices[].message`")
    if isinstance(calls := message.get("tool_calls"), list):
        message = {
            **message,
            "tool_calls": [
                {"index": i, **c} if isinstance(c, dict) else c for i, c in enumerate(calls)
            ],
        }
    # In the order of the choice.
    lifted: Json = {}
    for key, value in choice.items():
        if key == "message":
            lifted["delta"] = message
        else:
            lifted[key] = value
    return lifted


class CompletionBuilder:
    """Adds chunks up to a completion, as they come.

    Of a member at the top the first value that is not null stays. lean: leaves the tokens'
    probabilities out.
    """

    def __init__(self, *, lean: bool = False) -> None:
        self._lean = lean
        self._top: Json = {}
        self._lanes: dict[int, Json] = {}

    def add(self, body: Json) -> None:
        top = self._top
        for key, value in body.items():
            if key == "usage":
                top[key] = value if value is not None else top.get(key)
            elif top.get(key) is None:
                top[key] = [] if key == "choices" else value
        for choice in body.get("choices") or []:
            if "message" in choice or (self._lean and "logprobs" in choice):
                left_out = REPEATED if not self._lean else (*REPEATED, "logprobs")
                choice = {k: v for k, v in choice.items() if k not in left_out}
            merge(self._lanes.setdefault(lane_of(choice), {}), choice)

    def copy(self) -> CompletionBuilder:
        """Return one that grows by itself from here on."""
        out = CompletionBuilder(lean=self._lean)
        out._top = dict(self._top)
        out._lanes = {lane: growing_copy(choice) for lane, choice in self._lanes.items()}
        return out

    def more(self, lane: int, delta: Json) -> None:
        """Add a delta to a choice whose other members have not changed."""
        merge(self._lanes[lane], {"delta": delta})

    def delta_of(self, lane: int) -> Any:
        """Return what the deltas of a choice add up to so far."""
        return self._lanes.get(lane, {}).get("delta")

    def finish(self, lane: int) -> Any:
        """Return the finish reason of a choice so far."""
        return self._lanes.get(lane, {}).get("finish_reason")

    def texts(self) -> dict[int, str]:
        """Return the text of each choice so far."""
        contents = {
            lane: plain_text((choice.get("delta") or {}).get("content"))
            for lane, choice in self._lanes.items()
        }
        return {lane: text for lane, text in contents.items() if isinstance(text, str)}

    def whole(self) -> Json:
        choices = [_whole(plain_text(self._lanes[lane])) for lane in sorted(self._lanes)]
        return {**self._top, "object": "chat.completion", "choices": choices}


def fold(chunks: Iterable[Json]) -> Json:
    """Return the completion that these chunks add up to."""
    out = CompletionBuilder()
    for body in chunks:
        out.add(body)
    return out.whole()


def _whole(choice: Json) -> Json:
    message = choice.get("delta") or {}
    if isinstance(calls := message.get("tool_calls"), list):
        message["tool_calls"] = [
            {k: v for k, v in c.items() if k != "index"} if isinstance(c, dict) else c
            for c in calls
        ]
    # In the order of the choice.
    complete_choice: Json = {}
    for key, value in choice.items():
        if key == "delta":
            complete_choice["message"] = message
        else:
            complete_choice[key] = value
    return complete_choice
