"""The Responses API as a format of the turn.

Where things go: the core text into `instructions` if the client sends them or the provider keeps
the conversation (input would pile up there), else to the end of the leading developer messages,
where the client's own static prompt before it stays shared between users; a note to the end of the
user message it belongs to; our tools, flat, behind the client's. The next round goes on from the
provider's own state where that is kept, else everything is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

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
from gateway.apis.native import HiddenParts, NativeView, flat_tools, place
from gateway.apis.responses.response_items import SYSTEM, assistant_message, transcript_of
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.apis.round_result import RoundResult
from gateway.apis.translation.request_to_chat import ENCRYPTED, takes_tokens
from gateway.apis.translation.responses_reply_from_chat import NO_USAGE, response_head
from gateway.errors import BadRequest, GatewayError
from gateway.http.paths import upstream_path
from gateway.http.upstream_request import UpstreamRequest
from gateway.wire.chat import Json, MalformedReply, encode, encode_long, read_object
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.own_marks import has_seal, without_reasoning
from memory import Messages, ToolCall, kept_arguments, new_id
from memory.context.tokens import estimate_at_once
from memory.conversation.messages import text_of
from memory.core.tool_definitions import client_names

FREE_CHOICES = (None, "auto")
# Tokens: the API takes no lower limit.
LEAST_OUTPUT = 16


class ResponsesFormat:
    """`POST /v1/responses`."""

    name = "responses"
    path = upstream_path("responses")
    noun = "response"
    sums_usage = False
    marks_overflow = True
    is_chat = False
    cut_is_final = True
    repeats = ASKS_AGAIN

    def identity(self, body: Json) -> Json:
        return body

    def facts(self, body: Json, summaries: Sequence[str] = ()) -> RequestFacts:
        items = input_items(body)
        transcript = transcript_of(items, tuple(summaries))
        instructions = [body["instructions"]] if has_instructions(body) else []
        lead = [{"role": "system", "content": text} for text in instructions]
        view = NativeView(transcript.messages, transcript.spans, lead)
        return RequestFacts(
            view.history(),
            frozenset(client_names(body.get("tools"))),
            _takes_tools(body),
            manages_context=_manages_context(body, items, summaries),
            view=view,
        )

    def own_request(self, body: Json, history: Messages | None) -> Composed:
        return body

    def compose(self, parts: RoundParts, target: str) -> Composed:
        body = dict(parts.body)
        hidden_rounds = parts.hidden
        if parts.tools and parts.prompt.tools:
            client_tools = body.get("tools")
            body["tools"] = [*(client_tools or ()), *_tools(parts.prompt.tools)]
            if parts.ask_reasoning and _needs_encrypted(parts.body):
                body["include"] = [*(parts.body.get("include") or ()), ENCRYPTED]
        items = _place_memory(parts, target)
        _put_core(body, items, parts.prompt.core)
        if isinstance(hidden_rounds, HiddenItems) and hidden_rounds.messages:
            items = hidden_rounds.go_on(body, items, target)
            if type(max_output := body.get("max_output_tokens")) is int:
                body["max_output_tokens"] = max_output - hidden_rounds.spent
        if items != input_items(parts.body):
            body["input"] = items
        return body

    def encode(
        self, composition: Composed, target: TargetFacts, *, frozen: bool, long: bool
    ) -> tuple[UpstreamRequest, SentPieces]:
        body = {**composition, "model": target.model}
        content = encode_long(body) if long else encode(body)
        stream = bool(composition.get("stream"))
        return UpstreamRequest(self.path, content, stream=stream, masked=True), ()

    def event_error(self, data: bytes) -> Any:
        if b'"error"' not in data:
            return None
        event_object = read_object(data)
        if event_object.get("type") == "error":
            return event_object.get("error") or {
                k: v for k, v in event_object.items() if k != "type"
            }
        if "response" not in event_object:
            return event_object.get("error")
        return None

    def read_whole(self, data: bytes) -> tuple[Json, Any]:
        if not is_readable(data):
            raise MalformedReply(UNREADABLE)
        answer_object = read_object(data)
        if isinstance(answer_object.get("output"), list):
            return answer_object, None
        if answer_object.get("error"):
            return answer_object, answer_object["error"]
        raise MalformedReply("no `output`")

    def mask(
        self, body: Json, owned: Collection[str], alias: str | None, *, injected: bool, view: Any
    ) -> ResponsesMask:
        chained = ""
        is_stored = False
        thread = ""
        if isinstance(view, NativeView):
            chained = view.chained
            is_stored = view.stored
            thread = view.thread
        injected = injected or bool(chained or thread) or is_stored
        echo = Echo(
            frozenset(owned),
            body.get("instructions"),
            chained or body.get("previous_response_id"),
            injected and _needs_encrypted(body),
            body.get("include"),
            injected,
            is_stored,
            thread,
            hides_seals=not takes_tokens(self.name, body),
        )
        return ResponsesMask(owned, alias, echo)

    def hidden_rounds(self) -> HiddenRounds:
        return HiddenItems(self.name)

    def text_reply(self, body: Json, text: str, before: Json | None) -> Json:
        ident = new_id("").removeprefix("_")
        members = before or {**response_head(body, ident, int(time.time())), "usage": NO_USAGE}
        content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        item = {"id": new_id("msg"), "type": "message", "status": "completed", "role": "assistant"}
        return {**members, "status": "completed", "output": [{**item, "content": content}]}

    def calls(self, result: RoundResult) -> list[ToolCall]:
        return [_tool_call(c) for c in result.ours]

    def error_body(self, error: GatewayError, request: str) -> bytes:
        return error.body()


RESPONSES = ResponsesFormat()


@dataclass(slots=True)
class HiddenItems(HiddenParts):
    """The items that the client does not see, with the reasoning before them.

    whole: the provider does not go on from its own state, although it said that it keeps it. spent:
    tokens of what the client was shown so far.
    """

    whole: bool = False
    spent: int = 0

    def send_whole(self) -> bool:
        """Send all items from now on, once the provider has refused to go on from its state."""
        was = self.whole
        self.whole = True
        unreadable = len(_readable(self.messages)) < len(self.messages)
        return not was and (self._stored or unreadable)

    @property
    def _stored(self) -> bool:
        return self.reply.get("store") is True and bool(self.reply.get("id"))

    def reassign_ids_of(self, calls: Sequence[Json]) -> None:
        if not self._stored:
            HiddenParts.reassign_ids_of(self, calls)

    def add_round(
        self, result: RoundResult, answers: Sequence[RunResult], client: Messages, target: str
    ) -> None:
        self.reply, self.by = result.reply, target
        items: list[Json] = result.reply["output"]
        call_ids: Sequence[Any] = [call.get("call_id") for call in result.ours]
        # A provider that stores the answer goes on from the ids that it gave.
        if not self._stored:
            items, call_ids = self.take_own_ids(items, result, client)
        self.last = [
            {"type": "function_call_output", "call_id": call_id, "output": answer}
            for call_id, answer in zip(call_ids, answers, strict=True)
        ]
        for item in self.last:
            self.show_images(item, "output", "input_text", _input_image)
        self.messages += [*items, *self.last]
        self.spent += _shown_tokens(result)

    def add_reminder(self, result: RoundResult, text: str, by: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.last = [{"type": "message", "role": "user", "content": content}]
        self.messages += [*result.reply["output"], *self.last]
        self.reply = result.reply
        self.by = by
        self.spent += _shown_tokens(result)

    def has_room(self, body: Json) -> bool:
        max_output = body.get("max_output_tokens")
        return type(max_output) is not int or max_output - self.spent >= min(
            max_output, LEAST_OUTPUT
        )

    def record_last(self, result: RoundResult, target: str) -> None:
        """Record the last round after the others; calls of ours in it were not run."""
        if self.messages or (result.theirs and has_seal(result.reply["output"])):
            unrun_ids = {id(c) for c in result.ours}
            self.messages += [i for i in result.reply["output"] if id(i) not in unrun_ids]
            self.by = target or self.by
            self.record_mixed()

    def go_on(self, body: Json, items: list[Json], target: str) -> list[Json]:
        """Return the input of the next round; the body may name the state that it goes on from."""
        if body.get("conversation"):
            return self.last
        if self._stored and self.by == target and not self.whole:
            body["previous_response_id"] = self.reply["id"]
            return self.last
        hidden_items = for_target(self.messages, self.by, target)
        return [*items, *(_readable(hidden_items) if self.whole else hidden_items)]


def _tool_call(call: Json) -> ToolCall:
    """Return a call of ours as the memory takes it; arguments that are too long are cut in it."""
    arguments = str(call.get("arguments") or "{}")
    short_arguments = kept_arguments(arguments)
    if short_arguments is not arguments:
        call["arguments"] = short_arguments
    return ToolCall(
        str(call.get("call_id") or ""), str(call["name"]), short_arguments, len(arguments)
    )


def _input_image(image: Any) -> Json:
    return {"type": "input_image", "image_url": f"data:{image.media_type};base64,{image.data}"}


def _shown_tokens(result: RoundResult) -> int:
    """Return the output tokens of a round, without those of calls that the client does not see.

    So what several rounds show stays within the client's `max_output_tokens`, and our calls cost
    the answer nothing of it.
    """
    # Together: each alone costs some 10 us, and an answer may have thousands.
    calls = "\n".join([f"{c['name']} {c.get('arguments') or ''}" for c in result.ours])
    own_tokens = estimate_at_once(calls)
    usage = result.usage or {}
    details = usage.get("output_tokens_details")
    reasoning_tokens = details.get("reasoning_tokens") if isinstance(details, dict) else 0
    # It led to our call.
    if result.ours and type(reasoning_tokens) is int:
        own_tokens += reasoning_tokens
    output_tokens = usage.get("output_tokens")
    spoken_items = [x for x in result.reply["output"] if x.get("type") in (None, "message")]
    text = estimate_at_once(text_of(assistant_message(spoken_items)))
    if type(output_tokens) is int:
        return max(output_tokens - own_tokens, text)
    return text


def _readable(items: Sequence[Json]) -> list[Json]:
    """Return items without reasoning that only the provider's own state could tell again."""
    return without_reasoning(items, lambda item: not item.get("encrypted_content"))


