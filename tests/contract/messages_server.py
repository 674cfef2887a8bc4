"""A scripted server that speaks Anthropic's Messages API and refuses what the real one refuses, in
its words.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tests.models import Model
from tests.sockets import Seen, Wire

MEMBERS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "output_config",
    "metadata",
    "cache_control",
    "service_tier",
    "container",
    "context_management",
    "mcp_servers",
}
BLOCKS = {
    "text": {"text"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "search_result": {"source", "title", "content"},
}
USAGE = {
    "input_tokens": 80,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 15,
    "output_tokens": 1,
}
# Whose thinking is tied to what stands before it.
BOUND = (
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-fable-5-1",
    "claude-mythos-5-1",
)
BETA = "thinking-binding-controls-2026-08-01"
REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class Refused(Exception):
    """What the API would answer 400 to."""


def error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def blocks_of(choice: dict[str, Any]) -> list[dict[str, Any]]:
    """A choice of `tests.models` as content blocks."""
    message = choice["message"]
    out = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    calls = message.get("tool_calls") or []
    return out + [
        {
            "type": "tool_use",
            "id": c["id"],
            "name": c["function"]["name"],
            "input": json.loads(c["function"]["arguments"]),
        }
        for c in calls
    ]


class Messages(Model):
    """See `Model`; a script's answer may also be a list of content blocks.

    refusals: what it found wrong with requests.

    Thinking is signed with a hash of what stands before it, and checked for the models that check
    it.
    """

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.refusals: list[Any] = []
        # Thinking blocks that no longer fitted, which the request asked to drop.
        self.dropped = 0

    @property
    def bodies(self) -> list[Any]:
        return [r.json for r in self.requests if r.path.endswith("/messages")]

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        if (fault := self.fault(seen)) is not None:
            self.refusals.append(fault[1]["error"]["message"])
            await wire.json(fault[1], fault[0], "request-id: req_0")
            return
        if not seen.path.startswith("/v1/messages"):
            await wire.json(
                {"data": [{"type": "model", "id": "claude-raw"}], "path": seen.path},
                200,
                "request-id: req_raw",
            )
            return
        await super()._behave(seen, wire)

    def fault(self, seen: Seen) -> tuple[int, Any] | None:
        if seen.header("authorization"):
            return 401, error(
                "authentication_error", "OAuth authentication is currently not supported."
            )
        if not seen.header("x-api-key"):
            return 401, error("authentication_error", "x-api-key header is required")
        if not seen.header("anthropic-version"):
            return 400, error("invalid_request_error", "anthropic-version: header is required")
        try:
            if seen.path.startswith("/v1/messages"):
                check(seen.json)
                self.dropped += _bound(seen.json, BETA in (seen.header("anthropic-beta") or ""))
        except Refused as e:
            return 400, error("invalid_request_error", str(e))
        return None

    def message(self, seen: Seen, choices: list[Any]) -> dict[str, Any]:
        """The message of a script's answer."""
        if choices and "message" in choices[0]:
            content, reason = blocks_of(choices[0]), REASONS[choices[0]["finish_reason"]]
        else:
            content = choices
            reason = "tool_use" if any(b["type"] == "tool_use" for b in content) else "end_turn"
        content = [
            {**b, "signature": f"{b['signature']}.{_prefix(seen.json)}"}
            if b["type"] == "thinking"
            else b
            for b in content
        ]
        return {
            "id": f"msg_{self.n}",
            "type": "message",
            "role": "assistant",
            "model": seen.json["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {**USAGE, "output_tokens": 10},
        }

    async def _plain(self, seen: Seen, wire: Wire, choices: list[Any]) -> None:
        await wire.json(
            self.message(seen, choices),
            200,
            f"request-id: up-{self.n}",
            "anthropic-ratelimit-requests-remaining: 7",
        )

    async def _streamed(self, seen: Seen, wire: Wire, choices: list[Any]) -> None:
        await wire.start_stream(f"request-id: up-{self.n}")
        for event in events_of(self.message(seen, choices)):
            await wire.part(written(event))
        await wire.end()


def written(event: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (
        event["type"].encode(),
        json.dumps(event, ensure_ascii=False).encode(),
    )


def events_of(message: dict[str, Any], size: int = 7, ping: bool = True) -> list[dict[str, Any]]:
    """The events that stream a message, in the real order; texts in pieces of `size` characters."""
    begun = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**message["usage"], "output_tokens": 1},
    }
    out: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for i, block in enumerate(message["content"]):
        kind = block["type"]
        empty = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }.get(kind, {})
        out.append({"type": "content_block_start", "index": i, "content_block": {**block, **empty}})
        if ping and i == 0:
            out.append({"type": "ping"})
        told = {
            "text": ("text_delta", "text", block.get("text")),
            "thinking": ("thinking_delta", "thinking", block.get("thinking")),
            "tool_use": (
                "input_json_delta",
                "partial_json",
                json.dumps(block.get("input"), ensure_ascii=False, separators=(",", ":"))
                if block.get("input")
                else "",
            ),
        }
        name, member, text = told.get(kind, ("", "", ""))
        out += [
            {
                "type": "content_block_delta",
                "index": i,
                "delta": {"type": name, member: text[at : at + size]},
            }
            for at in range(0, len(text), size)
        ]
        if kind == "tool_use" and not text:
            out.append(
                {"type": "content_block_delta", "index": i, "delta": {"type": name, member: ""}}
            )
        if kind == "thinking":
            out.append(
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "signature_delta", "signature": block["signature"]},
                }
            )
        out.append({"type": "content_block_stop", "index": i})
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence")}
    return [
        *out,
        {"type": "message_delta", "delta": stop, "usage": message["usage"]},
        {"type": "message_stop"},
    ]


