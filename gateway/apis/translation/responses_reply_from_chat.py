"""The answer of a chat completion as a response of the Responses API. Pure.

Reasoning becomes an item of plain reasoning; its `encrypted_content` holds what the server wants
back, where the client asked for that member. A stop at the limit or by a filter
leaves the response incomplete. `store` is false: such a server stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.apis.translation.chat_reply_parts import (
    CALL,
    CARRIER,
    REASONING,
    TEXT,
    ReplyPart,
    ReplyWriter,
    count_of,
)
from gateway.apis.translation.chat_tools import ChatTools, custom_input
from gateway.wire.chat import Json

REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
ECHOED: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
PLAIN_TEXT: Json = {"format": {"type": "text"}}


class ResponsesReply(ReplyWriter):
    """See `ReplyWriter`.

    body: the request, which a response repeats. tools: of it. created: seconds since the epoch.
    """

    def __init__(self, body: Json, tools: ChatTools, ident: str, created_at: int) -> None:
        super().__init__(ident)
        self._tools = tools
        # As they ended, by their index.
        self._items: list[Json] = []
        self._number = 0
        self._head = response_head(body, ident, created_at)

    def feed(self, chunk: Json) -> Iterator[Json]:
        return self._numbered(super().feed(chunk))

    def stop(self) -> Iterator[Json]:
        return self._numbered(super().stop())

    def _numbered(self, events: Iterator[Json]) -> Iterator[Json]:
        for event in events:
            if event["type"] == "error":
                # The server's own, which is no event of this API.
                yield event
                continue
            yield {**event, "sequence_number": self._number}
            self._number += 1

    def open(self, chunk: Json) -> Iterator[Json]:
        self._head["model"] = chunk.get("model") or self._head["model"]
        for kind in ("response.created", "response.in_progress"):
            yield {"type": kind, "response": {**self._head, "status": "in_progress"}}

    def begin(self, part: ReplyPart) -> Iterator[Json]:
        self._items.append({})
        item = self._item(part, "in_progress")
        yield {"type": "response.output_item.added", "output_index": part.index, "item": item}
        if part.kind not in (CALL, CARRIER):
            empty_part = _content(part, "")
            yield {"type": "response.content_part.added", **self._where(part), "part": empty_part}

    def grow(self, part: ReplyPart, text: str) -> Iterator[Json]:
        name = self._delta_name(part)
        # Its text is known at its end.
        if name != "custom_tool_call_input":
            yield {"type": f"response.{name}.delta", **self._where(part), "delta": text}

    def end(self, part: ReplyPart) -> Iterator[Json]:
        item = self._items[part.index] = self._item(part, self._status())
        name = self._delta_name(part)
        where = self._where(part)
        if part.kind == CARRIER:
            pass
        elif name == "custom_tool_call_input":
            yield {"type": f"response.{name}.delta", **where, "delta": item["input"]}
            yield {"type": f"response.{name}.done", **where, "input": item["input"]}
        elif part.kind == CALL:
            yield {"type": f"response.{name}.done", **where, "arguments": item["arguments"]}
        else:
            member = "refusal" if name == "refusal" else "text"
            yield {"type": f"response.{name}.done", **where, member: part.text}
        if part.kind not in (CALL, CARRIER):
            whole_part = _content(part, part.text)
            yield {"type": "response.content_part.done", **where, "part": whole_part}
        yield {"type": "response.output_item.done", "output_index": part.index, "item": item}

    def close(self) -> Iterator[Json]:
        yield {"type": f"response.{self._status()}", "response": self.whole()}

    def error(self, error: Any) -> Json:
        return {"type": "error", "error": error}

    def refusal(self, error: Any, status: int) -> Json:
        if isinstance(error, dict):
            error_object = error
        else:
            error_object = {"message": str(error)}
        return {
            "error": {
                "message": "no text",
                "type": None,
                "param": None,
                "code": None,
                **error_object,
            }
        }

    def whole(self) -> Json:
        reason = REASONS.get(str(self.finish))
        return {
            **self._head,
            "status": self._status(),
            "incomplete_details": {"reason": reason} if reason else None,
            "output": self._items,
            "usage": _usage(self.usage),
        }

    def _status(self) -> str:
        if self.finish in REASONS:
            return "incomplete"
        return "completed"

    def _where(self, part: ReplyPart) -> Json:
        where = {"item_id": self._item_id(part), "output_index": part.index}
        if part.kind == CALL:
            return where
        return {**where, "content_index": 0}

    def _delta_name(self, part: ReplyPart) -> str:
        if part.kind == CALL:
            custom = self._tools.origin_of(part.name).is_custom
            if custom:
                return "custom_tool_call_input"
            return "function_call_arguments"
        return {TEXT: "output_text", REASONING: "reasoning_text"}.get(part.kind, "refusal")

    def _item_id(self, part: ReplyPart) -> str:
        kind = {CALL: "fc", REASONING: "rs", CARRIER: "rs"}.get(part.kind, "msg")
        return f"{kind}_{self.ident}_{part.index}"

    def _item(self, part: ReplyPart, status: str) -> Json:
        """Return an item as it begins, without the members that grow."""
        begins = status == "in_progress"
        ident = {"id": self._item_id(part)}
        if part.kind == CALL:
            return {**ident, **self._call(part, begins=begins), "status": status}
        if part.kind in (REASONING, CARRIER):
            if part.kind == REASONING and not begins:
                item_content = [_content(part, part.text)]
            else:
                item_content = []
            item = {
                **ident,
                "type": "reasoning",
                "summary": [],
                "content": item_content,
                "status": status,
            }
            if part.token:
                return {**item, "encrypted_content": part.token}
            return item
        if begins:
            content = []
        else:
            content = [_content(part, part.text)]
        message_type = {"type": "message", "role": "assistant"}
        return {**ident, **message_type, "content": content, "status": status}

    def _call(self, part: ReplyPart, *, begins: bool) -> Json:
        origin = self._tools.origin_of(part.name)
        call = {"call_id": part.ident, "name": origin.name}
        if origin.is_custom:
            text = ""
            if not begins:
                text = custom_input(part.text)
            return {"type": "custom_tool_call", **call, "input": text}
        arguments = "" if begins else part.text or "{}"
        namespace = {"namespace": origin.namespace} if origin.namespace else {}
        return {"type": "function_call", **call, **namespace, "arguments": arguments}


def response_head(body: Json, ident: str, created_at: int) -> Json:
    """Return the response object to a request, before there is anything in it."""
    echoed_members = {k: v for k, v in body.items() if k in ECHOED and v is not None}
    reasoning = body.get("reasoning")
    text = body.get("text")
    return {
        "id": f"resp_{ident}",
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": body.get("model"),
        "output": [],
        **ECHOED,
        **echoed_members,
        "reasoning": reasoning or {"effort": None, "summary": None},
        "store": False,
        "text": text or PLAIN_TEXT,
        "usage": None,
    }


def _content(part: ReplyPart, text: str) -> Json:
    if part.kind == TEXT:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    if part.kind == REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "refusal", "refusal": text}


def _usage(native_usage: Json) -> Json | None:
    if not native_usage:
        return None
    prompt = count_of(native_usage, "prompt_tokens")
    output = count_of(native_usage, "completion_tokens")
    cached_tokens = count_of(native_usage, "prompt_tokens_details", "cached_tokens")
    written_tokens = count_of(native_usage, "prompt_tokens_details", "cache_write_tokens")
    reasoning_tokens = count_of(native_usage, "completion_tokens_details", "reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": cached_tokens,
            "cache_write_tokens": written_tokens,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": prompt + output,
    }
