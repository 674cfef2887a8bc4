"""The Messages API as a format of the turn.

Where things go: the core text as one more text block after the client's system blocks, of which the
first stays first; a note as one more block at the end of the user message that opened the turn; our
tools behind the client's. No cache mark is ours. Thinking and signatures go back as they came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
        user_id = None
        if isinstance(metadata, dict):
            user_id = metadata.get("user_id")
        user = user_of(user_id) if isinstance(user_id, str) else user_id
        if user:
            return {"user": user}
        return {}

    def facts(self, body: Json, summaries: Sequence[str] = ()) -> RequestFacts:
        transcript = transcript_of(native_messages(body), tuple(summaries))
        lead = [{"role": "system", "content": b.get("text")} for b in blocks_of(body.get("system"))]
        view = NativeView(transcript.messages, transcript.spans, lead)
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
        if parts.tools and parts.prompt.tools:
            own_tools = flat_tools(parts.prompt.tools, "input_schema")
            body["tools"] = [*(body.get("tools") or ()), *own_tools]
        if parts.prompt.core:
            body["system"] = _with_core(body.get("system"), parts.prompt.core)
        body["messages"] = [*_place_memory(parts, target), *_for_target(parts.hidden, target)]
        if not body.get("tools") and (hidden_calls := _hidden_calls(parts.body, body["messages"])):
            body["tools"] = [{"name": n, "input_schema": {"type": "object"}} for n in hidden_calls]
            body["tool_choice"] = {"type": "none"}
        return body

    def encode(
        self, composition: Composed, target: TargetFacts, *, frozen: bool, long: bool
    ) -> tuple[UpstreamRequest, SentPieces]:
        body = {**composition, "model": target.model}
        content = encode_long(body) if long else encode(body)
        stream = bool(composition.get("stream"))
        request = UpstreamRequest(self.path, content, stream=stream, composed=True, masked=True)
        return request, ()

    def event_error(self, data: bytes) -> Any:
        if b'"error"' not in data:
            return None
        event_object = read_object(data)
        if event_object.get("type") in ("error", None):
            return event_object.get("error")
        return None

    def read_whole(self, data: bytes) -> tuple[Json, Any]:
        if not is_readable(data):
            raise MalformedReply(UNREADABLE)
        answer_object = read_object(data)
        if isinstance(answer_object.get("content"), list):
            return answer_object, None
        if answer_object.get("error"):
            return answer_object, answer_object["error"]
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
        self, result: RoundResult, answers: Sequence[RunResult], client: Messages, target: str
    ) -> None:
        blocks, call_ids = self.take_own_ids(result.reply["content"], result, client)
        self.last = [
            {"type": "tool_result", "tool_use_id": call_id, "content": answer}
            for call_id, answer in zip(call_ids, answers, strict=True)
        ]
        for part in self.last:
            self.show_images(part, "content", "text", _image_block)
        spoken_message = {"role": "assistant", "content": _resendable(blocks)}
        self.messages += [spoken_message, {"role": "user", "content": self.last}]
        self.reply = result.reply
        self.by = target

    def add_reminder(self, result: RoundResult, text: str, by: str) -> None:
        content = _resendable(result.reply["content"])
        self.last = [{"type": "text", "text": text}]
        if content:
            self.messages += [{"role": "assistant", "content": content}]
        self.messages.append({"role": "user", "content": self.last})
        self.reply = result.reply
        self.by = by

    def record_last(self, result: RoundResult, target: str) -> None:
        """Record the last round after the others; calls of ours in it were not run."""
        if self.messages or (result.theirs and has_seal(result.reply["content"])):
            unrun_ids = {id(c) for c in result.ours}
            spoken_blocks = _resendable(
                [b for b in result.reply["content"] if id(b) not in unrun_ids]
            )
            if spoken_blocks:
                self.messages += [{"role": "assistant", "content": spoken_blocks}]
            self.by = target or self.by
            self.record_mixed()


def _image_block(image: Any) -> Json:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _resendable(blocks: Sequence[Json]) -> list[Json]:
    """Return the model's output in a form that the API accepts.

    Models leave texts empty, and make calls whose input is not JSON; the API takes neither back.
    Everything else stays as it came.
    """
    resendable_blocks = []
    for block in blocks:
        if block.get("type") == "text" and not block.get("text"):
            continue
        is_broken = block.get("type") == "tool_use" and not isinstance(block.get("input"), dict)
        resendable_blocks.append(
            {**block, "input": {"INVALID_JSON": block.get("input")}} if is_broken else block
        )
    return resendable_blocks


def user_of(user_id: str) -> str:
    """Return the user of a `metadata.user_id`.

    JSON: its `account_uuid`, else its `device_id`; else what stands before the first `_session_`;
    else all of it.
    """
    if user_id.startswith("{"):
        try:
            decoded_id = decode_foreign(user_id)
        except (msgspec.DecodeError, RecursionError):
            decoded_id = {}
        for member in ("account_uuid", "device_id"):
            if isinstance(value := decoded_id.get(member), str) and value:
                return value
    return user_id.partition(SESSION)[0] or user_id


def native_messages(body: Json) -> list[Any]:
    """Return the messages. Raises BadRequest."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("`messages` must be a non-empty list of messages.", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(
                f"`messages[{index}]` must be an object with a `role`.", param=f"messages[{index}]"
            )
    return messages


