"""The Messages API as a format of the turn.

Where things go: the core text as one more text block after the client's system blocks, of which the
first stays first; a note as one more block at the end of the user message that opened the turn; our
tools behind the client's. No cache mark is ours. Thinking and signatures go back as they came.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from gateway.apis.base import (
    ASKS_AGAIN,
    Composed,
    HiddenRounds,
    RequestFacts,
    RoundParts,
    RunResult,
    SentPieces,
    TargetFacts,
)
from gateway.apis.messages.message_blocks import blocks_of, transcript_of
from gateway.apis.messages.messages_errors import error_body
from gateway.apis.messages.messages_reply import MessagesMask, text_message
from gateway.apis.native import HiddenParts, NativeView, PlacedMessage, flat_tools, place
from gateway.apis.round_result import RoundResult
from gateway.apis.translation.request_to_chat import takes_tokens
from gateway.errors import BadRequest, GatewayError
from gateway.http.paths import upstream_path
from gateway.http.upstream_request import UpstreamRequest
from gateway.wire.chat import Json, MalformedReply, encode, encode_long, read_object
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.own_marks import has_seal
from memory import Messages, ToolCall, kept_arguments
from memory.conversation.foreign_json import decode_foreign

SESSION = "_session_"


class MessagesFormat:
    """`POST /v1/messages`."""

    name = "messages"
    path = upstream_path("messages")
    noun = "message"
    sums_usage = False
    marks_overflow = False
    is_chat = False
    cut_is_final = True
    repeats = ASKS_AGAIN

    def identity(self, body: Json) -> Json:
        """Return the user that `metadata.user_id` names, in any of the forms clients send."""
        metadata = body.get("metadata")
        told = metadata.get("user_id") if isinstance(metadata, dict) else None
        user = user_of(told) if isinstance(told, str) else told
        return {"user": user} if user else {}

    def facts(self, body: Json, summaries: Sequence[str] = ()) -> RequestFacts:
        found = transcript_of(native_messages(body), tuple(summaries))
        lead = [{"role": "system", "content": b.get("text")} for b in blocks_of(body.get("system"))]
        view = NativeView(found.messages, found.spans, lead)
        return RequestFacts(
            view.history(),
            _tool_names(body),
            _takes_tools(body),
            _has_form(body),
            manages_context=bool(summaries) or bool(body.get("context_management")),
            view=view,
        )

    def own_request(self, body: Json, history: Messages | None) -> Composed:
        return body

    def compose(self, parts: RoundParts, target: str) -> Composed:
        body = dict(parts.body)
        if parts.tools and parts.prompt.offered:
            ours = flat_tools(parts.prompt.offered, "input_schema")
            body["tools"] = [*(body.get("tools") or ()), *ours]
        if parts.prompt.core:
            body["system"] = _with_core(body.get("system"), parts.prompt.core)
        body["messages"] = [*_place_memory(parts, target), *_for_target(parts.hidden, target)]
        if not body.get("tools") and (hidden := _hidden_calls(parts.body, body["messages"])):
            body["tools"] = [{"name": n, "input_schema": {"type": "object"}} for n in hidden]
            body["tool_choice"] = {"type": "none"}
        return body

    def encode(
        self, composed: Composed, target: TargetFacts, *, frozen: bool, long: bool
    ) -> tuple[UpstreamRequest, SentPieces]:
        body = {**composed, "model": target.model}
        content = encode_long(body) if long else encode(body)
        stream = bool(composed.get("stream"))
        request = UpstreamRequest(self.path, content, stream=stream, composed=True, masked=True)
        return request, ()

    def event_error(self, data: bytes) -> Any:
        if b'"error"' not in data:
            return None
        found = read_object(data)
        return found.get("error") if found.get("type") in ("error", None) else None

    def read_whole(self, data: bytes) -> tuple[Json, Any]:
        if not is_readable(data):
            raise MalformedReply(UNREADABLE)
        found = read_object(data)
        if isinstance(found.get("content"), list):
            return found, None
        if found.get("error"):
            return found, found["error"]
        raise MalformedReply("no `content`")

    def mask(
        self, body: Json, owned: Collection[str], alias: str | None, *, injected: bool, view: Any
    ) -> MessagesMask:
        return MessagesMask(owned, alias, hides_seals=not takes_tokens(self.name, body))

    def hidden_rounds(self) -> HiddenRounds:
        return HiddenBlocks(self.name)

    def text_reply(self, body: Json, text: str, before: Json | None) -> Json:
        return text_message(body["model"], text, before)

    def calls(self, result: RoundResult) -> list[ToolCall]:
        return [_tool_call(c) for c in result.ours]

    def error_body(self, error: GatewayError, request: str) -> bytes:
        return error_body(error, request)


MESSAGES = MessagesFormat()


class HiddenBlocks(HiddenParts):
    """The messages that the client does not see: what the model said, and our results."""

    def add_round(
        self, result: RoundResult, answers: Sequence[RunResult], client: Messages, by: str
    ) -> None:
        self.last = [
            {"type": "tool_result", "tool_use_id": c.get("id"), "content": a}
            for c, a in zip(result.ours, answers, strict=True)
        ]
        for part in self.last:
            self.show_images(part, "content", "text", _image_block)
        said = {"role": "assistant", "content": _resendable(result.reply["content"])}
        self.messages += [said, {"role": "user", "content": self.last}]
        self.reply, self.by = result.reply, by

    def add_reminder(self, result: RoundResult, text: str, by: str) -> None:
        said = _resendable(result.reply["content"])
        self.last = [{"type": "text", "text": text}]
        self.messages += [{"role": "assistant", "content": said}] if said else []
        self.messages.append({"role": "user", "content": self.last})
        self.reply, self.by = result.reply, by

    def record_last(self, result: RoundResult, by: str) -> None:
        """Record the last round after the others; calls of ours in it were not run."""
        if self.messages or (result.theirs and has_seal(result.reply["content"])):
            left = {id(c) for c in result.ours}
            said = _resendable([b for b in result.reply["content"] if id(b) not in left])
            self.messages += [{"role": "assistant", "content": said}] if said else []
            self.by = by or self.by
            self.record_mixed()


def _image_block(image: Any) -> Json:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _resendable(blocks: Sequence[Json]) -> list[Json]:
    """Return the model's output in a form that the API accepts.

    Models leave texts empty, and make calls whose input is not JSON; the API takes neither back.
    Everything else stays as it came.
    """
    out = []
    for block in blocks:
        if block.get("type") == "text" and not block.get("text"):
            continue
        broken = block.get("type") == "tool_use" and not isinstance(block.get("input"), dict)
        out.append({**block, "input": {"INVALID_JSON": block.get("input")}} if broken else block)
    return out


def user_of(told: str) -> str:
    """Return the user of a `metadata.user_id`.

    JSON: its `account_uuid`, else its `device_id`; else what stands before the first `_session_`;
    else all of it.
    """
    if told.startswith("{"):
        try:
            found = decode_foreign(told)
        except (msgspec.DecodeError, RecursionError):
            found = {}
        for member in ("account_uuid", "device_id"):
            if isinstance(value := found.get(member), str) and value:
                return value
    return told.partition(SESSION)[0] or told


def native_messages(body: Json) -> list[Any]:
    """Return the messages. Raises BadRequest."""
    told = body.get("messages")
    if not isinstance(told, list) or not told:
        raise BadRequest("`messages` must be a non-empty list of messages.", param="messages")
    for i, message in enumerate(told):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(
                f"`messages[{i}]` must be an object with a `role`.", param=f"messages[{i}]"
            )
    return told


def _place_memory(parts: RoundParts, target: str) -> list[Json]:
    """Return the client's messages with notes and hidden exchanges in their places."""
    placed = list(place(parts.view, parts.prompt, MESSAGES.name))
    native = _shortened(native_messages(parts.body), placed)
    out: list[Json] = []
    newest = -1  # the native message that was added last
    waits = False  # results of ours are the last, and the client's follow
    for found in placed:
        if found.left_out:
            continue
        if found.hidden is not None:
            own = native[found.start : found.end]
            out += _readable_to(target, found.by, _with_ids_of(own, found.hidden))
            waits = out[-1]["role"] == "user"
        else:
            for at in range(max(found.start, newest + 1), found.end):
                if not (waits := waits and _join_results(out, native[at])):
                    out.append(native[at])
        newest = found.end - 1
        if found.text and found.message["role"] == "user":
            out[-1] = _with_text(out[-1], found.text)
    return out


