"""Scripted upstreams of the Responses and Messages APIs, as strict as the vendors': the first body
that breaks a pairing rule fails the test.

A script is a list of answers, the last repeated. An answer is a list of parts (see `say`, `think`,
`use`), `(status, body)` for a refusal, or a function of (request, wire) that writes by itself.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.sockets import RawServer, Seen, Wire

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One part of an answer. kind: text, think or call."""

    kind: str
    text: str = ""
    name: str = ""
    arguments: Any = None
    extra: Any = None


def say(text: str) -> Part:
    return Part("text", text)


def think(text: str = "Hm.") -> Part:
    return Part("think", text)


def use(name: str, arguments: Any = None) -> Part:
    return Part("call", name=name, arguments=arguments or {})


def native(item: Json) -> Part:
    """A part in the API's own words."""
    return Part("native", extra=item)


class WireModel(RawServer):
    """What both upstreams share."""

    def __init__(self, *script: Any) -> None:
        super().__init__(self._behave)
        self.script = list(script)
        self.n = 0
        self.ids = itertools.count(1)
        self.faults: list[str] = []

    @property
    def bodies(self) -> list[Any]:
        return [r.json for r in self.requests if r.method == "POST"]

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        if exc[0] is None:
            assert not self.faults, self.faults

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        if seen.method == "POST" and seen.body:
            self.faults += [f"request {self.n + 1}: {f}" for f in self.check(seen.json)]
        if await self.serve_other(seen, wire):
            return
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.n += 1
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            found = answer(seen, wire)
            answer = await found if hasattr(found, "__await__") else found
            if answer is None:
                return
        if isinstance(answer, tuple):
            await wire.json(answer[1], answer[0], *answer[2:])
            return
        parts = [say(answer)] if isinstance(answer, str) else answer
        reply = self.reply(parts, seen.json)
        if not seen.json.get("stream"):
            await wire.json(reply, 200, f"x-request-id: up-{self.n}")
            return
        await wire.start_stream(f"x-request-id: up-{self.n}")
        for event in self.events(reply):
            await self.write_event(wire, event)
        await self.write_end(wire)
        await wire.end()

    async def write_event(self, wire: Wire, event: Json) -> None:
        await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    async def write_end(self, wire: Wire) -> None:
        """Write what follows the last event."""

    async def serve_other(self, seen: Seen, wire: Wire) -> bool:
        """Answer what is no turn; False for a turn."""
        return False

    def check(self, body: Json) -> Iterable[str]:
        """What is illegal in a request."""
        raise NotImplementedError

    def reply(self, parts: list[Part], body: Json) -> Json:
        raise NotImplementedError

    def events(self, reply: Json) -> Iterable[Json]:
        raise NotImplementedError


USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 110,
}


