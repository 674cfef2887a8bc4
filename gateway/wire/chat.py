"""The chat-completions format: everything the gateway knows of it, pure.

A reply is a stream and a whole reply is a stream of one chunk, so one reader serves both modes:
`lift` turns a completion into that chunk and `fold` turns chunks into a completion. Laws (tests):
`fold([lift(c)]) == c`, unknown members included, and any legal chunking of a reply folds to the same.

The interceptor never touches JSON. It sees a `Chunk` as *segments* (text, a call's delta, a finish, the rest)
and asks for the chunk again with only the segments it keeps; an untouched chunk is the bytes that came.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.wire.delta import merge

Json = dict[str, Any]
encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
LONE = re.compile(rb"(?<!\\)((?:\\\\)*)\\(?:u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\)u[dD][c-fC-F]..)", re.DOTALL)


def decode(data: bytes) -> Any:
    """JSON text as a value. Half of a surrogate pair, legal JSON that JavaScript makes of a cut emoji, becomes U+FFFD: it is
    no character, can be neither stored nor sent on, and must not cost the request. Raises msgspec.DecodeError, RecursionError."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        if (mended := LONE.sub(rb"\1\\ufffd", data)) == data:
            raise
        return _decode(mended)


class Malformed(ValueError):
    """The upstream sent something that is not a chat completion."""


@dataclass(slots=True)
class Head:
    """What is the same on every chunk of one answer; taken from the first chunk, then imposed on the rest."""

    model: str | None = None  # the alias the client asked for, when one is configured
    members: Json | None = None

    def of(self, body: Json) -> Json:
        if self.members is None:
            self.members = {k: body[k] for k in ("id", "object", "created", "model") if k in body}
            if self.model is not None:
                self.members["model"] = self.model
        return self.members


@dataclass(slots=True)
class Segment:
    """One piece of a chunk: kind is text, call, finish or other; lane is the choice it belongs to."""

    kind: str
    lane: int
    value: Any
    shown: Any = None  # what to show in place of value; None shows the value


@dataclass(slots=True)
class Chunk:
    """payload: the bytes it came as; none for a whole reply turned into a chunk."""

    payload: bytes
    body: Json
    segments: list[Segment] = field(default_factory=list)
    usage: Json | None = None
    error: Any = None

    def render(self, kept: Sequence[Segment], head: Head, roles: set[int], bare: bool = False) -> bytes | None:
        """The chunk as it is shown: only `kept` segments, one identity, one role a lane, no usage.

        roles: lanes whose role was shown already; lanes shown here are added. bare: the client did not ask for
        usage, so not even a null of it is left. Returns None when nothing would be left to show.
        """
        if not kept:
            return None
        whole = len(kept) == len(self.segments) and all(s.shown is None for s in kept)
        members = head.of(self.body)
        body = self.body
        fixed = whole and bool(self.payload) and isinstance(body.get("choices"), list) and all(body.get(k) == v for k, v in members.items())
        if fixed and "usage" in body:
            fixed = body["usage"] is None and not bare
        if fixed and all(_settled(c, roles) for c in body["choices"]):
            roles.update(c.get("index", 0) for c in body["choices"])
            return self.payload
        out = {**body, **members, "choices": _choices(body, kept, roles)}
        if out.get("usage") is not None or bare:
            out.pop("usage", None)
        return encode(out)


def _settled(choice: Json, roles: set[int]) -> bool:
    """True when the role of this delta needs no edit."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return ("role" not in delta) if choice.get("index", 0) in roles else bool(delta.get("role"))


def _choices(body: Json, kept: Sequence[Segment], roles: set[int]) -> list[Json]:
    out = []
    for choice in body.get("choices") or []:
        lane = choice.get("index", 0)
        mine = [s for s in kept if s.lane == lane]
        if not mine:
            continue
        calls = [s.value if s.shown is None else s.shown for s in mine if s.kind == "call"]
        kinds = {s.kind: s for s in mine}
        delta: Json = {}
        for key, value in (choice.get("delta") or {}).items():
            if key == "tool_calls":
                if calls:
                    delta[key] = calls
            elif key == "content" and isinstance(value, str) and value:
                if text := kinds.get("text"):
                    delta[key] = text.value if text.shown is None else text.shown
            elif key != "role" and ("other" in kinds):
                delta[key] = value
        if lane not in roles:
            roles.add(lane)
            delta = {"role": "assistant", **delta}
        finish = kinds.get("finish")
        rest = {k: v for k, v in choice.items() if k not in ("delta", "finish_reason") and (k == "index" or "other" in kinds)}
        reason = (finish.value if finish.shown is None else finish.shown) if finish else None
        out.append({**rest, "index": lane, "delta": delta, "finish_reason": reason})
    return out


def read(payload: bytes) -> Chunk:
    """One event's data as a chunk. Raises Malformed for what is neither a chunk nor an error object."""
    try:
        body = decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise Malformed(f"the upstream sent an event that is not JSON: {e}") from e
    if not isinstance(body, dict):
        raise Malformed("the upstream sent an event that is not a JSON object")
    return chunk(body, payload)