def check(body: Any) -> None:
    """Raises Refused, in the API's words."""
    need(isinstance(body, dict), "Input should be a valid dictionary")
    for name in body:
        need(name in MEMBERS, f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        need(name in body, f"{name}: Field required")
    need(
        isinstance(body["max_tokens"], int) and body["max_tokens"] > 0,
        "max_tokens: Input should be greater than or equal to 1",
    )
    need(0 <= body.get("temperature", 1) <= 1, "temperature: range: 0..1")
    need(
        not ("temperature" in body and "top_p" in body),
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
    )
    need(
        json.dumps(body).count('"cache_control": {') <= 4,
        "A maximum of 4 blocks with cache_control may be provided.",
    )
    system = body.get("system", [])
    for i, block in enumerate([] if isinstance(system, str) else system):
        need(block.get("type") == "text", f"system.{i}.type: Input should be 'text'")
        _block(block, f"system.{i}")
    _tools(body)
    _alternates(body["messages"])
    for i, message in enumerate(body["messages"]):
        for j, block in enumerate(message["content"]):
            _block(block, f"messages.{i}.content.{j}")
    _paired(body["messages"])
    last = body["messages"][-1]
    if last["role"] == "assistant" and last["content"][-1]["type"] == "text":
        need(
            last["content"][-1]["text"] == last["content"][-1]["text"].rstrip(),
            "messages: final assistant content cannot end with trailing whitespace",
        )


def need(holds: bool, words: str) -> None:
    if not holds:
        raise Refused(words)


def _tools(body: dict[str, Any]) -> None:
    for i, tool in enumerate(body.get("tools", [])):
        if tool.get("type", "custom") == "custom":
            need(
                set(tool)
                <= {"type", "name", "description", "input_schema", "cache_control", "strict"},
                f"tools.{i}.custom: Extra inputs are not permitted",
            )
            need(
                tool.get("input_schema", {}).get("type") == "object",
                f"tools.{i}.custom.input_schema.type: Field required",
            )
    choice = body.get("tool_choice")
    need(
        choice is None or bool(body.get("tools")),
        "tool_choice: may only be specified while providing tools",
    )
    need(
        choice is None or choice["type"] in ("auto", "any", "tool", "none"),
        "tool_choice: Input tag does not match any of the expected tags",
    )
    used = any(
        b["type"] in ("tool_use", "tool_result") for m in body["messages"] for b in m["content"]
    )
    need(
        not used or bool(body.get("tools")),
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
    )


def _alternates(messages: list[dict[str, Any]]) -> None:
    need(bool(messages), "messages: at least one message is required")
    need(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    for i, message in enumerate(messages):
        need(set(message) == {"role", "content"}, f"messages.{i}: Extra inputs are not permitted")
        need(
            message["role"] in ("user", "assistant"),
            f"messages.{i}.role: Input should be 'user' or 'assistant'",
        )
        need(
            i == 0 or messages[i - 1]["role"] != message["role"],
            'messages: roles must alternate between "user" and "assistant"',
        )
        need(bool(message["content"]), f"messages.{i}: all messages must have non-empty content")


def _block(block: dict[str, Any], where: str) -> None:
    kind = block.get("type")
    need(kind in BLOCKS, f"{where}: Input tag {kind!r} does not match any of the expected tags")
    need(
        set(block) <= BLOCKS[kind] | {"type", "cache_control"},
        f"{where}.{kind}: Extra inputs are not permitted",
    )
    if kind == "text":
        need(
            isinstance(block["text"], str) and bool(block["text"].strip()),
            "messages: text content blocks must contain non-whitespace text",
        )
    if kind == "tool_use":
        need(
            re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]) is not None,
            f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        )
        need(
            isinstance(block["input"], dict),
            f"{where}.tool_use.input: Input should be a valid dictionary",
        )
    if kind == "tool_result" and isinstance(block.get("content"), list):
        for i, inner in enumerate(block["content"]):
            _block(inner, f"{where}.content.{i}")