def input_items(body: Json) -> list[Any]:
    """Return the input as items. Raises BadRequest."""
    request_input = body.get("input")
    if isinstance(request_input, str):
        return [{"role": "user", "content": request_input}]
    if request_input is None:
        return []
    if not isinstance(request_input, list):
        raise BadRequest("`input` must be a string or a list of items.", param="input")
    return request_input


def for_target(items: Sequence[Json], author: str, target: str) -> list[Json]:
    """Return hidden items for a target; another than gave them cannot read their reasoning."""
    if author in ("", target):
        return list(items)
    return without_reasoning(items, lambda _: True)


def _place_memory(parts: RoundParts, target: str) -> list[Json]:
    """Return the client's items with notes and hidden exchanges in their places."""
    items = input_items(parts.body)
    placed_items: list[Json] = items[: parts.view.before]
    for placed_message in place(parts.view, parts.prompt, RESPONSES.name):
        if placed_message.left_out:
            continue
        if placed_message.stub:
            placed_items.append({**items[placed_message.start], "output": placed_message.stub})
        elif placed_message.hidden is not None:
            own_items = items[placed_message.start : placed_message.end]
            placed_items += for_target(
                _with_ids_of(own_items, placed_message.hidden), placed_message.by, target
            )
        elif placed_message.text and placed_message.message["role"] == "user":
            placed_items += items[placed_message.start : placed_message.end - 1]
            placed_items.append(_with_text(items[placed_message.end - 1], placed_message.text))
        else:
            placed_items += items[placed_message.start : placed_message.end]
    return placed_items