def chunk(body: Json, payload: bytes) -> Chunk:
    """Sorts a decoded chunk into segments. Raises Malformed when its members have impossible types."""
    if body.get("error"):
        return Chunk(payload, body, error=body["error"])
    choices = body.get("choices")
    if choices is not None and not (isinstance(choices, list) and all(isinstance(c, dict) for c in choices)):
        raise Malformed("the upstream sent `choices` that is not a list of objects")
    out = Chunk(payload, body, usage=body["usage"] if isinstance(body.get("usage"), dict) else None)
    for choice in choices or []:
        _sort(choice, out.segments)
    return out


def _sort(choice: Json, segments: list[Segment]) -> None:
    """Adds the segments of one choice. An `other` segment's value tells whether it holds more than a bare start."""
    lane = choice.get("index", 0)
    delta = choice.get("delta") or {}
    if not isinstance(delta, dict) or not isinstance(lane, int):
        raise Malformed("the upstream sent a choice without a usable `delta` or `index`")
    if not isinstance(delta.get("role"), str | None):
        raise Malformed("the upstream sent a `role` that is not a string")
    found: list[Segment] = []
    extra = choice.get("logprobs") is not None
    for key, value in delta.items():
        if key == "content" and isinstance(value, str) and value:
            found.append(Segment("text", lane, value))
        elif key == "tool_calls" and value:
            if not (isinstance(value, list) and all(isinstance(c, dict) and _nameable(c) for c in value)):
                raise Malformed("the upstream sent `tool_calls` that is not a list of calls")
            found.extend(Segment("call", lane, c) for c in value)
        elif key != "role" and value not in (None, "", []):
            extra = True
    finish = choice.get("finish_reason")
    if extra or (not found and (delta or not finish)):
        segments.append(Segment("other", lane, extra))
    segments.extend(found)
    if finish:
        segments.append(Segment("finish", lane, finish))


def _nameable(call: Json) -> bool:
    function = call.get("function")
    return not isinstance(function, dict) or isinstance(function.get("name"), str | None)


def lift(completion: Json) -> Json:
    """A whole completion as the one chunk of a stream."""
    choices = completion.get("choices")
    if not (isinstance(choices, list) and all(isinstance(c, dict) and isinstance(c.get("message"), dict) for c in choices)):
        raise Malformed("the upstream sent a completion without `choices[].message`")
    return {**completion, "object": "chat.completion.chunk", "choices": [_lifted(c) for c in choices]}


def _lifted(choice: Json) -> Json:
    message = choice["message"]
    if isinstance(calls := message.get("tool_calls"), list):
        message = {**message, "tool_calls": [{"index": i, **c} if isinstance(c, dict) else c for i, c in enumerate(calls)]}
    return {("delta" if k == "message" else k): (message if k == "message" else v) for k, v in choice.items()}


def fold(chunks: Iterable[Json]) -> Json:
    """The completion that these chunks add up to. Top-level members: the first value that is not null stays."""
    out: Json = {}
    lanes: dict[int, Json] = {}
    for body in chunks:
        for key, value in body.items():
            if key == "usage":
                out[key] = value if value is not None else out.get(key)
            elif key != "choices" and (key not in out or out[key] is None):
                out[key] = value
            elif key == "choices":
                out.setdefault(key, [])
        for choice in body.get("choices") or []:
            merge(lanes.setdefault(choice.get("index", 0), {}), choice)
    out["object"] = "chat.completion"
    out["choices"] = [_whole(lanes[lane]) for lane in sorted(lanes)]
    return out


def _whole(choice: Json) -> Json:
    message = choice.get("delta") or {}
    if isinstance(calls := message.get("tool_calls"), list):
        message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} if isinstance(c, dict) else c for c in calls]
    return {("message" if k == "delta" else k): (message if k == "delta" else v) for k, v in choice.items()}
