"""A scripted server that speaks chat completions alone, as strict as local servers' templates: the
first body that one of them would refuse fails the test.

A script is as `wire_models` has it: parts (`say`, `think`, `use`), `(status, body)`, a function.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.sockets import Seen, Wire
from tests.wire_models import Json, Part, WireModel, pieces

MEMBERS = frozenset(
    """
    model messages stream stream_options temperature top_p user metadata max_tokens tools
    max_completion_tokens tool_choice parallel_tool_calls reasoning_effort response_format stop
    """.split()  # noqa: SIM905
)
# How servers say that they have no such path.
NO_PATH: dict[str, tuple[int, Any]] = {
    "ollama": (404, None),
    "llama.cpp": (404, {"error": {"code": 404, "message": "File Not Found"}}),
    "vllm": (404, {"detail": "Not Found"}),
    "openai": (404, {"error": {"message": "Invalid URL (POST /v1/messages)", "code": None}}),
    "other": (405, {"detail": "Method Not Allowed"}),
}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 40},
}


class ChatOnlyModel(WireModel):
    """kind: how it says that it has no such path."""

    def __init__(self, *script: Any, kind: str = "vllm") -> None:
        super().__init__(*script)
        self.kind = kind
        # Paths that it has not.
        self.refused: list[str] = []

    @property
    def bodies(self) -> list[Any]:
        return [r.json for r in self.requests if r.path.endswith("/chat/completions")]

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        if seen.path.endswith("/chat/completions"):
            await super()._behave(seen, wire)
            return
        self.refused.append(seen.path)
        status, body = NO_PATH[self.kind]
        if body is None:
            await wire.answer(status, b"404 page not found", "content-type: text/plain")
        else:
            await wire.json(body, status)

    def check(self, body: Json) -> Iterable[str]:
        yield from (f"{name}: unknown member" for name in body if name not in MEMBERS)
        yield from self._check_messages(body["messages"])
        names = [t["function"]["name"] for t in body.get("tools") or ()]
        if len(set(names)) != len(names):
            yield f"a tool twice: {names}"
        if "tool_choice" in body and not names:
            yield "tool_choice without tools"
        if body.get("stream") and not body.get("stream_options"):
            yield "a stream without usage"

    def _check_messages(self, messages: list[Json]) -> Iterable[str]:
        waiting: list[str] = []
        before = ""
        for at, message in enumerate(messages):
            role, content = message["role"], message["content"]
            if role == "system" and at:
                yield "a system message that is not the first"
            if role == before and role != "tool":
                yield f"two messages of one role: {role}"
            if waiting and role != "tool":
                yield f"calls without results: {waiting}"
            if role == "tool":
                if message["tool_call_id"] not in waiting:
                    yield f"a result of no call: {message}"
                else:
                    waiting.remove(message["tool_call_id"])
            calls = message.get("tool_calls") or []
            waiting += [c["id"] for c in calls]
            if content is None and not calls:
                yield "a message of nothing"
            for call in calls:
                json.loads(call["function"]["arguments"])
            before = role
        if waiting:
            yield f"calls without results: {waiting}"

    def reply(self, parts: list[Part], body: Json) -> Json:
        calls = [self._call(p) for p in parts if p.kind == "call"]
        message: Json = {"role": "assistant", "content": None}
        for kind, member in (("text", "content"), ("think", "reasoning_content")):
            if texts := [p.text for p in parts if p.kind == kind]:
                message[member] = "".join(texts)
        if calls:
            message["tool_calls"] = calls
        finish = next((p.text for p in parts if p.kind == "stop"), None)
        finish = finish or ("tool_calls" if calls else "stop")
        return {
            "id": f"chatcmpl-{self.n}",
            "object": "chat.completion",
            "created": 1000 + self.n,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": USAGE,
        }

    def _call(self, part: Part) -> Json:
        told = part.arguments
        arguments = told if isinstance(told, str) else json.dumps(told)
        function = {"name": part.name, "arguments": arguments}
        return {"id": f"call_{next(self.ids)}", "type": "function", "function": function}

    def events(self, reply: Json) -> Iterable[Json]:
        """The chunks of an answer, without the type that other formats' events have."""
        choice = reply["choices"][0]
        message = choice["message"]
        yield self._chunk(reply, {"role": "assistant", "content": ""})
        for member in ("reasoning_content", "content"):
            for piece in pieces(message.get(member) or ""):
                yield self._chunk(reply, {member: piece})
        for index, call in enumerate(message.get("tool_calls") or ()):
            function = {"name": call["function"]["name"], "arguments": ""}
            yield self._chunk(
                reply, {"tool_calls": [{**call, "index": index, "function": function}]}
            )
            for piece in pieces(call["function"]["arguments"]):
                more = {"index": index, "function": {"arguments": piece}}
                yield self._chunk(reply, {"tool_calls": [more]})
        yield self._chunk(reply, {}, choice["finish_reason"])
        yield {**self._chunk(reply, {}), "choices": [], "usage": reply["usage"]}

    def _chunk(self, reply: Json, delta: Json, finish: str | None = None) -> Json:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {**reply, "object": "chat.completion.chunk", "choices": choices, "usage": None}

    async def write_event(self, wire: Wire, event: Json) -> None:
        await wire.event(event)

    async def write_end(self, wire: Wire) -> None:
        await wire.part(b"data: [DONE]\n\n")