class ResponsesModel(WireModel):
    """OpenAI's Responses API. reasons: a reasoning item stands before every follower of it.

    streams: a stored response can be streamed again.
    """

    streams = False

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.stored: dict[str, list[Json]] = {}
        self.replies: dict[str, Json] = {}
        self.inputs: dict[str, list[Json]] = {}

    async def serve_other(self, seen: Seen, wire: Wire) -> bool:
        """The verbs on a stored response."""
        path = seen.path.partition("?")[0].partition("/responses/")[2]
        name, _, verb = path.partition("/")
        if not name or name in ("input_tokens", "compact"):
            return False
        if name not in self.replies:
            await wire.json({"error": {"message": "not found", "code": None}}, 404)
        elif seen.method == "DELETE":
            del self.replies[name]
            await wire.json({"id": name, "object": "response", "deleted": True})
        elif verb == "input_items":
            await wire.json({"object": "list", "data": self.inputs[name], "has_more": False})
        elif self.streams and "stream=true" in seen.path:
            await wire.start_stream()
            for event in self.events(self.replies[name]):
                await self.write_event(wire, event)
            await wire.end()
        else:
            await wire.json(self.replies[name])
        return True

    def check(self, body: Json) -> Iterable[str]:
        items = body.get("input")
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items or []
        before = body.get("previous_response_id")
        if before is not None:
            if before not in self.stored:
                yield f"unknown previous_response_id {before}"
            items = [*self.stored.get(before, ()), *items]
        known = {i["id"]: i for i in self.stored_items() if "id" in i}
        for item in items:
            if item.get("type") == "item_reference" and item["id"] not in known:
                yield f"a reference to no item: {item['id']}"
        items = [known.get(i.get("id"), i) if "type" in i else i for i in items]
        asked: list[str] = []
        for at, item in enumerate(items):
            kind = item.get("type", "message")
            if kind in ("function_call", "custom_tool_call"):
                asked.append(item["call_id"])
            elif kind in ("function_call_output", "custom_tool_call_output"):
                if item["call_id"] not in asked:
                    yield f"an output of no call: {item['call_id']}"
                else:
                    asked.remove(item["call_id"])
            elif kind == "message" and item.get("role") == "user" and asked:
                yield f"calls without outputs: {asked}"
            elif kind == "reasoning":
                follower = items[at + 1] if at + 1 < len(items) else {}
                if not self._follows(follower):
                    yield f"reasoning {item.get('id')} without its follower"
        if asked:
            yield f"calls without outputs: {asked}"
        names = [t.get("name") for t in body.get("tools") or () if t.get("name")]
        if len(set(names)) != len(names):
            yield f"a tool twice: {names}"

    def stored_items(self) -> list[Json]:
        """The items that it stores; what a request named by its id is none of them."""
        items = [i for kept in self.stored.values() for i in kept]
        return [i for i in items if i.get("type") != "item_reference"]

    def _follows(self, item: Json) -> bool:
        kind = item.get("type", "message")
        said = kind == "message" and item.get("role") == "assistant"
        return said or kind.endswith("_call") or kind == "reasoning"

    def reply(self, parts: list[Part], body: Json) -> Json:
        ident = f"resp_{next(self.ids)}"
        output = [self._item(p) for p in parts]
        cut = any(p.kind == "cut" for p in parts)
        reply = {
            "id": ident,
            "object": "response",
            "created_at": 1000 + self.n,
            "status": "queued" if body.get("background") else "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.get("instructions"),
            "model": body["model"],
            "output": [o for o in output if o],
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "background": body.get("background", False),
            "store": body.get("store", True),
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": [{"strict": True, **t} for t in body.get("tools") or []],
            "usage": USAGE,
        }
        if reply["store"]:
            items = body.get("input")
            items = [{"role": "user", "content": items}] if isinstance(items, str) else items or []
            before = self.stored.get(str(body.get("previous_response_id")), [])
            self.stored[ident] = [*before, *items, *reply["output"]]
            self.replies[ident], self.inputs[ident] = reply, items
        return reply

    def _item(self, part: Part) -> Json:
        n = next(self.ids)
        if part.kind == "think":
            summary = [{"type": "summary_text", "text": part.text}]
            return {
                "id": f"rs_{n}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": f"secret{n}",
            }
        if part.kind == "call":
            arguments = part.arguments
            return {
                "id": f"fc_{n}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{n}",
                "name": part.name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
            }
        if part.kind == "native":
            return part.extra
        if part.kind == "cut":
            return {}
        content = [{"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}]
        return {
            "id": f"msg_{n}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": content,
        }

    def events(self, reply: Json) -> Iterable[Json]:
        numbers = itertools.count()
        for event in self._events(reply):
            yield {**event, "sequence_number": next(numbers)}

    def _events(self, reply: Json) -> Iterable[Json]:
        begun = {**reply, "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        for index, item in enumerate(reply["output"]):
            where = {"item_id": item.get("id"), "output_index": index}
            if item["type"] == "message":
                yield _added(index, {**item, "status": "in_progress", "content": []})
                part = item["content"][0]
                where["content_index"] = 0
                empty = {**part, "text": ""}
                yield {"type": "response.content_part.added", **where, "part": empty}
                for word in pieces(part["text"]):
                    yield {"type": "response.output_text.delta", **where, "delta": word}
                yield {"type": "response.output_text.done", **where, "text": part["text"]}
                yield {"type": "response.content_part.done", **where, "part": part}
            elif item["type"] == "function_call":
                yield _added(index, {**item, "status": "in_progress", "arguments": ""})
                for piece in pieces(item["arguments"]):
                    kind = "response.function_call_arguments.delta"
                    yield {"type": kind, **where, "delta": piece}
                kind = "response.function_call_arguments.done"
                yield {"type": kind, **where, "arguments": item["arguments"]}
            else:
                yield _added(index, item)
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": f"response.{reply['status']}", "response": reply}


def _added(index: int, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def pieces(text: str, size: int = 5) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


MEMBERS = frozenset(
    """
    model max_tokens messages system tools tool_choice stream thinking metadata stop_sequences
    temperature top_k top_p service_tier container context_management mcp_servers output_config
    output_format
    """.split()  # noqa: SIM905
)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
THOUGHTS = ("thinking", "redacted_thinking")


class MessagesModel(WireModel):
    """Anthropic's Messages API.

    A signature stands for the very text that it came with; a call has an answer at the beginning
    of the next user message; what has no text is no text block; calls need tools beside them.
    """

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.signed: dict[str, str] = {}
        # Thinking is refused once something before it has changed.
        self.binds = False
        # What stood before it, by signature.
        self.before: dict[str, list[str]] = {}

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        if not seen.path.partition("?")[0].endswith("/messages/count_tokens"):
            await super()._behave(seen, wire)
            return
        body = seen.json
        self.faults += [f"count_tokens: {f}" for f in self.check({"max_tokens": 1, **body})]
        self.faults += [f"count_tokens: {m}" for m in ("max_tokens", "stream") if m in body]
        await wire.json({"input_tokens": tokens_of(body)})

    def check(self, body: Json) -> Iterable[str]:
        yield from (f"{name}: unknown member" for name in body if name not in MEMBERS)
        if not isinstance(body.get("max_tokens"), int):
            yield "max_tokens: field required"
        if (marks := json.dumps(body).count('"cache_control"')) > 4:
            yield f"{marks} cache marks"
        if body["messages"][0]["role"] != "user":
            yield "messages: the first is not the user's"
        yield from self._check_binding(body)
        system = body.get("system")
        yield from self._check_blocks(system if isinstance(system, list) else [])
        yield from self._check_messages(body)
        yield from self._check_tools(body)

    def _check_messages(self, body: Json) -> Iterable[str]:
        waiting: list[str] = []
        ids: list[str] = []
        for message in self._merged(body["messages"]):
            if set(message) - {"role", "content", "clear_at"}:
                yield f"a message with {sorted(message)}"
            blocks = message["content"]
            yield from self._check_blocks(blocks)
            if message["role"] == "user":
                yield from self._check_results(waiting, blocks)
                waiting = []
                continue
            if waiting:
                yield f"calls without results: {waiting}"
            if message["role"] == "assistant":
                waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
                ids += waiting
                asks = (body.get("thinking") or {}).get("type") == "enabled"
                if asks and waiting and blocks[0]["type"] not in THOUGHTS:
                    yield "a turn of calls that does not begin with its thinking"
        if waiting:
            yield f"calls without results: {waiting}"
        if len(set(ids)) != len(ids):
            yield f"an id twice: {ids}"
        if ids and not body.get("tools"):
            yield "calls in the messages, and no tools"

    def _check_binding(self, body: Json) -> Iterable[str]:
        binding = (body.get("thinking") or {}).get("block_binding") or {}
        if not self.binds or binding.get("prefix_mismatch_behavior") == "drop_block":
            return
        found = _prefix_of(body)
        for block in (b for m in self._merged(body["messages"]) for b in m["content"]):
            before = self.before.get(block.get("signature"), [])
            if found[: len(before)] != before:
                yield f"something before {block['signature']} has changed"

    def _check_blocks(self, blocks: list[Json]) -> Iterable[str]:
        for block in blocks:
            kind = block["type"]
            if kind == "text" and not block["text"]:
                yield "an empty text block"
            if kind == "text" and set(block) - {"type", "text", "cache_control", "citations"}:
                yield f"a text block with {sorted(block)}"
            if kind == "thinking" and self.signed.get(block["signature"]) != block["thinking"]:
                yield f"a signature of other thinking: {block}"
            if kind in THOUGHTS and "cache_control" in block:
                yield "a cache mark at thinking"
            if kind == "tool_use" and not isinstance(block["input"], dict):
                yield f"input that is no object: {block['input']!r}"
            if kind == "tool_use" and not NAME.fullmatch(block["id"]):
                yield f"an id that is none: {block['id']!r}"

    def _check_tools(self, body: Json) -> Iterable[str]:
        tools = body.get("tools") or []
        names = [t["name"] for t in tools]
        if len(set(names)) != len(names):
            yield f"a tool twice: {names}"
        yield from (f"tool {n!r}" for n in names if not NAME.fullmatch(n))
        yield from (f"tool {t['name']} without a schema" for t in tools if not _is_tool(t))
        choice = (body.get("tool_choice") or {}).get("type")
        if choice and not tools:
            yield "tool_choice without tools"
        if choice in ("any", "tool") and (body.get("thinking") or {}).get("type") == "enabled":
            yield "a forced tool with thinking"

    def _merged(self, messages: list[Json]) -> list[Json]:
        """Turns of one role that follow each other are one, as the API has it."""
        out: list[Json] = []
        for m in messages:
            content = m["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if out and out[-1]["role"] == m["role"] != "system":
                out[-1] = {**out[-1], "content": [*out[-1]["content"], *blocks]}
            else:
                out.append({**m, "content": list(blocks)})
        return out

    def _check_results(self, waiting: list[str], blocks: list[Json]) -> Iterable[str]:
        found = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if sorted(found) != sorted(waiting):
            yield f"results {found} for calls {waiting}"
        kinds = [b["type"] == "tool_result" for b in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield "a result after another block"
        if not blocks:
            yield "an empty message"

    def reply(self, parts: list[Part], body: Json) -> Json:
        content = [b for b in (self._block(p) for p in parts) if b]
        prefix = _prefix_of(body)
        self.before |= {b["signature"]: prefix for b in content if "signature" in b}
        calls = any(b["type"] == "tool_use" for b in content)
        reason = next((p.text for p in parts if p.kind == "stop"), None)
        return {
            "id": f"msg_{next(self.ids)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": reason or ("tool_use" if calls else "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": tokens_of(body) - CACHED,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": CACHED,
                "output_tokens": 10 + self.n,
                "service_tier": "standard",
            },
        }

    def _block(self, part: Part) -> Json:
        n = next(self.ids)
        if part.kind == "think":
            self.signed[f"sig{n}"] = part.text
            return {"type": "thinking", "thinking": part.text, "signature": f"sig{n}"}
        if part.kind == "call":
            told = part.arguments
            return {"type": "tool_use", "id": f"toolu_{n}", "name": part.name, "input": told}
        if part.kind == "native":
            return part.extra
        if part.kind == "stop":
            return {}
        return {"type": "text", "text": part.text}

    def events(self, reply: Json) -> Iterable[Json]:
        usage = {**reply["usage"], "output_tokens": 1}
        start = {**reply, "content": [], "stop_reason": None, "usage": usage}
        yield {"type": "message_start", "message": start}
        yield {"type": "ping"}
        for index, block in enumerate(reply["content"]):
            begun, deltas = self._taken_apart(block)
            yield {"type": "content_block_start", "index": index, "content_block": begun}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        ending = {k: reply[k] for k in ("stop_reason", "stop_sequence")}
        told = {"output_tokens": reply["usage"]["output_tokens"]}
        yield {"type": "message_delta", "delta": ending, "usage": told}
        yield {"type": "message_stop"}

    def _taken_apart(self, block: Json) -> tuple[Json, list[Json]]:
        if block["type"] == "text":
            words = [{"type": "text_delta", "text": w} for w in pieces(block["text"])]
            cited = [
                {"type": "citations_delta", "citation": c} for c in block.get("citations") or ()
            ]
            begun = {**block, "text": ""}
            return {**begun, "citations": []} if cited else begun, [*words, *cited]
        if block["type"] in ("tool_use", "server_tool_use"):
            told = block["input"]
            text = told if isinstance(told, str) else json.dumps(told) if told else ""
            # The API begins with an empty piece; of a call without arguments it is the only one.
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(text)]]
            return {**block, "input": {}}, deltas
        if block["type"] == "thinking":
            told = [{"type": "thinking_delta", "thinking": w} for w in pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*told, signature]
        return block, []


# Of every prompt's tokens.
CACHED = 30


def tokens_of(body: Json) -> int:
    """The tokens of a prompt, as this API counts them: a cache mark costs nothing."""
    prompt = [body.get(name) for name in ("system", "tools", "messages")]
    return CACHED + len(json.dumps(prompt)) // 4


def _prefix_of(body: Json) -> list[str]:
    """A prompt block by block, its cache marks aside."""
    system = body.get("system")
    system = [{"type": "text", "text": system}] if isinstance(system, str) else system or []
    out = [json.dumps(["system", _unmarked(b)]) for b in system]
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        out += [json.dumps([message["role"], _unmarked(b)], sort_keys=True) for b in blocks]
    return out


def _unmarked(block: Json) -> Json:
    return {k: v for k, v in block.items() if k != "cache_control"}


def _is_tool(tool: Json) -> bool:
    return isinstance(tool.get("input_schema"), dict) or "type" in tool


def cut() -> Part:
    """The answer ends in the middle of it."""
    return Part("cut")


def stop(reason: str) -> Part:
    """The reason a message stops for."""
    return Part("stop", reason)


def sse(text: str) -> list[Json]:
    """The events of a stream, each with a line that says its type."""
    out = []
    for block in text.split("\n\n"):
        if block.strip() and not block.startswith(":"):
            name, data = block.split("\n", 1)
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}", block
            out.append(event)
    return out
