"""A scripted model on a real socket: each request is answered by the next entry of its script,
stream or plain as asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.sockets import RawServer, Seen, Wire

Script = list[Any]
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def call(name: str, arguments: Any = None, ident: str = "") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {
        "id": ident or f"call_{name}",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def calls(
    *found: dict[str, Any], content: str | None = None, finish: str = "tool_calls"
) -> dict[str, Any]:
    return {
        "message": {"role": "assistant", "content": content, "tool_calls": list(found)},
        "finish_reason": finish,
    }


def text(content: str, finish: str = "stop") -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}, "finish_reason": finish}


class Model(RawServer):
    """script: answers in order, the last repeated.

    An answer is a choice (see `text`, `calls`), a list of choices, a string, `(status, body)` for a
    refusal, or a function of (request, wire) that gives one, or None where it wrote by itself; it
    may be asynchronous.
    """

    # Characters of arguments in an event.
    argument_piece = 7

    def __init__(self, *script: Any) -> None:
        super().__init__(self._behave)
        self.script = list(script)
        self.n = 0

    @property
    def bodies(self) -> list[Any]:
        return [r.json for r in self.requests if r.path.endswith("/chat/completions")]

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.n += 1
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(seen, wire)
            if hasattr(answer, "__await__"):
                answer = await answer
            # It wrote by itself.
            if answer is None:
                return
        if isinstance(answer, str):
            answer = text(answer)
        if isinstance(answer, tuple):
            await wire.json(answer[1], answer[0], *answer[2:])
            return
        choices = answer if isinstance(answer, list) else [answer]
        await (self._streamed if seen.json.get("stream") else self._plain)(seen, wire, choices)

    def _head(self, kind: str, seen: Seen) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.n}",
            "object": kind,
            "created": 1000 + self.n,
            "model": seen.json["model"],
        }

    async def _plain(self, seen: Seen, wire: Wire, choices: list[Any]) -> None:
        body = {
            **self._head("chat.completion", seen),
            "choices": [{"index": i, **c} for i, c in enumerate(choices)],
            "usage": USAGE,
        }
        await wire.json(body, 200, f"x-request-id: up-{self.n}")

    async def _streamed(self, seen: Seen, wire: Wire, choices: list[Any]) -> None:
        head = self._head("chat.completion.chunk", seen)

        async def delta(lane: int, part: dict[str, Any], finish: str | None = None) -> None:
            await wire.event(
                {**head, "choices": [{"index": lane, "delta": part, "finish_reason": finish}]}
            )

        await wire.start_stream(f"x-request-id: up-{self.n}")
        for lane, choice in enumerate(choices):
            message = choice["message"]
            await delta(lane, {"role": "assistant", "content": ""})
            if thought := message.get("reasoning_content"):
                await delta(lane, {"reasoning_content": thought})
            for word in (message.get("content") or "").replace(" ", " \x00").split("\x00"):
                if word:
                    await delta(lane, {"content": word})
            for i, c in enumerate(message.get("tool_calls") or []):
                await delta(
                    lane,
                    {
                        "tool_calls": [
                            {
                                "index": i,
                                **c,
                                "function": {"name": c["function"]["name"], "arguments": ""},
                            }
                        ]
                    },
                )
                arguments = c["function"]["arguments"]
                for at in range(0, len(arguments), self.argument_piece):
                    await delta(
                        lane,
                        {
                            "tool_calls": [
                                {
                                    "index": i,
                                    "function": {
                                        "arguments": arguments[at : at + self.argument_piece]
                                    },
                                }
                            ]
                        },
                    )
            await delta(lane, {}, choice["finish_reason"])
        if (seen.json.get("stream_options") or {}).get("include_usage"):
            await wire.event({**head, "choices": [], "usage": USAGE})
        await wire.event(b"[DONE]")
        await wire.end()