def _place_memory(parts: RoundParts, target: str) -> list[Json]:
    """Return the client's messages with notes and hidden exchanges in their places."""
    placed_messages = list(place(parts.view, parts.prompt, MESSAGES.name))
    client_messages = _shortened(native_messages(parts.body), placed_messages)
    messages: list[Json] = []
    # The native message that was added last.
    newest_index = -1
    # Results of ours are the last, and the client's follow.
    waits = False
    for placed_message in placed_messages:
        if placed_message.left_out:
            continue
        if placed_message.hidden is not None:
            own_messages = client_messages[placed_message.start : placed_message.end]
            messages += _readable_to(
                target, placed_message.by, _with_ids_of(own_messages, placed_message.hidden)
            )
            waits = messages[-1]["role"] == "user"
        else:
            for index in range(max(placed_message.start, newest_index + 1), placed_message.end):
                if not (waits := waits and _join_results(messages, client_messages[index])):
                    messages.append(client_messages[index])
        newest_index = placed_message.end - 1
        if placed_message.text and placed_message.message["role"] == "user":
            messages[-1] = _with_text(messages[-1], placed_message.text)
    return messages


def _shortened(client_messages: list[Json], placed_messages: Sequence[PlacedMessage]) -> list[Json]:
    """Return the messages without those results that are left out, and with stubs for long ones.

    One message may hold results, which are left out, and words of the user, which stay.
    """
    left_out_ids = {
        str(p.message.get("tool_call_id")) for p in placed_messages if p.left_out and _is_result(p)
    }
    stubs = {str(p.message.get("tool_call_id")): p.stub for p in placed_messages if p.stub}
    if not (left_out_ids or stubs):
        return client_messages
    shortened = list(client_messages)
    for p in placed_messages:
        if _is_result(p) and str(p.message.get("tool_call_id")) in left_out_ids | stubs.keys():
            blocks = blocks_of(client_messages[p.start].get("content"))
            kept_blocks = [
                {**b, "content": stubs[call_id]}
                if (call_id := _result_id(b)) is not None and call_id in stubs
                else b
                for b in blocks
                if _result_id(b) not in left_out_ids
            ]
            shortened[p.start] = {**client_messages[p.start], "content": kept_blocks}
    return shortened


def _result_id(block: Json) -> str | None:
    """Return whose result a block is, as text, since clients send any type; None for no result."""
    if block.get("type") == "tool_result":
        return str(block.get("tool_use_id"))
    return None


def _is_result(placed_message: PlacedMessage) -> bool:
    return placed_message.message.get("role") == "tool"