def _with_ids_of(own_items: Sequence[Json], hidden_items: Sequence[Json]) -> list[Json]:
    """Return a hidden exchange with the ids that the client gives its own calls.

    Two answers may say the same under other ids: the client's results name those of its own.
    """
    answered_ids = {
        str(i.get("call_id")) for i in hidden_items if i.get("type") == "function_call_output"
    }
    client_ids = [str(i["call_id"]) for i in hidden_items if "call_id" in i]
    client_ids = [i for i in client_ids if i not in answered_ids]
    wanted_ids = [i.get("call_id") for i in own_items if "call_id" in i]
    if client_ids == wanted_ids or len(client_ids) != len(wanted_ids):
        return list(hidden_items)
    ids = dict(zip(client_ids, wanted_ids, strict=True))
    return [
        {**i, "call_id": ids[ident]} if (ident := str(i.get("call_id"))) in ids else i
        for i in hidden_items
    ]


def _with_text(item: Json, text: str) -> Json:
    """Return a message with one more part at its end."""
    content = item.get("content")
    part = {"type": "input_text", "text": text}
    if isinstance(content, list):
        return {**item, "content": [*content, part]}
    return {**item, "content": [{"type": "input_text", "text": content or ""}, part]}


def _put_core(body: Json, items: list[Json], core: str) -> None:
    """Put the core text where it is replaced, not piled up."""
    client_instructions = body.get("instructions")
    if not core or not isinstance(client_instructions, str | None):
        # What cannot be read has no place for it.
        return
    chained = body.get("previous_response_id") or body.get("conversation")
    if body.get("prompt"):
        if not chained:
            items.insert(0, {"role": "developer", "content": core})
    elif client_instructions is not None or chained:
        body["instructions"] = f"{client_instructions}\n\n{core}" if client_instructions else core
    elif lead := _leading(items):
        items[lead - 1] = _with_text(items[lead - 1], core)
    else:
        body["instructions"] = core