def _shortened(native: list[Json], placed: Sequence[PlacedMessage]) -> list[Json]:
    """Return the messages without those results that are left out, and with stubs for long ones.

    One message may hold results, which are left out, and words of the user, which stay.
    """
    gone = {p.message.get("tool_call_id") for p in placed if p.left_out and _is_result(p)}
    stubs = {p.message.get("tool_call_id"): p.stub for p in placed if p.stub}
    if not (gone or stubs):
        return native
    out = list(native)
    for p in placed:
        if _is_result(p) and p.message.get("tool_call_id") in gone | stubs.keys():
            blocks = blocks_of(native[p.start].get("content"))
            kept = [
                {**b, "content": stubs[b["tool_use_id"]]} if b.get("tool_use_id") in stubs else b
                for b in blocks
                if b.get("tool_use_id") not in gone
            ]
            out[p.start] = {**native[p.start], "content": kept}
    return out


def _is_result(placed: PlacedMessage) -> bool:
    return placed.message.get("role") == "tool"


def _join_results(out: list[Json], message: Json) -> bool:
    """Merge a message of the client's into the one before it, which has results of ours.

    The model asked for both at once, so it gets both at once, in the order of its calls. Returns
    False if the message holds no such result.
    """
    before = out[-1]
    blocks = blocks_of(message.get("content"))
    if message["role"] != "user" or not _are_results(before):
        return False
    asked = [b.get("id") for b in blocks_of(out[-2].get("content"))]
    blocks = [*before["content"], *blocks]
    results = [b for b in blocks if b.get("type") == "tool_result"]
    if not all(b.get("tool_use_id") in asked for b in results):
        return False
    results.sort(key=lambda b: asked.index(b.get("tool_use_id")))
    rest = [b for b in blocks if b.get("type") != "tool_result"]
    out[-1] = {**message, "content": [*results, *rest]}
    return True