def _paired(messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for i, message in enumerate(messages):
        asked = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        need(
            not seen & set(asked) and len(set(asked)) == len(asked),
            "messages: `tool_use` ids must be unique",
        )
        seen |= set(asked)
        following = messages[i + 1]["content"] if i + 1 < len(messages) else []
        answered = [b["tool_use_id"] for b in following if b["type"] == "tool_result"]
        need(
            set(asked) <= set(answered),
            f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(asked)}.",
        )
        need(
            i + 1 == len(messages) or len(answered) == len(asked),
            f"messages.{i + 1}: unexpected `tool_use_id` found in `tool_result` blocks",
        )
        need(
            [b["type"] == "tool_result" for b in following]
            == [True] * len(answered) + [False] * (len(following) - len(answered)),
            f"messages.{i + 1}: Messages following `tool_use` blocks must begin with a matching "
            "number of `tool_result` blocks.",
        )
    need(
        not any(b["type"] == "tool_result" for b in messages[0]["content"]),
        "messages.0: unexpected `tool_use_id` found in `tool_result` blocks",
    )


def _prefix(body: dict[str, Any], upto: int | None = None) -> str:
    """A hash of what stands before a message: marks for the cache may move."""
    told = json.dumps([body.get("system"), body.get("tools"), body["messages"][:upto]]).replace(
        ', "cache_control": {"type": "ephemeral"}', ""
    )
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _bound(body: dict[str, Any], beta: bool) -> int:
    binding = (body.get("thinking") or {}).get("block_binding")
    need(binding is None or beta, "thinking.adaptive.block_binding: Extra inputs are not permitted")
    strays = (
        [
            f"messages.{i}"
            for i, m in enumerate(body["messages"])
            for b in m["content"]
            if b["type"] == "thinking" and b["signature"].partition(".")[2] != _prefix(body, i)
        ]
        if body["model"] in BOUND
        else []
    )
    need(
        not strays or binding == {"prefix_mismatch_behavior": "drop_block"},
        f"{', '.join(strays)}: Invalid `signature` in `thinking` block. The block is bound to a "
        "different conversation.",
    )
    return len(strays)
