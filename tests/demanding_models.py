"""Servers of chat completions that want back what they said beside the model's words, in the shape
of DeepSeek, Gemini and OpenRouter. They give every answer's calls the same ids, as some servers do;
a body without what they want is a fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from tests.chat_only_model import ChatOnlyModel
from tests.wire_models import Json, Part, pieces


class DemandingModel(ChatOnlyModel):
    """given: what was said beside the calls of each answer, by these calls."""

    def __init__(self, *script, kind: str = "vllm") -> None:
        super().__init__(*script, kind=kind)
        self.given: dict[str, Json] = {}

    def check(self, body: Json) -> Iterable[str]:
        yield from super().check(body)
        users = [n for n, m in enumerate(body["messages"]) if m["role"] == "user"]
        for message in body["messages"][users[-1] :]:
            wanted = self.given.get(_calls_of(message))
            beside = self.beside(message)
            if message.get("tool_calls") and wanted is None:
                yield f"calls that were never made: {message['tool_calls']}"
            elif wanted is not None and beside != wanted:
                yield f"400: {type(self).__name__} wants {wanted}, not {beside}"

    def reply(self, parts: list[Part], body: Json) -> Json:
        reply = super().reply(parts, body)
        message = reply["choices"][0]["message"]
        for place, call in enumerate(message.get("tool_calls") or ()):
            call["id"] = f"call_{place}"
        self.add(message)
        if message.get("tool_calls"):
            self.given[_calls_of(message)] = self.beside(message)
        return reply

    def add(self, message: Json) -> None:
        """Add what is said beside the words."""

    def beside(self, message: Json) -> Json:
        """What of a message is wanted back."""
        raise NotImplementedError


class DeepSeekModel(DemandingModel):
    def add(self, message: Json) -> None:
        message["reasoning_content"] = f"I think of {_digest(message)}."

    def beside(self, message: Json) -> Json:
        return {"reasoning_content": message.get("reasoning_content")}


class GeminiModel(DemandingModel):
    """The first call of an answer is signed; nothing is said of the thoughts."""

    def add(self, message: Json) -> None:
        message.pop("reasoning_content", None)
        for call in (message.get("tool_calls") or ())[:1]:
            signature = f"signature of {_digest(message)}"
            call["extra_content"] = {"google": {"thought_signature": signature}}

    def beside(self, message: Json) -> Json:
        calls = message.get("tool_calls") or ()
        return {"calls": [c.get("extra_content") for c in calls]}


class OpenRouterModel(DemandingModel):
    def add(self, message: Json) -> None:
        text = f"I think of {_digest(message)}."
        message["reasoning"] = text
        message.pop("reasoning_content", None)
        message["reasoning_details"] = [
            {"type": "reasoning.summary", "summary": text, "format": "x-v1", "index": 0},
            {"type": "reasoning.encrypted", "data": f"!{text}", "id": "rs_1", "index": 0},
        ]

    def beside(self, message: Json) -> Json:
        return {m: message.get(m) for m in ("reasoning", "reasoning_details")}

    def events(self, reply: Json) -> Iterable[Json]:
        """The details come beside the pieces of the reasoning; what is encrypted comes last."""
        message = reply["choices"][0]["message"]
        summary, encrypted = message["reasoning_details"]
        chunks = [*super().events(reply)]
        yield chunks[0]
        for piece in pieces(message["reasoning"]):
            told = {"reasoning": piece, "reasoning_details": [{**summary, "summary": piece}]}
            yield self._chunk(reply, told)
        yield self._chunk(reply, {"reasoning": None, "reasoning_details": [encrypted]})
        yield from chunks[1:]


SERVERS = (DeepSeekModel, GeminiModel, OpenRouterModel)


def _digest(message: Json) -> str:
    """What tells answers apart, without a name that the client must not see."""
    return hashlib.sha256(_calls_of(message).encode()).hexdigest()


def _calls_of(message: Json) -> str:
    calls = message.get("tool_calls") or ()
    functions = [c["function"] for c in calls]
    told = [[f["name"], json.loads(f["arguments"])] for f in functions]
    return json.dumps(told, sort_keys=True) if told else ""