def _manages_context(body: Json, items: Sequence[Any], summaries: Sequence[str]) -> bool:
    """Tell whether the client or the provider keeps the context small.

    summaries: of a program that summarises by itself.
    """
    context_members = (
        body.get("previous_response_id"),
        body.get("conversation"),
        body.get("prompt"),
        body.get("context_management"),
        body.get("truncation") == "auto",
    )
    compacted = [i for i in items if isinstance(i, dict) and i.get("type") == "compaction"]
    return bool(summaries or compacted) or any(context_members)


def _leading(items: Sequence[Any]) -> int:
    """Return how many developer or system messages the input begins with."""
    count = 0
    for item in items:
        if not (isinstance(item, dict) and item.get("role") in SYSTEM):
            break
        count += 1
    return count


def has_instructions(body: Json) -> bool:
    return isinstance(body.get("instructions"), str)


def _takes_tools(body: Json) -> bool:
    """Tell whether tools of ours may be offered beside the client's."""
    form = body.get("text")
    text_format = None
    if isinstance(form, dict):
        text_format = form.get("format")
    is_json = isinstance(text_format, dict) and text_format.get("type") in (
        "json_schema",
        "json_object",
    )
    is_free = body.get("tool_choice") in FREE_CHOICES
    # Else there is no place for ours.
    readable = isinstance(body.get("tools") or [], list)
    return is_free and readable and not is_json and not body.get("background")


def _needs_encrypted(body: Json) -> bool:
    """Tell whether reasoning must come back to us to be sent again, and the client did not ask.

    Models reason whether or not a request says so.
    """
    include = body.get("include") or []
    return body.get("store") is False and isinstance(include, list) and ENCRYPTED not in include


def _tools(offered_tools: Sequence[Json]) -> list[Json]:
    """Return our tools flat; not strict, as optional parameters are."""
    return [
        {"type": "function", **t, "strict": False} for t in flat_tools(offered_tools, "parameters")
    ]