def _are_results(message: Json) -> bool:
    content = message.get("content")
    return isinstance(content, list) and all(
        isinstance(b, dict) and b.get("type") == "tool_result" for b in content
    )


def _with_ids_of(own: Sequence[Json], hidden: Sequence[Json]) -> list[Json]:
    """Return a hidden exchange with the ids that the client gives its own calls.

    Two answers may say the same under other ids: the client's results name those of its own.
    """
    blocks = [b for m in hidden for b in blocks_of(m.get("content"))]
    answered = {b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result"}
    theirs = [b.get("id") for b in blocks if b.get("type") == "tool_use"]
    theirs = [i for i in theirs if i not in answered]
    said = [b for m in own for b in blocks_of(m.get("content"))]
    wanted = [b.get("id") for b in said if b.get("type") == "tool_use"]
    if theirs == wanted or len(theirs) != len(wanted):
        return list(hidden)
    ids = dict(zip(theirs, wanted, strict=True))
    return [
        {**m, "content": [{**b, "id": ids[b["id"]]} if b.get("id") in ids else b for b in parts]}
        for m in hidden
        for parts in [blocks_of(m.get("content"))]
    ]


def _for_target(hidden: HiddenRounds, target: str) -> list[Json]:
    by = hidden.by if isinstance(hidden, HiddenBlocks) else ""
    return _readable_to(target, by, hidden.messages)


def _readable_to(target: str, by: str, messages: Sequence[Json]) -> list[Json]:
    """Return hidden messages for a target; another than gave them cannot read its thinking."""
    if by in ("", target):
        return list(messages)
    return [
        {**m, "content": [b for b in blocks_of(m.get("content")) if not _is_thinking(b)]}
        for m in messages
    ]


def _is_thinking(block: Json) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking")


def _with_text(message: Json, text: str) -> Json:
    """Return a message with one more text block at its end."""
    return {
        **message,
        "content": [*blocks_of(message.get("content")), {"type": "text", "text": text}],
    }


def _hidden_calls(body: Json, messages: Sequence[Json]) -> list[str]:
    """Return the functions that are called in messages, if any are that the client did not send.

    The API takes no calls without tools beside them.
    """
    called = _names_called(messages)
    return called if set(called) - set(_names_called(native_messages(body))) else []


def _names_called(messages: Sequence[Json]) -> list[str]:
    """Return the functions that are called in messages."""
    blocks = [b for m in messages for b in blocks_of(m.get("content"))]
    return sorted({str(b.get("name")) for b in blocks if b.get("type") == "tool_use"})


def _with_core(system: Any, core: str) -> Any:
    """Return the system text with the core text behind it; what cannot be read, as it is."""
    if isinstance(system, list):
        return [*system, {"type": "text", "text": core}]
    if not isinstance(system, str | None):
        return system
    return f"{system}\n\n{core}" if system else core


def _takes_tools(body: Json) -> bool:
    """Tell whether tools of ours may be offered beside the client's."""
    choice = body.get("tool_choice")
    free = choice is None or (isinstance(choice, dict) and choice.get("type") == "auto")
    messages = body.get("messages") or [{}]
    prefilled = isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant"
    readable = isinstance(body.get("tools") or [], list)  # else there is no place for ours
    return free and readable and not prefilled and not _has_form(body)


def _has_form(body: Json) -> bool:
    """Tell whether the answer must be one JSON text."""
    config = body.get("output_config")
    return bool((isinstance(config, dict) and config.get("format")) or body.get("output_format"))


def _tool_names(body: Json) -> frozenset[str]:
    tools = body.get("tools")
    listed = tools if isinstance(tools, list) else ()
    return frozenset(str(t.get("name")) for t in listed if isinstance(t, dict))


def _tool_call(call: Json) -> ToolCall:
    """Return a call of ours as the memory takes it; input that is too long is cut in it."""
    told = _arguments(call.get("input"))
    kept = kept_arguments(told)
    if kept is not told:
        call["input"] = decode_foreign(kept)
    return ToolCall(str(call.get("id") or ""), str(call["name"]), kept, len(told))


def _arguments(value: Any) -> str:
    """Return a call's input as JSON text; input that is not JSON stays as it came."""
    return value if isinstance(value, str) else encode(value or {}).decode()