def _join_results(messages: list[Json], message: Json) -> bool:
    """Merge a message of the client's into the one before it, which has results of ours.

    The model asked for both at once, so it gets both at once, in the order of its calls. Returns
    False if the message holds no such result.
    """
    previous_message = messages[-1]
    blocks = blocks_of(message.get("content"))
    if message["role"] != "user" or not _are_results(previous_message):
        return False
    call_ids = [b.get("id") for b in blocks_of(messages[-2].get("content"))]
    blocks = [*previous_message["content"], *blocks]
    results = [b for b in blocks if b.get("type") == "tool_result"]
    if not all(b.get("tool_use_id") in call_ids for b in results):
        return False
    results.sort(key=lambda b: call_ids.index(b.get("tool_use_id")))
    other_blocks = [b for b in blocks if b.get("type") != "tool_result"]
    messages[-1] = {**message, "content": [*results, *other_blocks]}
    return True


def _are_results(message: Json) -> bool:
    content = message.get("content")
    return isinstance(content, list) and all(
        isinstance(b, dict) and b.get("type") == "tool_result" for b in content
    )


def _with_ids_of(own_messages: Sequence[Json], hidden_messages: Sequence[Json]) -> list[Json]:
    """Return a hidden exchange with the ids that the client gives its own calls.

    Two answers may say the same under other ids: the client's results name those of its own.
    """
    blocks = [b for m in hidden_messages for b in blocks_of(m.get("content"))]
    answered_ids = {_result_id(b) for b in blocks}
    client_ids = [str(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
    client_ids = [i for i in client_ids if i not in answered_ids]
    own_blocks = [b for m in own_messages for b in blocks_of(m.get("content"))]
    wanted_ids = [b.get("id") for b in own_blocks if b.get("type") == "tool_use"]
    if client_ids == wanted_ids or len(client_ids) != len(wanted_ids):
        return list(hidden_messages)
    ids = dict(zip(client_ids, wanted_ids, strict=True))
    return [
        {**m, "content": [_rename_block(b, ids) for b in blocks_of(m.get("content"))]}
        for m in hidden_messages
    ]


def _rename_block(block: Json, ids: Mapping[str, Any]) -> Json:
    """Return a block with the id that stands for its own."""
    own_id = str(block.get("id"))
    if own_id in ids:
        return {**block, "id": ids[own_id]}
    return block


def _for_target(hidden_rounds: HiddenRounds, target: str) -> list[Json]:
    author = hidden_rounds.by if isinstance(hidden_rounds, HiddenBlocks) else ""
    return _readable_to(target, author, hidden_rounds.messages)


def _readable_to(target: str, author: str, messages: Sequence[Json]) -> list[Json]:
    """Return hidden messages for a target; another than gave them cannot read its thinking."""
    if author in ("", target):
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
    called_names = _names_called(messages)
    if set(called_names) - set(_names_called(native_messages(body))):
        return called_names
    return []


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
    if system:
        return f"{system}\n\n{core}"
    return core


def _takes_tools(body: Json) -> bool:
    """Tell whether tools of ours may be offered beside the client's."""
    choice = body.get("tool_choice")
    is_free = choice is None or (isinstance(choice, dict) and choice.get("type") == "auto")
    messages = body.get("messages") or [{}]
    prefilled = isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant"
    # Else there is no place for ours.
    readable = isinstance(body.get("tools") or [], list)
    return is_free and readable and not prefilled and not _has_form(body)


def _has_form(body: Json) -> bool:
    """Tell whether the answer must be one JSON text."""
    config = body.get("output_config")
    return bool((isinstance(config, dict) and config.get("format")) or body.get("output_format"))


def _tool_names(body: Json) -> frozenset[str]:
    tools = body.get("tools")
    listed_tools = tools if isinstance(tools, list) else ()
    return frozenset(str(t.get("name")) for t in listed_tools if isinstance(t, dict))


def _tool_call(call: Json) -> ToolCall:
    """Return a call of ours as the memory takes it; input that is too long is cut in it."""
    arguments = _arguments(call.get("input"))
    short_arguments = kept_arguments(arguments)
    if short_arguments is not arguments:
        call["input"] = decode_foreign(short_arguments)
    return ToolCall(str(call.get("id") or ""), str(call["name"]), short_arguments, len(arguments))


def _arguments(value: Any) -> str:
    """Return a call's input as JSON text; input that is not JSON stays as it came."""
    if isinstance(value, str):
        return value
    return encode(value or {}).decode()
